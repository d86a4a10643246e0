"""What holds the project together, read from its sources: doors for third parties, charters, sizes, codes.

The direction of imports between layers is import-linter's (``setup.cfg``); it sees the imports that run, this also the others.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from multus import errors

PACKAGE = Path(errors.__file__).parent
SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
LINES_MAX = 500

DOORS = {
    "pluggy": ("hooks/",),
    "attrs": ("types/", "protocol/codec.py"),
    "cattrs": ("protocol/codec.py",),
    "cryptography": ("adapters/x509.py", "testing/"),
    "kubernetes": ("adapters/kube_client",),
    "urllib3": ("adapters/kube_client",),
    "pyroute2": (),
    "grpc": ("adapters/kubelet.py", "testing/"),
    "yaml": ("adapters/kubeconfig.py", "adapters/kube_client", "testing/"),
    "hypothesis": ("testing/",),
    "pytest": ("testing/",),
    "prometheus_client": ("adapters/metrics.py",),
}
"""Third-party package: the beginnings of the paths that may import it."""


def imports_of(path: str) -> set[str]:
    """The dotted names that a source imports anywhere, also inside functions and for types alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(SOURCES[path].read_text(encoding="utf-8"), path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert (path, node.level) == (path, 0), "imports are absolute"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_each_class_of_error_has_a_code_of_its_own() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.MultusError)]
    codes = [each.code for each in classes if each is not errors.DelegateError]
    assert len(codes) == len(set(codes))
    assert [each.__name__ for each in classes if not each.__name__.endswith("Error")] == []


@pytest.mark.parametrize("path", [path for path in SOURCES if path.endswith("__init__.py")])
def test_a_package_holds_its_charter_and_no_code(path: str) -> None:
    (only,) = ast.parse(SOURCES[path].read_text(encoding="utf-8")).body
    assert isinstance(only, ast.Expr)
    assert isinstance(only.value, ast.Constant)
    assert isinstance(only.value.value, str)


@pytest.mark.parametrize("path", SOURCES)
def test_a_module_says_what_it_owns_and_stays_readable(path: str) -> None:
    text = SOURCES[path].read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)) is not None
    assert len(text.splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", SOURCES)
def test_third_parties_come_in_by_their_doors_alone(path: str) -> None:
    packages = {name.partition(".")[0] for name in imports_of(path)} - sys.stdlib_module_names - {"multus"}
    assert {package: path for package in packages if not path.startswith(DOORS.get(package, ()))} == {}


@pytest.mark.parametrize("path", SOURCES)
def test_names_say_what_a_module_owns(path: str) -> None:
    assert {"utils", "util", "helpers", "common", "misc"}.isdisjoint(path.removesuffix(".py").split("/"))


def test_the_sources_are_seen() -> None:
    assert SOURCES.keys() >= {"errors.py", "core/attach.py", "hooks/spec.py", "adapters/process.py"}
    assert "pluggy" in imports_of("hooks/spec.py")
