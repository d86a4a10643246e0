"""The bundle, an interpreter with our modules for hosts that have no Python: what describes it, and what depends on its place.

Pure: ``deployments/bundle.py`` makes bundles, ``adapters.installation`` puts them on a host.
"""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol import documents
from multus.types.bundle import Bundle, BundleFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

DESCRIPTION = "bundle.json"
INTERPRETER = "bin/python3"
PLACEHOLDER = "/" + "interpreter-not-placed/" * 22
"""The loader's path in an interpreter that is nowhere yet: 507 bytes, room for the path that it gets."""
FLAGS = "-IS"
"""Of the interpreter: no environment variables, no ``site``.  A first line gives one word to its interpreter."""


def parse(content: bytes, where: str) -> Bundle:
    """A bundle's description.

    Raises:
        DecodingError: Code 6, no JSON object.
        InvalidConfigError: Code 7, it does not describe a bundle; names ``where`` and the key.
    """
    document = documents.load_object(content, where)
    files: dict[str, BundleFile] = {}
    for name, entry in _members(document, "files", where).items():
        members = entry if isinstance(entry, dict) else {}
        sha256, mode = members.get("sha256"), members.get("mode")
        if not isinstance(sha256, str) or type(mode) is not int or not _is_below(name):
            raise InvalidConfigError(f"{where}: key \"files\" has no valid entry for {documents.quote(name)}")
        files[name] = BundleFile(sha256, mode & 0o777)
    launchers = _members(document, "launchers", where)
    modules = {name: module for name, module in launchers.items() if isinstance(module, str) and "/" not in name}
    version, loader = document.get("version"), document.get("loader")
    if not isinstance(version, str) or not version or version[0] == "." or "/" in version:
        raise InvalidConfigError(f"{where}: key \"version\" {documents.quote(version)} is no version")
    if not isinstance(loader, str) or not {loader, INTERPRETER} <= files.keys() or modules.keys() != launchers.keys():
        raise InvalidConfigError(f"{where}: it lacks an interpreter, its loader, or a module for each launcher")
    return Bundle(version, loader, modules, files)


def placed(interpreter: bytes, loader: str, where: str) -> bytes:
    """The interpreter with the path of its loader in it.  Raises InvalidConfigError: the path is too long, or no room is left for it."""
    room, path = PLACEHOLDER.encode() + b"\0", loader.encode() + b"\0"
    if len(path) > len(room):
        raise InvalidConfigError(f"{where}: the path {loader} is longer than {len(room) - 1} bytes")
    if interpreter.count(room) != 1:
        raise InvalidConfigError(f"{where}: it is no interpreter of a bundle: the path of its loader is set already")
    return interpreter.replace(room, path.ljust(len(room), b"\0"))


def launcher(module: str, interpreter: str, limit: int) -> bytes:
    """The executable that runs a module's ``main``.

    Args:
        limit: Bytes that the kernel reads of a first line.

    Raises:
        InvalidConfigError: The interpreter's path fits no first line.
    """
    first = f"#!{interpreter} {FLAGS}"
    if len(first.encode()) > limit or any(character.isspace() for character in interpreter):
        raise InvalidConfigError(f"interpreter {interpreter}: the kernel takes no path of over {limit - len(FLAGS) - 3} bytes, nor spaces")
    return f"{first}\nfrom {module} import main\nmain()\n".encode()


def interpreter_of(executable: bytes) -> str:
    """The path of the interpreter that a launcher names; empty: it is none of our launchers."""
    line = executable.partition(b"\n")[0].decode(errors="replace")
    return line[2:-len(FLAGS) - 1] if line.startswith("#!/") and line.endswith(f"/{INTERPRETER} {FLAGS}") else ""


def _members(document: Mapping[str, object], key: str, where: str) -> Mapping[str, object]:
    value = document.get(key)
    if not isinstance(value, dict):
        raise InvalidConfigError(f"{where}: key \"{key}\" is {documents.kind(value)}, an object is expected")
    return value


def _is_below(name: str) -> bool:
    return documents.is_path_text(name) and not {"", ".", ".."} & set(name.split("/"))
