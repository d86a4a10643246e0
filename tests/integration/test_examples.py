"""The examples, as their READMEs tell them, and the quickstart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from multus.testing.kubeapi_credentials import Certificates
from multus.testing.node import Node
from multus.testing.pods import PLUGIN_FOLDER, Namespace, Pod
from multus.testing.thick import ThickNode

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.name[0].isdigit())


@pytest.fixture(params=["binaries", "in-process"])
def node(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Node:
    """The same node twice: with the reference plugins, and without any plugin but those of ``plugins/netlink``."""
    if request.param == "in-process":
        node.plugin_folder = str(tmp_path / "no-plugins")
        os.mkdir(node.plugin_folder)
        node.settings["delegatePreference"] = "in-process"
    return node


def is_in_process(node: Node) -> bool:
    return "delegatePreference" in node.settings


def types_of(folder: str) -> set[str]:
    """The CNI types of an example's networks, of their IPAM, and of the cluster network."""
    found = {"bridge", "host-local"}
    for document in yaml.safe_load_all((EXAMPLES / folder / "manifest.yaml").read_text()):
        if document["kind"] == "NetworkAttachmentDefinition":
            config = json.loads(document["spec"]["config"])
            for plugin in config.get("plugins", [config]):
                found |= {plugin["type"], plugin.get("ipam", {}).get("type", plugin["type"])}
    return found


@contextmanager
def example(node: Node, folder: str, *names: str, namespace: str = "default", **settings: object) -> Iterator[list[Pod]]:
    """The named pods of an example, attached; at the end of the block they are detached, and have left nothing."""
    missing = types_of(folder) - entry_points(group="multus.delegates").names
    if is_in_process(node) and missing:
        pytest.skip(f"not there in-process: {', '.join(sorted(missing))}")
    node.load(str(EXAMPLES / folder))
    with ExitStack() as exits:
        pods = [exits.enter_context(node.pod(name, namespace=namespace)) for name in names]
        for pod in pods:
            assert "" == node.attach(pod, **settings).error
        yield pods
        for pod in pods:
            assert "" == node.detach(pod, **settings).error
            assert {} == pod.links()
    assert {} == node.remains()


def test_01_macvlan(node: Node) -> None:
    with example(node, "01-macvlan", "left", "right") as (left, right):
        assert (("192.168.10.100/24",), "macvlan") == (left.links()["net1"].addresses, left.links()["net1"].kind)
        assert ("192.168.10.101/24",) == right.links()["net1"].addresses
        assert left.pings("192.168.10.101", "net1")
        entries = node.statuses(left)
        assert [("cluster", "eth0", True), ("default/office", "net1", False)] == [
            (entry["name"], entry["interface"], entry.get("default", False)) for entry in entries
        ]


def test_02_plugin_list(node: Node) -> None:
    with example(node, "02-plugin-list", "web") as (pod,):
        links = pod.links()
        assert (1400, ("10.10.1.2/24",)) == (links["blue"].mtu, links["blue"].addresses)
        assert ("10.10.2.2/24", "fd00:10:2::2/64") == links["green"].addresses
        assert "rate 10Mbit" in node.namespace.run("tc", "qdisc", "show")
        assert "8080" in node.namespace.run("nft", "list", "ruleset")
        if not is_in_process(node):
            assert "--dport 8080 -j DNAT --to-destination 10.10.1.2:80" in node.namespace.run("iptables", "-t", "nat", "-S")
    assert "tbf" not in node.namespace.run("tc", "qdisc", "show")
    assert "8080" not in node.namespace.run("nft", "list", "ruleset")


def test_03_static_address(node: Node) -> None:
    with example(node, "03-static-address", "database") as (pod,):
        link = pod.links()["net1"]
        assert (("10.10.3.5/24", "fd00:10:3::5/64"), "02:00:0a:0a:03:05") == (link.addresses, link.mac)


def test_04_default_route(node: Node) -> None:
    with example(node, "04-default-route", "traveller") as (pod,):
        defaults = [route for route in pod.routes() if route.startswith("default")]
        assert ["default via 10.10.4.1 dev net1"] == [route.removesuffix(" proto static") for route in defaults]
        assert ["10.10.4.1"] == node.statuses(pod)[1]["default-route"]
        assert pod.pings("10.10.4.1")


def test_05_default_network(node: Node) -> None:
    with example(node, "05-default-network", "backup") as (pod,):
        assert {"eth0": ("10.10.5.2/24",)} == {name: link.addresses for name, link in pod.links().items()}
        assert ["kube-system/storage"] == [entry["name"] for entry in node.statuses(pod)]


