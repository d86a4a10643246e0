"""Links that delegates leave: removed together once all DELs are done, and on record until they are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from multus.core import attach, hotplug
from multus.errors import IOFailureError, MultusError, TryAgainLaterError
from multus.testing.fakes import NETNS
from multus.testing.world import World
from multus.types.result import Result

if TYPE_CHECKING:
    from multus.types.invocation import Invocation

PLACE = "[shop/web/u1:"


class Linked:
    """An in-process network whose links Multus removes; it takes an address that DEL gives back."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.addresses: set[str] = set()
        self.failures: list[Exception] = []
        """What ``release`` raises, call by call."""

    def accepts(self, invocation: Invocation) -> bool:
        return True

    def add(self, invocation: Invocation) -> Result:
        self.world.netns.namespaces[invocation.netns].links.add(invocation.ifname)
        self.addresses.add(invocation.ifname)
        return Result({"interfaces": [{"name": invocation.ifname, "sandbox": invocation.netns}]})

    def release(self, invocation: Invocation) -> list[str]:
        self.world.calls.note("linked.release", invocation.ifname)
        if self.failures:
            raise self.failures.pop()
        self.addresses.discard(invocation.ifname)
        return [invocation.ifname]

    def delete(self, invocation: Invocation) -> None:
        self.world.calls.note("linked.delete", invocation.ifname)
        self.world.netns.namespaces[invocation.netns].links.discard(invocation.ifname)
        self.addresses.discard(invocation.ifname)

    def check(self, invocation: Invocation) -> None: ...

    gc = status = check


@pytest.fixture
def world() -> World:
    """A pod with net1 and net3 by objects whose links Multus removes, net2 and eth0 by binaries."""
    world = World("trunk", "binary")
    world.registry.delegates["linked"] = Linked(world)
    for name, kind in (("a", "linked"), ("b", "binary"), ("c", "linked")):
        world.add_network(name, {"cniVersion": "1.0.0", "name": name, "type": kind})
    world.add_pod("a,b,c")
    attach.add(world.context("ADD"))
    assert world.netns.namespaces[NETNS].links == {"eth0", "net1", "net2", "net3"}
    world.calls.made.clear()
    return world


def linked(world: World) -> Linked:
    found = world.registry.delegates["linked"]
    assert isinstance(found, Linked)
    return found


def made(world: World, *names: str) -> list[tuple[object, ...]]:
    """The calls of these names, in order."""
    return [(call.name, *call.arguments) for call in world.calls.made if call.name in names]


def recorded(world: World) -> list[str]:
    return [each.ifname for each in world.journal.records.get("c1", ())]


def nothing_is_left(world: World) -> bool:
    links = [link for namespace in world.netns.namespaces.values() for link in namespace.links]
    return not any((world.journal.records, world.journal.results, links, linked(world).addresses, world.programs.attached))


def test_links_are_removed_together_once_every_network_is_done(world: World) -> None:
    attach.delete(world.context("DEL"))
    order = made(world, "linked.release", "programs.run", "netns.remove_links", "linked.delete")
    assert [call[0] for call in order] == ["linked.release", "programs.run", "linked.release", "programs.run", "netns.remove_links"]
    assert order[-1] == ("netns.remove_links", NETNS, "net3", "net1")
    assert nothing_is_left(world)


def test_what_has_links_left_stays_on_record_until_they_are_gone(world: World) -> None:
    seen: list[list[str]] = []
    remove_links = world.netns.remove_links

    def watched(netns: str, names: list[str]) -> dict[str, MultusError]:
        seen.append(recorded(world))
        return remove_links(netns, names)

    world.netns.remove_links = watched  # type: ignore[method-assign,assignment]
    attach.delete(world.context("DEL"))
    assert (seen, recorded(world)) == ([["net1", "net3"]], [])


