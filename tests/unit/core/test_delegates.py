"""From a pod's requests to attachments: read, authorised, named, looked up; all before anything is attached."""

from __future__ import annotations

import json

import pytest

from multus.core import delegates
from multus.core.delegates import Plan, interface_names, plan
from multus.errors import ForbiddenError, InvalidConfigError, MultusError, ObjectNotFoundError
from multus.protocol import conflists
from multus.testing.fakes import NETNS
from multus.testing.world import World
from multus.types.config import ConfList, PluginConf
from multus.types.selection import NetworkSelectionElement

VF = "example.test/vf"
PATH = "/etc/cni/net.d/10-trunk.conflist"


def conf_of(name: str, **more: object) -> ConfList:
    return conflists.parse(a_config(name, **more), where="a test")


def a_config(name: str, **more: object) -> dict[str, object]:
    return {"cniVersion": "1.0.0", "name": name, "type": f"of-{name}", **more}


def a_world(networks: str | list[dict[str, object]] = "", default_network: str = "", **pod: object) -> World:
    """``blue`` and ``red`` in the pod's namespace, ``shared`` in ``default``, ``alt`` in ``kube-system``."""
    world = World("of-trunk")
    world.add_pod(networks if isinstance(networks, str) else json.dumps(networks), default_network, **pod)
    for name, namespace in (("blue", "shop"), ("red", "shop"), ("shared", "default"), ("alt", "kube-system")):
        world.add_network(name, a_config(name), namespace=namespace)
    return world


def planned(world: World, **config: object) -> Plan:
    return plan(next(iter(world.kube.pods.values()), None), world.context("ADD", config))


def brief(world: World, **config: object) -> list[tuple[str, str]]:
    """Name and interface of each attachment."""
    return [(each.delegate.name, each.ifname) for each in planned(world, **config).attachments]


def refused(world: World, **config: object) -> MultusError:
    with pytest.raises(MultusError) as caught:
        planned(world, **config)
    return caught.value


def selections(*ifnames: str) -> list[NetworkSelectionElement]:
    return [NetworkSelectionElement("n", "shop", ifname) for ifname in ifnames]


# --- Interface names ---


