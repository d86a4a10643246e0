"""The laws of ``multus.testing.conformance``: what the CNI specification demands of any delegate, one function each.

A law is given a ``Trial``: one configuration, on a node and a pod of its own.  It raises ``Violation`` or returns; where
the delegate makes nothing that the law is about, it returns.
"""

from __future__ import annotations

import contextlib
import copy
import json
from typing import TYPE_CHECKING, Any, Protocol, Self

from multus.errors import MultusError
from multus.protocol import results, versions
from multus.testing.pods import Namespace, Pod
from multus.types.invocation import CNICommand

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import TracebackType
    from typing import TypeAlias

    from multus.testing.pods import Answer
    from multus.types.result import Interface, IPConfig, Result

    Law: TypeAlias = "Callable[[Trial], None]"

_TELL = r"""
printf 'address show\nroute show\nrule show\n' | ip -json -details -batch -
printf 'route show\nrule show\n' | ip -6 -json -batch -
echo; echo ---; ! command -v nft >/dev/null || nft list ruleset
"""
_LINK = ("ifname", "link_type", "address", "mtu", "master")
_ROUTE = ("dst", "gateway", "dev", "type", "metric", "prefsrc", "table")


class Violation(AssertionError):
    """The delegate has broken a law; the text says how."""


class Subject(Protocol):
    """Who is tried."""

    def call(self, pod: Pod, verb: str, config: Mapping[str, Any]) -> Answer:
        """One CNI call, in the network namespace of the calling thread."""
        ...


class Trial:
    """A configuration on a node and a pod of its own; ``with Trial(…) as trial:``.

    Args:
        config: Complete, with ``cniVersion``, ``name`` and ``type``.
        prepare: Makes what the network needs on the node.
        stays: Kinds of links that may stay on the node after DEL, as ``bridge`` does.
        also: Tells what else has to be as before after DEL; files, for one.
    """

    def __init__(
        self,
        subject: Subject,
        config: Mapping[str, Any],
        prepare: Callable[[Namespace], object] | None = None,
        stays: Collection[str] = (),
        also: Callable[[], object] = lambda: None,
    ) -> None:
        self.subject = subject
        self.config = dict(config)
        self.version = str(config["cniVersion"])
        self.node = Namespace()
        self.pod = Pod("web", ifname="net1")
        self.result: Result | None = None
        """Of the ADD that stands."""
        self._prepare, self._stays, self._also = prepare, stays, also
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as exits:
            exits.enter_context(self.node)
            exits.enter_context(self.pod)
            if self._prepare is not None:
                self._prepare(self.node)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._exits.close()

    def call(self, verb: str, pod: Pod | None = None, *, with_result: bool = True, **keys: object) -> Answer:
        """One call, whose answer is one that CNI knows: a success, or an error with code and message.

        CHECK and DEL get the result of the ADD.  Spec: CNI 1.1.0 §5.
        """
        config = copy.deepcopy({**self.config, **keys})
        if with_result and verb in ("CHECK", "DEL") and self.result is not None and versions.at_least(self.version, "0.4.0"):
            config["prevResult"] = copy.deepcopy(self.result.document)
        with self.node.entered():
            answer = self.subject.call(pod or self.pod, verb, config)
        if answer.status != 0:
            said = answer.document if isinstance(answer.document, dict) else {}
            code, msg = said.get("code"), said.get("msg")
            is_error = isinstance(code, int) and code > 0 and isinstance(msg, str) and msg
            require(is_error, f"{verb} failed without an error object of code and msg: {answer}")
        return answer

    def succeed(self, verb: str, pod: Pod | None = None, *, with_result: bool = True, **keys: object) -> Answer:
        """A call that has to succeed."""
        answer = self.call(verb, pod, with_result=with_result, **keys)
        require(answer.status == 0, f"{verb} failed: {answer.error}")
        return answer

    def add(self) -> Result:
        """An ADD that has to succeed; its result, which is valid and of the configuration's version."""
        answer = self.succeed("ADD")
        try:
            self.result = results.parse(answer.document, self.version)
        except MultusError as exc:
            raise Violation(f"the result is not valid: {exc.msg}: {answer.document}") from exc
        require(self.result.cni_version == self.version, f"the result is of version {self.result.cni_version}, not {self.version}")
        return self.result

    def collect(self, valid: list[dict[str, str]]) -> None:
        """A GC, which has to succeed."""
        keys: dict[str, Any] = {"cni.dev/valid-attachments": valid, "cni.dev/attachments": valid}
        self.succeed("GC", **keys)

    def made(self) -> tuple[tuple[Interface, ...], tuple[IPConfig, ...]]:
        """The interfaces and addresses that the result has beyond the configuration's previous one."""
        before = results.view(results.parse(self.config.get("prevResult"), self.version))
        view = results.view(self.result) if self.result is not None else before
        names = {(each.name, each.sandbox) for each in before.interfaces}
        addresses = {each.address for each in before.ips}
        interfaces = tuple(each for each in view.interfaces if (each.name, each.sandbox) not in names)
        return interfaces, tuple(each for each in view.ips if each.address not in addresses)

    def makes_interface(self) -> bool:
        """Whether the delegate makes the pod's interface; it has none afterwards."""
        self.add()
        found = self.pod.ifname in self.pod.links()
        self.succeed("DEL")
        return found

    def state(self) -> dict[str, object]:
        """Links, addresses, routes, rules and packet filter of node and pod, and what ``also`` tells."""
        found: dict[str, object] = {"also": self._also()}
        for name, where in (("node", self.node), ("pod", self.pod)):
            told = where.run("sh", "-c", _TELL).partition("\n---\n")
            links, routes, rules, routes_6, rules_6 = (json.loads(line) for line in told[0].splitlines() if line)
            staying = {each.get("ifname") for each in links if name == "node" and _kind(each) in self._stays}
            found[name] = {
                "links": [_link(each) for each in links if each.get("ifname") not in staying],
                "routes": [_picked(each, _ROUTE) for each in (*routes, *routes_6) if _is_kept(each) and each.get("dev") not in staying],
                "rules": [*rules, *rules_6],
                "packet filter": told[2],
            }
        return found


    def node_state(self) -> dict[str, object]:
        """The same without the pod."""
        return {key: value for key, value in self.state().items() if key != "pod"}


