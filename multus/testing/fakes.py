"""Fakes of every port of ``multus.core.ports``, as plain data: no file, no process, no clock, no kernel.

For authors of plugins and for our own tests; ``multus.testing.world`` puts them together.  Each notes what is asked of it in
a ``Calls``, which several may share, so that order across ports can be seen and any call can be made to fail.

Long because it has one class per port; a reader looks for one of them.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, NamedTuple

from multus.errors import InvalidConfigError, InvalidNetnsError, IOFailureError, MultusError, ObjectNotFoundError
from multus.protocol import addresses, results, versions
from multus.testing.calls import Calls, Made
from multus.types.invocation import Completed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, TypeAlias, TypeVar

    from multus.types.config import ConfList, PluginConf
    from multus.types.delegate import Attachment, NetAttachDef
    from multus.types.invocation import Call
    from multus.types.pod import Node, Pod

    Key = TypeVar("Key")
    Value = TypeVar("Value")

    Answer: TypeAlias = "Mapping[str, Any] | MultusError | Completed | Callable[[ProgramCall], Answer]"
    """Of a program: a result document, an error object, its raw end, or what makes one of these."""

NETNS = "/run/netns/pod"


class FakeKube:
    """``ports.Kube``, and so ``ports.EventSink``: objects by namespace and name; statuses and events as they were sent."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()
        self.pods: dict[tuple[str, str], Pod] = {}
        self.net_attach_defs: dict[tuple[str, str], NetAttachDef] = {}
        self.objects: dict[str, Mapping[str, object]] = {}
        """By API path, for ``get``."""
        self.statuses: list[tuple[Pod, str, str]] = []
        """Pod, key and value of each annotation."""
        self.events: list[tuple[str, str, str]] = []
        """Kind, reason and message."""

    def pod(self, namespace: str, name: str, uid: str = "") -> Pod:
        self.calls.note("kube.pod", namespace, name, uid)
        return _found(self.pods, (namespace, name), f'pods "{name}"')

    def net_attach_def(self, namespace: str, name: str) -> NetAttachDef:
        self.calls.note("kube.net_attach_def", namespace, name)
        return _found(self.net_attach_defs, (namespace, name), f'network-attachment-definitions "{name}"')

    def annotate_status(self, pod: Pod, key: str, value: str) -> None:
        self.calls.note("kube.annotate_status", pod, key, value)
        _found(self.pods, (pod.namespace, pod.name), f'pods "{pod.name}"')
        self.statuses.append((pod, key, value))

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        self.calls.note("kube.create_event", about, kind, reason, message)
        self.events.append((kind, reason, message))

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, object]:
        self.calls.note("kube.get", path, query)
        return _found(self.objects, path, path)


