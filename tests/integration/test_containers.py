"""The pods of the manifests, run by hand: installed on a host of their own, configured, probed, and used by a runtime.

What a read-only root, a missing mount or a missing capability would break, breaks here.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.testing.kubeapi_credentials import Certificates
from multus.testing.kubeapi_signing import User
from multus.testing.node import NODE_NAME, UPLINK, Node
from multus.testing.pods import Pod
from tests.deployments.manifests import container
from tests.integration.containers import Host, environment

PATIENCE_S = 60.0
TOKEN = "token-of-the-node"
APPROVER = "system:serviceaccount:kube-system:multus-cert-approver"


@pytest.fixture
def overlay(machine: None, tmp_path: Path) -> None:
    """Skip where no overlay can be mounted, as in most containers."""
    if shutil.which("setpriv") is None:
        pytest.skip("no setpriv here")
    mounts = f"mount -t tmpfs none {tmp_path} && cd {tmp_path} && mkdir u w r && mount -t overlay none -o lowerdir=/,upperdir=u,workdir=w r"
    if subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts], capture_output=True, check=False).returncode:
        pytest.skip("overlayfs cannot be mounted here")


class Running:
    """A container that runs until the test ends."""

    def __init__(self, command: list[str], environ: dict[str, str], log: Path) -> None:
        self._log = log
        with open(log, "ab") as file:
            self.process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def until(self, fact: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not fact():
            assert self.process.poll() is None, f"it has ended: {self._log.read_text()}"
            assert time.monotonic() < end, f"not so: {what}: {self._log.read_text()}"
            time.sleep(0.05)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def node(overlay: None, multus_binary: str, certificates: Certificates, tmp_path: Path) -> Iterator[Node]:
    """The cluster's side: an API server, pods and networks; its executable is not used."""
    with Node(multus_binary, tmp_path / "node", certificates=certificates._replace(client="", client_key="")) as node:
        yield node


