"""The specifications of the hooks are whole: documented, tested, and of one shape."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from multus.hooks import manager, spec

ROOT = Path(__file__).parents[3]
HOOKS: dict[str, Any] = {name: value for name, value in vars(spec).items() if name.startswith("multus_")}
EACH = pytest.mark.parametrize("name", sorted(HOOKS))


def options(name: str) -> dict[str, Any]:
    found: dict[str, Any] = getattr(HOOKS[name], f"{spec.PROJECT}_spec")
    return found


def test_there_is_one_specification_for_each_method_of_the_facade() -> None:
    methods = {f"multus_{name}" for name, value in vars(manager.Hooks).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert set(HOOKS) == methods


@EACH
def test_a_hook_has_plain_arguments_that_the_facade_passes_by_name(name: str) -> None:
    parameters = inspect.signature(HOOKS[name]).parameters.values()
    facade = list(inspect.signature(getattr(manager.Hooks, name.removeprefix("multus_"))).parameters)[1:]
    assert [parameter.name for parameter in parameters] == facade
    assert {(parameter.kind, parameter.default) for parameter in parameters} == {
        (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty)
    }


@EACH
def test_a_question_takes_the_first_answer_and_a_report_reaches_everyone(name: str) -> None:
    returns_nothing = HOOKS[name].__annotations__["return"] == "None"
    assert options(name)["firstresult"] is not returns_nothing
    assert name.startswith("multus_report_") is returns_nothing


@EACH
def test_a_hooks_docstring_says_when_it_is_called_what_an_exception_does_and_the_default(name: str) -> None:
    text = HOOKS[name].__doc__
    assert [word for word in ("Called once", "xception", "Default") if word not in text] == []


@EACH
def test_a_hook_is_in_the_manual_with_all_its_arguments(name: str) -> None:
    manual = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    arguments = ", ".join(inspect.signature(HOOKS[name]).parameters)
    assert f"{name}({arguments})" in re.sub(r"\s+", " ", manual)


@EACH
def test_a_hook_has_a_test_of_its_built_in_plugin(name: str) -> None:
    pattern = re.compile(rf"def test_{name.removeprefix('multus_')}_\w+\(")
    assert [path.name for path in (ROOT / "tests" / "unit").rglob("test_*.py") if pattern.search(path.read_text(encoding="utf-8"))] != []


def test_the_marker_marks_implementations_of_this_project() -> None:
    assert (spec.hookimpl.project_name, spec.hookspec.project_name) == ("multus", "multus")
