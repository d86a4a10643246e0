"""A stand-in for the Kubernetes API server: objects in memory, every request kept, faults on demand.

For tests, in a ``with`` block, and for trying things out without a cluster::

    python -m multus.testing.kubeapi --port 8001 --kubeconfig /tmp/kubeconfig --load manifests/

It serves pods, nodes, namespaces, events, net-attach-defs, resource claims, slices and classes, and certificate signing
requests, also as pages and as watches; it knows no other patch than the merge patch, and it checks no schema.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

from multus.testing import kubeapi_credentials, kubeapi_signing, kubeapi_watch
from multus.testing.kubeapi_store import Address, Document, Refusal, Store, parse_path, status_document

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from multus.testing.kubeapi_credentials import Certificates
    from multus.testing.kubeapi_signing import Signer, User

HOST = "127.0.0.1"


class Request(NamedTuple):
    """One request as it came in; header names in lower case, ``body`` decoded from JSON or None."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    raw: bytes
    user: str = ""
    """Whom the server took the client for; empty: it knows no users, or not this one."""

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and self.query.get("watch") in ("1", "true")


class Fault(NamedTuple):
    """What the server does, so many times, instead of answering a request that matches.

    One of ``garbage``, ``reset`` and the failure ``code`` happens, in this order; ``hang_s`` goes before each of them,
    and alone (``code`` 0) before the server's own answer.  With ``after_events`` it happens inside a watch: the code as an
    error event that ends it.
    """

    method: str = ""
    """Any, if empty."""
    path: str = ""
    """A regular expression, found anywhere in the path."""
    code: int = 0
    times: int = 1
    reason: str = "InternalError"
    message: str = "injected"
    headers: Mapping[str, str] = {}
    hang_s: float = 0.0
    reset: bool = False
    garbage: bytes = b""
    """Sent as it is; the connection is closed."""
    after_events: int | None = None
    """Of a watch: how many events go before.  A fault that has it leaves all other requests alone."""


