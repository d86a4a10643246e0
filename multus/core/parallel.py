"""Steps side by side, in threads: with ``maxParallelAttachments`` above 1."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def side_by_side(steps: Sequence[Callable[[], None]], limit: int) -> None:
    """Run steps, at most ``limit`` at a time; they begin in order, and once one has failed no other begins.

    The calling thread runs steps too, and goes on when all that began have ended.

    Raises:
        BaseException: What the first step that failed raised, first by position: as if they had run one by one.
    """
    lock = threading.Lock()
    waiting = list(enumerate(steps))[::-1]
    failures: dict[int, BaseException] = {}

    def work() -> None:
        while True:
            with lock:
                if failures or not waiting:
                    return
                position, step = waiting.pop()
            try:
                step()
            except BaseException as exc:  # raised again below, in the thread of the call
                with lock:
                    failures[position] = exc

    helpers: list[threading.Thread] = []
    for number in range(min(limit, len(steps)) - 1):
        helper = threading.Thread(target=work, name=f"attach-{number}", daemon=True)
        try:
            helper.start()
        except RuntimeError:  # no more threads: those that there are do it all
            break
        helpers.append(helper)
    work()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[min(failures)]
