"""Pods attached through shim and daemon, with real plugins: every verb, and what surrounds it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from multus.protocol import node_api
from multus.testing.node import NODE_NAME, UPLINK
from multus.testing.pods import Answer, Pod
from multus.testing.scriptable import Answer as Scripted
from multus.testing.scriptable import ScriptedDelegates
from multus.testing.thick import ThickNode
from multus.types.daemon import InterfaceAttributes, NodeRequest


def add_networks(node: ThickNode) -> None:
    """``blue``, a bridge, and ``green``, a macvlan; known to the daemon."""
    node.add_network("blue", {"type": "bridge", "bridge": "blue0", "isGateway": True, "ipam": node.host_local("10.20.0.0/24")})
    node.add_network("green", {"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": node.host_local("10.30.0.0/24")})
    node.wait_until(lambda: node.metrics()['multus_cache_objects{cache="net-attach-defs"}'] == 2, "the networks are cached")


def known(node: ThickNode, count: int) -> None:
    """Wait until so many pods are cached."""
    node.wait_until(lambda: node.metrics()['multus_cache_objects{cache="pods"}'] == count, "the pods are cached")


def code_of(answer: Answer) -> int:
    return int(answer.document["code"])


@pytest.fixture
def scripted(thick_node: ThickNode, tmp_path: Path) -> ScriptedDelegates:
    """The delegate ``strange``, which the daemon finds by the runtime's CNI_PATH, and a network ``odd`` of it."""
    delegates = ScriptedDelegates(tmp_path / "scripted", "strange")
    thick_node.plugin_folder = delegates.bin
    thick_node.add_network("odd", {"type": "strange"})
    return delegates


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as pool:
        yield pool


def started(delegates: ScriptedDelegates, command: str) -> Callable[[], bool]:
    return lambda: any(call.command == command for call in delegates.calls())


# every verb


def test_add_and_del_attach_and_detach(thick_node: ThickNode) -> None:
    add_networks(thick_node)
    with thick_node.pod("web", "blue, green") as pod:
        answer = thick_node.attach(pod)
        assert ("", "1.0.0") == (answer.error, answer.document["cniVersion"])
        inside = {name: link.addresses for name, link in pod.links().items()}
        assert {"eth0": ("10.244.0.2/24",), "net1": ("10.20.0.2/24",), "net2": ("10.30.0.2/24",)} == inside
        entries = [(entry["name"], entry["interface"], entry["ips"]) for entry in thick_node.statuses(pod)]
        assert entries == [
            ("cluster", "eth0", ["10.244.0.2"]),
            ("default/blue", "net1", ["10.20.0.2"]),
            ("default/green", "net2", ["10.30.0.2"]),
        ]
        assert "" == thick_node.detach(pod).error
        assert {} == pod.links()
    assert {} == thick_node.remains()


def test_an_add_with_warm_caches_is_one_request_to_the_api_server(thick_node: ThickNode) -> None:
    """Events come after the answer, and are not counted."""
    add_networks(thick_node)
    with thick_node.pod("web", "blue, green") as pod:
        known(thick_node, 1)
        assert "" == thick_node.attach(pod).error
        asked = [request for request in thick_node.api_requests() if not request.endswith("/events")]
        assert ["PATCH /api/v1/namespaces/default/pods/web/status"] == asked
        assert "" == thick_node.detach(pod).error
        assert asked == [request for request in thick_node.api_requests() if not request.endswith("/events")]


def test_the_answer_does_not_wait_for_events(thick_node: ThickNode) -> None:
    add_networks(thick_node)
    thick_node.api.fail("POST", "/events$", hang_s=6.0)
    with thick_node.pod("web", "blue") as pod:
        begun = time.monotonic()
        assert "" == thick_node.attach(pod).error
        assert time.monotonic() - begun < 5
        thick_node.wait_until(lambda: len(thick_node.api.store.all("events")) == 2, "both events are there")
        assert "" == thick_node.detach(pod).error


def test_a_pod_and_a_network_that_were_just_made_are_found(thick_node: ThickNode) -> None:
    """No waiting for the caches here."""
    for number in range(5):
        thick_node.add_network(f"new{number}", {"type": "macvlan", "master": UPLINK})
        with thick_node.pod(f"web{number}", f"new{number}") as pod:
            assert "" == thick_node.attach(pod).error
            assert ["eth0", "net1"] == sorted(pod.links())
            assert "" == thick_node.detach(pod).error


