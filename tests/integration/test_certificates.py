"""Certificates of nodes, with real processes: the approver, the kubeconfig generator, the thin plugin, and the daemon.

Their API server is the stand-in over TLS; it signs for seconds only, so that renewal happens while a test looks.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from multus.adapters import x509
from multus.adapters.certificate_store import CertificateStore
from multus.adapters.kube_rest import Connection
from multus.commands import certs, kube_access, kubeconfig
from multus.commands.node_certificate import NodeCertificate
from multus.commands.stop import Stop
from multus.errors import IOFailureError, TryAgainLaterError
from multus.protocol import signing_requests
from multus.protocol.signing_calls import SigningCalls
from multus.testing.fakes import RecordingLog
from multus.testing.kubeapi import KubeAPI
from multus.testing.kubeapi_credentials import Certificates
from multus.testing.kubeapi_signing import Signer, User
from multus.testing.kubeapi_store import parse_path
from multus.testing.node import NODE_NAME, Node
from multus.testing.thick import ThickNode
from multus.types.certificates import CertificateSettings, SigningRequest, node_identity
from multus.types.cluster import Cluster

PATIENCE_S = 30.0
SHORT_S, BACKDATED_S = 8.0, 16.0
"""A certificate is in force for so long, and began so long before: it is renewed after 1 to 6 seconds, with 2 at least left."""
BOOTSTRAP, APPROVER = "token-of-the-kubelet", "token-of-the-approver"
OWN_NAME = f"system:multus:{NODE_NAME}"
CSRS = signing_requests.PATH


class Programs:
    """Processes of a test, in the network namespace that it is in, with what they say."""

    def __init__(self, folder: Path, binaries: Path) -> None:
        self.folder = folder
        self._binaries = binaries
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("KUBERNETES_")}
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                [str(self._binaries / name), *arguments], env={**inherited, **environment}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._running.append(process)
        return process

    def said(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


def until(fact: Callable[[], object], what: str, programs: Programs | None = None) -> None:
    end = time.monotonic() + PATIENCE_S
    while not fact():
        logs = {name: programs.said(name)[-2000:] for name in ("cert-approver", "kubeconfig_generator")} if programs else ""
        assert time.monotonic() < end, f"not so: {what}: {logs}"
        time.sleep(0.02)


@pytest.fixture
def programs(tmp_path: Path, daemon_binary: str) -> Iterator[Programs]:
    folder = tmp_path / "said"
    folder.mkdir()
    programs = Programs(folder, Path(daemon_binary).parent)
    yield programs
    programs.end()


@pytest.fixture
def api(certificates: Certificates) -> Iterator[KubeAPI]:
    with KubeAPI(certificates=certificates._replace(client="", client_key=""), token="admin") as api:
        introduce(api)
        yield api


def introduce(api: KubeAPI) -> None:
    """Let the server know the node's kubelet and the approver, and sign."""
    api.users[BOOTSTRAP] = User(f"system:node:{NODE_NAME}", ("system:nodes",))
    api.users[APPROVER] = User("system:serviceaccount:kube-system:cert-approver", ("system:serviceaccounts",))
    api.sign_certificates(SHORT_S).backdate_s = BACKDATED_S


def start_approver(programs: Programs, api: KubeAPI) -> subprocess.Popen[bytes]:
    path = api.kubeconfig(programs.folder / "approver.kubeconfig", user={"token": APPROVER})
    return programs.start("cert-approver", "--kubeconfig", path)


def start_generator(programs: Programs, api: KubeAPI, tmp_path: Path, *more: str) -> tuple[subprocess.Popen[bytes], Path]:
    """The process, and the kubeconfig that it will write."""
    (tmp_path / "certs").mkdir(exist_ok=True)
    bootstrap = api.kubeconfig(tmp_path / "bootstrap", user={"token": BOOTSTRAP})
    kubeconfig = tmp_path / "out" / "kubeconfig"
    arguments = ("--certdir", str(tmp_path / "certs"), "--bootstrap-config", bootstrap, "--kubeconfig", str(kubeconfig), *more)
    return programs.start("kubeconfig_generator", *arguments, MULTUS_NODE_NAME=NODE_NAME), kubeconfig


