"""docs/deployment.md says what the manifests hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from tests.deployments.manifests import FOLDER, MANIFESTS, ROOT, Document, container, of_kind

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
WAY = {"the daemon": "thick-certificates", "the thin plugin": "thin-certificates", "both": "thick-certificates"}


def rows(heading: str) -> list[list[str]]:
    """The table below a heading, without its own."""
    text = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def permissions(roles: list[Document]) -> Iterator[tuple[str, str, str, str]]:
    for role in roles:
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    yield role["metadata"]["name"], group, resource, ", ".join(rule["verbs"])


def test_the_table_of_permissions_is_the_roles() -> None:
    documented: dict[str, set[tuple[str, str, str, str]]] = {way: set() for way in ("thick-certificates", "thin-certificates")}
    for role, of, group, resource, verbs in rows("Permissions"):
        entry = (role.strip("`"), re.sub(r"[^a-z0-9.]", "", group), resource.split("`")[1], verbs)
        for way in documented:
            if of not in ("the daemon", "the thin plugin") or way == WAY[of]:
                documented[way].add(entry)
    for way, entries in documented.items():
        assert entries == set(permissions(of_kind(way, "ClusterRole")))


def test_the_table_of_mounts_is_the_daemons() -> None:
    each = container("thick-certificates", "kube-multus")
    documented = {}
    for host, inside, propagation, _ in rows("Mounts of the daemon"):
        path = host.strip("`")
        documented[path if inside == "the same" else inside.strip("`")] = (path, propagation == "from the host")
    mounts = each.document["volumeMounts"]
    expected = {
        mount["mountPath"]: (each.host_path(mount["mountPath"]), mount.get("mountPropagation") == "HostToContainer")
        for mount in mounts
        if each.host_path(mount["mountPath"]) is not None
    }
    assert documented == expected


def test_every_manifest_and_every_step_of_the_image_is_listed() -> None:
    listed = {name for row in rows("Apply") for name in re.findall(r"`multus-([\w-]+)\.yaml`", row[0])}
    assert listed == MANIFESTS.keys()
    assert [row[0].strip("`") for row in rows("The image")] == ["environment", "bundle", "root", "timestamps"]
    assert {path.name for path in (FOLDER / "image").iterdir()} == {
        "Dockerfile", "Dockerfile.dockerignore", "build", "bundle", "constraints.txt", "environment", "pin", "root", "timestamps",
    }  # fmt: skip


def test_memory_is_as_documented() -> None:
    resources = container("thick", "kube-multus").document["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == ("64Mi", "256Mi")
    assert "the daemon 64 MiB, at most 256" in PAGE


def test_roles_of_certificates_are_those_that_are_documented_with_them() -> None:
    """And tested there against what is used."""
    text = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    documented = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)]
    for way in ("thick-certificates", "thin-certificates"):
        roles = {role["metadata"]["name"]: role["rules"] for role in of_kind(way, "ClusterRole")}
        assert {each["metadata"]["name"]: each["rules"] for each in documented} == {name: roles[name] for name in roles if name != "multus"}