@pytest.mark.parametrize(
    ("configured", "asked", "expected"),
    [
        (1, ("", ""), ("eth0", "net1", "net2")),
        (1, ("web0", ""), ("eth0", "web0", "net2")),
        (1, ("net2", ""), ("eth0", "net2", "net3")),
        (1, ("", "net1"), ("eth0", "net2", "net1")),
        (1, ("", "", "net1", "net2"), ("eth0", "net3", "net4", "net1", "net2")),
        (3, ("",), ("eth0", "net1", "net2", "net3")),
        (2, ("net1",), ("eth0", "net2", "net1")),
        (1, (), ("eth0",)),
    ],
)
def test_names_that_were_asked_for_are_kept_and_generated_ones_give_way(
    configured: int, asked: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert interface_names("eth0", configured, selections(*asked)) == expected


def test_generated_name_gives_way_to_the_runtimes() -> None:
    assert interface_names("net1", 1, selections("", "")) == ("net1", "net2", "net3")


def test_name_of_the_cluster_networks_interface_is_taken() -> None:
    error = refused(a_world("blue@eth0"))
    assert (error.code, "element 0: interface name 'eth0' is taken by the cluster network" in error.msg) == (7, True)


def test_names_of_a_plugins_selections_are_checked_as_well() -> None:
    class Selecting:
        def multus_select_networks(self, pod, config):
            return tuple(selections("x0", "", "x0"))

    world = a_world()
    world.plugins.append(Selecting())
    assert "element 2: interface name 'x0' is taken by element 0" in refused(world).msg


# --- The pod's networks ---


def test_networks_come_after_the_configured_delegates() -> None:
    inline = [a_config("trunk"), a_config("side")]
    assert brief(a_world("blue,default/shared@s0"), delegates=inline) == [
        ("trunk", "eth0"), ("side", "net1"), ("shop/blue", "net2"), ("default/shared", "s0"),
    ]  # fmt: skip


def test_cluster_network_is_marked_and_no_other() -> None:
    assert [each.delegate.is_cluster_network for each in planned(a_world("blue,red")).attachments] == [True, False, False]


def test_same_network_may_be_asked_for_twice() -> None:
    assert brief(a_world("blue,blue")) == [("trunk", "eth0"), ("shop/blue", "net1"), ("shop/blue", "net2")]


def test_attachment_carries_all_that_its_add_is_given() -> None:
    world = a_world([{"name": "blue", "mac": "02:00:00:00:00:01"}])
    (_, blue) = planned(world, runtimeConfig={"own": 1}).attachments
    assert (blue.container_id, blue.netns, blue.ifname) == ("c1", NETNS, "net1")
    assert dict(blue.generic_args)["MAC"] == "02:00:00:00:00:01"
    assert blue.capability_args == {"own": 1, "mac": "02:00:00:00:00:01"}
    assert blue.result is None


def test_invalid_annotation_fails_before_any_network_is_looked_up() -> None:
    world = a_world("blue,")
    assert refused(world).code == InvalidConfigError.code
    assert world.calls.names == []


def test_taken_name_fails_before_any_network_is_looked_up() -> None:
    world = a_world("blue@eth0")
    refused(world)
    assert world.calls.names == []


def test_network_that_does_not_exist_is_named() -> None:
    error = refused(a_world("nowhere"))
    assert (error.code, error.msg) == (
        ObjectNotFoundError.code, "network 'shop/nowhere': network-attachment-definitions \"nowhere\" not found",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("{", "net-attach-def shop/blue: key \"spec.config\" is not JSON"),
        ("[]", "net-attach-def shop/blue: key \"spec.config\" is a list, an object is expected"),
        ('{"type":"multus"}', "net-attach-def shop/blue: key \"type\" \"multus\" leads back to multus"),
        ('{"plugins":[{"type":"a"},{"type:":"b"}]}', 'net-attach-def shop/blue: plugin 1 has no `type`, did you mean the key "type:"'),
        ("", "no key \"spec.config\", and no file in /etc/cni/multus/net.d holds a configuration named 'blue'"),
    ],
)
def test_definition_that_is_not_valid_is_named_with_its_fault(config: str, told: str) -> None:
    world = a_world("blue")
    world.add_network("blue", config)
    error = refused(world)
    assert error.code == InvalidConfigError.code
    assert told in error.msg


def test_definition_without_a_configuration_is_a_file_of_that_name() -> None:
    world = a_world("blue")
    world.add_network("blue", "")
    world.conf_dir.names["blue"] = conf_of("blue")
    assert planned(world).attachments[1].delegate.conf == conf_of("blue")


def test_configuration_without_a_name_gets_the_definitions() -> None:
    world = a_world("blue")
    world.add_network("blue", {"cniVersion": "1.0.0", "type": "a"})
    assert planned(world).attachments[1].network == "blue"


def test_cni_args_of_a_selection_go_into_each_plugin() -> None:
    (_, blue) = planned(a_world([{"name": "blue", "cni-args": {"vlan": 7}}])).attachments
    assert blue.delegate.conf.plugins[0].document["args"] == {"cni": {"vlan": 7}}


def test_networks_without_an_api_server_are_nobodys() -> None:
    world = a_world("blue")
    world.has_kube = False
    error = refused(world)
    assert (error.code, "'shop/blue'" in error.msg) == (7, True)


# --- Annotations that are ignored on purpose ---


def test_ignored_annotation_counts_as_absent_and_is_a_problem() -> None:
    found = planned(a_world("blue,"), invalidAnnotation="ignore")
    assert [each.delegate.name for each in found.attachments] == ["trunk"]
    ((reason, problem),) = found.problems
    assert (reason, problem.code) == ("InvalidNetworkAnnotation", 7)


