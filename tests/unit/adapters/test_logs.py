"""Log lines and the file that holds them: what is written where, and that nothing is lost."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from multus.adapters.logs import Log, RotatedFile
from multus.types.config import LogConfig, LogOptions

UNLIMITED = LogOptions(max_age=0, max_size=0, max_backups=0, compress=False)


@pytest.fixture
def stderr(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "stderr", os.O_RDWR | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


def written(tmp_path: Path, name: str = "stderr") -> str:
    return (tmp_path / name).read_text()


def events(text: str) -> list[str]:
    """The lines without their times."""
    return [line.split(" ", 1)[1] for line in text.splitlines()]


def debug_log(stderr: int) -> Log:
    return Log.from_config(LogConfig(level="debug"), stderr)


def backups(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if name.startswith("log-"))


@pytest.mark.parametrize(
    ("level", "expected"),
    [("", 0), ("panic", 0), ("error", 2), ("ERROR", 2), ("Verbose", 3), ("debug", 4)],
)
def test_a_level_lets_through_itself_and_what_is_graver(tmp_path: Path, stderr: int, level: str, expected: int) -> None:
    log = Log.from_config(LogConfig(level=level), stderr)
    for write in (log.error, log.warning, log.verbose, log.debug):
        write("an.event")
    everything = ["[error] an.event", "[error] warning: an.event", "[verbose] an.event", "[debug] an.event"]
    assert everything[:expected] == events(written(tmp_path))


def test_an_unknown_level_is_said_once_and_changes_nothing(tmp_path: Path, stderr: int) -> None:
    log = Log.from_config(LogConfig(level="lo\nud"), stderr)
    log.error("an.event")
    assert written(tmp_path) == 'multus: cannot set log level "lo\\nud", known are: panic, error, verbose, debug\n'


def test_a_line_is_time_level_event_context_and_fields(tmp_path: Path, stderr: int) -> None:
    log = debug_log(stderr).bind(container="c1", pod="shop/web").bind(ifname="eth0")
    log.verbose("delegate.add.complete", ms=12, ok=True, nothing=None, ips=["10.0.0.1"])
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d) \[verbose\] delegate\.add\.complete container=c1 pod=shop/web ifname=eth0 "
        r"ms=12 ok=true nothing=null ips=\"\[\\\"10\.0\.0\.1\\\"\]\"\n",
        written(tmp_path),
    )


@pytest.mark.parametrize(
    ("zone", "suffix"),
    [("UTC0", "Z"), ("IST-5:30", "+05:30"), ("NST3:30", "-03:30")],
)
def test_the_time_is_local_in_rfc_3339(tmp_path: Path, stderr: int, monkeypatch: pytest.MonkeyPatch, zone: str, suffix: str) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        debug_log(stderr).error("x")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert written(tmp_path).split(" ")[0].endswith(suffix)


def test_a_bound_log_leaves_the_first_as_it_was(tmp_path: Path, stderr: int) -> None:
    log = debug_log(stderr)
    log.bind(container="c1").error("first")
    log.error("second")
    assert events(written(tmp_path)) == ["[error] first container=c1", "[error] second"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain/path:1", "plain/path:1"), ("", '""'), ("two words", '"two words"'), ('say "x"', '"say \\"x\\""'), ("a=b", '"a=b"'),
        ("a\nb", '"a\\nb"'), ("\x1b[31m", '"\\u001b[31m"'), ("\u2028", '"\\u2028"'), ("ü", "ü"), ("\ud800", '"\\ud800"'), (1.5, "1.5"),
        ({"a": 1}, '"{\\"a\\": 1}"'), (("a", 1), '"[\\"a\\", 1]"'),
    ],
)
def test_a_value_is_one_word_and_an_event_one_line(tmp_path: Path, stderr: int, value: object, expected: str) -> None:
    debug_log(stderr).error("x", key=value)
    assert events(written(tmp_path)) == [f"[error] x key={expected}"]


def test_an_event_with_a_line_break_is_one_line(tmp_path: Path, stderr: int) -> None:
    debug_log(stderr).error("a\nb")
    assert events(written(tmp_path)) == ['[error] "a\\nb"']


@pytest.mark.parametrize("name", ["token", "bearerToken", "password", "Authorization", "config", "stdin", "client_secret"])
def test_secrets_are_hidden(tmp_path: Path, stderr: int, name: str) -> None:
    debug_log(stderr).bind(**{name: "hunter2"}).error("x", **{name: "hunter2"})
    assert events(written(tmp_path)) == [f"[error] x {name}=<hidden> {name}=<hidden>"]


def test_what_is_only_named_a_bit_like_a_secret_is_shown(tmp_path: Path, stderr: int) -> None:
    debug_log(stderr).error("x", config_file="/etc/x")
    assert events(written(tmp_path)) == ["[error] x config_file=/etc/x"]


@pytest.mark.parametrize(("to_stderr", "file"), [(True, False), (False, True), (True, True), (False, False)])
def test_lines_go_to_standard_error_to_the_file_or_both(tmp_path: Path, stderr: int, to_stderr: bool, file: bool) -> None:
    path = str(tmp_path / "log") if file else ""
    Log.from_config(LogConfig(file=path, level="error", to_stderr=to_stderr), stderr).error("x")
    assert (to_stderr, file) == (bool(written(tmp_path)), (tmp_path / "log").exists())


def test_the_file_appears_with_the_first_line_for_its_owner_alone(tmp_path: Path, stderr: int) -> None:
    path = tmp_path / "new" / "folder" / "log"
    log = Log.from_config(LogConfig(file=str(path), level="error", to_stderr=False), stderr)
    log.verbose("not written")
    assert not path.parent.exists()
    log.error("x")
    log.error("y")
    assert events(path.read_text()) == ["[error] x", "[error] y"]
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o755)


@pytest.mark.parametrize("name", ["folder", "stderr/below", "a\0b"])
def test_a_file_that_cannot_be_written_is_said_once_and_fails_nothing(tmp_path: Path, stderr: int, name: str) -> None:
    (tmp_path / "folder").mkdir()
    log = Log.from_config(LogConfig(file=str(tmp_path / name), level="error", to_stderr=False), stderr)
    for _ in range(3):
        log.bind(a=1).error("x")
    lines = written(tmp_path).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"multus: cannot write log file {json.dumps(str(tmp_path / name))}: ")


def test_a_standard_error_that_is_gone_fails_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    debug_log(writer).error("x")
    os.close(writer)
    debug_log(writer).error("x")


def test_a_full_file_is_renamed_to_its_time_in_utc(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log.txt"), UNLIMITED, 2, max_bytes=10)
    for line in (b"12345678\n", b"a\n", b"b\n"):
        file.write(line)
    file.close()
    old = backups(tmp_path)
    assert len(old) == 1
    assert re.fullmatch(r"log-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.txt", old[0])
    assert old[0] > "log-" + time.strftime("%Y-%m-%dT%H", time.gmtime(time.time() - 3600))
    assert ((tmp_path / old[0]).read_bytes(), (tmp_path / "log.txt").read_bytes()) == (b"12345678\n", b"a\nb\n")


def test_two_files_of_one_millisecond_have_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    (tmp_path / "log-1970-01-01T00-00-00.000.gz").write_bytes(b"0")
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED, 2, max_bytes=1)
    for line in (b"1", b"2", b"3"):
        file.write(line)
    file.close()
    expected = {"log-1970-01-01T00-00-00.000.gz": b"0", "log-1970-01-01T00-00-00.001": b"1", "log-1970-01-01T00-00-00.002": b"2"}
    assert {name: (tmp_path / name).read_bytes() for name in backups(tmp_path)} == expected


def test_a_line_over_the_limit_has_a_file_of_its_own(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED, 2, max_bytes=4)
    for line in (b"123456\n", b"abcdef\n"):
        file.write(line)
    file.close()
    assert [(tmp_path / name).read_bytes() for name in (*backups(tmp_path), "log")] == [b"123456\n", b"abcdef\n"]


def test_no_limit_is_no_rotation(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED, 2)
    for _ in range(100):
        file.write(b"x" * 100)
    file.close()
    assert os.listdir(tmp_path) == ["log"]


def test_the_limit_is_in_mebibytes(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED._replace(max_size=1), 2)
    for line in (b"x" * (1 << 20), b"y"):
        file.write(line)
    file.close()
    assert ((tmp_path / "log").read_bytes(), len(backups(tmp_path))) == (b"y", 1)


def test_old_files_beyond_the_number_are_removed(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED._replace(max_backups=2), 2, max_bytes=1)
    for line in (b"1", b"2", b"3", b"4", b"5"):
        file.write(line)
    file.close()
    assert [(tmp_path / name).read_bytes() for name in (*backups(tmp_path), "log")] == [b"3", b"4", b"5"]


def test_old_files_beyond_the_age_are_removed(tmp_path: Path) -> None:
    day = time.strftime("%Y-%m-%dT%H-%M-%S.000", time.gmtime(time.time() - 2 * 86400))
    kept = ("log-2020-01-01", f"log-{day}", "log-old", "other-2020-01-01T00-00-00.000")
    for name in (*kept, "log-2020-01-01T00-00-00.000", "log-2020-01-01T00-00-00.001.gz"):
        (tmp_path / name).write_text("x")
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED._replace(max_age=3), 2, max_bytes=1)
    for line in (b"1", b"2"):
        file.write(line)
    file.close()
    assert {path.name: path.read_text() for path in tmp_path.iterdir() if path.read_text() == "x"} == dict.fromkeys(kept, "x")


def test_old_files_are_compressed(tmp_path: Path) -> None:
    file = RotatedFile(str(tmp_path / "log.txt"), UNLIMITED._replace(compress=True), 2, max_bytes=1)
    for line in (b"1", b"2", b"3"):
        file.write(line)
    file.close()
    old = backups(tmp_path)
    assert [name.endswith(".txt.gz") for name in old] == [True, True]
    assert [gzip.decompress((tmp_path / name).read_bytes()) for name in old] == [b"1", b"2"]
    assert sorted(os.listdir(tmp_path)) == sorted([*old, "log.txt"])


def test_an_old_file_that_another_process_compresses_is_left_to_it(tmp_path: Path) -> None:
    import fcntl

    busy = tmp_path / "log-2020-01-01T00-00-00.000"
    busy.write_bytes(b"busy")
    with busy.open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        file = RotatedFile(str(tmp_path / "log"), UNLIMITED._replace(compress=True), 2, max_bytes=1)
        for line in (b"1", b"2"):
            file.write(line)
        file.close()
    assert busy.read_bytes() == b"busy"
    assert not (tmp_path / f"{busy.name}.gz").exists()


def test_a_file_that_was_rotated_or_removed_meanwhile_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = RotatedFile(str(path), UNLIMITED, 2)
    file.write(b"1")
    path.rename(tmp_path / "moved")
    file.write(b"2")
    path.unlink()
    file.write(b"3")
    file.close()
    assert ((tmp_path / "moved").read_bytes(), path.read_bytes()) == (b"1", b"3")


def test_a_file_may_be_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = RotatedFile("log", UNLIMITED._replace(max_backups=1), 2, max_bytes=1)
    for line in (b"1", b"2", b"3"):
        file.write(line)
    file.close()
    assert [(tmp_path / name).read_bytes() for name in (*backups(tmp_path), "log")] == [b"2", b"3"]


WRITER = """
import sys
from multus.adapters.logs import RotatedFile
from multus.types.config import LogOptions
path, number = sys.argv[1:]
for line in range(300):
    file = RotatedFile(path, LogOptions(0, 0, 0, compress=number in "0123"), 2, max_bytes=2000) if line % 7 == 0 else file
    file.write(f"{number}:{line}:{'x' * (line % 50)}\\n".encode())