class KubeAPI:
    """The server, on a loopback port while in its ``with`` block."""

    def __init__(
        self,
        port: int = 0,
        *,
        certificates: Certificates | None = None,
        tls: bool = False,
        client_certificate: bool = False,
        token: str = "",
        latency_s: float = 0.0,
    ) -> None:
        """Listen, but do not answer yet.

        Args:
            port: 0 for any that is free.
            certificates: Serve HTTPS with these.
            tls: Serve HTTPS with certificates made for the occasion (needs the openssl program).
            client_certificate: Demand the client certificate of ``certificates``.
            token: The bearer token that each request must carry; none, if empty.
            latency_s: Seconds before each answer.
        """
        self.store = Store()
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.token = token
        self.users: dict[str, User] = {}
        """Further tokens, and who comes with them."""
        self.signer: Signer | None = None
        self.latency_s = latency_s
        self.bookmark_interval_s = 60.0
        """Between two bookmarks of a watch that asks for them."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if tls and certificates is None:
            self._folder = tempfile.TemporaryDirectory(prefix="multus-kubeapi-")
            certificates = kubeapi_credentials.make_certificates(self._folder.name)
        self.certificates = certificates
        self._server = _Server((HOST, port), type("Handler", (_Handler,), {"api": self}))
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.server, certificates.server_key)
            if client_certificate:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(certificates.client)
            self._server.tls = context
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._lock = threading.Lock()

    @property
    def connections(self) -> int:
        """How many connections clients have made so far."""
        return self._server.accepted

    @property
    def url(self) -> str:
        return f"{'https' if self.certificates else 'http'}://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.close_connections()
        if self._folder is not None:
            self._folder.cleanup()

    def put(self, *documents: Mapping[str, object]) -> None:
        """Create or replace objects; ValueError for a kind that is not served."""
        for document in documents:
            self.store.put(document)

    def sign_certificates(self, lifetime_s: float = 365 * 86400.0) -> Signer:
        """Sign approved requests for certificates from now on, and know clients by what was signed; needs TLS.

        Args:
            lifetime_s: The longest that is granted.
        """
        if self._server.tls is None:
            raise ValueError("a server without TLS sees no certificates")
        self.signer = kubeapi_signing.Signer(lifetime_s)
        kubeapi_signing.accept(self._server.tls, self.signer)
        return self.signer

    def close_connections(self) -> None:
        """End all connections, as a server does with those that were idle for long."""
        self._server.close_connections()

    def fail(self, method: str = "", path: str = "", code: int = 0, **fields: Any) -> None:
        """Inject a ``Fault``; the other fields by name."""
        with self._lock:
            self.faults.append(Fault(method, path, code, **fields))

    def load(self, path: str) -> int:
        """Create the objects of a manifest, or of all ``*.yaml``, ``*.yml`` and ``*.json`` of a folder; how many there were."""
        import yaml

        paths = [path]
        if os.path.isdir(path):
            paths = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith((".yaml", ".yml", ".json"))]
        count = 0
        for each in paths:
            with open(each, encoding="utf-8") as file:
                for document in filter(None, yaml.safe_load_all(file)):
                    items = document.get("items", []) if document.get("kind") == "List" else [document]
                    self.put(*items)
                    count += len(items)
        return count

    def kubeconfig(
        self,
        path: str | os.PathLike[str],
        *,
        style: str = "json",
        token_file: str = "",
        inline: bool = False,
        user: Mapping[str, object] | None = None,
    ) -> str:
        """Write a kubeconfig for this server and answer its path.

        Args:
            style: ``json`` or ``yaml``.
            token_file: The path of a token file to refer to, instead of the token itself.
            inline: Put certificates and keys in as data instead of paths.
            user: The user's credentials, instead of the server's token and client certificate.
        """
        if user is None:
            user = kubeapi_credentials.user_entry(self.certificates, self.token, token_file, inline)
        document = kubeapi_credentials.kubeconfig(self.url, self.certificates, inline, user)
        return kubeapi_credentials.write(path, document, style)

    def record(self, request: Request) -> Fault | None:
        """Keep a request; the fault that it runs into, if any, which is then used up once."""
        with self._lock:
            self.requests.append(request)
            for index, fault in enumerate(self.faults):
                is_meant = fault.method in ("", request.method) and (fault.after_events is None or request.is_watch)
                if fault.times > 0 and is_meant and re.search(fault.path, request.path):
                    self.faults[index] = fault._replace(times=fault.times - 1)
                    return fault
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until interrupted; prints the path of the kubeconfig once it answers."""
    parser = argparse.ArgumentParser(prog="python -m multus.testing.kubeapi", description="A stand-in for the Kubernetes API server.")
    parser.add_argument("--port", type=int, default=0, help="loopback port; any free one by default")
    parser.add_argument("--load", action="append", default=[], metavar="PATH", help="a manifest, or a folder of them; may be repeated")
    parser.add_argument("--kubeconfig", metavar="PATH", help="where to write it; by default a file that goes when the server ends")
    parser.add_argument("--token", default="", help="demand this bearer token")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS (needs openssl)")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(KubeAPI(options.port, tls=options.tls, token=options.token))
        try:
            for path in options.load:
                api.load(path)
        except (OSError, ValueError, AttributeError) as exc:
            print(f"cannot load {path}: {exc}", file=sys.stderr)
            return 1
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="multus-kubeapi-"))
        path = options.kubeconfig or os.path.join(folder, "kubeconfig")
        print(api.kubeconfig(path, inline=True), flush=True)
        stop.wait()
    return 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    tls: ssl.SSLContext | None = None
    accepted = 0

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread, so that one slow handshake holds up nobody."""
        self.accepted += 1
        self._connections.add(request)
        try:
            if self.tls is not None:
                request.settimeout(10)
                request = self.tls.wrap_socket(request, server_side=True)
                request.settimeout(None)
                self._connections.add(request)
            super().finish_request(request, client_address)
        except OSError:
            pass  # a client that goes away, or that does not trust us, is no event
        finally:
            request.close()
            self._connections.discard(request)

    def close_connections(self) -> None:
        """End the connections that clients keep open, as a server's end does."""
        for connection in tuple(self._connections):
            with contextlib.suppress(OSError):  # ended already
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    api: KubeAPI

    def log_message(self, format: str, *args: object) -> None:
        """Requests are kept, not printed."""

    def answer(self) -> None:
        url = urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = None
        headers = {name.lower(): value for name, value in self.headers.items()}
        user = self._user(headers.get("authorization", ""))
        request = Request(self.command, url.path, dict(parse_qsl(url.query)), headers, body, raw, user.name if user else "")
        fault = self.api.record(request)
        in_watch = fault if fault is not None and fault.after_events is not None else None
        time.sleep(self.api.latency_s + (fault.hang_s if fault and not in_watch else 0))
        if fault is not None and not in_watch and self._fails(fault):
            return
        try:
            if request.is_watch:
                self._watch(request, in_watch)
                return
            code, document = self._serve(request)
        except Refusal as refusal:
            code, document = refusal.code, refusal.document
        self._send(code, document, {})

    do_GET = do_PUT = do_PATCH = do_POST = do_DELETE = answer

    def _fails(self, fault: Fault) -> bool:
        """Act on a fault; False when the server's own answer is to follow."""
        if fault.garbage:
            self.wfile.write(fault.garbage)
            self.close_connection = True
        elif fault.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # on, 0 s: RST
            self.connection.close()
            self.close_connection = True
        elif fault.code:
            self._send(fault.code, status_document(fault.code, fault.reason, fault.message), fault.headers)
        else:
            return False
        return True

    def _watch(self, request: Request, fault: Fault | None) -> None:
        self._authenticate(request)
        at = parse_path(request.path)
        if at is None or at.name:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        watch = kubeapi_watch.watch_of(at, request.query)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        count = 0
        api = self.api
        events = kubeapi_watch.events(watch, api.store, self.connection, lambda: api.bookmark_interval_s)
        while True:
            if fault is not None and fault.after_events is not None and count >= fault.after_events:
                if self._fails_in_watch(fault):
                    return
                fault = None
            event = next(events, None)
            if event is None:
                break
            self.wfile.write(kubeapi_watch.encode(event))
            self.wfile.flush()
            count += 1
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _fails_in_watch(self, fault: Fault) -> bool:
        """Act on a fault inside a watch; False when the watch goes on."""
        time.sleep(fault.hang_s)
        if fault.code and not fault.reset and not fault.garbage:
            self.wfile.write(kubeapi_watch.encode(("ERROR", status_document(fault.code, fault.reason, fault.message))))
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
            return True
        return self._fails(fault)

    def _user(self, authorization: str) -> User | None:
        """Who the client is, by its token or its certificate; None: nobody that we know."""
        api = self.api
        scheme, _, token = authorization.partition(" ")
        token = token if scheme.lower() == "bearer" else ""
        if token in api.users:
            return api.users[token]
        certificate = self.connection.getpeercert() if api.signer is not None and isinstance(self.connection, ssl.SSLSocket) else None
        if certificate:
            return kubeapi_signing.user_of(certificate)
        return kubeapi_signing.User("") if not api.token or token == api.token else None

    def _authenticate(self, request: Request) -> User:
        user = self._user(request.headers.get("authorization", ""))
        if user is None:
            raise Refusal(401, "Unauthorized", "Unauthorized")
        return user

    def _serve(self, request: Request) -> tuple[int, Document]:
        store = self.api.store
        user = self._authenticate(request)
        if request.path == "/version" and request.method == "GET":
            return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        at = parse_path(request.path)
        if at is None:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        if request.method == "GET":
            query = request.query
            selector, limit = query.get("fieldSelector", ""), int(query.get("limit") or 0)
            return 200, store.get(at) if at.name else store.list(at, selector, limit, query.get("continue", ""))
        if request.method == "DELETE" and at.name and not at.sub:
            return 200, store.delete(at)
        if (request.method == "POST") == bool(at.name) or request.method == "DELETE" or (at.resource.namespaced and not at.namespace):
            raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
        content_type = request.headers.get("content-type", "").partition(";")[0]
        if content_type != ("application/merge-patch+json" if request.method == "PATCH" else "application/json"):
            raise Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")
        if not isinstance(request.body, dict):
            raise Refusal(400, "BadRequest", "the body of the request is not a JSON object")
        if request.method == "POST":
            wanted = kubeapi_signing.admitted(request.body, user) if at.resource.has_approval else request.body
            return 201, self._attended(at, store.create(at, wanted))
        return 200, self._attended(at, (store.replace if request.method == "PUT" else store.patch)(at, request.body))

    def _attended(self, at: Address, document: Document) -> Document:
        """The object after the signer has seen it."""
        signer = self.api.signer
        return signer.attend(self.api.store, at, document) if signer is not None and at.resource.has_approval else document

    def _send(self, code: int, document: Document, headers: Mapping[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


if __name__ == "__main__":
    sys.exit(main())
