"""What is called: the verb and the attachment parameters, towards us (``Call``) and from us (``Invocation``)."""

from __future__ import annotations

from multus.types.named import NamedTuple, StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.result import Result


class CNICommand(StrEnum):
    """The verbs of CNI 1.1.0 §2."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"


class PodArgs(NamedTuple):
    """The pod that a call is for, as ``CNI_ARGS`` names it; empty strings where it does not."""

    namespace: str = ""
    name: str = ""
    uid: str = ""
    infra_container_id: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}"


class Call(NamedTuple):
    """What a container runtime asks of us: the environment, decoded.  Spec: CNI 1.1.0 §2, "Parameters"."""

    command: CNICommand
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    generic_args: tuple[tuple[str, str], ...] = ()
    """The pairs of ``CNI_ARGS`` in order."""
    path: tuple[str, ...] = ()
    """The folders of ``CNI_PATH`` in order, none of them empty."""
    pod: PodArgs = PodArgs()
    netns_override: bool = False


class Invocation(NamedTuple):
    """One CNI call to one plugin of a conflist.  Empty parameters for GC and STATUS."""

    command: CNICommand
    type: str
    config: Mapping[str, object]
    """The request configuration, derived: what a binary reads on standard input.  Not to be changed."""
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    generic_args: str = ""
    """``CNI_ARGS`` as text."""
    path: tuple[str, ...] = ()
    """The folders to look for a binary in."""


class Outcome(NamedTuple):
    """What a delegate answered: a result for ADD, none for the other verbs."""

    result: Result | None = None
    links: tuple[str, ...] = ()
    """DEL: links of the pod's namespace that are still to be removed; Multus does that, for all networks of a pod at once."""
    runner: str = ""
    """ADD: who has run it, ``binary`` or ``in-process``, and is to run the other verbs; empty: by preference."""


class Completed(NamedTuple):
    """How a delegate's process ended."""

    status: int
    """Exit status; negative: the signal that ended it."""
    stdout: bytes
    stderr: bytes
