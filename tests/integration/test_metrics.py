"""What the daemon counts, and the port that tells it over HTTP on the loopback interface."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from multus.adapters import metrics
from multus.adapters.metrics import Metrics, MetricsServer
from multus.testing.fakes import RecordingLog

PATIENCE_S = 20.0


@pytest.fixture
def counted() -> Metrics:
    return Metrics()


@pytest.fixture
def log() -> RecordingLog:
    return RecordingLog()


@pytest.fixture
def served(counted: Metrics, log: RecordingLog) -> Iterator[MetricsServer]:
    yield from serving(MetricsServer(counted, "127.0.0.1", 0, log, debug=True))


def serving(server: MetricsServer) -> Iterator[MetricsServer]:
    server.start()
    wait_for(lambda: server.port != 0)
    yield server
    server.stop()
    assert not server._thread.is_alive()


def wait_for(predicate: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < end
        time.sleep(0.005)


def ask(port: int, path: str, address: str = "127.0.0.1") -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def samples(served: MetricsServer, beginning: str) -> list[str]:
    """The lines of the metrics that begin so."""
    status, text = ask(served.port, "/metrics")
    assert status == 200
    return [line for line in text.splitlines() if line.startswith(beginning)]


def test_the_references_metric_has_its_name_and_labels(counted: Metrics, served: MetricsServer) -> None:
    assert samples(served, "multus_server_request_total") == []
    known = [("/cni", "POST", 200), ("/cni", "POST", 200), ("/delegate", "POST", 400), ("/readyz", "GET", 500)]
    for path, method, status in [*known, ("/x", "PROPFIND", 404), ("", "", 400)]:
        counted.answered(path, method, status)
    assert samples(served, "multus_server_request_total") == [
        'multus_server_request_total{code="200",handler="/cni",method="post"} 2.0',
        'multus_server_request_total{code="400",handler="/delegate",method="post"} 1.0',
        'multus_server_request_total{code="500",handler="/readyz",method="get"} 1.0',
        'multus_server_request_total{code="404",handler="NotFound",method="unknown"} 1.0',
        'multus_server_request_total{code="400",handler="NotFound",method="unknown"} 1.0',
    ]


def test_calls_errors_and_durations_are_told(counted: Metrics, served: MetricsServer) -> None:
    counted.served("ADD", 0, 0.02)
    counted.served("ADD", 11, 2.0)
    counted.delegated("ADD", "bridge", "trunk", 0.003)
    counted.repairs.inc()
    assert samples(served, "multus_requests_total") == [
        'multus_requests_total{code="0",command="ADD"} 1.0',
        'multus_requests_total{code="11",command="ADD"} 1.0',
    ]
    assert samples(served, "multus_errors_total") == ['multus_errors_total{code="11"} 1.0']
    assert samples(served, "multus_request_duration_seconds_sum") == ['multus_request_duration_seconds_sum{command="ADD"} 2.02']
    assert samples(served, "multus_delegate_duration_seconds_bucket{command=\"ADD\",le=\"0.005\"") == [
        'multus_delegate_duration_seconds_bucket{command="ADD",le="0.005",network="trunk",type="bridge"} 1.0'
    ]
    assert samples(served, "multus_configuration_repairs_total") == ["multus_configuration_repairs_total 1.0"]


def test_gauges_are_asked_when_they_are_read(counted: Metrics, served: MetricsServer) -> None:
    length = {"waiting": 3, "a": 1, "b": 2}
    counted.watch("multus_queue_length", "text", lambda: length["waiting"])
    counted.watch("multus_labelled", "text", lambda: length["waiting"], kind="x")
    counted.watch_each("multus_cache_objects", "text", "cache", {"pods": lambda: length["a"], "networks": lambda: length["b"]})
    length["waiting"] = 4
    assert samples(served, "multus_queue_length") == ["multus_queue_length 4.0"]
    assert samples(served, "multus_labelled") == ['multus_labelled{kind="x"} 4.0']
    assert samples(served, "multus_cache_objects") == [
        'multus_cache_objects{cache="pods"} 1.0',
        'multus_cache_objects{cache="networks"} 2.0',
    ]


def test_the_process_is_measured_as_well(served: MetricsServer) -> None:
    assert float(samples(served, "process_resident_memory_bytes")[0].split()[1]) > 2**20
    assert samples(served, "python_gc_collections_total") != []


def test_two_daemons_in_one_process_do_not_count_together(counted: Metrics) -> None:
    Metrics().served("ADD", 0, 1.0)
    assert counted.registry.get_sample_value("multus_requests_total", {"command": "ADD", "code": "0"}) is None


@pytest.mark.parametrize("path", ["/", "/metrics/x", "/debug/pprof/"])
def test_another_path_is_404(served: MetricsServer, path: str) -> None:
    assert ask(served.port, path) == (404, "/metrics is here\n")


def test_stacks_of_threads_are_told_where_that_is_switched_on(counted: Metrics, log: RecordingLog, served: MetricsServer) -> None:
    status, text = ask(served.port, "/debug/threads")
    assert (status, "MainThread\n" in text, "test_metrics.py" in text) == (200, True, True)
    for server in serving(MetricsServer(counted, "127.0.0.1", 0, log)):
        assert ask(server.port, "/debug/threads")[0] == 404


def test_a_port_that_is_taken_is_said_and_tried_again(counted: Metrics, log: RecordingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        server = MetricsServer(counted, "127.0.0.1", port, log)

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == 9:
                owner.close()

        monkeypatch.setattr(server._stopping, "wait", wait)
        for each in serving(server):
            assert (each.port, ask(port, "/metrics")[0]) == (port, 200)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    level, event, fields = log.lines[0]
    assert (level, event, fields["address"], fields["port"]) == ("error", "metrics.port.unavailable", "127.0.0.1", port)
    assert "Address already in use" in str(fields["error"])


def test_stopping_ends_the_wait_for_a_port(counted: Metrics, log: RecordingLog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as owner:
        server = MetricsServer(counted, "127.0.0.1", owner.getsockname()[1], log)
        server.start()
        wait_for(lambda: log.lines != [])
        server.stop()
    assert not server._thread.is_alive()


def test_an_address_of_the_other_family_is_served(counted: Metrics, log: RecordingLog) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    for server in serving(MetricsServer(counted, "::1", 0, log)):
        assert ask(server.port, "/metrics", "::1")[0] == 200


def test_a_silent_client_is_given_up_and_holds_nobody_up(
    counted: Metrics, log: RecordingLog, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics, "_HEAD_TIMEOUT_S", 0.2)
    for server in serving(MetricsServer(counted, "127.0.0.1", 0, log)):
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as silent:
            assert ask(server.port, "/metrics")[0] == 200
            assert silent.recv(1) == b""
        wait_for(lambda: log.events() == ["metrics.request.failed"])
    assert capfd.readouterr().err == ""
