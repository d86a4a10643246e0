"""The parts of a cluster that the end-to-end tests need beside an API server: scheduler, kubelet, and who removes namespaces.

Pods are network namespaces, attached through the shim of a thick node; a container is its script, run in there.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from types import TracebackType
from typing import Any, Self

from multus.testing.kubeapi_store import RESOURCES, Address, Refusal
from multus.testing.node import NODE_NAME
from multus.testing.pods import Pod
from multus.testing.thick import ThickNode

_POLL_S = 0.05
_READY = {"conditions": [{"type": "Ready", "status": "True"}]}
_PODS, _NAMESPACES, _NETWORKS = (
    next(each for each in RESOURCES if each.plural == plural) for plural in ("pods", "namespaces", "network-attachment-definitions")
)

Document = dict[str, Any]


class Kubelet:
    """``with Kubelet(node):`` serves the pods of all namespaces of the node's API server that are there by then."""

    def __init__(self, node: ThickNode) -> None:
        self._node = node
        self._store = node.api.store
        self._ends = threading.Event()
        self._threads: dict[str, threading.Thread] = {}
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE_NAME}, "status": _READY}
        metadata = {"name": "kube-multus-ds-x7d2k", "namespace": "kube-system", "labels": {"name": "multus"}}
        multus = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": NODE_NAME}, "status": _READY}
        self._node.api.put(node, multus)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends.set()
        for thread in (self._thread, *self._threads.values()):
            thread.join()

    def _run(self) -> None:
        while not self._ends.wait(_POLL_S):
            namespaces = {each["metadata"]["name"] for each in self._store.all("namespaces")} | {"kube-system"}
            for resource in (_PODS, _NETWORKS):
                for each in self._store.all(resource.plural):
                    if each["metadata"]["namespace"] not in namespaces:
                        self._store.remove(resource.plural, each["metadata"]["namespace"], each["metadata"]["name"])
            for each in self._store.all("pods"):
                uid = each["metadata"]["uid"]
                if uid not in self._threads and not each.get("status"):
                    self._threads[uid] = threading.Thread(target=self._serve, args=(each,))
                    self._threads[uid].start()

    def _serve(self, document: Document) -> None:
        """One pod, from its creation until it is gone."""
        metadata = document["metadata"]
        address = Address(_PODS, metadata["namespace"], metadata["name"])
        self._patch(address, {"spec": {"nodeName": NODE_NAME}})
        self._tell(address, {"phase": "Pending"})
        with Pod(metadata["name"], metadata["namespace"], uid=metadata["uid"]) as pod:
            while self._is_there(document) and self._node.attach(pod).error:
                self._node.detach(pod)
                time.sleep(1)
            if self._is_there(document):
                self._tell(address, {"phase": "Running"})
                self._run_script(document, address, pod)
            self._node.detach(pod)
        while self._is_there(document):
            time.sleep(_POLL_S)

    def _run_script(self, document: Document, address: Address, pod: Pod) -> None:
        script = document["spec"]["containers"][0]["command"][-1]
        with pod.entered():
            process = subprocess.Popen(
                ["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                start_new_session=True,
            )  # fmt: skip
        while process.poll() is None and self._is_there(document):
            time.sleep(_POLL_S)
        if process.poll() is None:
            os.killpg(process.pid, 9)
        said, _ = process.communicate()
        terminated = {"exitCode": process.returncode, "message": said}
        status = [{"name": "main", "state": {"terminated": terminated}}]
        self._tell(address, {"phase": "Succeeded" if process.returncode == 0 else "Failed", "containerStatuses": status})

    def _is_there(self, document: Document) -> bool:
        metadata = document["metadata"]
        found = self._store.find("pods", metadata["namespace"], metadata["name"])
        return found is not None and found["metadata"]["uid"] == metadata["uid"] and not self._ends.is_set()

    def _tell(self, address: Address, status: Document) -> None:
        self._patch(address._replace(sub="status"), {"status": status})

    def _patch(self, address: Address, patch: Document) -> None:
        try:
            self._store.patch(address, patch)
        except Refusal as refusal:
            if refusal.code != 404:
                raise
