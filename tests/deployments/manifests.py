"""What the manifests hold, for the tests beside: documents, pods, containers, and which host path a container sees where."""

from __future__ import annotations

import json
import posixpath
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deployments"
BIN = "/usr/src/multus-cni/bin"
"""Where the image has the commands."""
MANIFESTS = {path.stem.removeprefix("multus-"): path for path in sorted(FOLDER.glob("multus-*.yaml"))}
WAYS = tuple(name for name in MANIFESTS if name != "crd")
"""Of running multus, one manifest each."""
THICK = ("thick", "thick-certificates")
CERTIFICATES = ("thick-certificates", "thin-certificates")
DAEMON_CONFIG = "daemon-config.json"

Document = dict[str, Any]


class Container(NamedTuple):
    """One container, with the pod that it is in."""

    way: str
    owner: str
    document: Document
    pod: Document
    is_init: bool

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def security(self) -> Document:
        """Its security context over the pod's."""
        return {**self.pod.get("securityContext", {}), **self.document.get("securityContext", {})}

    def host_path(self, path: str) -> str | None:
        """The path on the host that is seen at ``path``; None: it is the container's own."""
        volumes = {volume["name"]: volume for volume in self.pod.get("volumes", [])}
        mounts = [mount for mount in self.document.get("volumeMounts", []) if is_below(path, mount["mountPath"])]
        if not mounts:
            return None
        mount = max(mounts, key=lambda each: len(each["mountPath"]))
        volume = volumes[mount["name"]]
        if "hostPath" not in volume:
            return None
        return posixpath.normpath(posixpath.join(volume["hostPath"]["path"], posixpath.relpath(path, mount["mountPath"])))

    def mount(self, path: str) -> Document:
        """The mount at exactly that path."""
        (found,) = (mount for mount in self.document["volumeMounts"] if posixpath.normpath(mount["mountPath"]) == path)
        return dict(found)


def is_below(path: str, folder: str) -> bool:
    path, folder = posixpath.normpath(path), posixpath.normpath(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def read(text: str) -> list[Document]:
    return [document for document in yaml.safe_load_all(text) if document]


def documents(way: str) -> list[Document]:
    return read(MANIFESTS[way].read_text(encoding="utf-8"))


def of_kind(way: str, kind: str) -> list[Document]:
    return [document for document in documents(way) if document["kind"] == kind]


def pods(way: str) -> Iterator[tuple[str, Document]]:
    """Name of the workload, and the pod that it makes."""
    for document in documents(way):
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def containers(way: str) -> list[Container]:
    return [
        Container(way, owner, document, pod, key == "initContainers")
        for owner, pod in pods(way)
        for key in ("initContainers", "containers")
        for document in pod.get(key, [])
    ]


def container(way: str, name: str) -> Container:
    (found,) = (each for each in containers(way) if each.name == name)
    return found


def daemon_config(way: str) -> Document:
    (config_map,) = (each for each in of_kind(way, "ConfigMap") if each["metadata"]["name"] == "multus-daemon-config")
    document: Document = json.loads(config_map["data"][DAEMON_CONFIG])
    return document


def every_container() -> list[Any]:
    """As parameters of a test."""
    return [pytest.param(each, id=f"{way}-{each.name}") for way in WAYS for each in containers(way)]


def by_identity(found: list[Document]) -> dict[tuple[str, str], Document]:
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


def tool(name: str) -> str:
    """The path of kubectl or helm; skips the test where there is none."""
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}: scripts/cluster-tools")
    return path


def run(*command: str) -> str:
    """Standard output of a tool that succeeds."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