class FakeJournal:
    """``ports.Journal`` in memory.  As on disk, a record says nothing of results, and one that is missing is rebuilt from them."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()
        self.records: dict[str, tuple[Attachment, ...]] = {}
        self.results: dict[tuple[str, str, str], Attachment] = {}
        """By container ID, network and interface."""
        self.damaged_ids: set[str] = set()

    def write(self, container_id: str, attachments: tuple[Attachment, ...]) -> None:
        self.calls.note("journal.write", container_id, attachments)
        if attachments:
            self.records[container_id] = tuple(each._replace(result=None, device_info=None) for each in attachments)
        else:
            self.records.pop(container_id, None)

    def read(self, call: Call) -> tuple[Attachment, ...] | None:
        self.calls.note("journal.read", call)
        if call.container_id in self.records:
            return tuple(self._with_result(each) for each in self.records[call.container_id])
        return tuple(each for (container_id, _, _), each in self.results.items() if container_id == call.container_id) or None

    @contextlib.contextmanager
    def locked(self, *, exclusive: bool = False) -> Iterator[None]:
        self.calls.note("journal.locked", exclusive)
        try:
            yield
        finally:
            self.calls.made.append(Made("journal.unlocked", ()))

    def write_result(self, attachment: Attachment) -> None:
        self.calls.note("journal.write_result", attachment)
        self.results[_key(attachment)] = attachment

    def remove_result(self, attachment: Attachment) -> None:
        self.calls.note("journal.remove_result", attachment)
        self.results.pop(_key(attachment), None)

    def containers(self) -> tuple[str, ...]:
        self.calls.note("journal.containers")
        return tuple(sorted({*self.records, *(container_id for container_id, _, _ in self.results)}))

    def damaged(self) -> frozenset[str]:
        return frozenset(self.damaged_ids)

    def _with_result(self, attachment: Attachment) -> Attachment:
        recorded = self.results.get(_key(attachment))
        return attachment if recorded is None else attachment._replace(result=recorded.result, runners=recorded.runners)


class DefaultRoute(NamedTuple):
    """A default route of a namespace; ``gateway`` is empty for one without."""

    ifname: str
    family: int
    gateway: str
    metric: int = 0


class FakeNamespace:
    """What is in one network namespace."""

    def __init__(self, *links: str, routes: tuple[DefaultRoute, ...] = ()) -> None:
        self.links = set(links)
        self.routes = list(routes)

    def remove_link(self, ifname: str) -> None:
        """Remove a link, and with it its routes."""
        self.links.discard(ifname)
        self.routes = [route for route in self.routes if route.ifname != ifname]


class FakeNetns:
    """``ports.Netns``: namespaces by path; ``own`` is the path of the process's own."""

    def __init__(self, calls: Calls | None = None, namespaces: Mapping[str, FakeNamespace] | None = None, own: str = "") -> None:
        self.calls = calls or Calls()
        self.namespaces = dict(namespaces or {NETNS: FakeNamespace()})
        self.own = own
        self.keeps_routes = False
        """Whether removing a route is without effect, as if something put it back at once."""
        self.refusals: dict[str, MultusError] = {}

    def is_own(self, netns: str) -> bool:
        self.calls.note("netns.is_own", netns)
        return netns == self.own

    def has_link(self, netns: str, ifname: str) -> bool:
        self.calls.note("netns.has_link", netns, ifname)
        return ifname in self._namespace(netns).links

    def remove_links(self, netns: str, names: Sequence[str]) -> dict[str, MultusError]:
        """``refusals`` says which links cannot be removed, and why."""
        self.calls.note("netns.remove_links", netns, *names)
        links = self._namespace(netns).links
        links.difference_update(set(names) - self.refusals.keys())
        return {name: self.refusals[name] for name in names if name in links}

    def default_routes(self, netns: str, ifname: str, family: int) -> tuple[str, ...]:
        self.calls.note("netns.default_routes", netns, ifname, family)
        routes = sorted(self._routes(netns, ifname, family), key=lambda route: route.metric)
        return tuple(route.gateway for route in routes)

    def remove_default_routes(self, netns: str, ifname: str, family: int) -> None:
        self.calls.note("netns.remove_default_routes", netns, ifname, family)
        if not self.keeps_routes:
            doomed = self._routes(netns, ifname, family)
            self.namespaces[netns].routes = [route for route in self.namespaces[netns].routes if route not in doomed]

    def add_default_route(self, netns: str, ifname: str, gateway: str, metric: int) -> None:
        """As the kernel does it, refuse a second default route of the same family and metric."""
        self.calls.note("netns.add_default_route", netns, ifname, gateway, metric)
        parsed = addresses.parse_ip(gateway)
        wanted = DefaultRoute(ifname, parsed[0] if parsed else 0, gateway, metric)
        present = self._namespace(netns).routes
        if any((route.family, route.metric) == (wanted.family, metric) for route in present if route != wanted):
            raise IOFailureError(f"cannot add a default route of interface {ifname} via {gateway} in {netns}: File exists")
        if wanted not in present:
            present.append(wanted)

    def _routes(self, netns: str, ifname: str, family: int) -> list[DefaultRoute]:
        namespace = self._namespace(netns)
        if ifname not in namespace.links:
            raise IOFailureError(f"interface {ifname} does not exist in {netns}")
        return [route for route in namespace.routes if (route.ifname, route.family) == (ifname, family)]

    def _namespace(self, netns: str) -> FakeNamespace:
        if netns not in self.namespaces:
            raise InvalidNetnsError(f"network namespace {netns!r} cannot be opened: No such file or directory")
        return self.namespaces[netns]


class FakeClock:
    """``ports.WallClock``: time passes by sleeping alone."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


class ProgramCall(NamedTuple):
    """One call of a delegate's binary."""

    type: str
    command: str
    environment: Mapping[str, str]
    config: Mapping[str, Any]
    """What it read on standard input."""

    @property
    def ifname(self) -> str:
        return self.environment["CNI_IFNAME"]


