"""Options of the command line, and the cluster; without a kubeconfig everything skips."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, Settings

VARIABLE = "MULTUS_E2E_KUBECONFIG"


def pytest_addoption(parser: pytest.Parser) -> None:
    default = Settings("")
    group = parser.getgroup("e2e", "a real cluster")
    group.addoption("--kubeconfig", default=os.environ.get(VARIABLE, ""), help=f"names the cluster; or {VARIABLE} does")
    group.addoption("--context", default=default.context, help="of the kubeconfig")
    group.addoption("--pod-image", default=default.image, help="with sh, ip, ping and sleep (default: %(default)s)")
    group.addoption("--master", default=default.master, help="the nodes' interface below macvlan networks (default: %(default)s)")
    group.addoption("--patience", type=float, default=default.patience_s, help="seconds for each step (default: %(default)s)")
    group.addoption("--shared-segment", action="store_true", help="macvlan pods of two nodes reach each other over --master")
    group.addoption("--static-pod-path", default="", help="the kubelets' folder of static pods; a privileged pod writes there")
    group.addoption("--pods", type=int, default=10, help="of the density test, on each node (default: %(default)s)")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    # Where this file is not loaded at the start, its options are not known.
    option = request.config.getoption
    kubeconfig = option("--kubeconfig", default=os.environ.get(VARIABLE, ""))
    if not kubeconfig:
        pytest.skip("no cluster: name one, nox -s e2e -- --kubeconfig PATH")
    default = Settings(kubeconfig)
    settings = Settings(
        kubeconfig,
        option("--context", default=default.context),
        option("--pod-image", default=default.image),
        option("--master", default=default.master),
        option("--patience", default=default.patience_s),
    )
    with Cluster(settings) as cluster:
        yield cluster
