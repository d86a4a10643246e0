"""What third-party code leaves behind in thread and process, on the real kernel: it is put back, and told."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multus import netns
from multus.adapters.guard import Guard
from multus.errors import TryAgainLaterError
from multus.testing.fakes import RecordingLog
from multus.testing.pods import Namespace


@pytest.fixture
def log() -> RecordingLog:
    return RecordingLog()


@pytest.fixture
def guard(log: RecordingLog) -> Iterator[Guard]:
    """One whose process comes out of the test as it went in, whatever fails."""
    folder, umask = os.getcwd(), os.umask(0o077)
    os.umask(umask)
    yield Guard(log)
    os.chdir(folder)
    os.umask(umask)


@pytest.fixture
def pod() -> Iterator[Namespace]:
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with Namespace() as namespace:
        yield namespace


def surroundings() -> dict[str, object]:
    umask = os.umask(0o077)
    os.umask(umask)
    return {
        "netns": os.stat(netns.OWN).st_ino,
        "signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "folder": os.getcwd(),
        "umask": umask,
        "descriptors": len(os.listdir("/proc/self/fd")),
    }


def in_thread(work: Callable[[], None]) -> None:
    """Run in a thread that is thrown away, so that a failing test moves no other."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("raises", [False, True])
def test_all_that_is_a_threads_own_is_put_back_and_told(guard: Guard, log: RecordingLog, pod: Namespace, raises: bool) -> None:
    def work() -> None:
        before = surroundings()
        try:
            with guard.block("a visitor", "c1"):
                fd = os.open(pod.path, os.O_RDONLY)
                netns.setns(fd)
                os.close(fd)
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
                os.chdir("/proc")
                os.umask(0)
                if raises:
                    raise SystemExit(1)
        except SystemExit:
            assert raises
        assert before == surroundings()

    in_thread(work)
    changed = "the network namespace, the signal mask, the working folder, the umask"
    assert log.lines == [("error", "guard.put_back", {"after": "a visitor", "changed": changed})]


def test_nothing_is_told_of_code_that_behaves(guard: Guard, log: RecordingLog) -> None:
    def work() -> None:
        before = surroundings()
        with guard.block("a visitor", "c1"):
            os.stat("/")
        assert before == surroundings()

    in_thread(work)
    assert log.lines == []


def test_a_child_that_was_forked_never_comes_back(guard: Guard, tmp_path: Path) -> None:
    """It would go on with the call: answer it and write its record, a second time."""
    marks = tmp_path / "marks"
    marks.touch()
    children = []
    with guard.block("a visitor", "c1"):
        child = os.fork()
        if child:
            children.append(child)
    with open(marks, "a") as file:
        file.write("was here\n")
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 1
    assert marks.read_text() == "was here\n"


def test_a_thread_that_cannot_come_back_ends_its_process(guard: Guard) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writer, 2)
        try:
            with guard.block("a visitor", "c1"):
                os.closerange(3, 1000)  # the way back with them
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as errors:
        text = errors.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert text == "multus: cannot put back what a visitor has changed: Bad file descriptor; the process ends\n"


def test_the_limit_ends_after_everything_is_put_back(log: RecordingLog) -> None:
    class Limit:
        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            assert surroundings()["folder"] == folder
            raise TryAgainLaterError("it took too long")

    folder = os.getcwd()
    asked = []

    def limited(what: str, container_id: str) -> Limit:
        asked.append((what, container_id))
        return Limit()

    with pytest.raises(TryAgainLaterError), Guard(log, limited).block("a visitor", "c1"):  # type: ignore[arg-type]
        os.chdir("/proc")
    assert asked == [("a visitor", "c1")]
