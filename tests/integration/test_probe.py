"""The probe of a container: what it says of a daemon that is ready, that is not, and that is not there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from multus.testing.thick import PRIMARY, ThickNode


def probe(node: ThickNode, path: str) -> tuple[int, str]:
    """Exit status and standard error."""
    executable = Path(node.multus).with_name("multus-probe")
    done = subprocess.run([executable, f"--socket={node.socket_path}", path], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_probes_tell_a_daemon_that_is_ready_from_one_that_is_not_and_from_none(thick_node: ThickNode) -> None:
    node = thick_node
    assert [probe(node, "/healthz"), probe(node, "/readyz")] == [(0, ""), (0, "")]
    os.unlink(os.path.join(node.cni_config_dir, PRIMARY))
    node.wait_until(lambda: node.ask("/readyz")[0] == 500, "the lost primary configuration is noticed")
    assert probe(node, "/healthz") == (0, "")
    status, said = probe(node, "/readyz")
    assert status == 1
    assert said.startswith(f"multus-probe: /readyz 500: {node.cni_config_dir}/{PRIMARY} is gone")
    assert node.stop() == 0
    status, said = probe(node, "/healthz")
    assert (status, said.startswith(f"multus-probe: multus daemon at {node.socket_path} does not answer: ")) == (1, True)
