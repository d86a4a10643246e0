"""What the package declares is there: each type has an object that Multus can call."""

from __future__ import annotations

import configparser
import os
from importlib import import_module

import pytest

from multus.errors import UnsupportedFieldError
from multus.types.invocation import CNICommand, Invocation

_FILE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "setup.cfg")


def _declared() -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(_FILE)
    lines = parser["options.entry_points"]["multus.delegates"].split("\n")
    return dict(line.split(" = ") for line in lines if line)


@pytest.mark.parametrize(("kind", "target"), _declared().items())
def test_a_type_has_an_object(kind: str, target: str) -> None:
    module, name = target.split(":")
    delegate = getattr(import_module(module), name)()
    assert all(callable(getattr(delegate, method)) for method in ("add", "delete", "check", "gc", "status"))
    unheard_of = {"cniVersion": "1.0.0", "name": "a", "type": kind, "x-unheard-of": 1}
    with pytest.raises(UnsupportedFieldError):
        delegate.accepts(Invocation(CNICommand.ADD, kind, unheard_of, "c1", "/run/netns/a", "net1"))
