"""A cluster that a kubeconfig names, and a namespace of our own in it for as long as the tests run.

What the tests learn of a pod comes from the API server alone: its status, its network-status annotation, and what its one
container wrote to its termination message, so that no right to execute anything in pods is needed.
"""

from __future__ import annotations

import json
import shlex
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Self

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

NETWORKS = "k8s.v1.cni.cncf.io/networks"
STATUS = "k8s.v1.cni.cncf.io/network-status"
GROUP, VERSION, PLURAL = "k8s.cni.cncf.io", "v1", "network-attachment-definitions"
REPORT = 'sh -c "$1" >/dev/termination-log 2>&1'
"""What a container runs: the script in its arguments, which tells what it sees."""
NEEDED = """the tests need, of the user in the kubeconfig:
  create, get, delete on namespaces
  get, list, create, delete on pods, and create on network-attachment-definitions.k8s.cni.cncf.io, in a new namespace
  list on nodes, and list on pods of all namespaces"""
_POLL_S = 0.5
_GONE = ("Succeeded", "Failed")

Document = dict[str, Any]


class ClusterError(Exception):
    """The cluster does not do what a test needs; says what, and what to do."""


class Settings(NamedTuple):
    """What the command line says."""

    kubeconfig: str
    context: str = ""
    image: str = "busybox:1.36"
    """Of the pods: with ``sh``, ``ip``, ``ping`` and ``sleep``."""
    master: str = "eth0"
    """The nodes' interface below macvlan networks."""
    patience_s: float = 300.0


