"""The calls of an attachment over a scripted transport: what is sent, how often, and what comes of it."""

from __future__ import annotations

import json

import pytest

from multus.errors import DecodingError, ForbiddenError, IOFailureError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol.api_calls import ATTEMPT_LIMIT_S, CONFLICT_ATTEMPTS, EVENT_LIMIT_S, ApiCalls
from multus.protocol.api_errors import NO_ANSWER, Answer
from multus.types.delegate import NetAttachDef
from multus.types.pod import Node, Pod

POD = Pod("shop", "web", "uid-1")
OK = Answer(200, b'{"metadata": {"uid": "uid-1"}}')
REFUSED = Answer(NO_ANSWER, error="refused", cause=ConnectionRefusedError())
CONFLICT = Answer(409, b'{"message": "modified"}')


class Clock:
    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 6))
        self.now += seconds


class Script:
    """A transport that gives the answers in turn, the last one for ever, each after ``lasts_s``."""

    def __init__(self, clock: Clock, *answers: Answer | MultusError, lasts_s: float = 0.0) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.lasts_s = lasts_s
        self.sent: list[tuple[str, str, str, bytes]] = []
        self.limits: list[float] = []
        self.renewals = 0
        self.is_closed = False

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        self.sent.append((method, target, content_type, body))
        self.limits.append(round(limit_s, 6))
        self.clock.now += min(self.lasts_s, limit_s)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, MultusError):
            raise answer
        return answer

    def renew(self) -> None:
        self.renewals += 1

    def close(self) -> None:
        self.is_closed = True


class World:
    def __init__(self, *answers: Answer | MultusError, deadline_s: float = 30.0, lasts_s: float = 0.0) -> None:
        self.clock = Clock()
        self.script = Script(self.clock, *answers, lasts_s=lasts_s)
        self.kube = ApiCalls(self.script, self.clock, deadline_s, jitter=lambda: 0.0)


def test_pod_is_read() -> None:
    world = World(Answer(200, b'{"metadata": {"uid": "u", "annotations": {"a": "b"}}}'))
    assert world.kube.pod("shop", "web", "other")[:4] == ("shop", "web", "u", {"a": "b"})
    assert world.script.sent == [("GET", "/api/v1/namespaces/shop/pods/web", "", b"")]


def test_net_attach_def_is_read() -> None:
    world = World(Answer(200, b'{"spec": {"config": "{}"}}'))
    assert world.kube.net_attach_def("a", "b") == NetAttachDef("a", "b", "{}")
    assert world.script.sent[0][1] == "/apis/k8s.cni.cncf.io/v1/namespaces/a/network-attachment-definitions/b"


def test_any_object_is_read_with_every_digit() -> None:
    world = World(Answer(200, b'{"n": 123456789012345678901234567890}'))
    assert world.kube.get("/apis/x/v1/ys", {"a": "b c"}) == {"n": 123456789012345678901234567890}
    assert world.script.sent[0][1] == "/apis/x/v1/ys?a=b%20c"


@pytest.mark.parametrize("body", [b"", b"garbage", b"[]", b"null"])
def test_answer_that_is_no_object_is_a_decoding_error_that_names_the_path(body: bytes) -> None:
    with pytest.raises(DecodingError) as caught:
        World(Answer(200, body)).kube.pod("shop", "web")
    assert "answer to GET /api/v1/namespaces/shop/pods/web" in caught.value.msg


@pytest.mark.parametrize("passing", [REFUSED, Answer(429), Answer(500), Answer(502), Answer(503), Answer(504)])
def test_passing_failures_are_tried_again_with_growing_delays(passing: Answer) -> None:
    world = World(passing, passing, passing, OK)
    assert world.kube.pod("shop", "web").uid == "uid-1"
    assert world.clock.slept == [0.05, 0.1, 0.2]


@pytest.mark.parametrize(("code", "error"), [(404, ObjectNotFoundError), (403, ForbiddenError), (400, MultusError), (422, MultusError)])
def test_lasting_failures_are_not_tried_again(code: int, error: type[MultusError]) -> None:
    world = World(Answer(code))
    with pytest.raises(error) as caught:
        world.kube.pod("shop", "web")
    assert "pod shop/web" in caught.value.msg
    assert len(world.script.sent) == 1