class FakePrograms:
    """``ports.Programs``: CNI plugins that answer as they are told, and make links and default routes in a ``FakeNetns``.

    Without an answer of its own ADD gives one address, or the previous result in a chain, and every other verb succeeds.
    """

    def __init__(self, *types: str, calls: Calls | None = None, netns: FakeNetns | None = None) -> None:
        self.calls = calls or Calls()
        self.netns = netns
        self.installed = set(types)
        self.made: list[ProgramCall] = []
        self.attached: set[tuple[str, str, str]] = set()
        """Type, container ID and interface of each ADD that was begun and whose DEL did not succeed since."""
        self.forwarded: list[bytes] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {}

    def answer(self, delegate_type: str, command: str, *answers: Answer) -> None:
        """Set what a type answers to a verb: one answer per call, the last one for all that follow; none: its own again."""
        self._answers[delegate_type, command] = list(answers)

    def of(self, command: str, delegate_type: str = "") -> list[ProgramCall]:
        """The calls of one verb, of one type or of all."""
        return [call for call in self.made if call.command == command and delegate_type in ("", call.type)]

    def find(self, name: str, folders: tuple[str, ...]) -> str | None:
        return os.path.join(folders[0], name) if folders and name in self.installed else None

    def run(self, path: str, environment: Mapping[str, str], stdin: bytes) -> Completed:
        call = ProgramCall(os.path.basename(path), environment["CNI_COMMAND"], dict(environment), json.loads(stdin))
        self.made.append(call)
        here = (call.type, environment["CNI_CONTAINERID"], call.ifname)
        if call.command == "ADD":
            self.attached.add(here)
        self.calls.note("programs.run", path, call.command, call.ifname)
        completed = self._completed(call)
        if completed.status == 0 and call.command == "DEL":
            self.attached.discard(here)
            if self.netns is not None and call.environment["CNI_NETNS"] in self.netns.namespaces:
                self.netns.namespaces[call.environment["CNI_NETNS"]].remove_link(call.ifname)
        return completed

    def forward(self, stderr: bytes) -> None:
        self.forwarded.append(stderr)

    def own_answer(self, call: ProgramCall) -> Mapping[str, Any]:
        """The previous result in a chain, else an interface with an address, in the version of the request."""
        version = call.config.get("cniVersion") or versions.DEFAULT
        if call.command != "ADD":
            return {}
        if "prevResult" in call.config:
            previous: Mapping[str, Any] = call.config["prevResult"]
            return previous
        interface = {"name": call.ifname, "mac": "02:00:00:00:00:01", "sandbox": call.environment["CNI_NETNS"]}
        ip = {"address": "198.51.100.2/24", "gateway": "198.51.100.1", "interface": 0}
        made = results.parse({"cniVersion": "1.1.0", "interfaces": [interface], "ips": [ip]}, "")
        return results.convert(made, version).document

    def _completed(self, call: ProgramCall) -> Completed:
        scripted = self._answers.get((call.type, call.command))
        answer: Answer = self.own_answer
        if scripted:
            answer = scripted.pop(0) if len(scripted) > 1 else scripted[0]
        while callable(answer):
            answer = answer(call)
        if isinstance(answer, Completed):
            return answer
        if isinstance(answer, MultusError):
            return Completed(1, json.dumps(answer.document(call.config.get("cniVersion", ""))).encode(), b"")
        if call.command == "ADD":
            self._make_link(call, answer)
        return Completed(0, json.dumps(answer).encode() if call.command == "ADD" else b"", b"")

    def _make_link(self, call: ProgramCall, document: Mapping[str, Any]) -> None:
        namespace = self.netns.namespaces.get(call.environment["CNI_NETNS"]) if self.netns is not None else None
        if namespace is None or call.ifname in namespace.links:
            return
        namespace.links.add(call.ifname)
        for route in results.view(results.parse(document, call.config.get("cniVersion", ""))).routes:
            parsed = addresses.parse_cidr(route.dst) or addresses.parse_ip(route.gw)
            if addresses.is_default(route.dst) and parsed is not None:
                namespace.routes.append(DefaultRoute(call.ifname, parsed[0], route.gw))


class FakeRegistry:
    """``ports.Registry``: in-process delegates by type."""

    def __init__(self, delegates: Mapping[str, object] | None = None) -> None:
        self.delegates = dict(delegates or {})

    def delegate(self, delegate_type: str) -> object | None:
        return self.delegates.get(delegate_type)


