"""CNI versions: which there are, how they compare, what each allows.  Results of each version: ``results``."""

from __future__ import annotations

from multus import errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SUPPORTED = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""Every version that we speak, oldest first."""

DEFAULT = "0.1.0"
"""The version of a document that does not say one."""

_NEWEST = (1, 1, 0)
_SINCE = {"CHECK": (0, 4, 0), "GC": (1, 1, 0), "STATUS": (1, 1, 0)}
_MAX_DIGITS = 9


def parse(text: str) -> tuple[int, int, int]:
    """Major, minor and patch number: up to three integers separated by dots, missing ones 0; empty text is 0.1.0.

    Raises:
        InvalidConfigError: ``text`` is not a version.

    Spec: Multus behaviour, "cniVersion handling".
    """
    parts = (text or DEFAULT).split(".")
    if len(parts) > 3 or not all(part.isascii() and part.isdigit() and len(part) <= _MAX_DIGITS for part in parts):
        raise errors.InvalidConfigError(f"cni version {text[:60]!r} is not up to three numbers separated by dots")
    major, minor, patch = [*map(int, parts), 0, 0][:3]
    return major, minor, patch


def at_least(version: str, minimum: str) -> bool:
    """Whether ``version`` is ``minimum`` or newer.

    Raises:
        InvalidConfigError: One of them is not a version.
    """
    return parse(version) >= parse(minimum)


def allows(command: str, version: str) -> bool:
    """Whether a configuration of ``version`` may be used with ``command``: CHECK from 0.4.0, GC and STATUS from 1.1.0.

    Raises:
        InvalidConfigError: ``version`` is not a version.

    Spec: CNI 1.1.0 §2, by the versions that brought each operation.
    """
    since = _SINCE.get(command)
    return since is None or parse(version) >= since


def highest(cni_version: str, cni_versions: Sequence[object]) -> str:
    """The version that a conflist is used in: the highest of its ``cniVersion`` and ``cniVersions`` that we know.

    Entries above 1.1.0 are skipped; when nothing is left, ``cni_version`` stays as it is, for its reader to refuse.

    Args:
        cni_version: Empty when the conflist does not say one; it then counts only if ``cni_versions`` is of no use.

    Raises:
        InvalidConfigError: An entry is not a version.

    Spec: CNI 1.1.0 §1, "Version considerations".
    """
    candidates = [cni_version] if cni_version else []
    for index, entry in enumerate(cni_versions):
        if not isinstance(entry, str):
            raise errors.InvalidConfigError(f"cniVersions[{index}] is not a string")
        candidates.append(entry)
    known = [candidate for candidate in candidates if parse(candidate) <= _NEWEST]
    return max(known, key=parse, default=cni_version)


def require_supported(version: str, where: str = "configuration") -> str:
    """``version``, literally one of ``SUPPORTED``; empty text is 0.1.0.

    Args:
        where: What says the version; opens the message.

    Raises:
        IncompatibleVersionError: It is not supported; the details name it and the supported ones.

    Spec: CNI 1.1.0 §5, "Error", code 1.
    """
    version = version or DEFAULT
    if version not in SUPPORTED:
        shown = repr(version[:60])
        raise errors.IncompatibleVersionError(
            f"{where}: key \"cniVersion\" {shown} is not supported", f"config is {shown}, plugin supports {', '.join(SUPPORTED)}"
        )
    return version
