"""What fails before anything is sent.  What is sent, see tests/integration/test_kube_rest.py."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from multus.adapters.kube_rest import Connection
from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError
from multus.types.cluster import Cluster

NOWHERE = Cluster("127.0.0.1", 1)
NOT_PEM = "neither certificate nor key"


def failure(cluster: Cluster) -> MultusError:
    with pytest.raises(MultusError) as caught:
        Connection(cluster, time, None).exchange("GET", "/", "", b"", 1.0)
    return caught.value


def test_missing_token_file_is_named(tmp_path: Path) -> None:
    error = failure(NOWHERE._replace(token_file=f"{tmp_path}/token"))
    assert type(error) is IOFailureError
    assert error.msg == f"cannot read token file {tmp_path}/token: No such file or directory"


def test_token_that_would_break_the_request_is_refused_and_not_shown() -> None:
    error = failure(NOWHERE._replace(token="secret\r\nX: y"))
    assert type(error) is DecodingError
    assert "secret" not in error.msg


def test_missing_certificate_authority_is_named(tmp_path: Path) -> None:
    error = failure(NOWHERE._replace(ca_file=f"{tmp_path}/ca"))
    assert type(error) is IOFailureError
    assert error.msg == f"cannot load certificate authority {tmp_path}/ca: No such file or directory"


def test_certificate_authority_that_is_no_pem_is_an_io_failure() -> None:
    error = failure(NOWHERE._replace(ca_data=NOT_PEM))
    assert type(error) is IOFailureError
    assert error.msg.startswith("cannot load certificate authority: ")


def test_missing_client_certificate_is_named(tmp_path: Path) -> None:
    by_file = NOWHERE._replace(client_certificate_file=f"{tmp_path}/c", client_key_file=f"{tmp_path}/k")
    error = failure(by_file._replace(insecure_skip_tls_verify=True))
    assert error.msg == f"cannot load client certificate {tmp_path}/c with key {tmp_path}/k: No such file or directory"


def test_client_key_that_is_no_pem_is_an_io_failure_that_does_not_show_it() -> None:
    error = failure(NOWHERE._replace(insecure_skip_tls_verify=True, client_certificate_data=NOT_PEM, client_key_data=NOT_PEM))
    assert error.msg.startswith("cannot load client certificate and key: ")
    assert NOT_PEM not in error.msg


def test_host_that_cannot_be_a_name_is_an_invalid_configuration() -> None:
    assert type(failure(Cluster("a" * 64, 80, "http"))) is InvalidConfigError


def test_no_time_is_no_answer() -> None:
    answer = Connection(NOWHERE._replace(scheme="http"), time, None).exchange("GET", "/", "", b"", 0.0)
    assert (answer.status, answer.error) == (0, "API server 127.0.0.1:1: timed out")


def test_closing_what_was_never_open_is_fine() -> None:
    Connection(NOWHERE, time, None).close()
