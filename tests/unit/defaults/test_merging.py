"""The built-in answer to which result the runtime gets."""

from __future__ import annotations

from multus.defaults.merging import ClusterNetworkResult
from multus.protocol import conflists
from multus.types.config import MultusConfig
from multus.types.delegate import Attachment, Delegate
from multus.types.result import Result

CONFIG = MultusConfig("meta-net")
CONF = conflists.parse({"name": "a", "type": "b"}, where="x")


def attachment(ifname: str, *, is_cluster_network: bool) -> Attachment:
    result = Result({"cniVersion": "1.0.0", "interfaces": [{"name": ifname}]})
    return Attachment(Delegate("a", CONF, is_cluster_network=is_cluster_network), "c1", "/run/netns/t1", ifname, result=result)


def test_merge_results_takes_the_cluster_networks_wherever_it_stands() -> None:
    attachments = (attachment("net1", is_cluster_network=False), attachment("eth0", is_cluster_network=True))
    assert ClusterNetworkResult().multus_merge_results(attachments, CONFIG) is attachments[1].result


def test_merge_results_has_no_answer_without_a_cluster_network() -> None:
    assert ClusterNetworkResult().multus_merge_results((attachment("net1", is_cluster_network=False),), CONFIG) is None