def require(fact: object, otherwise: str) -> None:
    """Raise Violation unless something is so."""
    if not fact:
        raise Violation(otherwise)


def require_as_before(before: Mapping[str, object], trial: Trial, what: str) -> None:
    after = trial.state()
    changed = {key: (before[key], after[key]) for key in before if before[key] != after[key]}
    require(not changed, f"{what}, and this differs, before and after: {json.dumps(changed, indent=1, default=str)}")


# --- ADD ---


def add_answers_a_valid_result(trial: Trial) -> None:
    """§5, "ADD Success": every key of its kind, and the version of the configuration."""
    trial.add()


def add_makes_what_its_result_says(trial: Trial) -> None:
    """§2, ADD: the interfaces are there, with their MAC and MTU, and the addresses are on them."""
    result = trial.add()
    links, node_links = trial.pod.links(), trial.node.links()
    interfaces, ips = trial.made()
    for each in interfaces:
        where = links if each.sandbox else node_links
        require(each.sandbox in ("", trial.pod.path), f"interface {each.name}: sandbox {each.sandbox!r} is not {trial.pod.path}")
        link = where.get(each.name)
        if each.name != "lo":
            require(link is not None, f"interface {each.name} of the result is not in {'the pod' if each.sandbox else 'the node'}")
        if link is not None:
            require(each.mac.lower() in ("", link.mac), f"interface {each.name}: its MAC is {link.mac}, the result says {each.mac}")
            require(each.mtu in (None, link.mtu), f"interface {each.name}: its MTU is {link.mtu}, the result says {each.mtu}")
    if trial.pod.ifname in links and versions.at_least(trial.version, "0.3.0"):
        named = {each.name for each in results.view(result).interfaces}
        require(trial.pod.ifname in named, f"interface {trial.pod.ifname} is in the pod, and not in the result")
    had = {address for link in links.values() for address in link.addresses}
    for ip in ips if links else ():
        require(ip.address in had, f"address {ip.address} of the result is on no interface of the pod")


def add_refuses_a_name_that_is_taken(trial: Trial) -> None:
    """§2, ADD: "If an interface of the requested name already exists in the container, the plugin MUST return with an error"."""
    if not trial.makes_interface():
        return
    trial.pod.run("ip", "link", "add", trial.pod.ifname, "type", "veth", "peer", "name", "other")
    before = trial.state()
    require(trial.call("ADD").status != 0, f"ADD succeeded, and {trial.pod.ifname} was there already")
    require_as_before(before, trial, "ADD failed")


# --- DEL ---


def del_leaves_nothing(trial: Trial) -> None:
    """§2, DEL: all that ADD made is undone."""
    before = trial.state()
    trial.add()
    trial.succeed("DEL")
    require_as_before(before, trial, "ADD and DEL succeeded")


def del_may_come_again(trial: Trial) -> None:
    """§2, DEL: "generally complete without error even if some resources are missing"."""
    before = trial.state()
    trial.add()
    for _ in range(2):
        trial.succeed("DEL")
    require_as_before(before, trial, "ADD and two DELs succeeded")


def del_may_come_without_add(trial: Trial) -> None:
    """§2, DEL: as well if all of them are missing."""
    before = trial.state()
    trial.succeed("DEL")
    require_as_before(before, trial, "DEL succeeded")


def del_needs_no_previous_result(trial: Trial) -> None:
    """§4: a runtime may have lost it, and before 0.4.0 it sent none."""
    before = trial.state()
    trial.add()
    trial.succeed("DEL", with_result=False)
    require_as_before(before, trial, "ADD and DEL succeeded")


