"""A connection over the C halves of socket and ssl, against servers of the standard library's on loopback."""

from __future__ import annotations

import gc
import http.client
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from multus import tls
from multus.channel import Channel
from multus.errors import IOFailureError
from multus.testing.kubeapi_credentials import Certificates, make_certificates
from multus.types.cluster import Cluster

LOOPBACK = Cluster("127.0.0.1", 1)
LIMIT_S = 10.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(str(tmp_path_factory.mktemp("certificates")))


@contextmanager
def server(serve: Callable[[socket.socket], None], certificates: Certificates | None = None) -> Iterator[int]:
    """A server for one connection, over TLS with certificates; its port."""

    def run() -> None:
        accepted, _ = listening.accept()
        accepted.settimeout(LIMIT_S)
        with accepted, suppress(OSError):  # a client that goes is no event
            if context is None:
                serve(accepted)
                return
            with context.wrap_socket(accepted, server_side=True) as secured:
                serve(secured)

    context = None
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(LIMIT_S)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join()


def connect(port: int, certificates: Certificates | None = None, name: str = "127.0.0.1", host: bytes = b"127.0.0.1") -> Channel:
    context = tls.context(LOOPBACK._replace(ca_file=certificates.server)) if certificates is not None else None
    return Channel.connect(host, port, context, name, lambda: LIMIT_S)


def echo(connected: socket.socket) -> None:
    while received := connected.recv(1 << 16):
        connected.sendall(received)


def refused(certificates: Certificates) -> Callable[[socket.socket], None]:
    """A server whose certificate the client does not take."""

    def serve(accepted: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(accepted, server_side=True).recv(1)

    return serve


def received(channel: Channel, size: int) -> bytes:
    content = b""
    while len(content) < size:
        content += channel.recv(1 << 16)
    return content


@pytest.mark.parametrize("secured", [False, True])
def test_content_longer_than_a_record_comes_back_whole(certificates: Certificates, secured: bool) -> None:
    content = bytes(range(256)) * 512
    with server(echo, certificates if secured else None) as port:
        channel = connect(port, certificates if secured else None)
        channel.sendall(content)
        assert received(channel, len(content)) == content
        assert not channel.is_readable()
        channel.close()


@pytest.mark.parametrize("secured", [False, True])
def test_a_peer_that_closes_is_the_end(certificates: Certificates, secured: bool) -> None:
    with server(lambda connected: connected.sendall(b"last"), certificates if secured else None) as port:
        channel = connect(port, certificates if secured else None)
        assert received(channel, 4) == b"last"
        assert channel.recv(10) == b""
        assert channel.is_readable()
        channel.close()


@pytest.mark.parametrize("secured", [False, True])
def test_cut_wakes_whoever_receives(certificates: Certificates, secured: bool) -> None:
    with server(echo, certificates if secured else None) as port:
        channel = connect(port, certificates if secured else None)
        channel.settimeout(LIMIT_S)
        timer = threading.Timer(0.05, channel.cut)
        timer.start()
        assert channel.recv(1) == b""
        timer.join()
        channel.cut()
        channel.close()
        channel.cut()


def test_receiving_ends_at_the_time_limit(certificates: Certificates) -> None:
    with server(echo, certificates) as port:
        channel = connect(port, certificates)
        channel.settimeout(0.05)
        with pytest.raises(TimeoutError):
            channel.recv(1)
        channel.close()


def test_http_client_reads_from_it(certificates: Certificates) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with server(lambda connected: connected.sendall(answer), certificates) as port:
        channel = connect(port, certificates)
        response = http.client.HTTPResponse(channel, method="GET")  # type: ignore[arg-type]
        response.begin()
        assert (response.status, response.read()) == (200, b"abcde")
        channel.close()


def test_a_context_verifies_certificate_and_name_and_no_old_protocol() -> None:
    context = tls.context(LOOPBACK)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2


def test_a_certificate_of_another_name_is_refused(certificates: Certificates) -> None:
    with server(refused(certificates)) as port, pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(port, certificates, "elsewhere.example")
    with server(echo, certificates) as port:
        connect(port, certificates, "localhost").close()


def test_a_server_of_another_authority_is_refused(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> None:
    strangers = make_certificates(str(tmp_path_factory.mktemp("strangers")))

    with server(refused(strangers)) as port, pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        connect(port, certificates)


def test_a_peer_that_resets_before_the_handshake_leaves_no_socket_behind(certificates: Certificates) -> None:
    def reset(accepted: socket.socket) -> None:
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with server(reset) as port, pytest.raises((ConnectionError, ssl.SSLError)):
        connect(port, certificates)
    gc.collect()  # a socket that was left open would be a warning, and warnings are errors


def test_a_host_of_several_addresses_is_reached_by_the_one_that_answers() -> None:
    with server(lambda connected: connected.sendall(b"here")) as port:
        channel = connect(port, host=b"localhost")  # perhaps ::1 first, where nobody listens
        assert received(channel, 4) == b"here"
        channel.close()


def test_nobody_listening_is_the_systems_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        connect(port)


def test_no_time_left_connects_to_nobody() -> None:
    def none() -> float:
        raise TimeoutError("timed out")

    with pytest.raises(TimeoutError):
        Channel.connect(b"127.0.0.1", 1, None, "", none)


def test_an_authority_that_is_no_certificate_is_an_io_failure_that_does_not_show_it() -> None:
    with pytest.raises(IOFailureError, match=r"^cannot load certificate authority: ") as caught:
        tls.context(LOOPBACK._replace(ca_data="no certificate"))
    assert "no certificate" not in caught.value.msg