@pytest.fixture
def run(node: Node, tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def run(host: Host, way: str, name: str = "kube-multus", **more: str) -> Running:
        with node.namespace.entered():
            started.append(Running(host.command(way, name), environment(node.api.port, more), tmp_path / f"{name}.log"))
        return started[-1]

    yield run
    for each in started:
        each.process.kill()
        each.process.wait()


def prepare(host: Host, node: Node, certificates: Certificates) -> None:
    """The service account, and the configuration of the cluster network on the host."""
    (host.service_account / "token").write_text(TOKEN)
    shutil.copy(certificates.server, host.service_account / "ca.crt")
    conf_dir = host.path("/etc/cni/net.d")
    conf_dir.mkdir(parents=True)
    primary: dict[str, Any] = {**node.cluster_network(), "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}}
    (conf_dir / "10-cluster.conf").write_text(json.dumps(primary))
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/24"}]]}
    node.add_network("blue", {"type": "macvlan", "master": UPLINK, "ipam": ipam})


def install(host: Host, way: str) -> None:
    done = subprocess.run(host.command(way, "install-multus-binary"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def attach_and_detach(host: Host, node: Node, executable: str, bin_dir: str) -> None:
    """As the runtime does: the first configuration of the folder, and its plugin on the host."""
    conf_dir = host.path("/etc/cni/net.d")
    document = json.loads((conf_dir / sorted(name for name in os.listdir(conf_dir) if name.startswith("00-multus"))[0]).read_text())
    config = {**document, **document.get("plugins", [{}])[0]}
    config.pop("plugins", None)

    def call(pod: Pod, command: str) -> str:
        with node.namespace.entered():
            return pod.call(host.on_host(f"{bin_dir}/{executable}"), command, config, plugin_folder=bin_dir).error

    with node.pod("web", "blue") as pod:
        assert call(pod, "ADD") == ""
        assert {name: link.addresses for name, link in pod.links().items()} == {"eth0": ("10.244.0.2/24",), "net1": ("10.20.0.2/24",)}
        assert [entry["interface"] for entry in node.statuses(pod)] == ["eth0", "net1"]
        assert call(pod, "DEL") == ""
        assert pod.links() == {}


def test_the_thick_manifest_serves_pods(
    node: Node, bundle: Path, certificates: Certificates, tmp_path: Path, run: Callable[..., Running]
) -> None:
    host = Host(tmp_path, bundle)
    prepare(host, node, certificates)
    install(host, "thick")
    daemon = run(host, "thick", MULTUS_NODE_NAME=NODE_NAME)
    daemon.until(host.path("/etc/cni/net.d/00-multus.conf").exists, "the configuration is written")
    daemon.until(lambda: host.probe("thick", "kube-multus", "readinessProbe").returncode == 0, "it is ready")
    assert [host.probe("thick", "kube-multus", each).returncode for each in ("startupProbe", "livenessProbe")] == [0, 0]
    attach_and_detach(host, node, "multus-shim", "/opt/cni/bin")
    assert daemon.stop() == 0
    probed = host.probe("thick", "kube-multus", "livenessProbe")
    assert (probed.returncode, "does not answer" in probed.stderr) == (1, True)


@pytest.mark.parametrize("way", ["thin", "crio"])
def test_the_thin_manifests_serve_pods(
    node: Node, bundle: Path, certificates: Certificates, tmp_path: Path, run: Callable[..., Running], way: str
) -> None:
    bin_dir = "/usr/libexec/cni" if way == "crio" else "/opt/cni/bin"
    host = Host(tmp_path, bundle, bin_dir)
    prepare(host, node, certificates)
    assert host.probe(way, "kube-multus", "readinessProbe").returncode == 1
    install(host, way)
    entry_point = run(host, way)
    entry_point.until(lambda: host.probe(way, "kube-multus", "readinessProbe").returncode == 0, "it is ready")
    entry_point.until(lambda: any(name.startswith("00-multus") for name in os.listdir(host.path("/etc/cni/net.d"))), "it is configured")
    attach_and_detach(host, node, "multus", bin_dir)
    assert entry_point.stop() == 0


def prepare_certificates(host: Host, node: Node, run: Callable[..., Running], way: str) -> None:
    """A kubelet's credentials, a signer, and the approver; the service account of the nodes' pods opens nothing."""
    api = node.api
    api.users.update({"kubelet": User(f"system:node:{NODE_NAME}", ("system:nodes",)), "approver": User(APPROVER)})
    api.sign_certificates()
    for folder in ("/etc/kubernetes", "/var/lib/kubelet/pki"):
        host.path(folder).mkdir(parents=True)
    api.kubeconfig(host.path("/etc/kubernetes/kubelet.conf"), user={"token": "kubelet"}, inline=True)
    (host.service_account / "token").write_text("approver")
    run(host, way, "cert-approver").until(lambda: any(each.user == APPROVER and each.is_watch for each in api.requests), "it watches")
    (host.service_account / "token").write_text("of nobody")


def of_nodes(node: Node) -> set[str]:
    """Who asked for pods, networks and events."""
    return {each.user for each in node.api.requests if "certificatesigningrequests" not in each.path and each.user != APPROVER}


def test_the_thick_manifest_with_certificates_serves_pods(
    node: Node, bundle: Path, certificates: Certificates, tmp_path: Path, run: Callable[..., Running]
) -> None:
    way = "thick-certificates"
    host = Host(tmp_path, bundle)
    prepare(host, node, certificates)
    prepare_certificates(host, node, run, way)
    install(host, way)
    daemon = run(host, way, MULTUS_NODE_NAME=NODE_NAME)
    daemon.until(lambda: host.probe(way, "kube-multus", "readinessProbe").returncode == 0, "it is ready")
    attach_and_detach(host, node, "multus-shim", "/opt/cni/bin")
    assert of_nodes(node) == {f"system:multus:{NODE_NAME}"}
    assert daemon.stop() == 0


def test_the_thin_manifest_with_certificates_serves_pods(
    node: Node, bundle: Path, certificates: Certificates, tmp_path: Path, run: Callable[..., Running]
) -> None:
    way = "thin-certificates"
    host = Host(tmp_path, bundle)
    prepare(host, node, certificates)
    prepare_certificates(host, node, run, way)
    install(host, way)
    generator = run(host, way, "kubeconfig-generator", MULTUS_NODE_NAME=NODE_NAME)
    generator.until(lambda: host.probe(way, "kubeconfig-generator", "readinessProbe").returncode == 0, "the kubeconfig is there")
    entry_point = run(host, way)
    entry_point.until(lambda: any(name.startswith("00-multus") for name in os.listdir(host.path("/etc/cni/net.d"))), "it is configured")
    attach_and_detach(host, node, "multus", "/opt/cni/bin")
    assert of_nodes(node) == {f"system:multus:{NODE_NAME}"}
    assert [entry_point.stop(), generator.stop()] == [0, 0]


def test_the_root_of_a_container_is_read_only_and_its_privileges_are_few(overlay: None, bundle: Path, tmp_path: Path) -> None:
    """So the tests above can fail."""
    host = Host(tmp_path, bundle)

    def said(way: str, name: str, script: str) -> str:
        command = [host.enter(container(way, name)), "sh", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=environment(1)).stdout.strip()

    write = "for folder in / /etc /run /var/lib /opt; do touch $folder/here 2>/dev/null && echo $folder; done"
    assert said("thin", "kube-multus", write) == ""
    assert said("thick", "kube-multus", write) == ""
    assert int(said("thin", "kube-multus", "grep CapEff /proc/self/status").split()[1], 16) == 1 << 1  # DAC_OVERRIDE
    assert said("thin", "install-multus-binary", "touch /host/opt/cni/bin/here && echo written") == "written"
    assert said("thin", "kube-multus", "touch /host/opt/cni/bin/here 2>/dev/null || echo refused") == "refused"
