"""The API server stand-in itself: it keeps the rules of the real one, as far as it goes."""

from __future__ import annotations

import base64
import json
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.adapters import x509
from multus.protocol import signing_requests
from multus.testing import kubeapi
from multus.testing.kubeapi import KubeAPI
from multus.testing.kubeapi_signing import Signer, User
from multus.types.certificates import Condition, node_identity

PODS = "/api/v1/namespaces/default/pods"
MERGE_PATCH = "application/merge-patch+json"


@pytest.fixture
def api() -> Iterator[KubeAPI]:
    with KubeAPI() as api:
        api.put(pod())
        yield api


def pod(name: str = "web", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": "uid-1"}, **fields}


def ask(api: KubeAPI, method: str, path: str, body: object = None, kind: str = "application/json") -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{api.url}{path}", data, {"Content-Type": kind}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


def test_object_is_read_with_what_the_server_adds(api: KubeAPI) -> None:
    code, found = ask(api, "GET", f"{PODS}/web")
    assert (code, found["metadata"]["namespace"], found["metadata"]["resourceVersion"]) == (200, "default", "101")


def test_version_is_told(api: KubeAPI) -> None:
    assert ask(api, "GET", "/version")[1]["major"] == "1"


def test_lists_are_by_namespace_and_field(api: KubeAPI) -> None:
    api.put(pod("b", spec={"nodeName": "n1"}), {**pod("c"), "metadata": {"name": "c", "namespace": "other"}})

    def names(path: str) -> list[str]:
        code, found = ask(api, "GET", path)
        assert (code, found["kind"]) == (200, "PodList")
        return [item["metadata"]["name"] for item in found["items"]]

    assert names("/api/v1/pods") == ["web", "b", "c"]
    assert names(PODS) == ["web", "b"]
    assert names("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1") == ["b"]
    assert names("/api/v1/pods?fieldSelector=spec.nodeName==n1,metadata.name=c") == []


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1", "/api/v2/pods", f"{PODS}/none", f"{PODS}/web/exec", "/api/v1/pods/web", "/apis/apps/v1/deployments",
     "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions/x/status", "/api/v1/namespaces/none"],
)  # fmt: skip
def test_what_is_not_there_is_404(api: KubeAPI, path: str) -> None:
    code, found = ask(api, "GET", path)
    assert (code, found["kind"], found["reason"]) == (404, "Status", "NotFound")


def test_create_get_delete(api: KubeAPI) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    code, made = ask(api, "POST", path, {"metadata": {"generateName": "s-"}})
    assert (code, made["kind"], made["metadata"]["name"][:2]) == (201, "ResourceSlice", "s-")
    name = made["metadata"]["name"]
    assert ask(api, "GET", f"{path}/{name}")[0] == 200
    assert ask(api, "DELETE", f"{path}/{name}")[0] == 200
    assert ask(api, "DELETE", f"{path}/{name}")[0] == 404


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        ({"metadata": {"name": "web"}}, 409, "AlreadyExists"),
        ({"metadata": {"name": "b", "namespace": "other"}}, 400, "BadRequest"),
        ({}, 422, "Invalid"),
        ([], 400, "BadRequest"),
    ],
)
def test_what_cannot_be_created_is_refused(api: KubeAPI, body: object, code: int, reason: str) -> None:
    answered, found = ask(api, "POST", PODS, body)
    assert (answered, found["reason"]) == (code, reason)


