"""The built-in selection and resolution; and what is refused before any network is looked up."""

from __future__ import annotations

import pytest

from multus.core import delegates
from multus.defaults.selection import AnnotationSelection, NetAttachDefResolution
from multus.errors import IncompatibleVersionError, InvalidConfigError, ObjectNotFoundError
from multus.protocol import conflists
from multus.testing.fakes import FakeConfDir, FakeKube
from multus.testing.world import World
from multus.types.config import MultusConfig
from multus.types.delegate import NetAttachDef
from multus.types.pod import NETWORKS_ANNOTATION, Pod
from multus.types.selection import NetworkSelectionElement

CONFIG = MultusConfig("meta-net", conf_dir="/conf")
SELECTION = NetworkSelectionElement("lan-a", "shop")


def resolution(*net_attach_defs: NetAttachDef) -> NetAttachDefResolution:
    kube = FakeKube()
    kube.net_attach_defs = {(each.namespace, each.name): each for each in net_attach_defs}
    return NetAttachDefResolution(kube, FakeConfDir())


def test_select_networks_reads_the_networks_annotation_in_the_pods_namespace() -> None:
    pod = Pod("shop", "web", "u1", {NETWORKS_ANNOTATION: "lan-a,other/lan-b"})
    assert AnnotationSelection().multus_select_networks(pod, CONFIG) == (SELECTION, NetworkSelectionElement("lan-b", "other"))


def test_select_networks_answers_none_on_purpose_where_there_is_no_annotation() -> None:
    assert AnnotationSelection().multus_select_networks(Pod("shop", "web", "u1"), CONFIG) == ()


def test_resolve_delegate_takes_the_configuration_of_the_net_attach_def() -> None:
    definition = NetAttachDef("shop", "lan-a", '{"cniVersion":"1.0.0","type":"bridge","vni":12345678901234567890}', "example.test/vf")
    delegate = resolution(definition).multus_resolve_delegate(SELECTION, None, CONFIG)
    assert delegate is not None
    assert (delegate.name, delegate.resource_name, delegate.conf.name) == ("shop/lan-a", "example.test/vf", "lan-a")
    assert delegate.conf.document == {"cniVersion": "1.0.0", "type": "bridge", "vni": 12345678901234567890}


def test_resolve_delegate_takes_a_file_of_that_name_for_an_empty_net_attach_def() -> None:
    conf = conflists.parse({"name": "lan-a", "type": "bridge"}, where="x")
    conf_dir = FakeConfDir()
    conf_dir.names = {"lan-a": conf}
    kube = FakeKube()
    kube.net_attach_defs["shop", "lan-a"] = NetAttachDef("shop", "lan-a")
    delegate = NetAttachDefResolution(kube, conf_dir).multus_resolve_delegate(SELECTION, None, CONFIG)
    assert delegate is not None
    assert (delegate.name, delegate.conf) == ("shop/lan-a", conf)


def test_resolve_delegate_says_where_it_looked_for_an_empty_net_attach_def() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        resolution(NetAttachDef("shop", "lan-a")).multus_resolve_delegate(SELECTION, None, CONFIG)
    assert caught.value.msg == (
        "net-attach-def shop/lan-a has no key \"spec.config\", and no file in /conf holds a configuration named 'lan-a'"
    )


def test_resolve_delegate_leaves_it_to_others_where_no_api_server_is_configured() -> None:
    assert NetAttachDefResolution(None, FakeConfDir()).multus_resolve_delegate(SELECTION, None, CONFIG) is None


def test_resolve_delegate_passes_on_that_there_is_no_such_object() -> None:
    with pytest.raises(ObjectNotFoundError):
        resolution().multus_resolve_delegate(SELECTION, None, CONFIG)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", 'net-attach-def shop/lan-a: key "spec.config" is not JSON: Expecting property name'),
        ("[]", 'net-attach-def shop/lan-a: key "spec.config" is a list, an object is expected'),
        ('{"type:":"bridge","secretToken":"hunter-7"}', 'net-attach-def shop/lan-a has no `type`, did you mean the key "type:"'),
        ('{"type":"multus"}', 'net-attach-def shop/lan-a: key "type" "multus" leads back to multus'),
    ],
)
def test_resolve_delegate_refuses_a_net_attach_def_that_is_not_valid_and_names_it(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        resolution(NetAttachDef("shop", "lan-a", text)).multus_resolve_delegate(SELECTION, None, CONFIG)
    assert caught.value.msg.startswith(message)
    assert "hunter" not in str(caught.value)


def test_resolve_delegate_refuses_a_version_that_nobody_knows() -> None:
    with pytest.raises(IncompatibleVersionError, match=r"^net-attach-def shop/lan-a"):
        resolution(NetAttachDef("shop", "lan-a", '{"type":"b","cniVersion":"7.0"}')).multus_resolve_delegate(SELECTION, None, CONFIG)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[{"name":"team-kestrel/lan-a"}]', ["element 0", 'key "name"', '"team-kestrel/lan-a"', 'goes into the key "namespace"']),
        ('[{"name":"lan-a","interface":"../../x"}]', ["element 0", 'key "interface"', '"../../x"']),
        ('[{"name":"lan-a","interface":"a-name-that-is-too-long"}]', ["element 0", 'key "interface"', '"a-name-that-is-too-long"']),
        ('[{"name":"../lan-a"}]', ["element 0", 'key "name"', '"../lan-a"']),
        ("[null]", ["element 0", "null"]),
        ('[{"name":"lan-a","ips":"192.0.2.9"}]', ["element 0", 'key "ips"', '"192.0.2.9"', "a list is expected"]),
        ("lan-a,", ["element 1", "is empty", '"lan-a,"']),
        ('[{"name":"lan-a","interface":"eth0"}]', ["element 0", "interface", "eth0", "is taken"]),
        ('[{"name":"lan-a","interface":"x0"},{"name":"lan-b","interface":"x0"}]', ["element 1", "interface", "x0", "is taken"]),
    ],
)
def test_case_i2_a_selection_that_breaks_the_rules_fails_before_anything_is_looked_up(text: str, named: list[str]) -> None:
    """Public case I2: one grammar, two spellings; element index, field and value are in the message."""
    world = World("fake-primary", "fake-a", "fake-b")
    for name in ("lan-a", "lan-b"):
        world.add_network(name, {"cniVersion": "1.0.0", "name": name, "type": "fake-a"}, namespace="team-kestrel")
    pod = world.add_pod(text, namespace="team-kestrel", name="lantern-0")
    with pytest.raises(InvalidConfigError) as caught:
        delegates.plan(pod, world.context())
    assert [part for part in [f"annotation {NETWORKS_ANNOTATION}", *named] if part not in caught.value.msg] == []
    assert (caught.value.code, world.calls.made, world.programs.made) == (7, [], [])
