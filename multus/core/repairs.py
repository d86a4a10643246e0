"""How often our file may be repaired: at once, until others change it again and again; then ever more slowly."""

from __future__ import annotations

MANY = 5
WINDOW_S = 60.0
FIRST_DELAY_S = 2.0
LONGEST_DELAY_S = 60.0


class Repairs:
    """The repairs of one file.  ``MANY`` of them within ``WINDOW_S`` make the next one wait, each time twice as long.

    A file that stays untouched for ``WINDOW_S`` is repaired at once again.  Times are in seconds, of any steady clock.
    """

    def __init__(self) -> None:
        self._recent: list[float] = []
        self._damaged_at: float | None = None
        self.delay_s = 0.0
        """What the next repair waits; 0: nothing."""

    def due_in(self, now: float) -> float:
        """How long the damage that is seen now must stay; 0: repair it."""
        if self._damaged_at is None:
            self._damaged_at = now
            if self._recent and now - self._recent[-1] >= WINDOW_S:
                self.delay_s = 0.0
        return max(0.0, self._damaged_at + self.delay_s - now)

    def note(self, now: float) -> None:
        """Count a repair."""
        self._damaged_at = None
        self._recent = [*(when for when in self._recent if now - when < WINDOW_S), now]
        if self.delay_s:
            self.delay_s = min(LONGEST_DELAY_S, 2 * self.delay_s)
        elif len(self._recent) >= MANY:
            self.delay_s = FIRST_DELAY_S

    def undamaged(self) -> None:
        """The file was found as it should be."""
        self._damaged_at = None