def test_check_tells_a_lost_link(thick_node: ThickNode) -> None:
    add_networks(thick_node)
    with thick_node.pod("web", "green") as pod:
        assert "" == thick_node.attach(pod).error
        assert "" == thick_node.call("CHECK", pod).error
        pod.run("ip", "link", "del", "net1")
        answer = thick_node.call("CHECK", pod)
        assert 1 == answer.status
        assert "net1" in answer.error
        assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


@pytest.mark.daemon_config(cniVersion="1.1.0")
def test_gc_detaches_what_the_runtime_does_not_count(thick_node: ThickNode) -> None:
    add_networks(thick_node)
    with thick_node.pod("kept", "green") as kept, thick_node.pod("stale", "green") as stale:
        for pod in (kept, stale):
            assert "" == thick_node.attach(pod).error
        valid = [{"containerID": kept.container_id, "ifname": "eth0"}]
        assert "" == thick_node.call("GC", kept, **{"cni.dev/valid-attachments": valid}).error
        assert (["eth0", "net1"], []) == (sorted(kept.links()), sorted(stale.links()))
        assert [] == [path for path in thick_node.remains()["journal"] if stale.container_id in path]
        assert "" == thick_node.detach(kept).error
    assert {} == thick_node.remains()


@pytest.mark.daemon_config(cniVersion="1.1.0", shimDeadline=1)
def test_status_tells_whether_a_pod_could_be_attached(thick_node: ThickNode) -> None:
    with thick_node.pod("web") as pod:
        assert "" == thick_node.call("STATUS", pod).error
        config = thick_node.config
        assert 0 == thick_node.stop()
        answer = thick_node.call("STATUS", pod, **config)
        assert (1, 50) == (answer.status, code_of(answer))


def test_a_delegates_error_reaches_the_runtime_with_code_and_place(thick_node: ThickNode, scripted: ScriptedDelegates) -> None:
    scripted.answer("strange", "ADD", Scripted(error={"code": 112, "msg": "no room", "details": "pool 7"}))
    with thick_node.pod("web", "odd") as pod:
        answer = thick_node.attach(pod)
        assert {"cniVersion": "1.0.0", "code": 112, "details": "pool 7"} == {
            key: value for key, value in answer.document.items() if key != "msg"
        }
        assert [] == [part for part in ("default/web/", "odd", "'strange'", "no room") if part not in answer.document["msg"]]
        assert {} == pod.links()
        assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


# hot-plug, in-process delegates


def plug(node: ThickNode, pod: Pod, command: str, config: dict[str, object]) -> tuple[int, str]:
    """Ask ``/delegate`` for one more network, on ``net5``."""
    env = pod.environment(command, node.plugin_folder, ifname="net5")
    attributes = InterfaceAttributes(("10.50.0.9/24",), "02:00:0a:32:00:09") if command == "ADD" else None
    return node.ask("/delegate", node_api.encode_request(NodeRequest(env, json.dumps(config).encode(), attributes)))


def test_a_plugged_interface_comes_and_goes_on_its_own(thick_node: ThickNode) -> None:
    ipam = {"type": "static"}
    config = {"cniVersion": "1.0.0", "name": "extra", "type": "macvlan", "master": UPLINK, "capabilities": {"mac": True, "ips": True}}
    with thick_node.pod("web") as pod:
        assert "" == thick_node.attach(pod).error
        status, text = plug(thick_node, pod, "ADD", {**config, "ipam": ipam})
        assert (200, "1.1.0") == (status, json.loads(text)["Result"]["cniVersion"])
        assert (("10.50.0.9/24",), "02:00:0a:32:00:09") == (pod.links()["net5"].addresses, pod.links()["net5"].mac)
        assert (200, "") == plug(thick_node, pod, "CHECK", {**config, "ipam": ipam})
        assert (200, "") == plug(thick_node, pod, "DEL", {**config, "ipam": ipam})
        assert ["eth0"] == sorted(pod.links())
        assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