def del_needs_no_namespace(trial: Trial) -> None:
    """§2, DEL: the container may be gone, and with it what was inside."""
    before = trial.node_state()
    trial.add()
    if trial.pod.ifname in trial.pod.links():
        trial.pod.run("ip", "link", "del", trial.pod.ifname)
    trial.succeed("DEL", Gone(trial.pod.name, container_id=trial.pod.container_id, ifname=trial.pod.ifname))
    require_as_before(before, trial, "ADD succeeded, and DEL after the namespace was gone")


# --- CHECK, STATUS, GC ---


def check_finds_what_add_made(trial: Trial) -> None:
    """§2, CHECK."""
    trial.add()
    trial.succeed("CHECK")


def check_notices_a_lost_interface(trial: Trial) -> None:
    """§2, CHECK: an error "if any interface in the result is missing"."""
    trial.add()
    if trial.pod.ifname in trial.pod.links():
        trial.pod.run("ip", "link", "del", trial.pod.ifname)
        require(trial.call("CHECK").status != 0, f"CHECK succeeded, and interface {trial.pod.ifname} was gone")


def status_changes_nothing(trial: Trial) -> None:
    """§2, STATUS: it succeeds where ADD does."""
    before = trial.state()
    trial.succeed("STATUS")
    require_as_before(before, trial, "STATUS succeeded")


def gc_keeps_what_is_valid(trial: Trial) -> None:
    """§2, GC: resources of valid attachments stay, and CHECK agrees."""
    trial.add()
    before = trial.state()
    valid = [{"containerID": trial.pod.container_id, "ifname": trial.pod.ifname}]
    trial.collect(valid)
    require_as_before(before, trial, "GC succeeded")
    trial.succeed("CHECK")


def gc_leaves_nothing_of_what_is_gone(trial: Trial) -> None:
    """§2, GC: after it, and the end of the namespace, the node is as before, without a DEL."""
    before = trial.node_state()
    trial.add()
    if trial.pod.ifname in trial.pod.links():
        trial.pod.run("ip", "link", "del", trial.pod.ifname)
    trial.collect([])
    require_as_before(before, trial, "the namespace ended, and GC succeeded")


# --- Errors ---


def a_damaged_configuration_does_no_damage(trial: Trial) -> None:
    """§5, "Error": whatever is wrong with the configuration, the answer is an error object or a success, and DEL leaves nothing."""
    before = trial.state()
    answer = trial.call("ADD")
    if answer.status == 0:
        trial.result = results.parse(answer.document, trial.version)
        trial.succeed("DEL")
    else:
        trial.call("DEL")
    require_as_before(before, trial, f"ADD {'succeeded' if answer.status == 0 else 'failed'}, DEL came")


LAWS: tuple[tuple[Law, str], ...] = (
    (add_answers_a_valid_result, CNICommand.ADD),
    (add_makes_what_its_result_says, CNICommand.ADD),
    (add_refuses_a_name_that_is_taken, CNICommand.ADD),
    (del_leaves_nothing, CNICommand.DEL),
    (del_may_come_again, CNICommand.DEL),
    (del_may_come_without_add, CNICommand.DEL),
    (del_needs_no_previous_result, CNICommand.DEL),
    (del_needs_no_namespace, CNICommand.DEL),
    (check_finds_what_add_made, CNICommand.CHECK),
    (check_notices_a_lost_interface, CNICommand.CHECK),
    (status_changes_nothing, CNICommand.STATUS),
    (gc_keeps_what_is_valid, CNICommand.GC),
    (gc_leaves_nothing_of_what_is_gone, CNICommand.GC),
    (a_damaged_configuration_does_no_damage, CNICommand.ADD),
)
"""Each law with the verb that decides in which versions it holds."""


class Gone(Pod):
    """A pod whose namespace is gone; not for a ``with`` block."""

    @property
    def path(self) -> str:
        return "/run/netns/gone-with-its-pod"


def _picked(document: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: document[key] for key in keys if key in document}


def _kind(link: Mapping[str, Any]) -> str:
    return str(link.get("linkinfo", {}).get("info_kind", ""))


def _is_kept(route: Mapping[str, Any]) -> bool:
    """Link-local and multicast routes come and go with the state of a link."""
    return not str(route["dst"]).startswith(("fe80", "ff00"))


def _link(link: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared of a link; a bridge's MAC and MTU follow its ports."""
    keys = _LINK if _kind(link) != "bridge" else ("ifname", "link_type", "master")
    return {**_picked(link, keys), "kind": _kind(link), "up": "UP" in link["flags"], "addresses": _addresses(link)}


def _addresses(link: Mapping[str, Any]) -> list[str]:
    return [f"{each['local']}/{each['prefixlen']}" for each in link["addr_info"] if "local" in each and each.get("scope") != "link"]
