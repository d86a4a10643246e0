"""The end-to-end tests themselves: against a cluster of one node that is played here, and one that refuses.

``kubelet.py`` plays it; Multus in it is real, shim and daemon.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multus.testing.kubeapi import KubeAPI
from multus.testing.kubeapi_credentials import Certificates
from multus.testing.thick import ThickNode
from tests.e2e.cluster import NEEDED, Cluster, ClusterError, Settings
from tests.integration.kubelet import Kubelet

ROOT = Path(__file__).parents[2]


def run_tests(*arguments: str) -> tuple[int, str]:
    """pytest's exit status and what it printed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MULTUS_E2E")}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/e2e", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


def test_without_a_kubeconfig_every_test_skips_and_says_how_to_name_one() -> None:
    status, output = run_tests()
    assert status == 0
    reasons = re.findall(r"^SKIPPED .*?: (.*)$", output, flags=re.MULTILINE)
    assert set(reasons) == {"no cluster: name one, nox -s e2e -- --kubeconfig PATH"}
    assert " passed" not in output


def test_all_tests_pass_on_a_cluster_of_one_node(
    machine: None, shim_binary: str, daemon_binary: str, certificates: Certificates, tmp_path: Path, with_kubelet: Callable[[str], str]
) -> None:
    """But for the one of static pods, which writes to a node."""
    with ThickNode(shim_binary, with_kubelet(daemon_binary), tmp_path, certificates=certificates) as node, Kubelet(node):
        with node.namespace.entered():
            status, output = run_tests("--kubeconfig", node.kubeconfig, "--pods", "4", "--patience", "60")
        assert (status, re.findall(r"\d+ (?:passed|failed|skipped)", output)) == (0, ["6 passed", "1 skipped"]), output
        assert node.api.store.all("namespaces") == []
        node.wait_until(lambda: not node.api.store.all("network-attachment-definitions"), "what was in the namespace is gone")


# --- The harness alone ---