def test_the_pods_del_takes_a_plugged_interface_along(thick_node: ThickNode) -> None:
    config = {"cniVersion": "1.0.0", "name": "extra", "type": "macvlan", "master": UPLINK, "ipam": thick_node.host_local("10.50.0.0/24")}
    with thick_node.pod("web") as pod:
        assert "" == thick_node.attach(pod).error
        assert 200 == plug(thick_node, pod, "ADD", config)[0]
        assert ["eth0", "net5"] == sorted(pod.links())
        assert "" == thick_node.detach(pod).error
        assert {} == pod.links()
    assert {} == thick_node.remains()


LOOKING_DELEGATE = """
import fcntl, os, socket, struct
from multus.adapters.netns import KernelNetns
from multus.protocol import results

class Looking:
    def accepts(self, invocation):
        return True

    def add(self, invocation):
        with KernelNetns().entered(invocation.netns), socket.socket() as any_socket:
            answer = fcntl.ioctl(any_socket, 0x8927, struct.pack("256s", b"eth0"))  # SIOCGIFHWADDR
        with open(os.path.join(os.environ["SEEN"], invocation.container_id), "w") as file:
            file.write(f"{os.getpid()} {answer[18:24].hex(':')}")
        return results.parse(invocation.config["prevResult"], "1.0.0")

    def delete(self, invocation):
        pass
"""
"""Notes in which process it runs, and the hardware address of eth0 in the namespace that it has entered."""