def test_default_network_stands_beside_an_ignored_networks_annotation() -> None:
    found = planned(a_world("blue,", "alt"), invalidAnnotation="ignore")
    assert [each.delegate.name for each in found.attachments] == ["kube-system/alt"]


def test_networks_stand_beside_an_ignored_default_network() -> None:
    found = planned(a_world("blue", "alt,"), invalidAnnotation="ignore")
    assert [each.delegate.name for each in found.attachments] == ["trunk", "shop/blue"]


def test_forbidden_network_is_never_ignored() -> None:
    assert refused(a_world("kube-system/alt"), invalidAnnotation="ignore", namespaceIsolation=True).code == ForbiddenError.code


# --- Namespace isolation ---


@pytest.mark.parametrize("networks", ["blue", "shop/blue", "default/shared"])
def test_isolated_pod_may_use_its_own_and_the_global_namespaces(networks: str) -> None:
    assert len(planned(a_world(networks), namespaceIsolation=True).attachments) == 2


def test_isolated_pod_may_not_use_another_namespace() -> None:
    world = a_world("kube-system/alt")
    error = refused(world, namespaceIsolation=True)
    assert (error.code, error.msg) == (
        100,
        "namespace isolation: a pod of namespace 'shop' may not use network 'kube-system/alt'; allowed are networks of 'default', 'shop'",
    )
    assert world.calls.names == []


def test_global_namespaces_that_are_set_replace_the_default_one() -> None:
    assert refused(a_world("default/shared"), namespaceIsolation=True, globalNamespaces="infra, kube-system").code == 100
    assert len(planned(a_world("kube-system/alt"), namespaceIsolation=True, globalNamespaces="infra, kube-system").attachments) == 2


def test_isolated_pods_default_network_may_be_of_the_multus_namespace() -> None:
    assert brief(a_world("", "alt"), namespaceIsolation=True) == [("kube-system/alt", "eth0")]


def test_isolated_pods_default_network_may_not_be_of_another_namespace() -> None:
    error = refused(a_world("", "other/alt"), namespaceIsolation=True)
    assert (error.code, "'default', 'kube-system', 'shop'" in error.msg) == (100, True)


def test_without_isolation_every_namespace_may_be_used() -> None:
    assert brief(a_world("kube-system/alt")) == [("trunk", "eth0"), ("kube-system/alt", "net1")]


# --- The default network of a pod ---


def test_default_network_takes_the_place_of_the_configured_one() -> None:
    assert brief(a_world("blue", "alt")) == [("kube-system/alt", "eth0"), ("shop/blue", "net1")]


def test_default_network_is_sought_in_the_multus_namespace() -> None:
    world = a_world("", "alt")
    world.add_network("alt", a_config("alt"), namespace="infra")
    assert brief(world, multusNamespace="infra") == [("infra/alt", "eth0")]


def test_default_network_keeps_the_runtimes_interface() -> None:
    world = a_world("", '[{"name":"alt","interface":"data0"}]')
    assert brief(world) == [("kube-system/alt", "eth0")]
    assert world.log.events("warning") == ["default-network.interface.ignored"]


def test_requests_of_the_default_network_are_honoured() -> None:
    world = a_world("", '[{"name":"alt","ips":["192.0.2.77/24"],"mac":"02:00:5e:00:00:4d"}]')
    world.add_network("alt", a_config("alt", capabilities={"ips": True, "mac": True}), namespace="kube-system")
    found = planned(world)
    assert found.attachments[0].capability_args == {"ips": ["192.0.2.77/24"], "mac": "02:00:5e:00:00:4d"}
    assert found.problems == ()


def test_two_default_networks_are_refused() -> None:
    assert "names 2 networks, one is expected" in refused(a_world("", "alt,alt")).msg


def test_default_network_takes_the_place_of_the_cluster_network() -> None:
    assert brief(a_world("", "alt"), clusterNetwork="nowhere") == [("kube-system/alt", "eth0")]


# --- The cluster network and the default networks of the configuration ---


