"""How often a file that others keep changing is repaired."""

from __future__ import annotations

from multus.core.repairs import LONGEST_DELAY_S, MANY, WINDOW_S, Repairs


def repaired_at(repairs: Repairs, seen_at: float) -> float:
    """Let damage be seen and stay; when it is repaired."""
    now = seen_at + repairs.due_in(seen_at)
    assert repairs.due_in(now) == 0.0
    repairs.note(now)
    return now


def test_repairs_are_immediate_up_to_five_within_a_minute_then_ever_slower() -> None:
    repairs, now, waits = Repairs(), 0.0, []
    for _ in range(13):
        done = repaired_at(repairs, now)
        waits.append(done - now)
        now = done + 0.5
    assert waits == [0.0] * MANY + [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert repairs.delay_s == LONGEST_DELAY_S


def test_few_repairs_are_immediate_for_ever() -> None:
    repairs = Repairs()
    times = [20.0 * step for step in range(50)]
    assert [repaired_at(repairs, when) for when in times] == times


def test_a_minute_of_peace_forgives() -> None:
    repairs, now = Repairs(), 0.0
    for _ in range(MANY + 2):
        now = repaired_at(repairs, now)
    assert repaired_at(repairs, now + WINDOW_S) == now + WINDOW_S
    assert repairs.delay_s == 0.0


def test_damage_that_others_undo_is_forgotten() -> None:
    repairs = Repairs()
    for _ in range(MANY):
        repaired_at(repairs, 0.0)
    assert repairs.due_in(1.0) == 2.0
    repairs.undamaged()
    assert repairs.due_in(30.0) == 2.0
