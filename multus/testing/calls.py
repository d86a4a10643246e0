"""What is asked of fakes, kept in order, and which of it is to fail."""

from __future__ import annotations

from typing import NamedTuple


class Made(NamedTuple):
    """One call: ``port.method`` and its arguments in order."""

    name: str
    arguments: tuple[object, ...]


class Calls:
    """What was asked of the fakes that share it, in order, and which of it is to fail."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self._by_name: dict[str, list[BaseException | None]] = {}
        self._by_position: dict[int, BaseException] = {}

    @property
    def names(self) -> list[str]:
        """``port.method`` of each call."""
        return [made.name for made in self.made]

    def of(self, name: str) -> list[tuple[object, ...]]:
        """The arguments of each call of that name."""
        return [made.arguments for made in self.made if made.name == name]

    def fail(self, name: str, *errors: BaseException | None) -> None:
        """Make the next calls of that name raise these, in turn; None lets one pass."""
        self._by_name.setdefault(name, []).extend(errors)

    def fail_at(self, position: int, error: BaseException) -> None:
        """Make the call at this position raise; counted from 0 over all fakes."""
        self._by_position[position] = error

    def note(self, name: str, *arguments: object) -> None:
        """Keep a call, then raise what it is to raise."""
        position = len(self.made)
        self.made.append(Made(name, arguments))
        pending = self._by_name.get(name)
        error = self._by_position.get(position) or (pending.pop(0) if pending else None)
        if error is not None:
            raise error