def test_an_in_process_delegate_runs_in_the_daemon_and_sees_the_right_pod(
    thick_node: ThickNode, background: ThreadPoolExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten pods at once, each in a thread of the daemon."""
    seen = tmp_path / "seen"
    seen.mkdir()
    (tmp_path / "looking_delegate.py").write_text(LOOKING_DELEGATE)
    (tmp_path / "plugins.json").write_text(json.dumps({"multus": {}, "multus.delegates": {"looking": "looking_delegate:Looking"}}))
    monkeypatch.setenv("MULTUS_PLUGIN_MANIFEST", str(tmp_path / "plugins.json"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SEEN", str(seen))
    thick_node.stop()
    thick_node.start()
    bridge = {"type": "bridge", "bridge": "blue0", "ipam": thick_node.host_local("10.20.0.0/24")}
    thick_node.add_network("blue", bridge, {"type": "looking"})
    with ExitStack() as exits:
        pods = [exits.enter_context(thick_node.pod(f"web{number}", "blue")) for number in range(10)]
        assert {""} == {answer.error for answer in background.map(thick_node.attach, pods)}
        for pod in pods:
            assert f"{thick_node.pid} {pod.links()['eth0'].mac}" == (seen / pod.container_id).read_text()
            told = {entry["interface"]: entry["ips"] for entry in thick_node.statuses(pod)}
            assert told == {name: [link.addresses[0].partition("/")[0]] for name, link in pod.links().items()}
        assert {""} == {answer.error for answer in background.map(thick_node.detach, pods)}
    assert {} == thick_node.remains()


# readiness


@pytest.mark.daemon_config(shimDeadline=1)
def test_readyz_gives_the_reason_and_adds_wait_for_it(thick_node: ThickNode) -> None:
    primary = Path(thick_node.cni_config_dir, "10-cluster.conf")
    content = primary.read_bytes()
    assert (200, "") == thick_node.ask("/readyz")
    primary.unlink()
    thick_node.wait_until(lambda: thick_node.ask("/readyz")[0] == 500, "the lost primary configuration is noticed")
    assert f"{primary} is gone" in thick_node.ask("/readyz")[1]
    assert (200, "") == thick_node.ask("/healthz")
    with thick_node.pod("web") as pod:
        answer = thick_node.attach(pod)
        assert 11 == code_of(answer)
        assert f"{primary} is gone" in answer.error
        primary.write_bytes(content)
        thick_node.wait_until(lambda: thick_node.ask("/readyz")[0] == 200, "the primary configuration is back")
        assert "" == thick_node.attach(pod).error
        assert "" == thick_node.detach(pod).error


def test_our_file_that_others_rename_is_back_and_counted(thick_node: ThickNode) -> None:
    """Case C3, from outside."""
    before = Path(thick_node.config_path).read_bytes()
    os.rename(thick_node.config_path, f"{thick_node.config_path}.cilium_bak")
    thick_node.wait_until(lambda: os.path.exists(thick_node.config_path), "the file is back", patience_s=2)
    assert before == Path(thick_node.config_path).read_bytes()
    thick_node.wait_until(lambda: thick_node.metrics()["multus_configuration_repairs_total"] == 1, "the repair is counted")
    assert 1 == thick_node.log.count("configuration.repaired")
    thick_node.wait_until(lambda: len(thick_node.api.store.all("events")) == 1, "the event is there")
    [event] = thick_node.api.store.all("events")
    assert ("Warning", "ConfigurationRepaired") == (event["type"], event["reason"])
    assert {"kind": "Node", "apiVersion": "v1", "name": NODE_NAME, "uid": NODE_NAME} == event["involvedObject"]
    assert f"was renamed to {thick_node.config_path}.cilium_bak by others" in event["message"]


# the daemon's end


def test_a_stop_keeps_the_configuration_and_removes_the_socket(thick_node: ThickNode) -> None:
    assert 0 == thick_node.stop()
    assert (True, False) == (os.path.exists(thick_node.config_path), os.path.exists(thick_node.socket_path))
    assert "Traceback" not in thick_node.log


@pytest.mark.daemon_config(cleanupConfigOnExit=True)
def test_a_stop_removes_the_configuration_when_asked(thick_node: ThickNode) -> None:
    assert 0 == thick_node.stop()
    assert ["10-cluster.conf"] == os.listdir(thick_node.cni_config_dir)


def test_a_second_daemon_ends_and_the_first_one_serves_on(thick_node: ThickNode, daemon_binary: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
    command = [daemon_binary, "-config", thick_node.daemon_config_path]
    with thick_node.namespace.entered():
        second = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=60)
    assert 3 == second.returncode
    assert f"another process serves {thick_node.socket_path}" in second.stderr
    with thick_node.pod("web") as pod:
        assert "" == thick_node.attach(pod).error
        assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


def test_a_removed_socket_ends_the_daemon(thick_node: ThickNode) -> None:
    """Nobody could reach it any more; whoever looks after it starts another one."""
    os.unlink(thick_node.socket_path)
    assert 3 == thick_node.wait(10)
    assert "was removed or replaced" in thick_node.log


def test_a_stop_lets_a_running_add_finish(thick_node: ThickNode, scripted: ScriptedDelegates, background: ThreadPoolExecutor) -> None:
    """What comes meanwhile is for the next daemon: a DEL here."""
    scripted.answer("strange", "ADD", Scripted(sleep_s=1.5))
    with thick_node.pod("web", "odd") as pod, thick_node.pod("other") as other:
        assert "" == thick_node.attach(other).error
        answer = background.submit(thick_node.attach, pod)
        thick_node.wait_until(started(scripted, "ADD"), "the delegate runs")
        begun = time.monotonic()
        thick_node.signal()
        thick_node.wait_until(lambda: thick_node.ask("/readyz") == (500, "the daemon is stopping"), "it says that it stops")
        assert "" == thick_node.detach(other).error
        assert ["eth0"] == shape(other)
        assert (0, True) == (thick_node.wait(), time.monotonic() - begun < 5)
        assert "" == answer.result().error
        thick_node.start()
        assert "" == thick_node.detach(pod).error
        thick_node.wait_until(lambda: thick_node.remains() == {}, "the DEL that waited is done", patience_s=10)
        assert ([], []) == (shape(pod), shape(other))


@pytest.mark.daemon_config(shutdownGrace=0.5)
def test_an_add_that_outlasts_the_grace_time_is_undone(
    thick_node: ThickNode, scripted: ScriptedDelegates, background: ThreadPoolExecutor
) -> None:
    """Its delegate is killed: it would attach what nobody knows of."""
    scripted.answer("strange", "ADD", Scripted(sleep_s=30, addresses=("198.51.100.7/24",)))
    with thick_node.pod("web", "odd") as pod:
        answer = background.submit(thick_node.attach, pod)
        thick_node.wait_until(started(scripted, "ADD"), "the delegate runs")
        assert (["eth0"], 0) == (shape(pod), thick_node.stop())
        assert "odd" in answer.result().error
        assert ([], []) == (shape(pod), list(pod.processes()))
        thick_node.start()
        assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


def test_a_second_signal_ends_it_at_once(thick_node: ThickNode, scripted: ScriptedDelegates, background: ThreadPoolExecutor) -> None:
    """Its delegates with it; what they had done is on record."""
    scripted.answer("strange", "ADD", Scripted(sleep_s=30))
    with thick_node.pod("web", "odd") as pod:
        answer = background.submit(thick_node.attach, pod)
        thick_node.wait_until(started(scripted, "ADD"), "the delegate runs")
        thick_node.signal(signal.SIGINT)
        thick_node.wait_until(lambda: thick_node.ask("/readyz")[0] == 500, "it says that it stops")
        thick_node.signal(signal.SIGTERM)
        assert 1 == thick_node.wait(10)
        assert 11 == code_of(answer.result())
        wait_for_delegates(thick_node, pod)
        thick_node.start()
        assert "" == thick_node.detach(pod).error
        assert [] == shape(pod)
    assert {} == thick_node.remains()


# restarts and kills


def wait_for_delegates(node: ThickNode, pod: Pod) -> None:
    """Until no process but the daemon is in the node's namespace or the pod's."""

    def left() -> set[int]:
        mine = {node.pid} if os.path.exists(f"/proc/{node.pid}") else set()
        return {*node.namespace.processes(), *pod.processes()} - mine

    end = time.monotonic() + 20
    while left():
        assert time.monotonic() < end, "a delegate does not end"
        time.sleep(0.005)


def shape(pod: Pod) -> list[str]:
    return sorted(pod.links())


@pytest.mark.daemon_config(shimDeadline=20)
def test_a_restart_during_a_burst_leaves_no_half_pod(thick_node: ThickNode, background: ThreadPoolExecutor) -> None:
    """What the old daemon has begun, it ends; the rest waits for the new one.  Code 11 only where a connection was cut."""
    add_networks(thick_node)
    with ExitStack() as exits:
        pods = [exits.enter_context(thick_node.pod(f"web{number}", "blue, green")) for number in range(10)]
        answers = [background.submit(thick_node.attach, pod) for pod in pods]
        thick_node.wait_until(lambda: "delegate.add.complete" in thick_node.log, "the burst has begun")
        assert 0 == thick_node.stop()
        thick_node.start()
        failed = []
        for pod, answer in zip(pods, answers, strict=True):
            if answer.result().error:
                assert (11, []) == (code_of(answer.result()), shape(pod))
                failed.append(pod)
            else:
                assert ["eth0", "net1", "net2"] == shape(pod)
        assert len(failed) < 3
        for pod in failed:
            assert "" == thick_node.attach(pod).error
        for pod in pods:
            assert "" == thick_node.detach(pod).error
            assert [] == shape(pod)
    assert {} == thick_node.remains()


KILLS = 8


def seconds_of(call: Callable[[Pod], Answer], pod: Pod) -> float:
    begun = time.monotonic()
    assert "" == call(pod).error
    return time.monotonic() - begun


@pytest.mark.daemon_config(shimDeadline=0.2)
def test_a_kill_in_the_middle_of_an_add_leaks_nothing(thick_node: ThickNode, background: ThreadPoolExecutor) -> None:
    add_networks(thick_node)
    cut = 0
    with thick_node.pod("web", "blue, green") as pod:
        whole = 10.0
        for _ in range(2):
            whole = min(whole, seconds_of(thick_node.attach, pod))
            assert "" == thick_node.detach(pod).error
        for number in range(KILLS):
            answer = background.submit(thick_node.attach, pod)
            time.sleep(whole * (number + 1) / KILLS)
            thick_node.kill()
            cut += answer.result().error != ""
            wait_for_delegates(thick_node, pod)
            thick_node.start()
            assert "" == thick_node.detach(pod).error
            assert (number, [], {}) == (number, shape(pod), thick_node.remains())
    assert cut > 1


@pytest.mark.daemon_config(shimDeadline=0.2)
def test_a_kill_in_the_middle_of_a_del_leaks_nothing(thick_node: ThickNode, background: ThreadPoolExecutor) -> None:
    """A DEL that met no daemon succeeds and is done later; one that was cut short fails, and the runtime repeats it."""
    add_networks(thick_node)
    with thick_node.pod("web", "blue, green") as pod:
        thick_node.attach(pod)
        whole = seconds_of(thick_node.detach, pod)
        for number in range(KILLS):
            assert "" == thick_node.attach(pod).error
            answer = background.submit(thick_node.detach, pod)
            time.sleep(whole * number / KILLS)
            thick_node.kill()
            is_done = answer.result().error == ""
            wait_for_delegates(thick_node, pod)
            thick_node.start()
            if not is_done:
                assert 11 == code_of(answer.result())
                assert "" == thick_node.detach(pod).error
            thick_node.wait_until(lambda: thick_node.remains() == {}, f"nothing is left of kill {number}", patience_s=10)
            assert [] == shape(pod)


# neighbours


@pytest.mark.daemon_config(delegateTimeout=4, connectionLimit=2)
def test_a_delegate_that_hangs_is_killed_and_harms_nobody(
    thick_node: ThickNode, scripted: ScriptedDelegates, background: ThreadPoolExecutor
) -> None:
    scripted.answer("strange", "ADD", Scripted(sleep_s=60))
    with thick_node.pod("stuck", "odd") as stuck, thick_node.pod("web") as web:
        answer = background.submit(thick_node.attach, stuck)
        thick_node.wait_until(started(scripted, "ADD"), "the delegate runs")
        assert seconds_of(thick_node.attach, web) < 3.5
        assert 11 == code_of(answer.result())
        assert "did not end within 4 s" in answer.result().error
        assert [] == shape(stuck)
        for pod in (stuck, web):
            assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


def test_a_delegate_that_prints_10_mb_is_an_error_and_its_memory_is_given_back(
    thick_node: ThickNode, scripted: ScriptedDelegates
) -> None:
    scripted.answer("strange", "ADD", Scripted(stdout=b"x" * 10_000_000))
    with thick_node.pod("loud", "odd") as loud, thick_node.pod("web") as web:
        assert "" == thick_node.attach(web).error
        before = thick_node.memory_kib()
        answer = thick_node.attach(loud)
        assert 1 == answer.status
        assert len(json.dumps(answer.document)) < 10_000
        assert [] == shape(loud)
        assert thick_node.memory_kib() - before < 16 * 1024
        for pod in (loud, web):
            assert "" == thick_node.detach(pod).error
    assert len(thick_node.log) < 100_000
    assert {} == thick_node.remains()


@pytest.mark.daemon_config(connectionLimit=2, shimDeadline=60)
def test_fifty_adds_at_once_run_two_at_a_time(thick_node: ThickNode, scripted: ScriptedDelegates, background: ThreadPoolExecutor) -> None:
    scripted.answer("strange", "ADD", Scripted(sleep_s=0.1))
    probes = 0
    done = threading.Event()

    def probe() -> None:
        nonlocal probes
        while not done.wait(0.1):
            assert 200 == thick_node.ask("/healthz")[0]
            probes += 1

    with ExitStack() as exits:
        pods = [exits.enter_context(thick_node.pod(f"web{number}", "odd")) for number in range(50)]
        exits.callback(done.set)
        probing = background.submit(probe)
        answers = list(background.map(thick_node.attach, pods))
        done.set()
        probing.result()
        assert {""} == {answer.error for answer in answers}
        edges = sorted(edge for call in scripted.calls() for edge in ((call.started, 1), (call.ended or 0, -1)))
        running = [sum(step for _, step in edges[: index + 1]) for index in range(len(edges))]
        assert 2 == max(running)
        assert probes >= 5  # in the queue behind the ADDs each would take as long as all of them
        addresses = [ip["address"] for answer in answers for ip in answer.document["ips"]]
        assert 50 == len(set(addresses))
        assert {""} == {answer.error for answer in background.map(thick_node.detach, pods)}
    assert {} == thick_node.remains()


def test_pods_that_come_and_go_leave_no_descriptor_and_no_thread_in_the_daemon(
    thick_node: ThickNode, background: ThreadPoolExecutor
) -> None:
    add_networks(thick_node)

    def come_and_go(name: str) -> str:
        with thick_node.pod(name, "blue, green") as pod:
            return thick_node.attach(pod).error + thick_node.detach(pod).error

    def held_after(wave: int) -> tuple[int, int]:
        """Descriptors and threads of the daemon after so many waves of 20 pods, once all is said and done."""
        assert {""} == set(background.map(come_and_go, [f"web-{wave}-{number}" for number in range(20)]))
        thick_node.wait_until(lambda: len(thick_node.api.store.all("events")) == 60 * wave, "all events are sent")
        time.sleep(0.3)
        return len(os.listdir(f"/proc/{thick_node.pid}/fd")), len(os.listdir(f"/proc/{thick_node.pid}/task"))

    descriptors, threads = held_after(1)  # it opens the connections that are kept
    later = held_after(2)
    assert (True, True) == (later[0] <= descriptors + 2, later[1] <= threads)
    assert {} == thick_node.remains()


# the API server's bad days


def outage(node: ThickNode) -> None:
    node.api.fail(reset=True, times=1_000_000)
    node.api.close_connections()


def test_adds_go_on_through_an_outage_and_their_status_comes_with_its_end(thick_node: ThickNode, background: ThreadPoolExecutor) -> None:
    add_networks(thick_node)
    with thick_node.pod("web", "blue, green") as pod, thick_node.pod("later", "blue") as later:
        known(thick_node, 2)
        thick_node.api.requests.clear()
        outage(thick_node)
        answer = background.submit(thick_node.attach, pod)
        time.sleep(3)
        assert ["eth0", "net1", "net2"] == shape(pod)
        assert not answer.done()
        assert (200, "") == thick_node.ask("/readyz")
        thick_node.api.faults.clear()
        assert "" == answer.result().error
        assert ["eth0", "net1", "net2"] == [entry["interface"] for entry in thick_node.statuses(pod)]
        asked = {request for request in thick_node.api_requests() if not request.endswith("/events")}
        assert {"PATCH /api/v1/namespaces/default/pods/web/status"} == asked
        for each in (pod, later):
            assert "" == thick_node.detach(each).error


def test_a_status_that_is_throttled_is_written_when_the_api_server_allows(thick_node: ThickNode) -> None:
    add_networks(thick_node)
    with thick_node.pod("web", "blue") as pod:
        known(thick_node, 1)
        thick_node.api.fail("PATCH", "/status$", 429, headers={"Retry-After": "1"})
        assert seconds_of(thick_node.attach, pod) >= 1
        assert ["eth0", "net1"] == [entry["interface"] for entry in thick_node.statuses(pod)]
        assert "" == thick_node.detach(pod).error


def test_caches_that_are_too_old_are_filled_anew(thick_node: ThickNode) -> None:
    """The API server has forgotten the version that a watch wants to go on from: 410."""
    add_networks(thick_node)
    for collection in ("pods", "network-attachment-definitions"):
        thick_node.api.fail("GET", f"/{collection}$", 410, reason="Expired", after_events=0)
    thick_node.api.close_connections()
    with thick_node.pod("web", "blue") as pod:
        known(thick_node, 1)
        assert not [fault for fault in thick_node.api.faults if fault.times > 0]
        assert "" == thick_node.attach(pod).error
        assert "" == thick_node.detach(pod).error
    assert {} == thick_node.remains()


def test_a_daemon_starts_without_an_api_server_and_detaches(thick_node: ThickNode) -> None:
    """It waits 20 s for its caches; pods that it has on record need nobody else."""
    add_networks(thick_node)
    with thick_node.pod("old", "blue, green") as old, thick_node.pod("new", "blue") as new:
        assert "" == thick_node.attach(old).error
        assert 0 == thick_node.stop()
        outage(thick_node)
        thick_node.start()
        assert "" == thick_node.detach(old).error
        assert ([], {}) == (shape(old), thick_node.remains())
        thick_node.api.faults.clear()
        assert "" == thick_node.attach(new).error
        assert ["eth0", "net1"] == shape(new)
        assert "" == thick_node.detach(new).error
    assert {} == thick_node.remains()


def test_a_pod_that_was_made_anew_is_not_taken_for_its_predecessor(thick_node: ThickNode) -> None:
    """The runtime may ask for the new one before the watch tells of it, and for the old one after."""
    add_networks(thick_node)
    with thick_node.pod("web", "blue") as old:
        known(thick_node, 1)
        assert "" == thick_node.attach(old).error
        thick_node.api.store.remove("pods", "default", "web")
        with thick_node.pod("web", "green") as new:
            assert "" == thick_node.attach(new).error
            assert ["cluster", "default/green"] == [entry["name"] for entry in thick_node.statuses(new)]
            assert "" == thick_node.detach(old).error
            assert ([], ["eth0", "net1"]) == (shape(old), shape(new))
            answer = thick_node.attach(old)
            assert (1, True) == (answer.status, old.uid in answer.error)
            assert "" == thick_node.detach(new).error
    assert {} == thick_node.remains()
