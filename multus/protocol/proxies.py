"""Whether the environment sends requests to a server through a proxy.

Spec: Go's ``http.ProxyFromEnvironment``, which the reference follows.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def proxy_variable(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> str:
    """The name of the variable that holds the proxy for a server; empty: none does, or ``NO_PROXY`` excepts the server."""
    names = [name for name in (f"{scheme.upper()}_PROXY", f"{scheme}_proxy") if environ.get(name)]
    if not names:
        return ""
    excepted = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    return "" if _is_excepted(host.lower(), port, excepted) else names[0]


def _is_excepted(host: str, port: int, excepted: str) -> bool:
    import ipaddress  # 5 ms, for nodes with a proxy only

    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in excepted.lower().split(","):
        entry = entry.strip()
        if entry == "*":
            return True
        if address is not None and "/" in entry:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                pass  # not a network: compared as a name below, as every other entry
        name, colon, entry_port = entry.rpartition(":")
        if colon and entry_port.isdigit() and (name.endswith("]") or ":" not in name):
            if entry_port != str(port):
                continue
            entry = name
        entry = entry.strip("[]").removeprefix("*")
        if entry and (host == entry or (address is None and host.endswith(entry if entry.startswith(".") else f".{entry}"))):
            return True
    return False