def test_cluster_network_is_a_definition_of_the_multus_namespace() -> None:
    assert brief(a_world("blue"), clusterNetwork="alt") == [("kube-system/alt", "eth0"), ("shop/blue", "net1")]


def test_cluster_network_may_be_a_file() -> None:
    world = a_world()
    world.conf_dir.paths[PATH] = conf_of("trunk")
    assert brief(world, clusterNetwork=PATH) == [("trunk", "eth0")]


def test_cluster_network_may_be_a_name_in_the_configuration_folder() -> None:
    world = a_world()
    world.conf_dir.names["trunk"] = conf_of("trunk")
    assert brief(world, clusterNetwork="trunk") == [("trunk", "eth0")]
    world.has_kube = False
    assert brief(world, clusterNetwork="trunk") == [("trunk", "eth0")]


def test_cluster_network_that_is_nowhere_is_named_with_the_places() -> None:
    error = refused(a_world(), clusterNetwork="nowhere")
    assert error.code == ObjectNotFoundError.code
    assert "'nowhere'" in error.msg
    assert "'kube-system'" in error.msg
    assert "/etc/cni/multus/net.d" in error.msg


def test_default_networks_come_before_the_pods_own() -> None:
    world = a_world("blue")
    world.conf_dir.paths["/side.conf"] = conf_of("side")
    assert brief(world, clusterNetwork="alt", defaultNetworks=["/side.conf"]) == [
        ("kube-system/alt", "eth0"), ("side", "net1"), ("shop/blue", "net2"),
    ]  # fmt: skip


def test_pod_of_a_system_namespace_gets_no_default_networks() -> None:
    world = a_world("", namespace="kube-system", name="alt-pod")
    assert brief(world, clusterNetwork="alt", defaultNetworks=["nowhere"]) == [("kube-system/alt", "eth0")]


def test_pod_that_is_named_like_a_system_namespace_gets_them() -> None:
    world = a_world("", name="kube-system")
    world.conf_dir.names["side"] = conf_of("side")
    assert brief(world, clusterNetwork="alt", defaultNetworks=["side"]) == [("kube-system/alt", "eth0"), ("side", "net1")]


def test_what_every_pod_needs_is_the_cluster_network_and_the_default_ones() -> None:
    world = a_world()
    world.conf_dir.names["side"] = conf_of("side")
    context = world.context("STATUS", {"clusterNetwork": "alt", "defaultNetworks": ["side"]})
    assert [delegate.name for delegate in delegates.every_pods(context)] == ["kube-system/alt", "side"]


def test_what_every_pod_needs_of_inline_delegates_are_all() -> None:
    context = a_world().context("STATUS", {"delegates": [a_config("trunk"), a_config("side")], "defaultNetworks": ["ignored"]})
    assert [delegate.name for delegate in delegates.every_pods(context)] == ["trunk", "side"]


# --- Devices ---


def test_devices_are_handed_out_by_one_allocator_in_order() -> None:
    world = a_world("blue,red,blue")
    world.add_network("blue", a_config("blue"), resource_name=VF)
    world.devices = {VF: ["0000:3b:02.7", "0000:3b:02.1"]}
    attachments = planned(world).attachments
    assert [each.delegate.device_id for each in attachments] == ["", "0000:3b:02.7", "", "0000:3b:02.1"]
    assert attachments[1].delegate.conf.plugins[0].document["pciBusID"] == "0000:3b:02.7"
    assert attachments[1].capability_args == {"deviceID": "0000:3b:02.7", "CNIDeviceInfoFile": "/devinfo/shop-blue-c1_net1"}
    assert len(world.allocators) == 1


def test_no_allocator_is_made_for_networks_without_devices() -> None:
    world = a_world("blue,red")
    planned(world)
    assert world.allocators == []


