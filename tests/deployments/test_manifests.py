"""The manifests are what the Kubernetes API takes, come from one source, and ask for no more than is needed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest

from tests.deployments.manifests import (
    CERTIFICATES,
    FOLDER,
    MANIFESTS,
    ROOT,
    THICK,
    WAYS,
    Container,
    Document,
    by_identity,
    containers,
    documents,
    every_container,
    of_kind,
    pods,
    read,
    run,
    tool,
)

RELEASES = ("1.29", "1.33", "1.37")
"""Of Kubernetes, whose API the manifests are held to; resource.k8s.io/v1 is of 1.34."""


def test_there_is_a_manifest_for_each_way_and_one_for_the_definition() -> None:
    assert sorted(MANIFESTS) == ["crd", "crio", "thick", "thick-certificates", "thin", "thin-certificates"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", MANIFESTS)
def test_the_api_takes_every_object(name: str, release: str) -> None:
    """The schema of the release knows each field and its type, and no field is unknown to it."""
    for document in documents(name):
        assert kubernetes_validate.validate(document, release, strict=True) == release


def test_a_field_that_the_api_does_not_know_is_refused() -> None:
    """So the test above can fail."""
    (daemon_set,) = of_kind("thick", "DaemonSet")
    daemon_set["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(daemon_set, RELEASES[-1], strict=True)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the folder's sources, without the manifests that are made of them."""
    tool("kubectl")
    folder = tmp_path_factory.mktemp("rendered")
    for name in ("base", "components", "crd", "overlays"):
        shutil.copytree(FOLDER / name, folder / name)
    return folder


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_is_what_its_sources_make(rendered: Path, name: str) -> None:
    """``deployments/render`` writes them; the objects are compared, since releases of kubectl lay the text out differently."""
    source = rendered / "crd" if name == "crd" else rendered / "overlays" / name
    made = read(run(tool("kubectl"), "kustomize", str(source)))
    assert by_identity(documents(name)) == by_identity(made), "run deployments/render"
    assert len(documents(name)) == len(made)


def test_the_image_is_named_in_one_place(rendered: Path) -> None:
    """Whoever changes it there changes it in every container."""
    place = rendered / "components" / "images" / "kustomization.yaml"
    text = place.read_text(encoding="utf-8")
    place.write_text(text.replace("registry.example.com/multus", "registry.test:5000/ours"), encoding="utf-8")
    for way in WAYS:
        made = run(tool("kubectl"), "kustomize", str(rendered / "overlays" / way))
        images = re.findall(r"image: (.*)", made)
        assert len(images) == len(containers(way))
        assert {image.rpartition(":")[0] for image in images} == {"registry.test:5000/ours"}
    place.write_text(text, encoding="utf-8")


def test_the_image_has_the_version_of_the_project() -> None:
    found = re.search(r"^version = (.+)$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert found is not None
    images = {each.document["image"] for way in WAYS for each in containers(way)}
    assert images == {f"registry.example.com/multus:{found[1]}"}


# --- The definition of net-attach-defs ---


def test_the_definition_is_the_standards() -> None:
    (definition,) = documents("crd")
    spec = definition["spec"]
    assert definition["metadata"]["name"] == "network-attachment-definitions.k8s.cni.cncf.io"
    assert (spec["group"], spec["scope"], spec["names"]["kind"]) == ("k8s.cni.cncf.io", "Namespaced", "NetworkAttachmentDefinition")
    assert spec["names"]["shortNames"] == ["nad", "net-attach-def"]
    (version,) = spec["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1", True, True)
    schema = version["schema"]["openAPIV3Schema"]
    assert "required" not in schema, "the configuration may be a file of the node"
    assert schema["properties"]["spec"]["properties"]["config"]["type"] == "string"
    assert [column["name"] for column in version["additionalPrinterColumns"]] == ["Resource", "Age"]


def test_the_definition_stays_when_a_way_is_removed() -> None:
    """With it all net-attach-defs would go."""
    for way in WAYS:
        assert of_kind(way, "CustomResourceDefinition") == []
    assert documents("crd")[0]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


# --- Permissions ---


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("way", WAYS)
def test_no_role_names_everything(way: str) -> None:
    roles = of_kind(way, "ClusterRole")
    assert roles
    assert [text for role in roles for text in texts(role["rules"]) if "*" in text] == []
    assert [role["metadata"]["name"] for role in roles if "aggregationRule" in role] == []


@pytest.mark.parametrize("way", WAYS)
def test_no_role_reads_secrets_or_changes_workloads(way: str) -> None:
    rules = [rule for role in of_kind(way, "ClusterRole") for rule in role["rules"]]
    changing = {"create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate", "approve"}
    changed = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"] if verb in changing}
    allowed = {("pods/status", "patch"), ("events", "create")}
    if way in CERTIFICATES:
        allowed |= {
            ("certificatesigningrequests", "create"), ("certificatesigningrequests/approval", "update"), ("signers", "approve"),
        }  # fmt: skip
    assert changed == allowed
    assert "secrets" not in {resource for rule in rules for resource in rule["resources"]}


@pytest.mark.parametrize("way", WAYS)
def test_a_binding_joins_a_role_and_a_subject_that_exist(way: str) -> None:
    accounts = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in of_kind(way, "ServiceAccount")}
    roles = {each["metadata"]["name"] for each in of_kind(way, "ClusterRole")}
    bindings = of_kind(way, "ClusterRoleBinding")
    assert {binding["roleRef"]["name"] for binding in bindings} == roles
    for subject in [subject for binding in bindings for subject in binding["subjects"]]:
        if subject["kind"] == "ServiceAccount":
            assert (subject["namespace"], subject["name"]) in accounts
        else:
            assert (subject["kind"], subject["name"], way in CERTIFICATES) == ("Group", "system:multus", True)
    assert {(document["metadata"].get("namespace"), pod["serviceAccountName"]) for document, pod in workloads(way)} == accounts


