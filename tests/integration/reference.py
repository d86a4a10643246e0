"""The reference implementation's part, played by the real plugins, called directly, and by its files in its own format.

Spec: Multus behaviour, "Scratch cache" and "Results cache".
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from multus.testing.node import UPLINK, Node
from multus.testing.pods import Pod

CAPABILITIES = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}


def cluster_conf(node: Node) -> dict[str, Any]:
    return {
        "cniVersion": "1.0.0",
        "name": "cluster",
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "ipam": node.host_local("10.244.0.0/24"),
    }


def blue_conf(node: Node) -> dict[str, Any]:
    """A plugin list: a bridge, and portmap, whose rules only the recorded arguments of ADD can take away."""
    bridge = {"type": "bridge", "bridge": "blue0", "isGateway": True, "ipam": node.host_local("10.20.0.0/24")}
    return {"cniVersion": "1.0.0", "name": "blue", "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]}


def green_conf(node: Node) -> dict[str, Any]:
    return {
        "cniVersion": "0.4.0",
        "name": "green",
        "type": "macvlan",
        "master": UPLINK,
        "mode": "bridge",
        "ipam": node.host_local("10.30.0.0/24"),
    }


def plugins_of(conf: dict[str, Any]) -> list[dict[str, Any]]:
    """The plugins of a configuration, each with name and version, in the order of ADD."""
    return [{**plugin, "name": conf["name"], "cniVersion": conf["cniVersion"]} for plugin in conf.get("plugins", [conf])]


def request(plugin: dict[str, Any], prev_result: object, capability_args: dict[str, Any]) -> dict[str, Any]:
    """The standard input of a plugin.  Spec: CNI 1.1.0 §3."""
    declared = {name: value for name, value in capability_args.items() if plugin.get("capabilities", {}).get(name)}
    return {**plugin, **({"runtimeConfig": declared} if declared else {}), **({"prevResult": prev_result} if prev_result else {})}


def run(node: Node, pod: Pod, command: str, ifname: str, document: dict[str, Any]) -> Any:
    """Call a real plugin; its result."""
    with node.namespace.entered():
        answer = pod.call(f"{node.plugin_folder}/{document['type']}", command, document, ifname=ifname)
    assert "" == answer.error
    return answer.document


def attach_as_reference(node: Node, pod: Pod, *, with_blue: bool = True) -> None:
    """Attach a pod to the cluster network, blue and green, and leave the files that the reference leaves."""
    networks = [("cluster", cluster_conf(node)), ("default/blue", blue_conf(node)), ("default/green", green_conf(node))]
    if not with_blue:
        del networks[1]
    elements = []
    for index, (name, conf) in enumerate(networks):
        ifname = f"net{index}" if index else "eth0"
        capability_args = CAPABILITIES if name == "default/blue" else {}
        result = None
        for plugin in plugins_of(conf):
            result = run(node, pod, "ADD", ifname, request(plugin, result, capability_args))
        elements.append(_scratch_element(name, conf))
        _write_result(node, pod, ifname, conf, capability_args, result)
    path = Path(node.cni_dir, pod.container_id)
    path.write_text(json.dumps(elements, separators=(",", ":")))
    path.chmod(0o600)


def _scratch_element(name: str, conf: dict[str, Any]) -> dict[str, Any]:
    def view(plugin: dict[str, Any]) -> dict[str, Any]:
        kept: dict[str, Any] = {key: plugin[key] for key in ("cniVersion", "name", "type", "capabilities") if key in plugin}
        return {**kept, "ipam": {"type": plugin["ipam"]["type"]} if "ipam" in plugin else {}}

    is_list = "plugins" in conf
    return {
        "Conf": {"cniVersion": conf["cniVersion"], "name": conf["name"], "ipam": {}} if is_list else view(conf),
        "ConfList": {**conf, "plugins": [view(each) for each in conf["plugins"]]} if is_list else {},
        "Name": name,
        "IsFilterV4Gateway": False,
        "IsFilterV6Gateway": False,
        "Bytes": base64.b64encode(json.dumps(conf).encode()).decode(),
    }


def _write_result(node: Node, pod: Pod, ifname: str, conf: dict[str, Any], capability_args: dict[str, Any], result: object) -> None:
    document = {
        "kind": "cniCacheV1",
        "containerId": pod.container_id,
        "config": base64.b64encode(json.dumps(conf).encode()).decode(),
        "ifName": ifname,
        "networkName": conf["name"],
        "netns": pod.path,
        "cniArgs": [
            ["IgnoreUnknown", "true"],
            ["K8S_POD_NAMESPACE", pod.namespace],
            ["K8S_POD_NAME", pod.name],
            ["K8S_POD_INFRA_CONTAINER_ID", pod.container_id],
            ["K8S_POD_UID", pod.uid],
        ],
        **({"capabilityArgs": capability_args} if capability_args else {}),
        "result": result,
    }
    folder = Path(node.cni_dir, "results")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{conf['name']}-{pod.container_id}-{ifname}"
    path.write_text(json.dumps(document))
    path.chmod(0o600)


def rules(node: Node) -> list[str]:
    """The packet filter rules that send a port of the node to a pod."""
    return [line for line in node.namespace.run("iptables", "-t", "nat", "-S").splitlines() if "--to-destination" in line]


def detach_as_reference(node: Node, pod: Pod) -> None:
    """Detach a pod that we attached: last attachment first, last plugin of each first, with what we recorded."""
    elements = json.loads(Path(node.cni_dir, pod.container_id).read_text())
    for index, element in reversed(list(enumerate(elements))):
        conf = json.loads(base64.b64decode(element["Bytes"], validate=True))
        ifname = element.get("ifnameRequest") or (f"net{index}" if index else "eth0")
        cached = json.loads(Path(node.cni_dir, "results", f"{conf['name']}-{pod.container_id}-{ifname}").read_text())
        assert_shape(cached, RESULT_FILE)
        assert conf == json.loads(base64.b64decode(cached["config"], validate=True))
        assert ("cniCacheV1", pod.container_id, ifname, conf["name"]) == (
            cached["kind"],
            cached["containerId"],
            cached["ifName"],
            cached["networkName"],
        )
        assert ["K8S_POD_NAME", pod.name] in cached["cniArgs"]
        for plugin in reversed(plugins_of(conf)):
            run(node, pod, "DEL", ifname, request(plugin, cached["result"], cached.get("capabilityArgs", {})))


# What the reference knows, by key: a type, a list of one, an object of such, or of any keys ("*").  Other keys it ignores,
# but one that differs from a known key by case alone it would take for that key; a wrong type makes it refuse the file.

TEXTS = [str]
PLUGIN: dict[str, Any] = {
    "cniVersion": str,
    "name": str,
    "type": str,
    "capabilities": {"*": bool},
    "ipam": {"type": str},
    "dns": {"nameservers": TEXTS, "domain": str, "search": TEXTS, "options": TEXTS},
}
ELEMENT: dict[str, Any] = {
    "Conf": PLUGIN,
    "ConfList": {"cniVersion": str, "name": str, "disableCheck": bool, "disableGC": bool, "plugins": [PLUGIN]},
    "Name": str,
    "ifnameRequest": str,
    "macRequest": str,
    "infinibandGUIDRequest": str,
    "ipRequest": TEXTS,
    "default-route": TEXTS,
    "IsFilterV4Gateway": bool,
    "IsFilterV6Gateway": bool,
    "deviceID": str,
    "resourceName": str,
    "Bytes": str,
}
RESULT_FILE: dict[str, Any] = {
    "kind": str,
    "containerId": str,
    "config": str,
    "ifName": str,
    "networkName": str,
    "netns": str,
    "cniArgs": [TEXTS],
    "capabilityArgs": {"*": object},
    "result": {"*": object},
}


def assert_shape(value: Any, shape: Any, where: str = "$") -> None:
    """Walk a document as a strict reader does."""
    if isinstance(shape, list):
        assert isinstance(value, list), where
        for index, item in enumerate(value):
            assert_shape(item, shape[0], f"{where}[{index}]")
    elif isinstance(shape, dict):
        assert isinstance(value, dict), where
        known = {key.lower(): key for key in shape}
        for key, item in value.items():
            assert known.get(key.lower(), key) == key, f"{where}.{key} would be taken for {known[key.lower()]}"
            if key in shape or "*" in shape:
                assert_shape(item, shape.get(key, shape.get("*")), f"{where}.{key}")
    else:
        assert isinstance(value, shape), f"{where}: {value!r}"
