"""In-process delegates that misbehave, in the thin plugin and in the daemon: their own call fails, and nothing else."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multus.testing.node import Node
from multus.testing.thick import ThickNode

DELEGATE = """
import os, signal, sys, time
from multus import netns
from multus.types.result import Result


class Faulty:
    def add(self, invocation):
        fault = getattr(self, invocation.config["fault"])
        return fault(invocation) or Result({"interfaces": [{"name": invocation.ifname, "sandbox": invocation.netns}]})

    def delete(self, invocation):
        pass

    check = delete

    def exits(self, invocation):
        sys.exit("enough")

    def interrupted(self, invocation):
        raise KeyboardInterrupt

    def recurses(self, invocation):
        return self.recurses(invocation)

    def eats(self, invocation):
        bytearray(1 << 62)

    def answers(self, invocation):
        return "all is well"

    def raises(self, invocation):
        raise ZeroDivisionError("by zero")

    def forks(self, invocation):
        child = os.fork()
        if not child:
            return None
        os.waitpid(child, 0)
        raise ZeroDivisionError("the child is gone")

    def stays(self, invocation):
        netns.setns(os.open(invocation.netns, os.O_RDONLY | os.O_CLOEXEC))
        os.chdir("/proc")
        os.umask(0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def hangs(self, invocation):
        while not os.path.exists(invocation.config["until"]):
            time.sleep(0.02)
"""
FAULTS = {
    "exits": "SystemExit: enough",
    "interrupted": "KeyboardInterrupt: ",
    "recurses": "RecursionError: ",
    "eats": "MemoryError: ",
    "answers": "the in-process delegate answered ADD with str, not with a Result",
    "raises": "ZeroDivisionError: by zero",
    "forks": "ZeroDivisionError: the child is gone",
}
"""Every fault that fails its ADD, and what the error says."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The delegate ``faulty``, for whatever has these variables."""
    (tmp_path / "faulty_delegate.py").write_text(DELEGATE)
    manifest = tmp_path / "plugins.json"
    manifest.write_text(json.dumps({"multus": {}, "multus.delegates": {"faulty": "faulty_delegate:Faulty"}}))
    variables = {"MULTUS_PLUGIN_MANIFEST": str(manifest), "PYTHONPATH": str(tmp_path)}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


@pytest.fixture
def thin(node: Node, installed: dict[str, str], tmp_path: Path) -> Node:
    """A node whose multus, a process of each call, knows the delegate."""
    wrapper = tmp_path / "with-plugins"
    wrapper.write_text(f"#!/bin/sh\n{' '.join(f'{name}={value}' for name, value in installed.items())} exec {node.multus}\n")
    wrapper.chmod(0o755)
    node.multus = str(wrapper)
    add_networks(node)
    return node


@pytest.fixture
def thick(installed: dict[str, str], thick_node: ThickNode) -> Iterator[ThickNode]:
    """A node whose daemon, with as many workers as the marker says, knows the delegate."""
    add_networks(thick_node)
    yield thick_node
    assert thick_node.stop() == 0


def add_networks(node: Node) -> None:
    for fault in (*FAULTS, "stays", "hangs"):
        node.add_network(fault, {"type": "faulty", "fault": fault, "until": os.path.join(node.folder, "let-go")})


def attach_all(node: Node) -> None:
    """Each fault is the failure of its own pod, which is then attached to nothing and can go; the next pod is as always."""
    for fault, said in FAULTS.items():
        with node.pod(fault, fault) as pod:
            answer = node.attach(pod)
            assert (1, 999) == (answer.status, answer.document["code"])
            assert said in answer.document["msg"]
            assert f":{fault}]: cannot attach 'net1': plugin 'faulty': the in-process delegate " in answer.document["msg"]
            assert {} == pod.links()
            assert "" == node.detach(pod).error
    with node.pod("web") as pod:
        assert "" == node.attach(pod).error
        assert "" == node.detach(pod).error
    assert {} == node.remains()


def test_a_fault_fails_its_own_pod_alone_thin(thin: Node) -> None:
    attach_all(thin)


@pytest.mark.daemon_config(connectionLimit=1)
def test_a_fault_fails_its_own_pod_alone_thick(thick: ThickNode) -> None:
    """With one worker: had it been lost, nobody would serve the next pod."""
    attach_all(thick)


def attach_one_that_stays(node: Node) -> None:
    """What it changes is put back before the next plugin runs: the bridge behind it is made on the node, not in the pod."""
    bridge = {"type": "bridge", "bridge": "blue0", "ipam": node.host_local("10.20.0.0/24")}
    node.add_network("blue", bridge)
    with node.pod("web", "stays,blue") as pod:
        assert "" == node.attach(pod).error
        assert {"eth0", "net2"} == pod.links().keys()
        assert "blue0" in node.namespace.links()
        record = os.path.join(node.cni_dir, pod.container_id)
        assert 0o600 == stat.S_IMODE(os.stat(record).st_mode)
        assert "" == node.detach(pod).error
    assert {} == node.remains()


def test_what_a_delegate_leaves_changed_is_put_back_thin(thin: Node) -> None:
    attach_one_that_stays(thin)


@pytest.mark.daemon_config(connectionLimit=1)
def test_what_a_delegate_leaves_changed_is_put_back_thick(thick: ThickNode) -> None:
    attach_one_that_stays(thick)
    assert 'changed="the network namespace, the signal mask, the working folder, the umask"' in thick.log
    assert os.getcwd() == os.readlink(f"/proc/{thick.pid}/cwd")


@pytest.mark.daemon_config(connectionLimit=1, delegateTimeout=1)
def test_a_delegate_that_hangs_holds_its_own_pod_alone(thick: ThickNode, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as background, thick.pod("stuck", "hangs") as stuck, thick.pod("web") as web:
        answer = background.submit(thick.attach, stuck)
        thick.wait_until(lambda: thick.metrics()["multus_delegates_overdue"] == 1, "it hangs")
        assert "" == thick.attach(web).error
        assert not answer.done()
        (tmp_path / "let-go").touch()
        assert 11 == answer.result().document["code"]
        assert "the in-process delegate 'faulty' (ADD, container" in answer.result().error
        assert "did not end within 1 s" in answer.result().error
        assert {} == stuck.links()
        assert 0 == thick.metrics()["multus_delegates_overdue"]
        for pod in (stuck, web):
            assert "" == thick.detach(pod).error
    assert {} == thick.remains()


@pytest.mark.daemon_config(connectionLimit=1, delegateTimeout=1, shutdownGrace=1)
def test_a_delegate_that_hangs_for_ever_does_not_keep_the_daemon(thick: ThickNode, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as background, thick.pod("stuck", "hangs") as stuck:
        answer = background.submit(thick.attach, stuck)
        thick.wait_until(lambda: thick.metrics()["multus_delegates_overdue"] == 1, "it hangs")
        assert 0 == thick.stop()
        assert 11 == answer.result().document["code"]
        thick.start()
        assert "" == thick.detach(stuck).error
    assert {} == thick.remains()