def test_missing_net_attach_def_is_named() -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        World(Answer(404)).kube.net_attach_def("a", "b")
    assert caught.value.msg == "net-attach-def a/b not found: HTTP status 404"


def test_transport_errors_pass_at_once() -> None:
    world = World(IOFailureError("no key file"))
    with pytest.raises(IOFailureError):
        world.kube.pod("shop", "web")
    assert len(world.script.sent) == 1


def test_unreachable_server_is_tried_up_to_the_deadline_and_never_past_it() -> None:
    world = World(REFUSED)
    with pytest.raises(TryAgainLaterError) as caught:
        world.kube.pod("shop", "web")
    assert world.clock.now <= 130.0
    assert sum(world.clock.slept) > 28.0
    attempts = len(world.script.sent)
    assert caught.value.msg == f"cannot get pod shop/web: no success within 30 s, attempt {attempts}: refused"
    assert isinstance(caught.value.__cause__, ConnectionRefusedError)


def test_short_deadline_ends_soon() -> None:
    world = World(REFUSED, deadline_s=0.2)
    with pytest.raises(TryAgainLaterError):
        world.kube.pod("shop", "web")
    assert world.clock.slept == [0.05, 0.1]


def test_attempt_that_hangs_leaves_time_for_another() -> None:
    world = World(REFUSED, OK, lasts_s=60)
    world.kube.pod("shop", "web")
    assert world.script.limits == [ATTEMPT_LIMIT_S, ATTEMPT_LIMIT_S]


def test_last_attempt_is_limited_by_the_deadline() -> None:
    world = World(REFUSED, deadline_s=12, lasts_s=60)
    with pytest.raises(TryAgainLaterError):
        world.kube.pod("shop", "web")
    assert world.script.limits == [10.0, 1.95]


def test_all_calls_share_the_deadline_and_what_happens_between_them_does_not_count() -> None:
    world = World(OK, lasts_s=4, deadline_s=10)
    world.kube.pod("shop", "web")
    world.clock.now += 1000
    world.kube.net_attach_def("a", "b")
    world.kube.get("/x")
    assert world.script.limits == [10.0, 6.0, 2.0]
    with pytest.raises(TryAgainLaterError) as caught:
        world.kube.get("/x")
    assert caught.value.msg == "cannot get /x: no success within 10 s, attempt 0: no time left"


def test_failed_call_spends_the_deadline_too() -> None:
    world = World(IOFailureError("x"), OK, lasts_s=4, deadline_s=10)
    with pytest.raises(IOFailureError):
        world.kube.get("/x")
    world.kube.get("/x")
    assert world.script.limits == [10.0, 6.0]


def test_retry_after_is_honoured() -> None:
    world = World(Answer(429, retry_after="7"), OK)
    world.kube.pod("shop", "web")
    assert world.clock.slept == [7]


def test_retry_after_beyond_the_deadline_gives_up_at_once() -> None:
    world = World(Answer(503, retry_after="31"))
    with pytest.raises(TryAgainLaterError):
        world.kube.pod("shop", "web")
    assert world.clock.slept == []


def test_unauthorized_is_tried_once_more_with_renewed_credentials() -> None:
    world = World(Answer(401), OK)
    assert world.kube.pod("shop", "web").uid == "uid-1"
    assert world.script.renewals == 1


def test_unauthorized_again_is_forbidden() -> None:
    world = World(Answer(401, b'{"message": "Unauthorized"}'))
    with pytest.raises(ForbiddenError) as caught:
        world.kube.pod("shop", "web")
    assert caught.value.msg == "API server refuses to get pod shop/web: Unauthorized (HTTP status 401)"
    assert (world.script.renewals, len(world.script.sent)) == (1, 2)


def test_status_is_one_merge_patch_that_reads_nothing() -> None:
    world = World(OK)
    world.kube.annotate_status(POD, "k", '["é"]')
    assert [(method, target, kind) for method, target, kind, _ in world.script.sent] == [
        ("PATCH", "/api/v1/namespaces/shop/pods/web/status", "application/merge-patch+json")
    ]
    assert json.loads(world.script.sent[0][3]) == {"metadata": {"uid": "uid-1", "annotations": {"k": '["é"]'}}}


def test_conflict_is_tried_again() -> None:
    world = World(CONFLICT, OK)
    world.kube.annotate_status(POD, "k", "v")
    assert [sent[0] for sent in world.script.sent] == ["PATCH", "PATCH"]