def test_cluster_network_of_the_configuration_may_take_a_device() -> None:
    world = a_world()
    world.add_network("alt", a_config("alt"), namespace="kube-system", resource_name=VF)
    world.devices = {VF: ["d1"]}
    assert planned(world, clusterNetwork="alt").attachments[0].delegate.device_id == "d1"
    (delegate,) = delegates.every_pods(world.context("STATUS", {"clusterNetwork": "alt"}))
    assert delegate.device_id == ""


def test_device_that_a_pod_names_itself_is_ignored_and_logged() -> None:
    world = a_world([{"name": "blue", "deviceID": "0000:00:00.0"}])
    assert planned(world).attachments[1].delegate.device_id == ""
    assert world.log.events("warning") == ["deviceID.ignored"]


def test_device_that_a_pod_names_itself_is_taken_where_that_is_allowed() -> None:
    world = a_world([{"name": "blue", "deviceID": "0000:00:00.0"}])
    assert planned(world, allowDeviceID=True).attachments[1].capability_args["deviceID"] == "0000:00:00.0"


def test_device_of_the_kubelet_wins_over_one_that_the_pod_names() -> None:
    world = a_world([{"name": "blue", "deviceID": "0000:00:00.0"}])
    world.add_network("blue", a_config("blue"), resource_name=VF)
    world.devices = {VF: ["d1"]}
    assert planned(world, allowDeviceID=True).attachments[1].delegate.device_id == "d1"


# --- Default route and capabilities ---


def test_default_route_may_be_asked_of_one_network() -> None:
    route = {"default-route": ["192.0.2.1"]}
    world = a_world([{"name": "blue", **route}], json.dumps([{"name": "alt", **route}]))
    error = refused(world)
    assert (error.code, "'kube-system/alt', 'shop/blue'" in error.msg) == (7, True)


def test_undeclared_capability_is_a_problem() -> None:
    found = planned(a_world([{"name": "blue", "mac": "02:00:00:00:00:01"}, {"name": "red"}]))
    assert [(reason, problem.msg) for reason, problem in found.problems] == [
        ("UndeclaredCapability", "network 'shop/blue': the pod asks for mac, and no plugin declares that capability"),
    ]


def test_undeclared_capability_fails_where_strictness_is_asked_for() -> None:
    error = refused(a_world([{"name": "blue", "mac": "02:00:00:00:00:01"}]), strictCapabilities=True)
    assert (error.code, "asks for mac" in error.msg) == (7, True)


def test_an_attachment_keeps_the_preference_it_is_made_with() -> None:
    attachments = planned(a_world("blue"), delegatePreference="in-process").attachments
    assert {each.delegate.preference for each in attachments} == {"in-process"}


# --- The auxiliary chain ---


def test_auxiliary_chain_comes_last_on_the_cluster_networks_interface() -> None:
    world = a_world("blue")
    world.conf_dir.paths[PATH] = conf_of("trunk")
    world.conf_dir.chains[PATH, "aux"] = (PluginConf({"type": "tuning"}, "tuning"),)
    (*_, last) = planned(world, clusterNetwork=PATH, auxiliaryCNIChainName="aux").attachments
    assert (last.network, last.ifname, last.delegate.is_auxiliary, last.delegate.conf.cni_version) == ("aux", "eth0", True, "1.1.0")
    assert [plugin.type for plugin in last.delegate.conf.plugins] == ["passthru", "tuning"]


def test_auxiliary_chain_without_plugins_is_left_out() -> None:
    world = a_world()
    world.conf_dir.paths[PATH] = conf_of("trunk")
    assert len(planned(world, clusterNetwork=PATH, auxiliaryCNIChainName="aux").attachments) == 1


def test_auxiliary_chain_needs_a_cluster_network_with_a_path() -> None:
    assert "\"clusterNetwork\", not 'alt'" in refused(a_world(), clusterNetwork="alt", auxiliaryCNIChainName="aux").msg


# --- Without a pod ---


def test_without_a_pod_only_the_configured_delegates_are_attached() -> None:
    world = World("of-trunk", has_kube=False)
    assert [each.delegate.name for each in plan(None, world.context()).attachments] == ["trunk"]
