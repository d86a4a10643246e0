"""The delegate as a Python object, for the entry-point group ``multus.delegates``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.protocol import results

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result


class Passthru:
    """Implements ``multus.hooks.delegates.InProcessDelegate``."""

    def accepts(self, invocation: Invocation) -> bool:
        return True

    def add(self, invocation: Invocation) -> Result:
        """The previous result in the configuration's version; without one an empty result.

        Raises:
            DecodingError: The previous result is not valid.
        """
        version = str(invocation.config.get("cniVersion") or "")
        given = invocation.config.get("prevResult")
        return results.empty(version) if given is None else results.convert(results.parse(given, version), version)

    def delete(self, invocation: Invocation) -> None:
        """Nothing was made, so nothing is removed."""

    def check(self, invocation: Invocation) -> None:
        """Nothing was made, so nothing can be missing."""

    def gc(self, invocation: Invocation) -> None:
        """Nothing is kept."""

    def status(self, invocation: Invocation) -> None:
        """It can always serve."""
