"""Which client speaks to the API server: our own small one, the official one, or none.

Spec: 03-networks.md of the behaviour notes, "Kubernetes clients": a kubeconfig, else the cluster that we run in, else none.
"""

from __future__ import annotations

import time

from multus.adapters import kubeconfig
from multus.adapters.kube_rest import Connection, KubeRest
from multus.errors import InvalidConfigError
from multus.protocol import proxies
from multus.types.cluster import Cluster, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.adapters.kube_cache import KubeCache
    from multus.adapters.kube_client import OfficialClient
    from multus.core.ports import Clock, Log
    from multus.protocol.api_calls import ApiCalls


def connect(config_path: str, environ: Mapping[str, str], deadline_s: float, clock: Clock) -> ApiCalls | None:
    """The client for one request of a container runtime; None: neither a kubeconfig nor inside a cluster.

    Args:
        config_path: Of a kubeconfig; empty: none is configured.
        environ: Tells whether we run in a cluster, and of proxies.
        deadline_s: Seconds that all calls together may take, events apart.

    Raises:
        IOFailureError, DecodingError, InvalidConfigError: The kubeconfig cannot be read or used.
    """
    found = _find(config_path, environ)
    if found is None:
        return None
    if isinstance(found, Cluster):
        return KubeRest(found, clock, deadline_s=deadline_s, reload=lambda: _again(config_path, environ))
    from multus.adapters import kube_client  # the official client, 220 ms

    kube_client.require(found.reason)
    return kube_client.connect(config_path, clock, deadline_s=deadline_s)


def cache(
    config_path: str,
    environ: Mapping[str, str],
    node_name: str,
    log: Log,
    *,
    prefer_official: bool = False,
    certificate_path: str = "",
) -> KubeCache:
    """The daemon's caches, not started yet: the pods of this node, all net-attach-defs, and live access for the rest.

    Args:
        config_path: Of a kubeconfig; empty: the cluster that we run in.
        environ: ``KUBERNETES_SERVICE_HOST`` and ``KUBERNETES_SERVICE_PORT`` in it say where the API server is.
        node_name: Empty: the pods of all nodes are cached.
        prefer_official: Watch over the official client even where our own small one would do, for 20 MB more.
        certificate_path: Of our certificate and key, in place of the kubeconfig's user; read again with each connection.

    Raises:
        IOFailureError, DecodingError, InvalidConfigError: The kubeconfig cannot be read or used, or there is no API server.
    """
    from multus.adapters.kube_cache import KubeCache  # these three are the daemon's alone
    from multus.adapters.kube_informer import Informer
    from multus.adapters.kube_pool import TransportPool
    from multus.protocol import watches

    if not node_name:
        log.warning("kube.cache.all_pods", problem="MULTUS_NODE_NAME is not set: the pods of all nodes are cached, not of this one alone")

    def connect(prefers: bool) -> Connection | OfficialClient:
        return transport(config_path, environ, prefer_official=prefers, certificate_path=certificate_path)

    pods, net_attach_defs = (
        Informer(collection, connect(prefer_official), time, log)
        for collection in (watches.pods(node_name), watches.net_attach_defs())
    )
    return KubeCache(pods, net_attach_defs, TransportPool(lambda: connect(False), time), time)


def transport(
    config_path: str, environ: Mapping[str, str], *, prefer_official: bool = False, certificate_path: str = ""
) -> Connection | OfficialClient:
    """A connection to the API server for one thread, which streams as well.  Arguments and errors are those of ``cache``."""
    found = _find(config_path, environ, certificate_path)
    if found is None:
        raise InvalidConfigError("no API server is configured: neither a kubeconfig nor in-cluster settings")
    if isinstance(found, Cluster) and not prefer_official:
        return Connection(found, time, lambda: _again(config_path, environ, certificate_path))
    from multus.adapters import kube_client  # the official client, 220 ms

    kube_client.require(found.reason if isinstance(found, Unsupported) else "the official client is preferred")
    return kube_client.transport(config_path)


def _find(config_path: str, environ: Mapping[str, str], certificate_path: str = "") -> Cluster | Unsupported | None:
    if certificate_path:
        return with_certificate(config_path, environ, certificate_path)
    found = kubeconfig.load(config_path) if config_path else kubeconfig.load_in_cluster(environ)
    if not isinstance(found, Cluster):
        return found
    variable = proxies.proxy_variable(found.scheme, found.host, found.port, environ)
    if not variable:
        return found
    if found.impersonation:
        raise InvalidConfigError(f"kubeconfig {config_path}: impersonation is not supported through the proxy of {variable}")
    return Unsupported(f"environment variable {variable}")


def with_certificate(config_path: str, environ: Mapping[str, str], certificate_path: str) -> Cluster:
    """The API server of a kubeconfig, and a certificate with its key in place of the kubeconfig's user.

    Raises:
        IOFailureError, DecodingError, InvalidConfigError: The kubeconfig cannot be read, or asks for what only the official
            client does, such as a proxy.
    """
    found = kubeconfig.load_server(config_path)
    if isinstance(found, Unsupported):
        raise InvalidConfigError(f"{found.reason}: not supported together with a certificate of the node")
    variable = proxies.proxy_variable(found.scheme, found.host, found.port, environ)
    if variable:
        raise InvalidConfigError(f"kubeconfig {config_path}: a certificate of the node is not supported through the proxy of {variable}")
    return found._replace(client_certificate_file=certificate_path, client_key_file=certificate_path)


def _again(config_path: str, environ: Mapping[str, str], certificate_path: str = "") -> Cluster:
    """The cluster, its credentials read anew."""
    found = _find(config_path, environ, certificate_path)
    if not isinstance(found, Cluster):
        raise InvalidConfigError(f"kubeconfig {config_path}: changed meanwhile to one for the official client")
    return found