@pytest.fixture
def api() -> Iterator[KubeAPI]:
    """A cluster with one node and with Multus, whose pods nobody runs."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    with KubeAPI(token="token-of-the-tests") as api:
        api.put(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}, "status": ready},
            {
                "apiVersion": "v1", "kind": "Pod", "status": ready, "spec": {"nodeName": "w1"},
                "metadata": {"name": "kube-multus-ds-abcde", "namespace": "kube-system", "labels": {"name": "multus"}},
            },
        )  # fmt: skip
        yield api


@pytest.fixture
def settings(api: KubeAPI, tmp_path: Path) -> Settings:
    return Settings(api.kubeconfig(tmp_path / "kubeconfig"), patience_s=2.0)


def namespaces(api: KubeAPI) -> list[str]:
    return [each["metadata"]["name"] for each in api.store.all("namespaces")]


def test_objects_are_in_a_namespace_of_their_own_and_gone_afterwards(api: KubeAPI, settings: Settings) -> None:
    with Cluster(settings) as cluster:
        assert namespaces(api) == [cluster.namespace]
        assert re.fullmatch(r"multus-e2e-[0-9a-f]{8}", cluster.namespace)
        cluster.add_network("blue", cluster.macvlan({"type": "static"}))
        cluster.start("web", "ip addr", [{"name": "blue"}], node="w1")
        (network,), (pod,) = api.store.all("network-attachment-definitions"), api.store.all("pods", cluster.namespace)
        assert (network["metadata"]["namespace"], '"type": "macvlan"' in network["spec"]["config"]) == (cluster.namespace, True)
        assert pod["metadata"]["annotations"] == {"k8s.v1.cni.cncf.io/networks": '[{"name": "blue"}]'}
        assert (pod["spec"]["nodeName"], pod["spec"]["restartPolicy"]) == ("w1", "Never")
    assert namespaces(api) == []


def test_the_namespace_goes_when_a_test_fails(api: KubeAPI, settings: Settings) -> None:
    with pytest.raises(ZeroDivisionError), Cluster(settings) as cluster:
        cluster.start("web", "ip addr")
        raise ZeroDivisionError
    assert namespaces(api) == []


def test_a_namespace_that_cannot_be_removed_is_named(api: KubeAPI, settings: Settings) -> None:
    api.fail("DELETE", "/namespaces/", code=403, reason="Forbidden", message="no")
    with pytest.raises(ClusterError) as raised, Cluster(settings) as cluster:
        pass
    assert str(raised.value).endswith(f"remove it by hand: kubectl delete namespace {cluster.namespace}")


@pytest.mark.parametrize(
    ("method", "path", "what"),
    [
        ("POST", "/namespaces$", "create namespaces"),
        ("GET", "/nodes$", "list nodes"),
        ("POST", "/pods$", "create pods"),
        ("POST", "/network-attachment-definitions$", "create network-attachment-definitions"),
    ],
)
def test_a_refusal_names_the_request_and_what_the_tests_need(api: KubeAPI, settings: Settings, method: str, path: str, what: str) -> None:
    api.fail(method, path, code=403, reason="Forbidden", message='User "dev" cannot do this')
    with pytest.raises(ClusterError) as raised, Cluster(settings) as cluster:
        cluster.add_network("blue", cluster.macvlan({"type": "static"}))
        cluster.start("web", "ip addr")
    assert str(raised.value) == f'the cluster refuses to {what}: 403 User "dev" cannot do this\n{NEEDED}'
    assert namespaces(api) == []


def test_a_cluster_without_the_definition_is_told_what_to_apply(api: KubeAPI, settings: Settings) -> None:
    api.fail("POST", "/network-attachment-definitions$", code=404, reason="NotFound", message="the server could not find it")
    with pytest.raises(ClusterError, match=r"kubectl apply -f deployments/multus-crd\.yaml"), Cluster(settings) as cluster:
        cluster.add_network("blue", cluster.macvlan({"type": "static"}))


def test_a_cluster_without_multus_or_without_a_node_is_refused(api: KubeAPI, settings: Settings) -> None:
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "w1"}, "spec": {"unschedulable": True}})
    with pytest.raises(ClusterError, match="no node of the cluster is ready"), Cluster(settings):
        pass
    (pod,) = api.store.all("pods")
    api.put({**pod, "status": {}})
    with pytest.raises(ClusterError, match="Multus is not ready: kube-multus-ds-abcde"), Cluster(settings):
        pass
    api.store.remove("pods", "kube-system", "kube-multus-ds-abcde")
    with pytest.raises(ClusterError, match="Multus does not run in the cluster"), Cluster(settings):
        pass
    assert namespaces(api) == []


def test_a_cluster_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with KubeAPI() as api:
        kubeconfig = api.kubeconfig(tmp_path / "kubeconfig")
    with pytest.raises(ClusterError, match=r"does not answer \(create namespaces\)"), Cluster(Settings(kubeconfig)):
        pass
    with pytest.raises(ClusterError, match="kubeconfig /nonexistent"), Cluster(Settings("/nonexistent")):
        pass


def test_a_pod_that_does_not_start_in_time_is_told_with_its_events(api: KubeAPI, settings: Settings) -> None:
    with pytest.raises(ClusterError) as raised, Cluster(settings) as cluster:
        cluster.start("web", "ip addr")
        about = {"kind": "Pod", "namespace": cluster.namespace, "name": "web"}
        api.put({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": cluster.namespace},
            "involvedObject": about, "reason": "FailedCreatePodSandBox", "message": "no network",
        })  # fmt: skip
        cluster.report("web")
    assert str(raised.value) == "not within 2 s: pod web has ended\n  FailedCreatePodSandBox: no network"


def test_a_file_on_a_node_goes_when_its_test_fails(api: KubeAPI, settings: Settings) -> None:
    """Two pods with the folder of the host: the first writes it, the second removes it."""
    made = []
    ends = threading.Event()

    def play() -> None:
        while not ends.wait(0.02):
            for pod in api.store.all("pods"):
                if not pod.get("status"):
                    made.append(pod)
                    terminated = {"state": {"terminated": {"exitCode": 0, "message": ""}}}
                    api.put({**pod, "status": {"phase": "Succeeded", "containerStatuses": [terminated]}})

    player = threading.Thread(target=play)
    player.start()
    try:
        with pytest.raises(ZeroDivisionError), Cluster(settings) as cluster, cluster.file_on_node("w1", "/etc/static", "a.json", "it's"):
            raise ZeroDivisionError
    finally:
        ends.set()
        player.join()
    assert [pod["spec"]["containers"][0]["command"][-1] for pod in made] == ["printf %s 'it'\"'\"'s' >/host/a.json", "rm -f /host/a.json"]
    for pod in made:
        assert (pod["spec"]["nodeName"], pod["spec"]["volumes"][0]["hostPath"]["path"]) == ("w1", "/etc/static")
        assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "host", "mountPath": "/host"}]


def test_every_script_has_a_counterpart_that_exists() -> None:
    text = (ROOT / "tests" / "e2e" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(test-[\w.-]+\.sh)` \| (.*) \| (.*) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 9
    sources = [
        path.read_text(encoding="utf-8") for path in (*ROOT.glob("tests/e2e/test_*.py"), ROOT / "tests/integration/test_end_to_end.py")
    ]
    for script, *columns in rows:
        named = re.findall(r"`(test_\w+)`", " ".join(columns))
        assert named, script
        assert [name for name in named if not any(f"def {name}(" in source for source in sources)] == []