class Cluster:
    """``with Cluster(settings) as cluster:`` makes the namespace, and removes it and all that is in it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.namespace = f"multus-e2e-{uuid.uuid4().hex[:8]}"
        try:
            api = config.new_client_from_config(settings.kubeconfig, context=settings.context or None)
        except (config.ConfigException, OSError) as exc:
            raise ClusterError(f"kubeconfig {settings.kubeconfig}: {exc}") from exc
        api.set_default_header("Content-Type", "application/json")
        self._core, self._custom = client.CoreV1Api(api), client.CustomObjectsApi(api)

    def __enter__(self) -> Self:
        metadata = {"name": self.namespace, "labels": {"app.kubernetes.io/part-of": "multus-e2e"}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._ask("create namespaces", self._core.create_namespace, body)
        try:
            self._require_multus()
            self._require_nodes()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._remove()

    @property
    def nodes(self) -> list[str]:
        """The ready nodes that take any pod, by name."""
        found = self._ask("list nodes", self._core.list_node)["items"]
        return sorted(node["metadata"]["name"] for node in found if _is_ready(node) and _takes_any_pod(node))

    def two_nodes(self) -> tuple[str, str]:
        """Two nodes, or the only one twice."""
        nodes = self.nodes
        return nodes[0], nodes[-1]

    def add_network(self, name: str, *plugins: Mapping[str, object], version: str = "1.0.0") -> None:
        """Create a net-attach-def."""
        document = {
            "apiVersion": f"{GROUP}/{VERSION}", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name},
            "spec": {"config": json.dumps({"cniVersion": version, "name": name, "plugins": list(plugins)})},
        }  # fmt: skip
        self._ask(f"create {PLURAL}", self._custom.create_namespaced_custom_object, GROUP, VERSION, self.namespace, PLURAL, document)

    def macvlan(self, ipam: Mapping[str, object], **keys: object) -> Document:
        """A plugin on the nodes' interface."""
        return {"type": "macvlan", "master": self.settings.master, "mode": "bridge", "ipam": dict(ipam), **keys}

    def start(self, name: str, script: str, networks: object = None, *, node: str = "", more: Mapping[str, Any] | None = None) -> None:
        """Create a pod whose container runs a script, once.

        Args:
            networks: What is no text becomes JSON.
            node: Where it runs; empty: anywhere.
            more: Of its specification; its volumes are mounted below ``/`` by their names.
        """
        annotations = {}
        if networks is not None:
            annotations[NETWORKS] = networks if isinstance(networks, str) else json.dumps(networks)
        container: Document = {
            "name": "main", "image": self.settings.image, "command": ["sh", "-c", REPORT, "sh", script],
            "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        }  # fmt: skip
        mounts = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in (more or {}).get("volumes", ())]
        if mounts:
            container["volumeMounts"] = mounts
        spec: Document = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **(more or {})}
        if node:
            spec["nodeName"] = node
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations}, "spec": spec}
        self._ask("create pods", self._core.create_namespaced_pod, self.namespace, body)

    def pod(self, name: str) -> Document:
        return self._ask("get pods", self._core.read_namespaced_pod, name, self.namespace)

    def running(self, name: str) -> Document:
        """The pod, once its container runs."""
        return self._wait(name, ("Running", *_GONE), "runs")

    def report(self, name: str) -> str:
        """What the script of a pod said, once it has ended.

        Raises:
            ClusterError: It failed, or did not end in time; with the pod's events.
        """
        document = self._wait(name, _GONE, "has ended")
        if document["status"]["phase"] != "Succeeded":
            raise ClusterError(f"pod {name}: its script failed: {_message(document)}{self._events(name)}")
        return _message(document)

    def statuses(self, name: str) -> list[Document]:
        """The network-status annotation, decoded."""
        entries: list[Document] = json.loads(self.pod(name)["metadata"]["annotations"].get(STATUS, "[]"))
        return entries

    def delete(self, name: str) -> None:
        """Delete a pod, and wait until it is gone: its networks are detached then."""
        self._ask("delete pods", self._core.delete_namespaced_pod, name, self.namespace)
        self._until(lambda: not self._exists(name), f"pod {name} is gone")

    def appears(self, name: str) -> None:
        """Wait until somebody else has made the pod."""
        self._until(lambda: self._exists(name), f"pod {name} appears")

    def disappears(self, name: str) -> None:
        """Wait until somebody else has removed the pod."""
        self._until(lambda: not self._exists(name), f"pod {name} is gone")

    @contextmanager
    def file_on_node(self, node: str, folder: str, name: str, content: str) -> Iterator[None]:
        """A file on a node for as long as the block runs; a pod with that folder of the host writes and removes it."""
        scripts = {"write": f"printf %s {shlex.quote(content)} >/host/{name}", "remove": f"rm -f /host/{name}"}
        mounts = {"volumes": [{"name": "host", "hostPath": {"path": folder, "type": "Directory"}}]}
        try:
            self.start("write", scripts["write"], node=node, more=mounts)
            self.report("write")
            yield
        finally:
            self.start("remove", scripts["remove"], node=node, more=mounts)
            self.report("remove")

    def _require_nodes(self) -> None:
        if not self.nodes:
            raise ClusterError("no node of the cluster is ready and takes any pod; the tests need one, better two")

    def _require_multus(self) -> None:
        pods = self._ask("list pods of all namespaces", self._core.list_pod_for_all_namespaces)["items"]
        ours = [pod for pod in pods if pod["metadata"].get("labels", {}).get("name") == "multus"]
        if not ours:
            raise ClusterError("Multus does not run in the cluster: no pod has the label name=multus; docs/deployment.md tells how")
        waiting = sorted(pod["metadata"]["name"] for pod in ours if not _is_ready(pod))
        if waiting:
            raise ClusterError(f"Multus is not ready: {', '.join(waiting)}")

    def _exists(self, name: str) -> bool:
        pods = self._ask("list pods", self._core.list_namespaced_pod, self.namespace)["items"]
        return name in [pod["metadata"]["name"] for pod in pods]

    def _wait(self, name: str, phases: tuple[str, ...], what: str) -> Document:
        seen: Document = {}

        def reached() -> bool:
            seen.update(self.pod(name))
            return seen.get("status", {}).get("phase") in phases

        self._until(reached, f"pod {name} {what}", lambda: self._events(name))
        return seen

    def _until(self, fact: Callable[[], bool], what: str, more: Callable[[], str] = str) -> None:
        end = time.monotonic() + self.settings.patience_s
        while not fact():
            if time.monotonic() > end:
                raise ClusterError(f"not within {self.settings.patience_s:.0f} s: {what}{more()}")
            time.sleep(_POLL_S)

    def _events(self, name: str) -> str:
        """Of a pod, as lines; what may not be asked is left out."""
        try:
            found = self._ask("list events", self._core.list_namespaced_event, self.namespace)["items"]
        except ClusterError:
            return ""
        about = [event for event in found if event.get("involvedObject", {}).get("name") == name]
        return "".join(f"\n  {event.get('reason')}: {event.get('message')}" for event in about)

    def _remove(self) -> None:
        """Remove the namespace; what is in it goes with it."""
        try:
            self._ask("delete namespaces", self._core.delete_namespace, self.namespace)
            self._until(self._is_removed, f"namespace {self.namespace} is gone")
        except ClusterError as exc:
            raise ClusterError(f"{exc}\nremove it by hand: kubectl delete namespace {self.namespace}") from exc

    def _is_removed(self) -> bool:
        try:
            self._core.read_namespace(self.namespace, _preload_content=False)
        except ApiException as exc:
            return exc.status == 404
        return False

    def _ask(self, what: str, call: Callable[..., Any], *arguments: object) -> Document:
        """One request; the answer as it came."""
        try:
            document: Document = json.loads(call(*arguments, _preload_content=False).data)
        except ApiException as exc:
            said = _said(exc)
            hint = f"\n{NEEDED}" if exc.status in (401, 403) else ""
            if exc.status == 404 and PLURAL in what:
                hint = "\nthe cluster does not know net-attach-defs: kubectl apply -f deployments/multus-crd.yaml"
            raise ClusterError(f"the cluster refuses to {what}: {exc.status} {said}{hint}") from exc
        except HTTPError as exc:
            raise ClusterError(f"the cluster does not answer ({what}): {exc}") from exc
        return document


def _said(exc: ApiException) -> str:
    try:
        return str(json.loads(exc.body)["message"])
    except (TypeError, ValueError, KeyError):
        return str(exc.reason)


def _is_ready(document: Document) -> bool:
    conditions = document.get("status", {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _takes_any_pod(node: Document) -> bool:
    spec = node.get("spec", {})
    return not spec.get("unschedulable") and not [taint for taint in spec.get("taints", ()) if taint["effect"] != "PreferNoSchedule"]


def _message(pod: Document) -> str:
    """What the container left when it ended."""
    for each in pod["status"].get("containerStatuses", ()):
        terminated = each.get("state", {}).get("terminated")
        if terminated:
            return str(terminated.get("message", ""))
    return str(pod["status"].get("message", ""))