def requests_of(api: KubeAPI) -> list[SigningRequest]:
    return [signing_requests.from_document(document) for document in api.store.all("certificatesigningrequests")]


def ask_for_one(api: KubeAPI, tmp_path: Path, token: str = BOOTSTRAP, node: str = NODE_NAME) -> str:
    """Create a request as a node does; its name."""
    path = api.kubeconfig(tmp_path / f"asking-{token}", user={"token": token})
    calls = SigningCalls(kube_access.transport(path, {}))
    try:
        return calls.create(x509.new_request(node_identity(node))[1], 600).name
    finally:
        calls.close()


def request_of(api: KubeAPI, name: str) -> SigningRequest:
    return signing_requests.from_document(api.store.find("certificatesigningrequests", "", name) or {})


def granted(role: str) -> set[tuple[str, str]]:
    """Verb and resource of each rule of a role that the documentation shows."""
    text = (Path(__file__).parents[2] / "docs" / "certificates.md").read_text(encoding="utf-8")
    roles = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]
    rules = next(each["rules"] for each in roles if each["metadata"]["name"] == role)
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def used(api: KubeAPI, *users: str) -> set[tuple[str, str]]:
    """Verb and resource of each request that one of them made about certificates, and about their events."""
    found = set()
    for request in api.requests:
        at = parse_path(request.path)
        if request.user in users and at is not None and (at.resource.has_approval or at.resource.plural == "events"):
            reading = "get" if at.name else "watch" if request.is_watch else "list"
            verb = {"GET": reading, "POST": "create", "PUT": "update"}[request.method]
            found.add((verb, "/".join(filter(None, (at.resource.plural, at.sub)))))
    return found


# --- The generator ---


def test_the_kubeconfig_is_for_its_owner_alone_and_goes_with_the_process(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    start_approver(programs, api)
    process, path = start_generator(programs, api, tmp_path)
    until(path.exists, "a kubeconfig is there", programs)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    user = json.loads(path.read_text())["users"][0]["user"]
    assert user == dict.fromkeys(("client-certificate", "client-key"), f"{tmp_path}/certs/multus-client-current.pem")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    assert not path.exists()
    assert (tmp_path / "certs" / "multus-client-current.pem").exists()


def test_who_uses_the_kubeconfig_is_the_node_through_every_renewal(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    """As the thin plugin does it: each time a new connection, and none of them fails."""
    api.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}})
    start_approver(programs, api)
    _, path = start_generator(programs, api, tmp_path)
    until(path.exists, "a kubeconfig is there", programs)
    calls = 0
    end = time.monotonic() + PATIENCE_S
    while len([each for each in requests_of(api) if each.certificate]) < 3:
        assert time.monotonic() < end, programs.said("kubeconfig_generator")
        kube = kube_access.connect(str(path), {}, 5.0, time)
        assert kube is not None
        assert kube.pod("default", "web").name == "web"
        kube.close()
        calls += 1
        time.sleep(0.02)
    assert calls > 10
    seen = [request for request in api.requests if request.path.endswith("/pods/web")]
    assert ({OWN_NAME}, calls) == ({request.user for request in seen}, len(seen))  # so none of them had to ask twice
    assert used(api, f"system:node:{NODE_NAME}", OWN_NAME) == granted("multus-node-certificate")
    assert used(api, api.users[APPROVER].name) | {("approve", "signers")} == granted("multus-cert-approver")
    creators = [request.user for request in api.requests if (request.method, request.path) == ("POST", CSRS)]
    assert creators[:3] == [f"system:node:{NODE_NAME}", OWN_NAME, OWN_NAME]