def test_a_link_that_cannot_be_removed_keeps_its_network_on_record_and_no_other(world: World) -> None:
    world.netns.refusals["net1"] = IOFailureError("cannot remove link net1")
    with pytest.raises(IOFailureError) as caught:
        attach.delete(world.context("DEL"))
    assert caught.value.msg == f"{PLACE}a]: cannot detach 'net1': cannot remove link net1"
    assert (recorded(world), world.netns.namespaces[NETNS].links) == (["net1"], {"net1"})
    world.netns.refusals.clear()
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_removing_links_that_fails_as_a_whole_keeps_all_that_have_some(world: World) -> None:
    world.calls.fail("netns.remove_links", IOFailureError("cannot enter"))
    with pytest.raises(IOFailureError) as caught:
        attach.delete(world.context("DEL"))
    places = [f"{PLACE}c]: cannot detach 'net3': cannot enter", f"{PLACE}a]: cannot detach 'net1': cannot enter"]
    assert caught.value.msg == "2 failures: " + " / ".join(places)
    assert recorded(world) == ["net1", "net3"]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_a_namespace_that_is_gone_took_its_links_along(world: World) -> None:
    del world.netns.namespaces[NETNS]
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_a_call_without_a_namespace_removes_no_links_and_frees_addresses(world: World) -> None:
    del world.netns.namespaces[NETNS]
    attach.delete(world.context("DEL", netns=""))
    assert made(world, "netns.remove_links") == []
    assert nothing_is_left(world)


def test_a_release_that_fails_is_followed_by_the_whole_del(world: World) -> None:
    linked(world).failures.append(TryAgainLaterError("busy"))
    attach.delete(world.context("DEL"))
    assert made(world, "linked.delete") == [("linked.delete", "net3")]
    assert made(world, "netns.remove_links") == [("netns.remove_links", NETNS, "net1")]
    assert nothing_is_left(world)


def test_a_binary_that_fails_keeps_no_link(world: World) -> None:
    world.programs.answer("binary", "DEL", TryAgainLaterError("busy"))
    with pytest.raises(MultusError, match="busy"):
        attach.delete(world.context("DEL"))
    assert (recorded(world), world.netns.namespaces[NETNS].links) == (["net2"], {"net2"})


def test_an_add_that_fails_removes_the_links_of_what_it_began(world: World) -> None:
    attach.delete(world.context("DEL"))
    world.calls.made.clear()
    world.calls.fail("kube.annotate_status", TryAgainLaterError("busy"))
    with pytest.raises(TryAgainLaterError):
        attach.add(world.context("ADD"))
    assert made(world, "netns.remove_links") == [("netns.remove_links", NETNS, "net3", "net1")]
    assert world.netns.namespaces[NETNS].links == set()
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)


def test_plugging_out_removes_that_link_at_once_and_leaves_the_others(world: World) -> None:
    config = {"cniVersion": "1.0.0", "name": "meta-net", "delegates": [{"cniVersion": "1.0.0", "name": "a", "type": "linked"}]}
    hotplug.serve(hotplug.Plug(), world.context("DEL", config, ifname="net1"))
    assert made(world, "netns.remove_links") == [("netns.remove_links", NETNS, "net1")]
    assert world.netns.namespaces[NETNS].links == {"eth0", "net2", "net3"}
    assert recorded(world) == ["eth0", "net2", "net3"]
    assert linked(world).addresses == {"net3"}


def test_plugging_out_a_link_that_cannot_be_removed_keeps_the_record(world: World) -> None:
    config = {"cniVersion": "1.0.0", "name": "meta-net", "delegates": [{"cniVersion": "1.0.0", "name": "a", "type": "linked"}]}
    world.netns.refusals["net1"] = IOFailureError("cannot remove link net1")
    with pytest.raises(IOFailureError, match="cannot remove link net1"):
        hotplug.serve(hotplug.Plug(), world.context("DEL", config, ifname="net1"))
    assert recorded(world) == ["eth0", "net1", "net2", "net3"]


def test_a_record_that_cannot_be_written_fails_del_and_the_next_one_finishes(world: World) -> None:
    writes = len(made(world, "journal.write"))
    world.calls.fail("journal.write", None, None, IOFailureError("disk full"))
    with pytest.raises(IOFailureError, match="disk full"):
        attach.delete(world.context("DEL"))
    assert len(made(world, "journal.write")) == writes + 3  # two binaries, and the two with links at once
    attach.delete(world.context("DEL"))
    assert nothing_is_left(world)
