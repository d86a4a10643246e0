"""What ``multus.types.named`` has, beside what it stands for in the standard library."""

from __future__ import annotations

import copy
import enum
import pickle
import typing
from typing import Any

import pytest

from multus.types.named import NamedTuple, StrEnum


class Ours(NamedTuple):
    """Of this project."""

    name: str
    mtu: int = 1500
    ips: tuple[str, ...] = ()

    @property
    def is_jumbo(self) -> bool:
        return self.mtu > 1500

    def __str__(self) -> str:
        return f"{self.name} at {self.mtu}"


class Theirs(typing.NamedTuple):
    """Of the standard library."""

    name: str
    mtu: int = 1500
    ips: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a",), {}),
        (("a", 9000), {}),
        (("a", 9000, ("::1",)), {}),
        ((), {"name": "a"}),
        ((), {"ips": ("::1",), "name": "a"}),
        (("a",), {"ips": ("::1",)}),
    ],
)
def test_values_are_completed_as_the_standard_library_does(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert tuple(ours) == tuple(theirs) == (ours.name, ours.mtu, ours.ips)
    assert ours._asdict() == theirs._asdict()
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert tuple(ours._replace(mtu=1)) == tuple(theirs._replace(mtu=1))


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        ((), {}, "Ours lacks values: name"),
        (("a", 1, (), 4), {}, "Ours takes 3 values, 4 were given"),
        (("a",), {"name": "b"}, "Ours got unexpected values, or a second time: name"),
        (("a",), {"size": 1}, "Ours got unexpected values, or a second time: size"),
    ],
)
def test_values_that_do_not_fit_are_refused(values: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}$"):
        Ours(*values, **named)
    with pytest.raises(TypeError):
        Theirs(*values, **named)


def test_replace_refuses_what_is_no_field() -> None:
    with pytest.raises(TypeError, match="size"):
        Ours("a")._replace(size=1)  # type: ignore[call-arg]


def test_a_named_tuple_is_a_tuple_without_a_dictionary() -> None:
    value = Ours("a")
    assert value == ("a", 1500, ())
    assert hash(value) == hash(("a", 1500, ()))
    assert not hasattr(value, "__dict__")
    with pytest.raises(AttributeError):
        value.name = "b"  # type: ignore[misc]


def test_properties_methods_and_documentation_stay() -> None:
    assert (Ours("a", 9000).is_jumbo, str(Ours("a")), Ours.__doc__, Ours.__module__) == (True, "a at 1500", "Of this project.", __name__)


def test_it_is_copied_pickled_and_matched() -> None:
    value = Ours("a", 2)
    assert copy.deepcopy(value) == value
    assert type(pickle.loads(pickle.dumps(value))) is Ours
    match value:
        case Ours(name, mtu, ips):
            assert (name, mtu, ips) == ("a", 2, ())
    assert Ours._make(["a", 2, ()]) == value


def test_a_field_without_a_default_cannot_follow_one_with_a_default() -> None:
    body = {"__annotations__": {"a": "int", "b": "int"}, "a": 1, "__module__": __name__}
    with pytest.raises(TypeError, match="Wrong: a field without a default follows one that has a default"):
        type(NamedTuple)("Wrong", (NamedTuple,), body)


def test_annotations_are_there_for_tools() -> None:
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert (Ours._fields, Ours._field_defaults) == (Theirs._fields, Theirs._field_defaults)


class OurVerb(StrEnum):
    """Of this project."""

    ADD = "ADD"
    GC = "GC"


class TheirVerb(enum.StrEnum):
    """Of the standard library."""

    ADD = "ADD"
    GC = "GC"


@pytest.mark.parametrize("verb", [OurVerb, TheirVerb])
def test_members_are_texts_known_by_value_and_kept_one(verb: Any) -> None:
    assert [verb("ADD"), verb("GC")] == list(verb) == ["ADD", "GC"]
    assert verb("ADD") is verb.ADD is verb(verb.ADD) is copy.deepcopy(verb.ADD) is pickle.loads(pickle.dumps(verb.ADD))
    assert (f"{verb.ADD}", verb.GC.lower(), {verb.GC: 1}["GC"], list(verb.__members__)) == ("ADD", "gc", 1, ["ADD", "GC"])
    assert isinstance(verb.ADD, str)
    assert isinstance(verb.ADD, verb)


@pytest.mark.parametrize("verb", [OurVerb, TheirVerb])
@pytest.mark.parametrize("value", ["add", "", None, 1])
def test_what_is_no_member_is_refused(verb: Any, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{value!r} is not a valid {verb.__name__}$"):
        verb(value)
