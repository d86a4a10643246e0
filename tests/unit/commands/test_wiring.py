"""The core joined with its adapters: what a call gets to work with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from multus.commands import wiring
from multus.core.devices import DeviceAllocator
from multus.defaults.execution import InProcessExecution
from multus.errors import InvalidConfigError
from multus.protocol import multus_config
from multus.testing.fakes import FakeGuard, FakeKube, FakePrograms, FakeRegistry, RecordingLog
from multus.types.delegate import Delegate
from multus.types.invocation import Call, CNICommand, Invocation
from multus.types.pod import Pod

if TYPE_CHECKING:
    from multus.core.context import Context

POD = Pod("shop", "web", "u1")


def a_context(folder: Path, kube: FakeKube | None, programs: FakePrograms | None = None, **hook_plugins: object) -> Context:
    document = {"name": "meta", "cniVersion": "1.1.0", "cniDir": str(folder), "delegates": [{"name": "trunk", "type": "primary"}]}
    programs, log = programs or FakePrograms(), RecordingLog()
    in_process = InProcessExecution(FakeRegistry(), programs, FakeGuard, log)
    world = wiring.World({"HOME": "/root"}, programs, in_process, hook_plugins)
    return wiring.context(Call(CNICommand.STATUS), multus_config.from_document(document), world, log, kube, kube)


def test_devices_need_an_api_server(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="devices need an API server"):
        a_context(tmp_path, None).devices(POD)


def test_devices_come_from_the_kubelet_where_there_is_an_api_server(tmp_path: Path) -> None:
    assert isinstance(a_context(tmp_path, FakeKube()).devices(POD), DeviceAllocator)


@pytest.mark.parametrize("plugins", [{}, {"third-party": object()}])
def test_delegates_run_with_and_without_hook_plugins(tmp_path: Path, plugins: dict[str, object]) -> None:
    programs = FakePrograms("primary")
    context = a_context(tmp_path, None, programs, **plugins)
    invocation = Invocation(CNICommand.STATUS, "primary", {"name": "trunk"}, path=("/bin-dir",))
    context.hooks.invoke_delegate(invocation, Delegate("trunk", context.config.delegates[0]), context.config)
    assert [call.command for call in programs.made] == ["STATUS"]
