"""The chart makes what the manifests hold, and its values change what they say they change."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from multus.protocol import daemon_config, primary_settings
from tests.deployments.manifests import FOLDER, WAYS, Document, by_identity, documents, read, tool

CHART = FOLDER / "helm" / "multus"
VALUES: dict[str, dict[str, Any]] = {
    "thick": {},
    "thin": {"type": "thin"},
    "crio": {"type": "thin", "cniBinDir": "/usr/libexec/cni"},
    "thick-certificates": {"certificates": {"enabled": True}},
    "thin-certificates": {"type": "thin", "certificates": {"enabled": True}},
}
"""What makes each manifest."""


def template(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    command = (tool("helm"), "template", "multus", str(CHART), "--namespace", "kube-system", "--values", "-")
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, timeout=60, check=False)


def objects(values: dict[str, Any]) -> dict[tuple[str, str], Document]:
    done = template(values)
    assert done.returncode == 0, done.stderr
    return comparable(read(done.stdout))


def comparable(found: list[Document]) -> dict[tuple[str, str], Document]:
    """By kind and name; what has no order, and JSON in text, as it is meant."""
    for document in found:
        if document["kind"] == "ConfigMap":
            document["data"] = {name: json.loads(text) for name, text in document["data"].items()}
        if "template" in document.get("spec", {}):
            pod = document["spec"]["template"]["spec"]
            for each in (pod, *pod.get("initContainers", []), *pod["containers"]):
                for key in ("volumes", "volumeMounts", "containers"):
                    if key in each:
                        each[key].sort(key=lambda item: (item["name"], item.get("mountPath", "")))
    return by_identity(found)


def test_each_manifest_has_its_values() -> None:
    assert VALUES.keys() == set(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_the_chart_makes_the_manifest(way: str) -> None:
    assert objects(VALUES[way]) == comparable(documents(way))


def test_the_definition_is_outside_of_the_release() -> None:
    """Helm installs what is in ``crds``, and neither changes nor removes it afterwards."""
    (copied,) = (CHART / "crds").iterdir()
    assert copied.read_bytes() == (FOLDER / "crd" / copied.name).read_bytes()
    assert "CustomResourceDefinition" not in {kind for kind, _ in objects({})}


def test_values_reach_their_places() -> None:
    made = objects(
        {
            "image": {"repository": "registry.test:5000/ours", "tag": "1.2.3", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "key"}],
            "daemonConfig": {"cniVersion": "1.1.0", "metricsPort": 9091},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            "cniBinDir": "/usr/libexec/cni",
        }
    )
    pod = made["DaemonSet", "kube-multus-ds"]["spec"]["template"]["spec"]
    both = [*pod["initContainers"], *pod["containers"]]
    assert {(each["image"], each["imagePullPolicy"]) for each in both} == {("registry.test:5000/ours:1.2.3", "Always")}
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "2Gi"}
    assert made["ServiceAccount", "multus"]["imagePullSecrets"] == [{"name": "key"}]
    config = made["ConfigMap", "multus-daemon-config"]["data"]["daemon-config.json"]
    assert config["cniVersion"] == "1.1.0"
    assert config["metricsPort"] == 9091
    assert config["binDir"] == "/usr/libexec/cni"
    assert daemon_config.from_document(config, "chart", 2).warnings == ()
    primary_settings.from_document(config, "chart")


def test_folders_of_the_daemon_are_the_charts() -> None:
    """They belong to the mounts."""
    made = objects({"daemonConfig": {"socketDir": "/elsewhere", "chrootDir": "/elsewhere"}})
    config = made["ConfigMap", "multus-daemon-config"]["data"]["daemon-config.json"]
    assert (config["socketDir"], config["chrootDir"]) == ("/host/run/multus/", "/hostroot")


def test_further_arguments_of_the_entry_point_come_last() -> None:
    made = objects({"type": "thin", "thinArguments": ["--namespace-isolation=true"]})
    (main,) = made["DaemonSet", "kube-multus-ds"]["spec"]["template"]["spec"]["containers"]
    assert main["args"][-1] == "--namespace-isolation=true"


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"type": "thik"}, "type"),
        ({"certificate": {"enabled": True}}, "certificate"),
        ({"cniBinDir": "opt/cni/bin"}, "cniBinDir"),
        ({"image": {"repository": ""}}, "repository"),
    ],
)
def test_a_value_that_means_nothing_is_refused(values: dict[str, Any], named: str) -> None:
    done = template(values)
    assert (done.returncode != 0, named in done.stderr) == (True, True)


def test_every_value_is_explained() -> None:
    """By a comment above it."""
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    keys = yaml.safe_load("\n".join(lines)).keys()
    for index, line in enumerate(lines):
        if line.partition(":")[0] in keys and line.partition(":")[0] != "imagePullSecrets":
            assert lines[index - 1].startswith("#"), line


def test_the_chart_passes_helms_own_check() -> None:
    done = subprocess.run((tool("helm"), "lint", "--strict", str(CHART)), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