def test_06_namespace_isolation(node: Node) -> None:
    with example(node, "06-namespace-isolation", "accountant", namespace="finance", namespaceIsolation=True) as (pod,):
        assert ("10.10.6.2/24",) == pod.links()["net1"].addresses
    with node.pod("curious", namespace="guest") as pod:
        answer = node.attach(pod, namespaceIsolation=True)
        assert 1 == answer.status
        assert {} == pod.links()
        events = [event for event in node.api.store.all("events", "guest") if event["type"] == "Warning"]
        assert ["curious"] == [event["involvedObject"]["name"] for event in events]
        assert "finance" in str(events[0])
        assert "" == node.detach(pod, namespaceIsolation=True).error
    assert {} == node.remains()


@pytest.fixture
def third_party(machine: None, tmp_path: Path) -> Path:
    """The programs of a fresh environment that has Multus, and example 07 as its user installs it: by pip, from its own folder."""
    source, environment = tmp_path / "bridge-port", tmp_path / "environment"
    shutil.copytree(EXAMPLES / "07-bridge-port", source, ignore=shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__"))
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "multus.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    programs = environment / "bin"
    for name, module in (("multus", "cni"), ("multus-shim", "shim"), ("multus-daemon", "daemon")):
        (programs / name).write_text(f"#!{programs / 'python'}\nfrom multus.commands.{module} import main\n\nmain()\n")
        (programs / name).chmod(0o755)
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "--disable-pip-version-check"]
    for command in ([*pip, "install", "--quiet", str(source)], [str(programs / "python"), "-m", "multus.hooks.manifest"]):
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
    return programs


def nodes_of(programs: Path, folder: Path, certificates: Certificates) -> Iterator[Node]:
    """A node with the thin plugin, then one with the thick."""
    yield Node(str(programs / "multus"), folder / "thin", certificates=certificates)
    yield ThickNode(str(programs / "multus-shim"), str(programs / "multus-daemon"), folder / "thick", certificates=certificates)


def test_07_bridge_port(certificates: Certificates, third_party: Path, tmp_path: Path) -> None:
    """A delegate of somebody else's serves pods, in a process of each call and in the daemon."""
    for made in nodes_of(third_party, tmp_path, certificates):
        Path(made.folder).mkdir()
        use_bridge_port(made)


def use_bridge_port(made: Node) -> None:
    with made as node:
        node.namespace.run("ip", "link", "add", "br-lan", "type", "bridge")
        node.namespace.run("ip", "link", "set", "br-lan", "up")
        with example(node, "07-bridge-port", "camera") as (pod,):
            assert (("192.168.20.7/24",), "veth") == (pod.links()["lan0"].addresses, pod.links()["lan0"].kind)
            assert "master br-lan" in node.namespace.run("ip", "link", "show", "camera")
            assert ["lan0", ["192.168.20.7"]] == [node.statuses(pod)[1][key] for key in ("interface", "ips")]
            assert f"bridge-port lan {pod.container_id} lan0" in node.namespace.run("ip", "link", "show", "camera")
        assert "camera" not in node.namespace.links()


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_example_has_a_readme_that_names_its_manifest_and_a_test(folder: str) -> None:
    assert f"kubectl apply -f examples/{folder}/manifest.yaml" in (EXAMPLES / folder / "README.md").read_text()
    assert f"test_{folder.replace('-', '_')}" in globals()


@pytest.mark.parametrize("options", [[], ["--thick"], ["--in-process"], ["--in-process", "--thick"]], ids=" ".join)
def test_the_quickstart_ends_well(machine: None, multus_binary: str, options: list[str]) -> None:
    """Where it needs no CNI plugin, the machine has none."""
    environment = {**os.environ, "PATH": f"{Path(multus_binary).parent}:{os.environ['PATH']}"}
    command = [sys.executable, str(EXAMPLES / "quickstart.py"), *options]
    if "--in-process" in options:
        hidden = f'mount -t tmpfs none {PLUGIN_FOLDER} && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", hidden, "sh", *command]
    with Namespace() as around, around.entered():
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
        assert {} == around.links()
    assert (0, "") == (done.returncode, done.stderr)
    assert "left on the node: no link, no leased address, no record" in done.stdout
    assert [] == [line for line in done.stdout.splitlines() if len(line) > 100]
    assert "\x1b" not in done.stdout
    assert ("waits for the daemon" in done.stdout) == ("--thick" in options)
    assert ("and no CNI plugins" in done.stdout) == ("--in-process" in options)
