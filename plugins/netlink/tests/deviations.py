"""What we tell otherwise than the binaries, some of it than release 1.1 alone (README, "What differs"): the one place that forgives it."""

from __future__ import annotations

import re
from typing import Any

_SEEN = re.compile(
    r"link (veth\*|eth0) txqlen = "  # asked for without a length: both ends in 1.1, the host's in 1.9
    r"|setting ipv6/conf/eth0/(keep_addr_on_down|ndisc_notify) = "  # 1.1 has no such wishes
    r"|node link \S+ ifalias = "  # 1.1 leaves a device of the host the alias that it had in the pod
)

DELETES_ONCE = frozenset(("host-device",))
"""The networks whose binary fails to remove what is removed already."""


def told_alike(config: dict[str, Any], result: Any) -> Any:
    """A result, or None for an error, without what may differ."""
    if result is None:
        return None
    told = {key: value for key, value in result.items() if value != {}}  # no empty dns
    own_dns = (config.get("dns") or {}).values()
    if config["type"] == "bridge" and not any(isinstance(value, list) or value for value in own_dns):
        told.pop("dns", None)  # 1.1 forgets the IPAM plugin's
    if config["type"] == "loopback" and "ips" in told:  # its binary forgets the version
        told["ips"] = [{key: value for key, value in each.items() if key != "version"} for each in told["ips"]]
    return told


def seen_alike(lines: list[str]) -> list[str]:
    """A look without what may differ."""
    return [line for line in lines if not _SEEN.search(line)]