def test_conflicts_end_after_five_attempts_when_the_pod_is_still_ours() -> None:
    world = World(*[CONFLICT] * CONFLICT_ATTEMPTS, OK)
    with pytest.raises(TryAgainLaterError) as caught:
        world.kube.annotate_status(POD, "k", "v")
    assert [sent[0] for sent in world.script.sent] == ["PATCH"] * 5 + ["GET"]
    assert caught.value.msg == "cannot patch status of pod shop/web: 5 conflicts, the last one: modified (HTTP status 409)"


@pytest.mark.parametrize("now_there", [Answer(404), Answer(200, b'{"metadata": {"uid": "uid-2"}}')])
def test_conflicts_about_another_pod_say_that_ours_is_gone(now_there: Answer) -> None:
    world = World(*[CONFLICT] * CONFLICT_ATTEMPTS, now_there)
    with pytest.raises(ObjectNotFoundError) as caught:
        world.kube.annotate_status(POD, "k", "v")
    assert caught.value.msg == "pod shop/web/uid-1 not found: another pod has its name"


@pytest.mark.parametrize("pod", [POD._replace(uid=""), POD._replace(annotations={"kubernetes.io/config.source": "http"})])
def test_conflicts_about_a_pod_without_a_uid_are_conflicts(pod: Pod) -> None:
    world = World(CONFLICT)
    with pytest.raises(TryAgainLaterError):
        world.kube.annotate_status(pod, "k", "v")
    assert len(world.script.sent) == 5


def test_other_uid_is_not_found_at_once() -> None:
    world = World(Answer(422, b'{"details": {"causes": [{"field": "metadata.uid"}]}}'))
    with pytest.raises(ObjectNotFoundError):
        world.kube.annotate_status(POD, "k", "v")
    assert len(world.script.sent) == 1


@pytest.mark.parametrize(("code", "error"), [(404, ObjectNotFoundError), (403, ForbiddenError), (422, MultusError)])
def test_status_that_cannot_be_written_names_the_pod(code: int, error: type[MultusError]) -> None:
    with pytest.raises(error) as caught:
        World(Answer(code)).kube.annotate_status(POD, "k", "v")
    assert "status of pod shop/web" in caught.value.msg


def test_event_of_a_node_that_fails_names_the_node() -> None:
    with pytest.raises(ForbiddenError, match=r"event ConfigurationRepaired of node node-1"):
        World(Answer(403)).kube.create_event(Node("node-1"), "Warning", "ConfigurationRepaired", "m")


def test_event_is_one_post() -> None:
    world = World(Answer(201))
    world.kube.create_event(POD, "Warning", "NoNetworkFound", "why")
    [(method, target, kind, body)] = world.script.sent
    assert (method, target, kind) == ("POST", "/api/v1/namespaces/shop/events", "application/json")
    event = json.loads(body)
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoNetworkFound", "why")


def test_event_is_tried_once_within_its_own_limit() -> None:
    world = World(REFUSED, lasts_s=60)
    with pytest.raises(TryAgainLaterError) as caught:
        world.kube.create_event(POD, "Normal", "R", "m")
    assert world.script.limits == [EVENT_LIMIT_S]
    assert caught.value.msg == "cannot create event R of pod shop/web: refused"


def test_event_leaves_the_time_of_the_other_calls_alone() -> None:
    world = World(REFUSED, OK, lasts_s=60, deadline_s=3)
    with pytest.raises(TryAgainLaterError):
        world.kube.create_event(POD, "Normal", "R", "m")
    world.kube.get("/x")
    assert world.script.limits == [EVENT_LIMIT_S, 3.0]


def test_event_that_is_refused_is_forbidden() -> None:
    with pytest.raises(ForbiddenError):
        World(Answer(403)).kube.create_event(POD, "Normal", "R", "m")


def test_close_closes_the_transport() -> None:
    world = World(OK)
    world.kube.close()
    assert world.script.is_closed


def test_delays_are_random_unless_told_otherwise() -> None:
    clock = Clock()
    kube = ApiCalls(Script(clock, *[REFUSED] * 6, OK), clock, 30.0)
    kube.get("/x")
    assert len(clock.slept) == 6
    assert all(0.025 <= delay <= 1.0 for delay in clock.slept)
