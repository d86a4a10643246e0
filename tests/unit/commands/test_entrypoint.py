"""``thin_entrypoint`` in this process, told to end by a thread in place of a signal; as a process it is in ``tests/integration``."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multus.commands import entrypoint, entrypoint_flags
from multus.commands.entrypoint import EntryPoint

ENVIRON = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """What was set before is set again."""
    wakeup, handlers = signal.set_wakeup_fd(-1), {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    signal.set_wakeup_fd(wakeup)
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Host:
    """Folders of a host, and flags for them."""

    def __init__(self, folder: Path) -> None:
        self.bin_dir, self.conf_dir, self.account = (folder / name for name in ("bin", "net.d", "account"))
        for each in (self.bin_dir, self.conf_dir, self.account):
            each.mkdir()
        self.binary = folder / "binary"
        self.binary.write_text("#!/bin/sh\n")
        self.binary.chmod(0o4755)
        (self.account / "token").write_text("token-1")
        (self.account / "ca.crt").write_text("authority")
        (self.conf_dir / "10-a.conf").write_text(json.dumps({"cniVersion": "0.4.0", "name": "a", "type": "bridge"}))
        self.flags = [
            f"--cni-bin-dir={self.bin_dir}", f"--cni-conf-dir={self.conf_dir}", f"--multus-autoconfig-dir={self.conf_dir}",
            f"--multus-cni-conf-dir={folder / 'own'}", f"--multus-bin-file={self.binary}",
        ]  # fmt: skip

    def run_until(self, fact: Callable[[EntryPoint], bool], *more: str) -> int:
        """Run, end it when something is true; the exit status."""
        made = EntryPoint(entrypoint_flags.parser().parse_args([*self.flags, *more]), ENVIRON, str(self.account))

        def watch() -> None:
            end = time.monotonic() + 30
            while not fact(made) and time.monotonic() < end:
                time.sleep(0.01)
            made._signalled(signal.SIGTERM, None)

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            return made.run()
        finally:
            watching.join()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(entrypoint, "REFRESH_S", 0.02)
    return Host(tmp_path)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_usage_and_status_1(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entrypoint.run([flag], {}) == 1
    assert "--cni-bin-dir" in capsys.readouterr().err


def test_a_failure_is_a_line_and_status_1(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    assert entrypoint.run([*host.flags, "--cni-bin-dir=/none"], ENVIRON, str(host.account)) == 1
    assert capsys.readouterr().err == "thin_entrypoint: --cni-bin-dir /none does not exist\n"


def test_all_is_made_and_stays(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    own = host.conf_dir / "00-multus.conf"
    assert host.run_until(lambda _: own.exists()) == 0
    assert ["00-multus.conf", "10-a.conf", "multus.d"] == sorted(os.listdir(host.conf_dir))
    assert ("#!/bin/sh\n", 0o755) == ((host.bin_dir / "multus").read_text(), (host.bin_dir / "multus").stat().st_mode & 0o7777)
    assert [f"thin_entrypoint: {host.bin_dir}/multus is installed", "thin_entrypoint: kubeconfig is written"] == (
        capsys.readouterr().out.splitlines()[:2]
    )


def test_a_new_token_is_followed_and_trouble_is_said_once(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = host.conf_dir / "multus.d" / "multus.kubeconfig"
    told: list[str] = []

    def has_new_token(made: EntryPoint) -> bool:
        if not (host.conf_dir / "00-multus.conf").exists():
            return False
        if not told:
            (host.account / "token").write_text("")
            told.extend(filter(None, [made._trouble]))
            return False
        (host.account / "token").write_text("token-2")
        return "token-2" in kubeconfig.read_text()

    assert host.run_until(has_new_token, "--cleanup-config-on-exit") == 0
    captured = capsys.readouterr()
    assert captured.err.count(f"the kubeconfig stays as it is: {host.account}/token is empty") == 1
    assert "kubeconfig: token changed" in captured.out
    assert ["10-a.conf", "multus.d"] == sorted(os.listdir(host.conf_dir))
    assert not kubeconfig.exists()


def test_the_wait_for_a_primary_ends_with_the_program(host: Host) -> None:
    (host.conf_dir / "10-a.conf").unlink()
    assert host.run_until(lambda _: (host.conf_dir / "multus.d" / "multus.kubeconfig").exists()) == 0
    assert ["multus.d"] == os.listdir(host.conf_dir)


def test_no_primary_in_time_is_a_failure_and_the_credential_goes(
    host: Host, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entrypoint, "PRIMARY_TIMEOUT_S", 0.05)
    (host.conf_dir / "10-a.conf").unlink()
    assert entrypoint.run([*host.flags, "--cleanup-config-on-exit"], ENVIRON, str(host.account)) == 1
    assert "no primary configuration within 0.05 s: no network configuration" in capsys.readouterr().err
    assert [] == os.listdir(host.conf_dir / "multus.d")


def test_a_second_signal_ends_the_process_with_status_1(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    made = EntryPoint(entrypoint_flags.parser().parse_args(host.flags), ENVIRON, str(host.account))
    made._signalled(signal.SIGTERM, None)
    assert [] == left
    made._signalled(signal.SIGINT, None)
    assert [1] == left
