"""A self-contained installation as it stands in a folder, and its files."""

from __future__ import annotations

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class BundleFile(NamedTuple):
    """One file of a bundle."""

    sha256: str
    """Of its content, in hexadecimal."""
    mode: int


class Bundle(NamedTuple):
    """What ``bundle.json`` says."""

    version: str
    """Names its folder on a host; two bundles of one version are the same."""
    loader: str
    """The C library's loader, by its path in the bundle."""
    launchers: Mapping[str, str]
    """Executable: the module whose ``main`` it runs."""
    files: Mapping[str, BundleFile]
    """By their path in the bundle; ``bundle.json`` itself is not among them."""