def test_a_kubeconfig_that_others_remove_is_written_again(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    start_approver(programs, api)
    _, path = start_generator(programs, api, tmp_path)
    until(path.exists, "a kubeconfig is there", programs)
    before = path.read_bytes()
    path.unlink()
    until(path.exists, "the kubeconfig is there again", programs)
    assert path.read_bytes() == before


def test_the_host_may_see_the_certificates_elsewhere(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    start_approver(programs, api)
    _, path = start_generator(programs, api, tmp_path, "--host-certdir", "/var/lib/multus/certs")
    until(path.exists, "a kubeconfig is there", programs)
    user = json.loads(path.read_text())["users"][0]["user"]
    assert user["client-key"] == "/var/lib/multus/certs/multus-client-current.pem"


def test_a_denial_stays_and_the_generator_says_why(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    api.users[BOOTSTRAP] = User("system:serviceaccount:kube-system:multus")
    start_approver(programs, api)
    process, path = start_generator(programs, api, tmp_path)
    until(lambda: "certificate.failed" in programs.said("kubeconfig_generator"), "it has failed", programs)
    reason = "CSRDenied: user \\\"system:serviceaccount:kube-system:multus\\\" is no node"
    assert f"was denied: {reason}" in programs.said("kubeconfig_generator")
    first = requests_of(api)[0]
    denied = first.condition("Denied")
    assert denied is not None
    assert (denied.reason, first.certificate, first.condition("Approved")) == ("CSRDenied", b"", None)
    event = next(each for each in api.store.all("events") if each["involvedObject"]["name"] == first.name)
    assert (event["type"], event["reason"], event["source"]) == ("Warning", "CSRDenied", {"component": "cert-approver"})
    process.send_signal(signal.SIGTERM)
    assert (process.wait(PATIENCE_S), path.exists()) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "node", "message"),
    [
        (("--certdir", "{folder}/no"), NODE_NAME, "--certdir {folder}/no: there is no such folder"),
        (("--bootstrap-config", "{folder}/no"), NODE_NAME, "--bootstrap-config {folder}/no: there is no such file"),
        (("--cert-duration", "x"), NODE_NAME, 'duration of the certificate: "x" is no duration'),
        ((), "", "in environment variable MULTUS_NODE_NAME"),
        ((), NODE_NAME, "kubeconfig {folder}/empty: current-context is not set"),
    ],
)
def test_what_is_fatal_is_status_255(programs: Programs, tmp_path: Path, arguments: tuple[str, ...], node: str, message: str) -> None:
    (tmp_path / "empty").write_text("{}")
    given = ("--certdir", "{folder}", "--bootstrap-config", "{folder}/empty", *arguments)
    flags = [argument.format(folder=tmp_path) for argument in given]
    process = programs.start("kubeconfig_generator", *flags, MULTUS_NODE_NAME=node)
    assert process.wait(PATIENCE_S) == 255
    said = programs.said("kubeconfig_generator")
    assert (message.format(folder=tmp_path) in said, said.count("\n")) == (True, 1)


def test_a_kubeconfig_that_cannot_be_written_is_fatal(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file where the folder should be")
    start_approver(programs, api)
    process, path = start_generator(programs, api, tmp_path)
    assert process.wait(PATIENCE_S) == 255
    assert f"cannot write --kubeconfig {path}: " in programs.said("kubeconfig_generator")


# --- The approver ---


def test_an_approver_that_is_killed_in_the_middle_leaves_nothing_undone(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    api.fail("PUT", "/approval", 503, hang_s=1.0)
    first = start_approver(programs, api)
    name = ask_for_one(api, tmp_path)
    until(lambda: any(request.method == "PUT" for request in api.requests), "the approver has begun", programs)
    first.kill()
    first.wait()
    assert not request_of(api, name).is_decided
    start_approver(programs, api)
    until(lambda: request_of(api, name).certificate, "the request is signed", programs)


def test_requests_from_before_its_start_are_decided_and_only_ours(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    good, foreign, bad = (ask_for_one(api, tmp_path, node=node) for node in (NODE_NAME, NODE_NAME, "w2"))
    document = api.store.find("certificatesigningrequests", "", foreign) or {}
    document["spec"]["signerName"] = "example.com/other"
    api.store.put(document)
    start_approver(programs, api)
    until(lambda: request_of(api, good).certificate and request_of(api, bad).is_decided, "both are decided", programs)
    assert request_of(api, bad).condition("Denied") is not None
    assert not request_of(api, foreign).is_decided


def test_a_conflict_is_decided_on_what_is_there_then(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    api.fail("PUT", "/approval", 409, reason="Conflict", message="the object has been modified")
    start_approver(programs, api)
    name = ask_for_one(api, tmp_path)
    until(lambda: request_of(api, name).certificate, "the request is signed", programs)
    of_it = [request.method for request in api.requests if name in request.path and request.user.endswith("approver")]
    assert of_it[:4] == ["GET", "PUT", "GET", "PUT"]


def test_a_request_that_is_deleted_is_done(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    process = start_approver(programs, api)
    until(lambda: any(request.is_watch for request in api.requests), "it watches", programs)
    api.fail("GET", "/csr-", 0, hang_s=1.0)
    name = ask_for_one(api, tmp_path)
    until(lambda: any(request.path.endswith(name) for request in api.requests), "the approver has begun", programs)
    api.store.remove("certificatesigningrequests", "", name)
    other = ask_for_one(api, tmp_path)
    until(lambda: request_of(api, other).certificate, "another one is signed", programs)
    assert (process.poll(), "request.failed" in programs.said("cert-approver")) == (None, False)


def test_two_approvers_answer_once(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    """As in a rolling update."""
    start_approver(programs, api)
    start_approver(programs, api)
    until(lambda: len([request for request in api.requests if request.is_watch]) == 2, "both watch", programs)
    names = [ask_for_one(api, tmp_path) for _ in range(10)]
    until(lambda: all(request_of(api, name).certificate for name in names), "all are signed", programs)
    assert [["Approved"]] * 10 == [[condition.type for condition in request_of(api, name).conditions] for name in names]


def test_an_approver_stops_when_it_is_told_and_answers_no_more(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    process = start_approver(programs, api)
    until(lambda: any(request.is_watch for request in api.requests), "it watches", programs)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0
    name = ask_for_one(api, tmp_path)
    assert not request_of(api, name).is_decided


def test_an_approver_outside_of_a_cluster_is_status_255(programs: Programs) -> None:
    assert programs.start("cert-approver").wait(PATIENCE_S) == 255
    expected = "cert-approver: not in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set\n"
    assert programs.said("cert-approver") == expected


@pytest.mark.skipif(os.geteuid() != 0, reason="a service account's folder of its own needs root")
def test_an_approver_in_a_cluster_is_its_service_account(api: KubeAPI, programs: Programs, tmp_path: Path) -> None:
    """Its folder is mounted where it is in a pod, for this process alone."""
    assert api.certificates is not None
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text(APPROVER)
    (account / "namespace").write_text("kube-system")
    (account / "ca.crt").write_bytes(Path(api.certificates.server).read_bytes())
    place = "/run/secrets/kubernetes.io/serviceaccount"
    script = f'mount -t tmpfs none /run && mkdir -p {place} && mount --bind "$0" {place} && exec "$1"'
    command = ["unshare", "--mount", "sh", "-ec", script, str(account), str(Path(programs._binaries) / "cert-approver")]
    environment = {**os.environ, "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    with open(programs.folder / "cert-approver.log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    programs._running.append(process)
    name = ask_for_one(api, tmp_path)
    until(lambda: request_of(api, name).certificate, "the request is signed", programs)


# --- The daemon ---


@pytest.fixture
def certified(thick_node: ThickNode, programs: Programs, tmp_path: Path) -> ThickNode:
    """A node whose daemon is to have a certificate, stopped; it has none yet."""
    node = thick_node
    node.stop()
    introduce(node.api)
    bootstrap = node.api.kubeconfig(tmp_path / "bootstrap", user={"token": BOOTSTRAP})
    keys = {"bootstrapKubeconfig": bootstrap, "certDir": str(tmp_path / "certs"), "certDuration": "1h"}
    node.settings["perNodeCertificate"] = {"enabled": True, **keys}
    node.api.requests.clear()
    return node


def approver_of(node: ThickNode, programs: Programs) -> subprocess.Popen[bytes]:
    with node.namespace.entered():
        return start_approver(programs, node.api)


def test_a_daemon_begins_with_nothing_and_is_its_node_from_then_on(certified: ThickNode, programs: Programs) -> None:
    """Calls run while the certificate is renewed twice, over it; none fails, and none waits for the next try."""
    node = certified
    with ExitStack() as stack:
        approver = approver_of(node, programs)
        stack.callback(programs.end)
        node.start()
        renewals = "multus_certificate_renewals_total"
        calls = 0
        while node.metrics()[renewals] < 2:
            with node.pod(f"pod-{calls}") as pod:
                assert "" == node.attach(pod).error
                assert node.statuses(pod)[0]["interface"] == "eth0"
                assert "" == node.detach(pod).error
            calls += 1
            assert calls < 500
        approver.send_signal(signal.SIGTERM)
        assert approver.wait(PATIENCE_S) == 0
        assert 0 < node.metrics()["multus_certificate_expires_seconds"] <= SHORT_S
    assert {} == node.remains()
    of_node = [request for request in node.api.requests if not request.user.endswith("approver")]
    bootstrap = {(request.method, request.path.rpartition("/csr-")[0] or request.path) for request in of_node if request.user != OWN_NAME}
    assert bootstrap == {("POST", CSRS), ("GET", CSRS)}
    patches = [request.user for request in of_node if request.method == "PATCH"]
    assert patches == [OWN_NAME] * calls
    assert "kube.watch.failed" not in node.log
    watches = [request for request in of_node if request.is_watch and request.path.endswith("/pods")]
    assert len(watches) >= 3  # at the start, and after each renewal


def test_a_daemon_takes_the_certificate_that_it_finds(certified: ThickNode, programs: Programs) -> None:
    node = certified
    assert node.api.signer is not None
    node.api.signer.approves, node.api.signer.lifetime_s = True, 6000.0
    node.start()
    node.stop()
    node.api.requests.clear()
    node.start()
    assert {OWN_NAME} == {request.user for request in node.api.requests}
    assert not [request for request in node.api.requests if request.path.startswith(CSRS)]


def test_a_renewal_that_fails_is_told_and_the_daemon_is_not_ready_without_a_certificate(certified: ThickNode) -> None:
    node = certified
    signer = node.api.signer
    assert signer is not None
    signer.approves, signer.lifetime_s = True, SHORT_S / 2
    node.start()
    signer.failure = "the authority is away"
    node.wait_until(lambda: "certificate.failed" in node.log, "renewal has failed")
    status, _ = node.ask("/readyz")
    assert status == 200  # the present one is in force
    expected = f"no new certificate for {OWN_NAME}, the present one ends in "
    node.wait_until(lambda: any(each["reason"] == "CertificateNotRenewed" for each in node.api.store.all("events")), "an event tells it")
    event = next(each for each in node.api.store.all("events") if each["reason"] == "CertificateNotRenewed")
    assert (event["involvedObject"]["kind"], event["message"].startswith(expected)) == ("Node", True)
    assert event["message"].endswith("failed: SignerFailed: the authority is away")
    node.wait_until(lambda: node.ask("/readyz")[0] == 500, "the daemon is not ready")
    reason = node.ask("/readyz")[1]
    assert reason.startswith("the node's certificate is over: ")
    assert "the authority is away" in reason
    signer.failure = ""
    node.wait_until(lambda: node.ask("/readyz")[0] == 200, "the daemon is ready again")
    with node.pod("web") as pod:
        assert "" == node.attach(pod).error
        assert "" == node.detach(pod).error


def test_a_daemon_that_is_denied_says_why_and_ends_when_it_is_told(certified: ThickNode, programs: Programs) -> None:
    node = certified
    node.api.users[BOOTSTRAP] = User(f"system:node:{NODE_NAME}", ("system:nodes", "system:masters"))
    with ExitStack() as stack:
        approver_of(node, programs)
        stack.callback(programs.end)
        node.launch()
        node.wait_until(lambda: "certificate.failed" in node.log, "it has failed")
        assert 'was denied: CSRDenied: group \\"system:masters\\" of the user' in node.log
        assert (node.ask("/readyz")[0], os.path.exists(node.config_path)) == (0, True)  # as the daemon before has left it
        assert node.stop() == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"certDuration": "ten minutes"}, 'duration of the certificate: "ten minutes" is no duration'),
        ({"certDir": ""}, "a certificate of the node needs a bootstrap kubeconfig and a folder; one of them is not set"),
        ({"bootstrapKubeconfig": "/nowhere"}, "cannot read kubeconfig /nowhere: No such file or directory"),
    ],
)
def test_settings_that_cannot_be_are_status_3(certified: ThickNode, keys: dict[str, Any], message: str) -> None:
    certified.settings["perNodeCertificate"] = {**certified.settings["perNodeCertificate"], **keys}  # type: ignore[dict-item]
    certified.launch()
    assert certified.wait() == 3
    assert f"multus-daemon: {message}" in certified.log


# --- The thin plugin ---


def test_the_thin_plugin_runs_with_the_generated_kubeconfig(node: Node, programs: Programs, tmp_path: Path) -> None:
    introduce(node.api)
    node.add_network("blue", {"type": "bridge", "bridge": "blue0", "ipam": node.host_local("10.20.0.0/24")})
    with ExitStack() as stack, node.namespace.entered():
        start_approver(programs, node.api)
        stack.callback(programs.end)
        _, path = start_generator(programs, node.api, tmp_path)
        until(path.exists, "a kubeconfig is there", programs)
        node.kubeconfig = str(path)
        with node.pod("web", "blue") as pod:
            assert "" == node.attach(pod).error
            assert [entry["interface"] for entry in node.statuses(pod)] == ["eth0", "net1"]
            assert "" == node.detach(pod).error
    assert {} == node.remains()
    assert {request.user for request in node.api.requests if "/pods/web" in request.path} == {OWN_NAME}


# --- In this process ---


def test_a_bootstrap_identity_may_come_from_an_exec_plugin(api: KubeAPI, tmp_path: Path) -> None:
    """Over the official client, the first time; then the certificate takes over."""
    assert api.signer is not None
    api.signer.approves = True
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": BOOTSTRAP}}
    script = tmp_path / "plugin"
    script.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    script.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script), "interactiveMode": "Never"}}
    settings = CertificateSettings(api.kubeconfig(tmp_path / "bootstrap", user=user), str(tmp_path / "certs"))
    certificate = NodeCertificate(settings, {"MULTUS_NODE_NAME": NODE_NAME}, RecordingLog())
    certificate.start()
    try:
        certificate.wait(Stop(), PATIENCE_S)
        until(lambda: len(requests_of(api)) > 1, "it is renewed")
    finally:
        certificate.stop()
    creators = [request.user for request in api.requests if request.method == "POST"]
    assert creators[:2] == [f"system:node:{NODE_NAME}", OWN_NAME]


def ended_when(fact: Callable[[], object], run: Callable[[], int]) -> tuple[bool, int]:
    """Run a command here until something is true, then tell it to end; whether it was, and the exit status."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(-1)
    seen = []

    def watch() -> None:
        end = time.monotonic() + PATIENCE_S
        while not fact() and time.monotonic() < end:
            time.sleep(0.02)
        seen.append(bool(fact()))
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=watch)
    signal.signal(signal.SIGTERM, lambda *_: None)
    watcher.start()
    try:
        status = run()
    finally:
        watcher.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
    return seen[0], status


def test_the_approver_as_a_whole(api: KubeAPI, tmp_path: Path) -> None:
    name = ask_for_one(api, tmp_path)
    path = api.kubeconfig(tmp_path / "approver.kubeconfig", user={"token": APPROVER})
    assert (True, 0) == ended_when(lambda: request_of(api, name).certificate, certs.Command(path, {}).run)


def test_the_generator_as_a_whole(api: KubeAPI, tmp_path: Path) -> None:
    assert api.signer is not None
    api.signer.approves = True
    (tmp_path / "certs").mkdir()
    bootstrap, path = api.kubeconfig(tmp_path / "bootstrap", user={"token": BOOTSTRAP}), tmp_path / "kubeconfig"
    flags = ["--certdir", str(tmp_path / "certs"), "--bootstrap-config", bootstrap, "--kubeconfig", str(path)]
    generator = kubeconfig.Generator(kubeconfig.parser().parse_args(flags), {"MULTUS_NODE_NAME": NODE_NAME})
    assert (True, 0) == ended_when(path.exists, generator.run)
    assert not path.exists()


def test_no_connection_sees_the_halves_of_two_certificates(tmp_path: Path) -> None:
    """A file with a certificate and its key is replaced all the time."""
    signer, store = Signer(), CertificateStore(str(tmp_path))
    pairs = []
    for _ in range(8):
        key, request = x509.new_request(node_identity("w1"))
        pairs.append(signer.sign(request, 600) + key)
    store.replace(pairs[0])
    stop = threading.Event()

    def keep_replacing() -> None:
        while not stop.is_set():
            for pair in pairs:
                store.replace(pair)

    cluster = Cluster("127.0.0.1", 1, client_certificate_file=store.path, client_key_file=store.path)
    thread = threading.Thread(target=keep_replacing)
    thread.start()
    try:
        for _ in range(25):
            assert Connection(cluster, time, None).exchange("GET", "/", "", b"", 5.0).status == 0  # nobody listens
            assert x509.certificate(store.read()).identity == node_identity("w1")
    finally:
        stop.set()
        thread.join()


def test_a_store_whose_writer_is_killed_has_a_whole_certificate(tmp_path: Path) -> None:
    """At any moment; what the killed one left is gone after the next replacement."""
    store = CertificateStore(str(tmp_path / "certs"))
    store.prepare()
    key, request = x509.new_request(node_identity("w1"))
    pair = Signer().sign(request, 600) + key
    (tmp_path / "pair").write_bytes(pair)
    code = (
        "import sys; from multus.adapters.certificate_store import CertificateStore; store = CertificateStore(sys.argv[1]); "
        "pair = open(sys.argv[2], 'rb').read(); print(flush=True)\nwhile True: store.replace(pair)"
    )
    store.replace(pair)
    for number in range(12):
        command = [sys.executable, "-c", code, str(tmp_path / "certs"), str(tmp_path / "pair")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            time.sleep(0.003 * number)
            writer.kill()
        store.prepare()
        assert store.read() == pair
    store.replace(pair)
    names = os.listdir(tmp_path / "certs")
    assert [name for name in names if not re.fullmatch(r"multus-client-[\d-]+\.pem|multus-client-current\.pem", name)] == []
    assert len(names) <= 3


def settings_for(tmp_path: Path) -> CertificateSettings:
    """A server that nobody is, and a folder that is not there yet."""
    path = tmp_path / "bootstrap"
    path.write_text(json.dumps({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }))  # fmt: skip
    return CertificateSettings(str(path), str(tmp_path / "certs"))


def test_the_wait_for_the_first_one_ends_and_says_what_failed(tmp_path: Path) -> None:
    certificate = NodeCertificate(settings_for(tmp_path), {"MULTUS_NODE_NAME": "w1"}, RecordingLog())
    certificate.start()
    try:
        with pytest.raises(TryAgainLaterError) as caught:
            certificate.wait(Stop(), 1.0)
    finally:
        certificate.stop()
    reason = "cannot create certificate signing request: API server 127.0.0.1:1: Connection refused"
    assert caught.value.msg == f"no certificate of the node within 1 s: {reason}"
    assert certificate.not_ready() == "nobody renews the node's certificate any more"


def test_a_store_that_is_not_as_it_should_be_ends_the_wait(tmp_path: Path) -> None:
    certificate = NodeCertificate(settings_for(tmp_path), {"MULTUS_NODE_NAME": "w1"}, RecordingLog())
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "multus-client-current.pem").symlink_to("..")
    certificate.start()
    try:
        with pytest.raises(IOFailureError):
            certificate.wait(Stop(), PATIENCE_S)
    finally:
        certificate.stop()
