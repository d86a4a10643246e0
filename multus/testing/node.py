"""A node to try multus on: a namespace with an uplink and folders of its own, and an API server with pods and networks.

It plays the container runtime: ``attach`` a pod, ``detach`` it, and see what ``remains``.  Links, routes and packet filter rules
are the namespace's, files are below one folder; the machine itself is not touched.  Needs root and iproute2::

    with Node("/opt/cni/bin/multus", folder) as node:
        node.api.load("examples/01-macvlan")
        with node.pod("web") as pod:
            print(node.attach(pod).document, node.statuses(pod))
            node.detach(pod)
        print(node.remains())
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Self

from multus.testing.kubeapi import KubeAPI
from multus.testing.pods import PLUGIN_FOLDER, Answer, Namespace, Pod
from multus.types.pod import NETWORKS_ANNOTATION, STATUS_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import TracebackType

    from multus.testing.kubeapi_credentials import Certificates

NODE_NAME = "node"
UPLINK = "eth0"
"""The node's interface to the outside, a veth whose other end is ``outside``: a master for macvlan."""
CLUSTER_BRIDGE = "cni0"
CLUSTER_SUBNET = "10.244.0.0/24"
_KEPT = frozenset(("lo", UPLINK, "outside"))


class Node:
    """A node whose container runtime calls ``multus``; ``with Node(…) as node:``.

    Args:
        multus: The executable.
        folder: Where leases, journal and configuration are kept; it must exist.
        tls: Speak HTTPS with the API server (needs openssl).
        certificates: The same, with these.
        plugin_folder: Of the delegates' binaries.
        settings: Further keys of the multus configuration, or others than usual.
    """

    def __init__(
        self,
        multus: str,
        folder: str | os.PathLike[str],
        *,
        tls: bool = False,
        certificates: Certificates | None = None,
        plugin_folder: str = PLUGIN_FOLDER,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.multus = multus
        self.folder = os.fspath(folder)
        self.plugin_folder = plugin_folder
        self.cni_dir, self.conf_dir, self.leases = (os.path.join(self.folder, name) for name in ("multus", "net.d", "leases"))
        self.settings = dict(settings or {})
        """Further keys of the configuration; what is changed here counts for the next call."""
        self._tls, self._certificates = tls, certificates
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            self.namespace = exits.enter_context(Namespace())
            self.namespace.run("ip", "link", "add", UPLINK, "type", "veth", "peer", "name", "outside")
            for link in (UPLINK, "outside"):
                self.namespace.run("ip", "link", "set", link, "up")
            with self.namespace.entered():
                self.api = exits.enter_context(KubeAPI(tls=self._tls, certificates=self._certificates, token="token-of-the-node"))
            os.makedirs(self.conf_dir, exist_ok=True)
            self.kubeconfig = self.api.kubeconfig(os.path.join(self.folder, "kubeconfig"))
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._exits.close()

    @property
    def config(self) -> dict[str, object]:
        """The configuration that the runtime hands to multus; the cluster network is a bridge with a default route."""
        return {
            "cniVersion": "1.0.0",
            "name": "multus-cni-network",
            "type": "multus",
            "kubeconfig": self.kubeconfig,
            "binDir": self.plugin_folder,
            "cniDir": self.cni_dir,
            "confDir": self.conf_dir,
            "delegates": [self.cluster_network()],
            **self.settings,
        }

    def cluster_network(self) -> dict[str, object]:
        """A bridge with masquerading left out, its addresses from host-local."""
        return {
            "cniVersion": "1.0.0",
            "name": "cluster",
            "type": "bridge",
            "bridge": CLUSTER_BRIDGE,
            "isDefaultGateway": True,
            "ipam": self.host_local(CLUSTER_SUBNET),
        }

    def host_local(self, *subnets: str, **keys: object) -> dict[str, object]:
        """An ``ipam`` object: host-local with one range per subnet, leases below the node's folder."""
        return {"type": "host-local", "dataDir": self.leases, "ranges": [[{"subnet": subnet}] for subnet in subnets], **keys}

    def load(self, path: str) -> None:
        """Create the objects of manifests: pods are scheduled here, networks keep their leases below the node's folder."""
        self.api.load(path)
        for document in self.api.store.all("pods"):
            self.api.put({**document, "spec": {**document.get("spec", {}), "nodeName": NODE_NAME}})
        for document in self.api.store.all("network-attachment-definitions"):
            config = json.loads(document.get("spec", {}).get("config") or "{}")
            for plugin in config.get("plugins", [config]):
                if plugin.get("ipam", {}).get("type") == "host-local":
                    plugin["ipam"].setdefault("dataDir", self.leases)
            document["spec"]["config"] = json.dumps(config)
            self.api.put(document)

    def add_network(self, name: str, *plugins: Mapping[str, object], namespace: str = "default", version: str = "1.0.0") -> None:
        """Store a net-attach-def: of one plugin as it is, of several as a plugin list."""
        shape: dict[str, object] = {"plugins": list(plugins)} if len(plugins) > 1 else dict(plugins[0])
        self.api.put({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"config": json.dumps({"cniVersion": version, "name": name, **shape})},
        })

    def pod(self, name: str, networks: object = None, *, namespace: str = "default", annotations: Mapping[str, str] | None = None) -> Pod:
        """A pod for a ``with`` block, as the cluster has it; one that it does not have yet is created.

        Args:
            networks: The networks annotation; what is no text becomes JSON; None: no annotation.
            annotations: Further ones.
        """
        stored = self.api.store.find("pods", namespace, name)
        if stored is not None:
            return Pod(name, namespace, uid=stored["metadata"]["uid"])
        wanted = dict(annotations or {})
        if networks is not None:
            wanted[NETWORKS_ANNOTATION] = networks if isinstance(networks, str) else json.dumps(networks)
        pod = Pod(name, namespace)
        metadata = {"name": name, "namespace": namespace, "uid": pod.uid, "annotations": wanted}
        self.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": NODE_NAME}})
        return pod

    def call(self, command: str, pod: Pod, **settings: object) -> Answer:
        """One call of multus; ``settings`` go into its configuration, as a runtime adds ``runtimeConfig``."""
        with self.namespace.entered():
            return pod.call(self.multus, command, {**self.config, **settings}, plugin_folder=self.plugin_folder)

    def attach(self, pod: Pod, **settings: object) -> Answer:
        """ADD."""
        return self.call("ADD", pod, **settings)

    def detach(self, pod: Pod, **settings: object) -> Answer:
        """DEL."""
        return self.call("DEL", pod, **settings)

    def statuses(self, pod: Pod) -> list[dict[str, Any]]:
        """The network-status annotation, decoded; none: no entries."""
        stored = self.api.store.find("pods", pod.namespace, pod.name) or {}
        entries: list[dict[str, Any]] = json.loads(stored.get("metadata", {}).get("annotations", {}).get(STATUS_ANNOTATION, "[]"))
        return entries

    def remains(self) -> dict[str, list[str]]:
        """What attachments have left on the node, by kind; empty when there is nothing.

        ``links`` (bridges stay by design and do not count), ``leases`` of host-local, and files of the ``journal``.
        """
        links = [link.name for link in self.namespace.links().values() if link.name not in _KEPT and link.kind != "bridge"]
        leases = [path for path in _files(self.leases) if os.path.basename(path)[0].isdigit()]
        found = {"links": sorted(links), "leases": leases, "journal": list(_files(self.cni_dir))}
        return {kind: names for kind, names in found.items() if names}


def _files(folder: str) -> Iterator[str]:
    for parent, _, names in sorted(os.walk(folder)):
        yield from (os.path.join(parent, name) for name in sorted(names))
