"""Delegates that misbehave: killed, too talkative, deaf, silent, slow to be installed."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multus.testing.node import Node

ANSWER = '{"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}]}'


@pytest.fixture
def folder(node: Node) -> Path:
    """A folder of delegates that is searched before the real plugins'."""
    folder = Path(node.folder, "bin")
    folder.mkdir()
    return folder


def add_delegate(node: Node, folder: Path, script: str) -> None:
    """Install the delegate ``odd``, and make a network of it."""
    program = folder / "odd"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    node.add_network("odd", {"type": "odd"})


def test_a_killed_delegate_fails_add_and_what_was_attached_is_undone(node: Node, folder: Path) -> None:
    add_delegate(node, folder, f"echo $$ > {folder}/pid; [ $CNI_COMMAND = ADD ] && exec sleep 60 || exit 0")
    with node.pod("web", "odd") as pod, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(node.attach, pod, binDir=str(folder))
        os.kill(_pid(folder / "pid"), signal.SIGKILL)
        assert 1 == answer.result().status
        assert [] == [word for word in ("odd", "default/web", "signal 9") if word not in answer.result().error]
        assert {} == pod.links()
        assert "" == node.detach(pod, binDir=str(folder)).error
        assert {} == node.remains()


def test_ten_megabytes_on_standard_error_do_no_harm(node: Node, folder: Path) -> None:
    add_delegate(node, folder, f"head -c 10000000 /dev/zero | tr '\\0' x >&2; echo '{ANSWER}'")
    with node.pod("web", "odd") as pod:
        assert "" == node.attach(pod, binDir=str(folder)).error
        assert "" == node.detach(pod, binDir=str(folder)).error
        assert {} == node.remains()


def test_ten_megabytes_that_are_no_result_fail_add_with_a_short_error(node: Node, folder: Path) -> None:
    add_delegate(node, folder, "[ $CNI_COMMAND = ADD ] && head -c 10000000 /dev/zero | tr '\\0' x; exit 0")
    with node.pod("web", "odd") as pod:
        answer = node.attach(pod, binDir=str(folder))
        assert 1 == answer.status
        assert "odd" in answer.error
        assert len(answer.error) < 2000
        assert {} == pod.links()
        assert "" == node.detach(pod, binDir=str(folder)).error
        assert {} == node.remains()


def test_a_result_of_ten_megabytes_is_a_result(node: Node, folder: Path) -> None:
    padded = ANSWER[:-1] + ', "x-padding": "'
    add_delegate(node, folder, f"printf '%s' '{padded}'; head -c 10000000 /dev/zero | tr '\\0' x; echo '\"}}'")
    with node.pod("web", "odd") as pod:
        assert "" == node.attach(pod, binDir=str(folder)).error
        assert "" == node.detach(pod, binDir=str(folder)).error
        assert {} == node.remains()


def test_a_delegate_that_closes_its_input_at_once_is_none_the_worse(node: Node, folder: Path) -> None:
    """Even when the configuration is too long for a pipe."""
    add_delegate(node, folder, f"exec 0<&-; echo '{ANSWER}'")
    node.add_network("odd", {"type": "odd", "x-padding": "x" * 1_000_000})
    with node.pod("web", "odd") as pod:
        assert "" == node.attach(pod, binDir=str(folder)).error
        assert "" == node.detach(pod, binDir=str(folder)).error
        assert {} == node.remains()


def test_a_delegate_that_fails_del_is_kept_for_the_next_del(node: Node, folder: Path) -> None:
    add_delegate(node, folder, f"[ $CNI_COMMAND = ADD ] && echo '{ANSWER}' || test -e {folder}/repaired")
    with node.pod("web", "odd") as pod:
        assert "" == node.attach(pod, binDir=str(folder)).error
        failed = node.detach(pod, binDir=str(folder))
        assert 1 == failed.status
        assert "odd" in failed.error
        assert {} == pod.links()
        assert {"journal"} == set(node.remains())
        (folder / "repaired").touch()
        assert "" == node.detach(pod, binDir=str(folder)).error
        assert {} == node.remains()


def test_a_missing_delegate_fails_add_and_names_where_it_was_looked_for(node: Node) -> None:
    node.add_network("odd", {"type": "nosuch"})
    with node.pod("web", "odd") as pod:
        answer = node.attach(pod)
        assert [] == [word for word in ("nosuch", node.plugin_folder) if word not in answer.error]
        assert {} == pod.links()


def _pid(path: Path) -> int:
    """The process ID in a file, once it is there."""
    end = time.monotonic() + 20
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < end, "the delegate was not started"
        time.sleep(0.01)
    return int(path.read_text())
