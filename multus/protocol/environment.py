"""The ``CNI_*`` environment: decoded from a runtime, encoded for a delegate.  Spec: CNI 1.1.0 §2, "Parameters"."""

from __future__ import annotations

from multus.errors import InvalidEnvironmentError, UnknownContainerError
from multus.types.invocation import Call, CNICommand, PodArgs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from multus.types.invocation import Invocation

IFNAME_MAX_BYTES = 15

_REQUIRED = {
    CNICommand.ADD: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    CNICommand.DEL: ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"),
    CNICommand.CHECK: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    CNICommand.GC: ("CNI_PATH",),
    CNICommand.STATUS: ("CNI_PATH",),
    CNICommand.VERSION: (),
}
_POD_KEYS = {
    "K8S_POD_NAMESPACE": "namespace",
    "K8S_POD_NAME": "name",
    "K8S_POD_UID": "uid",
    "K8S_POD_INFRA_CONTAINER_ID": "infra_container_id",
}
_ALNUM = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_IDENTIFIER = _ALNUM | frozenset("_.-")


def parse_call(environ: Mapping[str, str], *, needs_path: bool = True) -> Call:
    """Decode the environment of one call.

    Args:
        needs_path: Whether ``CNI_PATH`` must be there; the daemon has a search path of its own.

    Raises:
        InvalidEnvironmentError: Code 4; names every variable that is missing, or the one that is invalid.
        UnknownContainerError: Code 3 for an empty container ID.
    """
    name = environ.get("CNI_COMMAND", "")
    if name not in CNICommand.__members__:
        raise InvalidEnvironmentError(f"CNI_COMMAND {name!r} is unknown, one of {', '.join(CNICommand)} is expected")
    command = CNICommand(name)
    required = [variable for variable in _REQUIRED[command] if needs_path or variable != "CNI_PATH"]
    missing = [variable for variable in required if not environ.get(variable)]
    if missing == ["CNI_CONTAINERID"] and "CNI_CONTAINERID" in environ:
        raise UnknownContainerError("CNI_CONTAINERID is empty")
    if missing:
        raise InvalidEnvironmentError(f"{', '.join(missing)} missing from the environment of {command}")
    call = Call(command, path=split_path(environ.get("CNI_PATH", "")))
    if "CNI_CONTAINERID" not in _REQUIRED[command]:
        return call
    if not is_identifier(environ["CNI_CONTAINERID"]):
        raise InvalidEnvironmentError(
            f"CNI_CONTAINERID {environ['CNI_CONTAINERID']!r} is invalid: letters, digits, '_', '.', '-', first a letter or digit"
        )
    problem = ifname_problem(environ["CNI_IFNAME"])
    if problem:
        raise InvalidEnvironmentError(f"CNI_IFNAME {environ['CNI_IFNAME']!r} is invalid: {problem}")
    pairs, pod = parse_generic_args(environ.get("CNI_ARGS", ""), lenient=command is CNICommand.DEL)
    return call._replace(
        container_id=environ["CNI_CONTAINERID"],
        netns=environ.get("CNI_NETNS", ""),
        ifname=environ["CNI_IFNAME"],
        generic_args=pairs,
        pod=pod,
        netns_override=environ.get("CNI_NETNS_OVERRIDE", "").lower() in ("true", "1"),
    )


def parse_generic_args(text: str, *, lenient: bool = False) -> tuple[tuple[tuple[str, str], ...], PodArgs]:
    """Decode ``CNI_ARGS``: its pairs in order, and the pod that they name.  A later duplicate wins.

    Args:
        lenient: For DEL: what cannot be understood is left out, so that it never blocks a clean-up.

    Raises:
        InvalidEnvironmentError: Code 4; names the part: no ``=``, an unknown key without IgnoreUnknown, a bad IgnoreUnknown.
    """
    pairs: list[tuple[str, str]] = []
    pod: dict[str, str] = {}
    unknown: list[str] = []
    ignore_unknown = lenient
    for part in text.split(";") if text else ():
        key, equals, value = part.partition("=")
        if not equals or not key:
            if not part or lenient:
                continue
            raise InvalidEnvironmentError(f"CNI_ARGS part {part!r} is no KEY=VALUE")
        pairs.append((key, value))
        if key in _POD_KEYS:
            pod[_POD_KEYS[key]] = value
        elif key == "IgnoreUnknown":
            if value.lower() not in ("1", "true", "0", "false") and not lenient:
                raise InvalidEnvironmentError(f"CNI_ARGS IgnoreUnknown {value!r} is invalid, true or false is expected")
            ignore_unknown = lenient or value.lower() in ("1", "true")
        elif key not in ("IP", "MAC"):
            unknown.append(key)
    if unknown and not ignore_unknown:
        raise InvalidEnvironmentError(f"CNI_ARGS has unknown keys {', '.join(map(repr, unknown))} and no IgnoreUnknown=true")
    return tuple(pairs), PodArgs(**pod)


def format_generic_args(pairs: Iterable[tuple[str, str]]) -> str:
    """``CNI_ARGS`` as text."""
    return ";".join(f"{key}={value}" for key, value in pairs)


def delegate_environment(invocation: Invocation, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a delegate's process: what we were given, with the attachment parameters replaced.

    For GC and STATUS the parameters are set and empty.
    """
    return {
        **inherited,
        "CNI_COMMAND": str(invocation.command),
        "CNI_CONTAINERID": invocation.container_id,
        "CNI_NETNS": invocation.netns,
        "CNI_IFNAME": invocation.ifname,
        "CNI_ARGS": invocation.generic_args,
        "CNI_PATH": ":".join(invocation.path),
    }


def split_path(text: str) -> tuple[str, ...]:
    """The folders of a ``CNI_PATH``; an empty element would mean the working folder, so it is dropped."""
    return tuple(folder for folder in text.split(":") if folder)


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated variable, without blanks and empty ones."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def is_identifier(text: str) -> bool:
    """Whether ``text`` may be a container ID or a network's name.  Spec: CNI 1.1.0 §1 and §2."""
    return bool(text) and text[0] in _ALNUM and _IDENTIFIER.issuperset(text)


def ifname_problem(name: str) -> str:
    """Why ``name`` cannot name a Linux interface, or the empty string.  Spec: CNI 1.1.0 §2, CNI_IFNAME."""
    if not name:
        return "empty"
    try:
        encoded = name.encode(errors="surrogateescape")  # as the system calls will be given it
    except UnicodeEncodeError:
        return "has half a character"
    if len(encoded) > IFNAME_MAX_BYTES:
        return f"longer than {IFNAME_MAX_BYTES} bytes"
    if name in (".", ".."):
        return "a folder's name"
    if "/" in name or ":" in name or "\0" in name:
        return "has '/', ':' or NUL"
    if any(character.isspace() for character in name):
        return "has white space"
    return ""