def test_patch_of_the_status_changes_status_and_annotations_only(api: KubeAPI) -> None:
    patch = {"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}, "spec": {"x": 1}, "status": {"phase": "Running"}}
    code, found = ask(api, "PATCH", f"{PODS}/web/status", patch, MERGE_PATCH)
    assert (code, found["metadata"]["annotations"], found["status"]) == (200, {"a": "b"}, {"phase": "Running"})
    assert "labels" not in found["metadata"]
    assert "spec" not in found


def test_patch_of_the_object_leaves_its_status(api: KubeAPI) -> None:
    found = ask(api, "PATCH", f"{PODS}/web", {"spec": {"x": 1}, "status": {"phase": "Running"}}, MERGE_PATCH)[1]
    assert (found["spec"], "status" in found) == ({"x": 1}, False)


def test_patch_merges_and_removes(api: KubeAPI) -> None:
    ask(api, "PATCH", f"{PODS}/web/status", {"metadata": {"annotations": {"a": "1", "b": "2"}}}, MERGE_PATCH)
    found = ask(api, "PATCH", f"{PODS}/web/status", {"metadata": {"annotations": {"a": None, "c": "3"}}}, MERGE_PATCH)[1]
    assert found["metadata"]["annotations"] == {"b": "2", "c": "3"}


def test_patch_of_another_uid_is_invalid_as_the_real_server_has_it(api: KubeAPI) -> None:
    code, found = ask(api, "PATCH", f"{PODS}/web/status", {"metadata": {"uid": "uid-2"}}, MERGE_PATCH)
    assert (code, found["reason"], [cause["field"] for cause in found["details"]["causes"]]) == (422, "Invalid", ["metadata.uid"])


@pytest.mark.parametrize("metadata", [{"uid": "uid-2"}, {"resourceVersion": "1"}])
def test_put_of_an_older_object_is_a_conflict(api: KubeAPI, metadata: dict[str, str]) -> None:
    code, found = ask(api, "PUT", f"{PODS}/web", {"metadata": {"name": "web", **metadata}})
    assert (code, found["reason"]) == (409, "Conflict")


def test_put_replaces_and_keeps_the_uid(api: KubeAPI) -> None:
    code, found = ask(api, "PUT", f"{PODS}/web", {"metadata": {"name": "web", "labels": {"a": "b"}}, "spec": {"x": 1}})
    assert (code, found["metadata"]["uid"], found["metadata"]["labels"], found["spec"]) == (200, "uid-1", {"a": "b"}, {"x": 1})


@pytest.mark.parametrize(
    ("method", "path", "kind", "code"),
    [
        ("POST", f"{PODS}/web", "application/json", 405),
        ("PATCH", PODS, MERGE_PATCH, 405),
        ("DELETE", PODS, "application/json", 405),
        ("DELETE", f"{PODS}/web/status", "application/json", 405),
        ("POST", "/api/v1/pods", "application/json", 405),
        ("PATCH", f"{PODS}/web", "application/strategic-merge-patch+json", 415),
        ("POST", PODS, "application/vnd.kubernetes.protobuf", 415),
    ],
)
def test_what_is_not_served_is_refused_clearly(api: KubeAPI, method: str, path: str, kind: str, code: int) -> None:
    assert ask(api, method, path, {}, kind)[0] == code


def test_body_that_is_not_json_is_refused(api: KubeAPI) -> None:
    request = urllib.request.Request(f"{api.url}{PODS}", b"{", {"Content-Type": "application/json"}, method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(request, timeout=5):
        pass
    with caught.value:
        assert caught.value.code == 400
    assert (api.requests[0].body, api.requests[0].raw) == (None, b"{")


def test_requests_are_kept_in_order(api: KubeAPI) -> None:
    ask(api, "PATCH", f"{PODS}/web/status?x=y", {"a": 1}, MERGE_PATCH)
    [request] = api.requests
    assert (request.method, request.path, request.query, request.body) == ("PATCH", f"{PODS}/web/status", {"x": "y"}, {"a": 1})
    assert request.headers["content-type"] == MERGE_PATCH


def test_fault_happens_as_often_as_it_says_and_to_whom_it_says(api: KubeAPI) -> None:
    api.fail("GET", "/pods/web$", 503, times=2, reason="Busy", message="later")
    assert ask(api, "GET", PODS)[0] == 200
    answers = [ask(api, "GET", f"{PODS}/web") for _ in range(3)]
    assert [code for code, _ in answers] == [503, 503, 200]
    assert (answers[0][1]["reason"], answers[0][1]["message"]) == ("Busy", "later")


def test_unknown_manifest_is_an_error(api: KubeAPI) -> None:
    with pytest.raises(ValueError, match="apps/v1 Deployment is not served"):
        api.put({"apiVersion": "apps/v1", "kind": "Deployment"})
    with pytest.raises(ValueError, match=r"Pod has no metadata\.name"):
        api.put({"apiVersion": "v1", "kind": "Pod", "metadata": {}})


def test_manifests_are_loaded_from_files_and_folders(api: KubeAPI, tmp_path: Path) -> None:
    namespace, node = "apiVersion: v1\nkind: Namespace\nmetadata: {name: x}\n", "apiVersion: v1\nkind: Node\nmetadata: {name: n}\n"
    (tmp_path / "a.yaml").write_text(f"---\n{namespace}---\n---\n{node}")
    (tmp_path / "b.json").write_text(json.dumps({"kind": "List", "items": [pod("p1"), pod("p2")]}))
    (tmp_path / "notes.txt").write_text("not: [loaded")
    assert api.load(str(tmp_path)) == 4
    assert api.load(str(tmp_path / "a.yaml")) == 2
    assert ask(api, "GET", "/api/v1/namespaces/x")[0] == 200
    assert ask(api, "GET", f"{PODS}/p2")[0] == 200


def test_objects_can_be_removed(api: KubeAPI) -> None:
    assert api.store.remove("pods", "default", "web")
    assert not api.store.remove("pods", "default", "web")


def test_program_serves_manifests_until_it_is_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(json.dumps(pod()))
    command = [sys.executable, "-m", "multus.testing.kubeapi", "--load", str(tmp_path), "--kubeconfig", str(tmp_path / "k")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == f"{tmp_path}/k\n"
            url = json.loads((tmp_path / "k").read_text())["clusters"][0]["cluster"]["server"]
            with urllib.request.urlopen(f"{url}{PODS}/web", timeout=5) as response:
                assert json.load(response)["metadata"]["uid"] == "uid-1"
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(5) == 0


def test_program_says_what_it_cannot_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubeapi.main(["--load", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith(f"cannot load {tmp_path}/none: ")


def test_lists_come_in_pages_of_one_moment(api: KubeAPI) -> None:
    api.put(*(pod(f"pod-{number}") for number in range(4)))
    first = ask(api, "GET", "/api/v1/pods?limit=2")[1]
    api.store.remove("pods", "default", "pod-3")
    second = ask(api, "GET", f"/api/v1/pods?limit=2&continue={first['metadata']['continue']}")[1]
    third = ask(api, "GET", f"/api/v1/pods?limit=2&continue={second['metadata']['continue']}")[1]
    names = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, third)]
    assert names == [["web", "pod-0"], ["pod-1", "pod-2"], ["pod-3"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {"105"}
    assert "continue" not in third["metadata"]


def test_page_that_is_not_known_is_410(api: KubeAPI) -> None:
    code, found = ask(api, "GET", "/api/v1/pods?limit=2&continue=x")
    assert (code, found["reason"]) == (410, "Expired")


def watch(api: KubeAPI, query: str, path: str = "/api/v1/pods") -> list[tuple[str, Any]]:
    """The events of a watch of one second."""
    with urllib.request.urlopen(f"{api.url}{path}?watch=true&timeoutSeconds=1&{query}", timeout=5) as response:
        return [(event["type"], event["object"]) for event in map(json.loads, response)]


def told(events: list[tuple[str, Any]]) -> list[tuple[str, str, str]]:
    return [(kind, document["metadata"].get("name", ""), document["metadata"]["resourceVersion"]) for kind, document in events]


def test_watch_tells_what_happened_after_its_version(api: KubeAPI) -> None:
    api.put(pod(spec={"nodeName": "n1"}), pod("b"))
    api.store.remove("pods", "default", "web")
    assert told(watch(api, "resourceVersion=101")) == [("MODIFIED", "web", "102"), ("ADDED", "b", "103"), ("DELETED", "web", "104")]


def test_watch_tells_what_happens_meanwhile(api: KubeAPI) -> None:
    timer = threading.Timer(0.2, api.put, (pod("b"),))
    timer.start()
    assert told(watch(api, "resourceVersion=101")) == [("ADDED", "b", "102")]
    timer.join()


@pytest.mark.parametrize("query", ["", "resourceVersion=0"])
def test_watch_from_any_version_begins_with_what_is_there(api: KubeAPI, query: str) -> None:
    assert told(watch(api, query)) == [("ADDED", "web", "101")]


def test_watch_sends_initial_events_and_says_where_they_end(api: KubeAPI) -> None:
    events = watch(api, "resourceVersion=101&sendInitialEvents=true&allowWatchBookmarks=true")
    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert events[1][1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_watch_sends_bookmarks_with_the_version_of_the_store(api: KubeAPI) -> None:
    api.bookmark_interval_s = 0.3
    api.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    events = told(watch(api, "resourceVersion=101&allowWatchBookmarks=true"))
    assert len(events) >= 3
    assert set(events) == {("BOOKMARK", "", "102")}


def test_watch_of_a_selection_tells_who_enters_and_who_leaves(api: KubeAPI) -> None:
    api.put(pod(spec={"nodeName": "n1"}), pod(spec={"nodeName": "n1", "x": 1}), pod(spec={"nodeName": "n2"}), pod(spec={"nodeName": "n3"}))
    assert told(watch(api, "resourceVersion=101&fieldSelector=spec.nodeName%3Dn1")) == [
        ("ADDED", "web", "102"), ("MODIFIED", "web", "103"), ("DELETED", "web", "104"),
    ]  # fmt: skip


def test_watch_of_a_namespace_tells_of_that_namespace(api: KubeAPI) -> None:
    api.put({**pod("b"), "metadata": {"name": "b", "namespace": "other"}})
    assert watch(api, "resourceVersion=101", PODS) == []


def test_watch_from_a_version_that_is_forgotten_is_told_so(api: KubeAPI) -> None:
    api.store.forget_changes()
    api.put(pod("b"))
    [(kind, status)] = watch(api, "resourceVersion=101")
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
    assert told(watch(api, "resourceVersion=102")) == [("ADDED", "b", "103")]


@pytest.mark.parametrize("query", ["resourceVersion=x", "timeoutSeconds=x"])
def test_watch_that_makes_no_sense_is_refused(api: KubeAPI, query: str) -> None:
    assert ask(api, "GET", f"/api/v1/pods?watch=true&{query}")[0] == 400


@pytest.mark.parametrize("path", [f"{PODS}/web", "/apis/apps/v1/deployments"])
def test_watch_of_what_is_no_collection_is_404(api: KubeAPI, path: str) -> None:
    assert ask(api, "GET", f"{path}?watch=true")[0] == 404


def test_fault_inside_a_watch_leaves_other_requests_alone(api: KubeAPI) -> None:
    api.put(pod("b"), pod("c"))
    api.fail("GET", "/pods", 410, after_events=1, reason="Gone")
    assert ask(api, "GET", PODS)[0] == 200
    assert [(kind, document.get("code")) for kind, document in watch(api, "resourceVersion=101")] == [("ADDED", None), ("ERROR", 410)]


def test_hang_inside_a_watch_delays_it_only(api: KubeAPI) -> None:
    api.put(pod("b"))
    api.fail("GET", "/pods", hang_s=0.2, after_events=0)
    assert told(watch(api, "resourceVersion=101")) == [("ADDED", "b", "102")]


# --- Certificate signing requests ---

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


@pytest.fixture
def signing() -> Iterator[KubeAPI]:
    """A server that knows a node by its token, and signs."""
    with KubeAPI(tls=True, token="admin") as api:
        api.users["node"] = User("system:node:w1", ("system:nodes",))
        api.sign_certificates()
        yield api


def as_(api: KubeAPI, token: str, method: str, path: str, body: object = None, certificate: str = "") -> tuple[int, Any]:
    """A request with a bearer token, or with a client certificate instead."""
    assert api.certificates is not None
    context = ssl.create_default_context(cafile=api.certificates.server)
    if certificate:
        context.load_cert_chain(certificate)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    request = urllib.request.Request(f"{api.url}{path}", None if body is None else json.dumps(body).encode(), headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, json.load(exc)


def new_csr(expiration_s: int = 600) -> tuple[bytes, dict[str, Any]]:
    key, request = x509.new_request(node_identity("w1"))
    return key, dict(signing_requests.new(request, expiration_s))


def answered(found: dict[str, Any], kind: str) -> dict[str, Any]:
    return signing_requests.with_condition(found, Condition(kind, "Because"), 0.0)


def test_a_request_is_stamped_with_who_made_it(signing: KubeAPI) -> None:
    _, document = new_csr()
    code, found = as_(signing, "node", "POST", CSRS, {**document, "status": {"conditions": [{"type": "Approved"}]}})
    assert (code, found["spec"]["username"], found["spec"]["groups"]) == (201, "system:node:w1", ["system:nodes", "system:authenticated"])
    assert "status" not in found
    assert signing.requests[-1].user == "system:node:w1"


@pytest.mark.parametrize(("key", "value"), [("signerName", None), ("usages", []), ("request", ""), ("expirationSeconds", 599)])
def test_a_request_that_is_not_complete_is_refused(signing: KubeAPI, key: str, value: object) -> None:
    _, document = new_csr()
    code, found = as_(signing, "node", "POST", CSRS, {**document, "spec": {**document["spec"], key: value}})
    assert (code, f"spec.{key}" in found["message"]) == (422, True)


def test_only_the_approval_subresource_takes_an_answer(signing: KubeAPI) -> None:
    _, document = new_csr()
    found = as_(signing, "node", "POST", CSRS, document)[1]
    path = f"{CSRS}/{found['metadata']['name']}"
    code, after = as_(signing, "admin", "PUT", path, answered(found, "Denied"))
    assert (code, after.get("status", {})) == (200, {})
    code, after = as_(signing, "admin", "PUT", f"{path}/approval", {**answered(after, "Denied"), "spec": {"username": "other"}})
    assert (code, after["status"]["conditions"][0]["type"], after["spec"]) == (200, "Denied", found["spec"])


def test_an_answer_on_an_older_version_is_a_conflict_and_none_is_taken_back(signing: KubeAPI) -> None:
    _, document = new_csr()
    found = as_(signing, "node", "POST", CSRS, document)[1]
    path = f"{CSRS}/{found['metadata']['name']}/approval"
    denied = as_(signing, "admin", "PUT", path, answered(found, "Denied"))[1]
    assert as_(signing, "admin", "PUT", path, answered(found, "Approved"))[0] == 409
    assert as_(signing, "admin", "PUT", path, answered(denied, "Approved"))[0] == 422
    assert as_(signing, "admin", "PUT", path, {**denied, "status": {}})[0] == 422


def test_what_was_approved_is_signed_and_its_bearer_known(signing: KubeAPI, tmp_path: Path) -> None:
    key, document = new_csr()
    found = as_(signing, "node", "POST", CSRS, document)[1]
    found = as_(signing, "admin", "PUT", f"{CSRS}/{found['metadata']['name']}/approval", answered(found, "Approved"))[1]
    pair = tmp_path / "pair.pem"
    pair.write_bytes(base64.b64decode(found["status"]["certificate"]) + key)
    assert as_(signing, "", "GET", PODS, certificate=str(pair))[0] == 200
    assert signing.requests[-1].user == "system:multus:w1"


def test_a_certificate_that_is_over_is_401_and_one_of_another_authority_no_connection(signing: KubeAPI, tmp_path: Path) -> None:
    key, request = x509.new_request(node_identity("w1"))
    assert signing.signer is not None
    pair = tmp_path / "pair.pem"
    pair.write_bytes(signing.signer.sign(request, 0) + key)
    assert as_(signing, "", "GET", PODS, certificate=str(pair))[0] == 401
    pair.write_bytes(Signer().sign(request, 600) + key)
    with pytest.raises(OSError):
        as_(signing, "", "GET", PODS, certificate=str(pair))


def test_a_signer_may_fail_or_approve_by_itself(signing: KubeAPI) -> None:
    assert signing.signer is not None
    signing.signer.approves = True
    assert "certificate" in as_(signing, "node", "POST", CSRS, new_csr()[1])[1]["status"]
    signing.signer.failure = "no CA"
    types = [each["type"] for each in as_(signing, "node", "POST", CSRS, new_csr()[1])[1]["status"]["conditions"]]
    assert types == ["Approved", "Failed"]


def test_a_server_without_tls_signs_nothing(api: KubeAPI) -> None:
    with pytest.raises(ValueError):
        api.sign_certificates()
