"""What a plugin gets that stands behind others in a plugin list: the result so far, which it hands on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multus.errors import InvalidConfigError
from multus.protocol import results
from multus.types.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from multus.types.invocation import Invocation


def previous(invocation: Invocation) -> Result:
    """The result so far, in the version of the configuration.

    Raises:
        InvalidConfigError: There is none.
        DecodingError: It is not valid.
    """
    document = invocation.config.get("prevResult")
    if document is None:
        raise InvalidConfigError(f"interface {invocation.ifname}: prevResult is missing: the plugin goes behind a network's")
    version = str(invocation.config.get("cniVersion") or "")
    return results.convert(results.parse(document, version), version)


def with_interfaces(result: Result, change: Callable[[Sequence[dict[str, Any]]], Sequence[dict[str, Any]]]) -> Result:
    """The result with another list of interfaces; one of 0.2.0 and before has none, and stays as it is."""
    if result.cni_version in ("0.1.0", "0.2.0"):
        return result
    listed: Any = result.document.get("interfaces") or []
    return Result({**result.document, "interfaces": list(change(listed))})