"""


def test_eight_processes_lose_and_tear_no_line(tmp_path: Path) -> None:
    root, path = str(Path(__file__).parents[3]), str(tmp_path / "log")
    children = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(number)], env={"PYTHONPATH": root}, stderr=subprocess.PIPE)
        for number in range(8)
    ]
    assert [child.communicate()[1] for child in children] == [b""] * 8
    text = b""
    for name in os.listdir(tmp_path):
        content = (tmp_path / name).read_bytes()
        text += gzip.decompress(content) if name.endswith(".gz") else content
    assert len(backups(tmp_path)) > 10
    expected = sorted(f"{number}:{line}:{'x' * (line % 50)}" for number in range(8) for line in range(300))
    assert expected == sorted(text.decode().splitlines())


def test_threads_that_share_a_log_lose_no_line(tmp_path: Path, stderr: int) -> None:
    file = RotatedFile(str(tmp_path / "log"), UNLIMITED, stderr, max_bytes=50)

    def write(number: int) -> None:
        for line in range(100):
            file.write(f"{number}:{line}\n".encode())

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    file.close()
    assert written(tmp_path) == ""
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(f"{number}:{line}" for number in range(4) for line in range(100)) == sorted(lines)


def test_at_level_panic_nothing_is_opened_or_formatted(tmp_path: Path, stderr: int) -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError

    log = Log.from_config(LogConfig(file=str(tmp_path / "log")), stderr).bind(a=Unprintable())
    for write in (log.error, log.warning, log.verbose, log.debug):
        write("x", b=Unprintable())
    assert (written(tmp_path), (tmp_path / "log").exists()) == ("", False)