def workloads(way: str) -> list[tuple[Document, Document]]:
    found = by_identity(documents(way))
    return [
        (next(found[key] for key in found if key[1] == name and "template" in found[key].get("spec", {})), pod) for name, pod in pods(way)
    ]


@pytest.mark.parametrize("way", CERTIFICATES)
def test_with_certificates_the_service_account_has_no_rights(way: str) -> None:
    """They are the certificates' alone: a token that somebody takes from a node opens nothing."""
    subjects = [subject for binding in of_kind(way, "ClusterRoleBinding") for subject in binding["subjects"]]
    assert "multus" not in {subject["name"] for subject in subjects if subject["kind"] == "ServiceAccount"}


# --- Pods ---


@pytest.mark.parametrize("each", every_container())
def test_resources_are_asked_for_and_only_memory_is_limited(each: Container) -> None:
    resources = each.document["resources"]
    assert set(resources["requests"]) == {"cpu", "memory"}
    assert set(resources["limits"]) == {"memory"}, "a limit on CPU throttles a burst of pods"


@pytest.mark.parametrize("each", every_container())
def test_a_container_may_do_what_it_must(each: Container) -> None:
    assert each.security["readOnlyRootFilesystem"] is True
    is_daemon = each.way in THICK and each.name == "kube-multus"
    assert each.security.get("privileged", False) is is_daemon
    if is_daemon:
        return
    assert each.security["allowPrivilegeEscalation"] is False
    assert each.security["seccompProfile"] == {"type": "RuntimeDefault"}
    capabilities = each.security["capabilities"]
    assert capabilities["drop"] == ["ALL"]
    assert set(capabilities.get("add", [])) <= {"DAC_OVERRIDE"}
    if each.owner == "multus-cert-approver":
        assert (each.security["runAsNonRoot"], each.document.get("volumeMounts")) == (True, None)


@pytest.mark.parametrize("each", every_container())
def test_mounts_and_volumes_fit(each: Container) -> None:
    volumes = {volume["name"]: volume for volume in each.pod.get("volumes", [])}
    for mount in each.document.get("volumeMounts", []):
        assert mount["name"] in volumes
        assert mount.get("mountPropagation") != "Bidirectional", "nothing that we mount is to reach the host"
    for volume in volumes.values():
        assert "hostPath" not in volume or volume["hostPath"]["type"] in ("Directory", "DirectoryOrCreate", "File")


@pytest.mark.parametrize("way", WAYS)
def test_no_volume_is_there_in_vain(way: str) -> None:
    for _, pod in pods(way):
        used = {
            mount["name"] for key in ("initContainers", "containers") for each in pod.get(key, []) for mount in each.get("volumeMounts", [])
        }
        assert used == {volume["name"] for volume in pod.get("volumes", [])}


@pytest.mark.parametrize("way", WAYS)
def test_a_node_gets_multus_before_others_and_keeps_it(way: str) -> None:
    (daemon_set,) = of_kind(way, "DaemonSet")
    assert daemon_set["spec"]["selector"] == {"matchLabels": {"name": "multus"}}, "the Go implementation's; it cannot be changed"
    assert daemon_set["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    pod = daemon_set["spec"]["template"]["spec"]
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["hostNetwork"] is True
    assert pod["tolerations"] == [{"operator": "Exists", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    assert "nodeSelector" not in pod


@pytest.mark.parametrize("way", WAYS)
def test_every_object_is_in_the_systems_namespace(way: str) -> None:
    namespaces = {document["metadata"].get("namespace") for document in documents(way) if not document["kind"].startswith("ClusterRole")}
    assert namespaces == {"kube-system"}


@pytest.mark.parametrize("way", CERTIFICATES)
def test_the_approver_needs_no_pod_network(way: str) -> None:
    """Which may wait for a certificate that nobody else approves."""
    (deployment,) = of_kind(way, "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert (deployment["spec"]["replicas"], pod["hostNetwork"], pod["priorityClassName"]) == (1, True, "system-cluster-critical")
    assert "node.kubernetes.io/not-ready" in {each["key"] for each in pod["tolerations"]}
