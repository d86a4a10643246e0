"""What the binaries import, exactly: each module costs every call of every pod."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import multus

LISTS = Path(__file__).with_name("modules.json")
ROOT = str(Path(multus.__file__).parent.parent)
HEAVY = {
    "attr", "cattrs", "pluggy", "kubernetes", "pyroute2", "grpc", "yaml", "typing", "logging", "subprocess", "asyncio", "ctypes", "inspect",
}

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the lists are those of Python 3.11")


def modules_after(statement: str) -> list[str]:
    """The modules that a statement loads on top of the bare interpreter's."""
    code = f"import sys; before = set(sys.modules); sys.path.insert(0, {ROOT!r}); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("name", "statement"),
    [("front", "import multus.commands.cni"), ("thin", "import multus.commands.thin"), ("shim", "import multus.commands.shim")],
)
def test_modules_are_exactly_those_of_the_list(name, statement):
    """A module more is a decision: add it to ``modules.json`` together with what it costs (``nox -s startup``)."""
    assert json.loads(LISTS.read_text())[name] == modules_after(statement)


def test_reaching_the_api_server_loads_sockets_and_no_tls():
    """TLS loads with the first HTTPS connection."""
    loaded = set(modules_after("import multus.commands.kube_access"))
    assert {"_socket", "multus.adapters.kube_rest"} <= loaded
    assert not loaded & {"socket", "ssl", "_ssl", "http.client", "multus.adapters.kube_client"}


def test_shim_loads_of_us_only_errors_documents_and_the_wire():
    """Nor json, re, http, enum, typing and the socket module's wrapper."""
    loaded = set(modules_after("import multus.commands.shim"))
    ours = {name for name in loaded if name.startswith("multus.")} - {"multus.commands", "multus.protocol"}
    assert {"multus.commands.shim", "multus.errors", "multus.protocol.documents", "multus.protocol.wire"} == ours
    assert not loaded & {"json", "re", "http", "socket", "enum", "os", "collections"}


@pytest.mark.parametrize("statement", ["import multus.commands.thin", "import multus.commands.kube_access"])
def test_no_heavy_module_is_loaded(statement):
    assert not set(modules_after(statement)) & HEAVY
