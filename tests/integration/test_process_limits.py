"""Delegates that do not end, print too much, or have another root: limited, and no other thread notices."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import multus
from multus.adapters.process import OUTPUT_MAX, Processes, Rooted
from multus.errors import IOFailureError, TryAgainLaterError
from multus.types.invocation import Completed

ENVIRON = {"PATH": "/usr/bin:/bin"}
LIMIT_S = 0.5
PATIENCE_S = 20.0
BUSYBOX = shutil.which("busybox")


def script(folder: Path, text: str, shell: str = "/bin/sh") -> str:
    path = folder / "plugin"
    path.write_text(f"#!{shell}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def is_running(pid: str) -> bool:
    """Whether a process is there and no zombie that its new parent has yet to reap."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    assert before.issuperset(os.listdir("/proc/self/fd"))  # what earlier tests had open may close meanwhile
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


# --- Time ---


@pytest.mark.parametrize("limit_s", [0, 60], ids=["without a limit", "with a limit"])
def test_what_runs_can_be_killed_and_has_failed_then(tmp_path: Path, limit_s: float) -> None:
    (tmp_path / "pids").mkdir()
    path = script(tmp_path, f"> {tmp_path}/pids/$$; exec sleep 60")
    programs = Processes(timeout_s=limit_s)
    ended: list[Completed] = []
    threads = [threading.Thread(target=lambda: ended.append(programs.run(path, ENVIRON, b""))) for _ in range(3)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE_S
    while len(programs._running) < 3 or len(os.listdir(tmp_path / "pids")) < 3:
        assert time.monotonic() < end
        time.sleep(0.01)
    programs.kill_all()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [-9] * 3 == [completed.status for completed in ended]
    assert not any(map(is_running, os.listdir(tmp_path / "pids")))
    programs.kill_all()  # nothing runs any more, and nothing happens
    assert "fine\n" == programs.run(script(tmp_path, "echo fine"), ENVIRON, b"").stdout.decode()


@pytest.mark.parametrize(
    "text",
    [
        "sleep 60",
        "trap '' TERM INT HUP; while :; do sleep 60; done",
        "exec >&- 2>&-; sleep 60",
        "exec <&- >&- 2>&-; sleep 60",
        "while :; do echo more; sleep 0.05; done",
        "(sleep 60) & exit 0",
    ],
    ids=["silent", "deaf", "closed output", "closed all", "chatty", "ended but for a child that holds the output"],
)
def test_a_delegate_that_does_not_end_in_its_time_is_killed_with_its_children(tmp_path: Path, text: str) -> None:
    path = script(tmp_path, f"sleep 60 </dev/null >/dev/null 2>&1 & echo $$ $! > {tmp_path}/pids; {text}")
    start = time.monotonic()
    with pytest.raises(TryAgainLaterError) as caught:
        Processes(timeout_s=LIMIT_S).run(path, ENVIRON, b"x" * 2**18)
    assert LIMIT_S <= time.monotonic() - start < LIMIT_S + 5
    assert (caught.value.code, caught.value.msg) == (11, f"{path}: it did not end within {LIMIT_S:g} s and was killed")
    pids = (tmp_path / "pids").read_text().split()
    wait_until_gone(pids)
    assert len(pids) == 2


def wait_until_gone(pids: list[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_delegate_that_closes_its_output_and_ends_in_its_time_is_no_failure(tmp_path: Path) -> None:
    path = script(tmp_path, "echo done; exec >&- 2>&-; sleep 0.2; exit 3")
    assert Processes(timeout_s=PATIENCE_S).run(path, ENVIRON, b"") == Completed(3, b"done\n", b"")


def test_a_limit_costs_next_to_nothing(tmp_path: Path) -> None:
    """The end of a child is seen soon after it came, not at the next turn of a clock."""
    path = script(tmp_path, "")
    times: dict[float, float] = {}
    for timeout_s in (0.0, PATIENCE_S, 0.0, PATIENCE_S):
        start = time.monotonic()
        for _ in range(20):
            Processes(timeout_s=timeout_s).run(path, ENVIRON, b"")
        times[timeout_s] = min(times.get(timeout_s, PATIENCE_S), time.monotonic() - start)
    assert times[PATIENCE_S] < times[0.0] + 20 * 0.02


def test_others_run_while_one_hangs(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    hanging, quick = script(tmp_path / "a", "sleep 60"), script(tmp_path / "b", "echo done")
    errors: list[BaseException] = []

    def hang() -> None:
        try:
            Processes(timeout_s=4).run(hanging, ENVIRON, b"")
        except TryAgainLaterError as exc:
            errors.append(exc)

    thread = threading.Thread(target=hang)
    thread.start()
    start = time.monotonic()
    assert Processes(timeout_s=PATIENCE_S).run(quick, ENVIRON, b"").stdout == b"done\n"
    assert time.monotonic() - start < 3.5
    thread.join(PATIENCE_S)
    assert len(errors) == 1


# --- Size ---


@pytest.mark.parametrize("timeout_s", [0.0, PATIENCE_S])
@pytest.mark.parametrize("stream", ["", " >&2"])
def test_a_delegate_that_prints_20_megabytes_is_stopped(tmp_path: Path, stream: str, timeout_s: float) -> None:
    path = script(tmp_path, f"head -c 20971520 /dev/zero{stream}; sleep 60")
    with pytest.raises(IOFailureError) as caught:
        Processes(timeout_s=timeout_s).run(path, ENVIRON, b"")
    assert (caught.value.code, caught.value.msg) == (5, f"{path}: it printed more than 16 MiB and was stopped")


def test_a_delegate_may_print_10_megabytes(tmp_path: Path) -> None:
    assert 10 * 2**20 < OUTPUT_MAX
    path = script(tmp_path, "head -c 10485760 /dev/zero")
    assert Processes(timeout_s=PATIENCE_S).run(path, ENVIRON, b"") == Completed(0, b"\0" * 10 * 2**20, b"")


def test_a_delegate_that_closes_its_input_is_no_failure(tmp_path: Path) -> None:
    path = script(tmp_path, "exec <&-; echo done")
    assert Processes(timeout_s=PATIENCE_S).run(path, ENVIRON, b"x" * 2**20) == Completed(0, b"done\n", b"")


# --- Another root ---


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root folder with a shell in it, and plugins at the same path as outside."""
    if os.geteuid() != 0:
        pytest.skip("another root folder needs root")
    if BUSYBOX is None or b"dynamic" in subprocess.run(["file", "-L", BUSYBOX], capture_output=True, check=False).stdout:
        pytest.skip("needs a static busybox")
    made = tmp_path / "root"
    (made / "bin").mkdir(parents=True)
    (made / "plugins").mkdir()
    shutil.copy(BUSYBOX, made / "bin" / "busybox")
    (made / "marker").write_text("inside")
    return made


def test_a_delegate_runs_in_the_root_folder_and_stands_in_it(root: Path) -> None:
    script(root / "plugins", 'busybox cat; busybox echo " $CNI_COMMAND"; busybox pwd; busybox cat /marker >&2; exit 3', "/bin/busybox sh")
    completed = Processes(root=str(root)).run("/plugins/plugin", {"PATH": "/bin", "CNI_COMMAND": "ADD"}, b"config")
    assert completed == Completed(3, b"config ADD\n/\n", b"inside")


def test_a_delegate_in_another_root_is_killed_in_time(root: Path) -> None:
    script(root / "plugins", "busybox sleep 60", "/bin/busybox sh")
    with pytest.raises(TryAgainLaterError, match=r"/plugins/plugin: it did not end within 0\.5 s"):
        Processes(root=str(root), timeout_s=LIMIT_S).run("/plugins/plugin", {"PATH": "/bin"}, b"")


def test_the_thread_is_back_afterwards_and_others_never_left(root: Path) -> None:
    before = (os.getcwd(), os.stat("/").st_ino)
    inside, looked = threading.Event(), threading.Event()
    seen: list[tuple[str, bool, bool]] = []

    def work() -> None:
        with Rooted(str(root)):
            seen.append((os.getcwd(), os.path.exists("/marker"), os.path.exists("/proc/self")))
            inside.set()
            assert looked.wait(PATIENCE_S)
        seen.append((os.getcwd(), os.path.exists("/marker"), os.path.exists("/proc/self")))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert inside.wait(PATIENCE_S)
        assert (os.getcwd(), os.stat("/").st_ino, os.path.exists("/marker")) == (*before, False)
    finally:
        looked.set()
        thread.join(PATIENCE_S)
    assert seen == [("/", True, False), ("/", False, True)]


def test_a_thread_may_go_in_and_out_many_times_beside_others(root: Path) -> None:
    script(root / "plugins", "busybox cat /marker", "/bin/busybox sh")
    outcomes: list[bytes] = []

    def work() -> None:
        for _ in range(20):
            outcomes.append(Processes(root=str(root)).run("/plugins/plugin", {"PATH": "/bin"}, b"").stdout)
            assert not os.path.exists("/marker")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == [b"inside"] * 80


@pytest.mark.parametrize(
    ("where", "path", "cause"),
    [
        ("root/none", "/plugins/plugin", "root folder {root}/none: No such file or directory"),
        ("root/marker", "/plugins/plugin", "root folder {root}/marker: Not a directory"),
        ("root", "/plugins/none", "No such file or directory"),
        ("root", "/bin/sh", "No such file or directory"),
    ],
)
def test_what_cannot_be_run_there_is_an_error_and_the_thread_is_back(root: Path, where: str, path: str, cause: str) -> None:
    errors: list[IOFailureError] = []

    def work() -> None:
        try:
            Processes(root=str(root.parent / where)).run(path, ENVIRON, b"")
        except IOFailureError as exc:
            errors.append(exc)
        assert os.path.exists("/proc/self")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE_S)
    assert [(error.code, error.msg) for error in errors] == [(5, f"{path} cannot be run: {cause.format(root=root)}")]


def test_without_a_root_folder_nothing_changes(tmp_path: Path) -> None:
    before = os.getcwd()
    with Rooted(""):
        assert os.getcwd() == before
    assert Processes(root="").run(script(tmp_path, "pwd"), ENVIRON, b"").stdout == f"{before}\n".encode()


def test_a_thread_that_cannot_come_back_ends_the_process(root: Path) -> None:
    """What it did next would happen in the wrong place."""
    program = (
        "import os, sys\n"
        "from multus.adapters.process import Rooted\n"
        f"with Rooted({str(root)!r}) as _:\n"
        "    os.closerange(3, 100)\n"
        "print('survived')\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(multus.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"multus: cannot leave the root folder {root}: Bad file descriptor; the process ends\n"
