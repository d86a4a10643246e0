"""The API server is reached when it is first needed, and once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from multus.commands.late_kube import LateKube
from multus.errors import InvalidConfigError, IOFailureError, MultusError, TryAgainLaterError
from multus.testing.fakes import FakeClock
from multus.types.pod import Pod

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
POD = Pod("shop", "web", "u1")
CALLS = {
    "pod": ("shop", "web", "u1"),
    "net_attach_def": ("shop", "blue"),
    "annotate_status": (POD, "key", "value"),
    "create_event": (POD, "Warning", "Reason", "message"),
    "get": ("/api/v1/nodes/n1",),
}


def test_nothing_is_configured_outside_a_cluster_without_a_kubeconfig() -> None:
    assert LateKube.configured("", {}, 1.0, FakeClock()) is None


@pytest.mark.parametrize("missing", IN_CLUSTER)
def test_half_of_the_clusters_variables_is_no_cluster(missing: str) -> None:
    environ = {name: value for name, value in IN_CLUSTER.items() if name != missing}
    assert LateKube.configured("", environ, 1.0, FakeClock()) is None


@pytest.mark.parametrize(("kubeconfig", "environ"), [("/nowhere/kubeconfig", {}), ("", IN_CLUSTER)])
def test_kubeconfig_or_cluster_is_not_looked_at_before_the_first_call(kubeconfig: str, environ: dict[str, str]) -> None:
    assert LateKube.configured(kubeconfig, environ, 1.0, FakeClock()) is not None


@pytest.mark.parametrize("name", CALLS)
def test_missing_kubeconfig_fails_the_call_that_needs_it_and_is_named(name: str) -> None:
    kube = LateKube("/nowhere/kubeconfig", {}, 1.0, FakeClock())
    with pytest.raises(MultusError, match="/nowhere/kubeconfig") as caught:
        getattr(kube, name)(*CALLS[name])
    assert isinstance(caught.value, InvalidConfigError | IOFailureError)


def test_neither_kubeconfig_nor_cluster_is_said_so() -> None:
    with pytest.raises(InvalidConfigError, match="neither a kubeconfig nor in-cluster settings"):
        LateKube("", {}, 1.0, FakeClock()).pod("shop", "web")


def test_client_that_is_found_serves_all_calls(tmp_path: Path) -> None:
    """Nothing listens there, and no time is left to try: what counts is that it gets that far."""
    kubeconfig = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    kube = LateKube(str(path), {}, 0.001, FakeClock())
    for _ in range(2):
        with pytest.raises(TryAgainLaterError):
            kube.pod("shop", "web")
        path.unlink(missing_ok=True)
