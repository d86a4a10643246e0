"""What a call works with, and the place that its errors open with."""

from __future__ import annotations

import pytest

from multus.errors import DelegateError, MultusError
from multus.testing.world import World


def test_search_path_is_our_own_folder_then_the_runtimes() -> None:
    assert World().context("ADD", {"binDir": "/own"}, path=("/a", "/b")).search_path == ("/own", "/a", "/b")


def test_place_of_a_network_names_pod_network_and_deed() -> None:
    with pytest.raises(MultusError) as caught, World().context().place("blue", "cannot attach 'net1'"):
        raise MultusError("no")
    assert caught.value.msg == "[shop/web/u1:blue]: cannot attach 'net1': no"


def test_place_of_a_call_names_the_pod_alone() -> None:
    with pytest.raises(MultusError) as caught, World().context().place():
        raise MultusError("no")
    assert caught.value.msg == "[shop/web/u1]: no"


def test_place_keeps_class_code_and_details_and_the_error_itself_as_cause() -> None:
    error = DelegateError("no", "much more", 57)
    with pytest.raises(DelegateError) as caught, World().context().place():
        raise error
    assert (caught.value.code, caught.value.details, caught.value.__cause__) == (57, "much more", error)


@pytest.mark.parametrize("error", [ValueError("a fault"), KeyboardInterrupt()])
def test_place_leaves_other_exceptions_alone(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, World().context().place():
        raise error
    assert caught.value is error


def test_block_without_an_error_passes() -> None:
    with World().context().place("blue"):
        pass
