"""A box of Linux namespaces: own mounts, network, process tree and control groups; gone without a trace.

Process 1 of the box is a shell. Ending it ends, by the kernel's rules, every process in the box, and with the last of them
go its mounts, network namespaces and links. The box also dies with the process that made it. Control groups alone would
outlive it: they are removed by name.

What programs insist on writing to ``/run`` and ``/var/lib/cni`` stays inside, where both are empty at the start.

Spec: pid_namespaces(7), network_namespaces(7), mount_namespaces(7).
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_END_TIMEOUT_S = 20.0
_POLL_S = 0.02
_CLONE_NEWNET = 0x40000000
_CGROUPS = Path("/sys/fs/cgroup")

# A mounted /sys shows the links of the network it was mounted from: the box mounts its own, and keeps the control groups.
_SET_UP = """
set -e
mkdir -p /var/lib/cni
mount -t tmpfs run /run
mount -t tmpfs cni /var/lib/cni
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --rbind /run/cgroup /sys/fs/cgroup
umount --recursive /run/cgroup
ip link set lo up
"""


class Box:
    """A running box; ``cgroup`` names the one control group below which its processes make theirs.

    Args:
        script: Shell commands run inside once the box is set up; the box lives as long as they do.
    """

    def __init__(self, script: str, environment: Mapping[str, str], log: Path, cgroup: str) -> None:
        self._cgroup = cgroup
        unshare = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        command = ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", _SET_UP + script]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    def runs(self) -> bool:
        """Whether the script has not ended."""
        return self._process.poll() is None

    @property
    def init(self) -> int:
        """The process ID, outside, of the box's process 1."""
        return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])

    @property
    def root(self) -> Path:
        """The box's file system, as a path outside."""
        return Path(f"/proc/{self.init}/root")

    def end(self) -> None:
        """End every process in the box and remove its control groups."""
        if self.runs():
            try:
                os.kill(self.init, signal.SIGKILL)
            except (IndexError, ProcessLookupError):  # not yet there, or just gone
                self._process.kill()
        self._process.wait(timeout=_END_TIMEOUT_S)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while folders := self.cgroups():
            try:
                for folder in folders:
                    folder.rmdir()
            except OSError:  # busy until the kernel has let go of the last dead process
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def cgroups(self) -> list[Path]:
        """List the box's control groups in every hierarchy, inner ones first."""
        roots = (*_CGROUPS.glob(f"*/{self._cgroup}"), _CGROUPS / self._cgroup)
        return [Path(path) for root in roots for path, _, _ in os.walk(root, topdown=False)]

    def commands(self) -> list[str]:
        """List the command lines of all processes in the box."""
        return [path.read_bytes().replace(b"\0", b" ").decode() for path in (self.root / "proc").glob("[0-9]*/cmdline")]

    def links(self) -> list[str]:
        """List the links of the box's own network namespace, by name."""
        command = ["nsenter", "--target", str(self.init), "--net", "ip", "-json", "link"]
        return sorted(link["ifname"] for link in json.loads(subprocess.run(command, check=True, capture_output=True).stdout))

    def inside(self, function: Callable[[], T]) -> T:
        """Call a function in a thread of this process that is in the box's network namespace, and give its value."""

        def run() -> T:
            libc = ctypes.CDLL(None, use_errno=True)
            with Path(f"/proc/{self.init}/ns/net").open("rb") as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "setns")
            return function()

        with ThreadPoolExecutor(1) as thread:  # a thread of its own: it never comes back from the box
            return thread.submit(run).result()