class FakeGuard:
    """``ports.Guard``: guards nothing."""

    def block(self, what: str, container_id: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


class FakeConfDir:
    """``ports.ConfDir``: configurations by name and by path, plugins by path and chain."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()
        self.names: dict[str, ConfList] = {}
        self.paths: dict[str, ConfList] = {}
        self.chains: dict[tuple[str, str], tuple[PluginConf, ...]] = {}

    def by_name(self, name: str) -> ConfList | None:
        self.calls.note("conf_dir.by_name", name)
        return self.names.get(name)

    def from_path(self, path: str) -> ConfList:
        self.calls.note("conf_dir.from_path", path)
        if path not in self.paths:
            raise InvalidConfigError(f"{path} does not exist")
        return self.paths[path]

    def auxiliary_plugins(self, path: str, chain: str) -> tuple[PluginConf, ...]:
        self.calls.note("conf_dir.auxiliary_plugins", path, chain)
        return self.chains.get((path, chain), ())


class FakeDeviceInfo:
    """``ports.DeviceInfoFiles``: what device plugins tell, by resource and device, and the attachments' files by path."""

    def __init__(self, calls: Calls | None = None) -> None:
        self.calls = calls or Calls()
        self.devices: dict[tuple[str, str], Mapping[str, object]] = {}
        self.files: dict[str, Mapping[str, object]] = {}

    def path(self, delegate_name: str, container_id: str, ifname: str) -> str:
        return f"/devinfo/{delegate_name.replace('/', '-')}-{container_id}_{ifname}"

    def publish(self, resource_name: str, device_id: str, path: str) -> None:
        self.calls.note("device_info.publish", resource_name, device_id, path)
        if (resource_name, device_id) in self.devices:
            self.files[path] = self.devices[resource_name, device_id]

    def read(self, path: str) -> Mapping[str, object] | None:
        self.calls.note("device_info.read", path)
        return self.files.get(path)

    def remove(self, path: str) -> None:
        self.calls.note("device_info.remove", path)
        self.files.pop(path, None)

    def prune(self, container_ids: frozenset[str]) -> None:
        self.calls.note("device_info.prune", container_ids)
        owners = tuple(f"-{container_id}" for container_id in container_ids)
        self.files = {path: content for path, content in self.files.items() if path.rpartition("_")[0].endswith(owners)}


class FakeDevices:
    """``ports.Devices``: the devices of a pod by resource, in the order in which they are handed out."""

    def __init__(self, calls: Calls | None = None, devices: Mapping[str, list[str]] | None = None) -> None:
        self.calls = calls or Calls()
        self.left = {resource: list(ids) for resource, ids in (devices or {}).items()}

    def take(self, resource_name: str, network: str) -> str:
        self.calls.note("devices.take", resource_name, network)
        if not self.left.get(resource_name):
            raise InvalidConfigError(f"network {network!r}: the pod has no device of resource {resource_name!r} left")
        return self.left[resource_name].pop(0)


class FakeIntentStore:
    """``ports.IntentStore``: requests' bodies by name, oldest first."""

    def __init__(self, calls: Calls | None = None, intents: Mapping[str, bytes] | None = None) -> None:
        self.calls = calls or Calls()
        self.waiting = dict(intents or {})
        self.aside: dict[str, bytes] = {}

    def names(self) -> list[str]:
        self.calls.note("intents.names")
        return list(self.waiting)

    def read(self, name: str) -> bytes:
        self.calls.note("intents.read", name)
        return self.waiting[name]

    def drop(self, name: str) -> None:
        self.calls.note("intents.drop", name)
        self.waiting.pop(name, None)

    def put_aside(self, name: str) -> None:
        self.calls.note("intents.put_aside", name)
        self.aside[name] = self.waiting.pop(name)


class RecordingLog:
    """``ports.Log``: the lines as level, event and fields; bound logs write into the same list."""

    def __init__(self, lines: list[tuple[str, str, dict[str, object]]] | None = None, **bound: object) -> None:
        self.lines = [] if lines is None else lines
        self._bound = bound

    def bind(self, **fields: object) -> RecordingLog:
        return RecordingLog(self.lines, **{**self._bound, **fields})

    def error(self, event: str, **fields: object) -> None:
        self._note("error", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._note("warning", event, fields)

    def verbose(self, event: str, **fields: object) -> None:
        self._note("verbose", event, fields)

    def debug(self, event: str, **fields: object) -> None:
        self._note("debug", event, fields)

    def events(self, level: str = "") -> list[str]:
        """The events of one level, or of all."""
        return [event for line_level, event, _ in self.lines if level in ("", line_level)]

    def _note(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.lines.append((level, event, {**self._bound, **fields}))


def _key(attachment: Attachment) -> tuple[str, str, str]:
    return attachment.container_id, attachment.network, attachment.ifname


def _found(objects: Mapping[Key, Value], key: Key, what: str) -> Value:
    if key not in objects:
        raise ObjectNotFoundError(f"{what} not found")
    return objects[key]
