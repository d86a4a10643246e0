"""The API server over one connection of our own, cheap to import: what the thin binary uses.

The official client costs 220 ms at import, ``http.client`` 10; this module costs 1, and 3 more for an HTTPS server.
"""

from __future__ import annotations

from multus import files
from multus.channel import Channel
from multus.errors import InvalidConfigError, IOFailureError, MultusError, TryAgainLaterError
from multus.protocol import wire
from multus.protocol.api_calls import ApiCalls
from multus.protocol.api_errors import NO_ANSWER, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    import http.client
    from _ssl import _SSLContext
    from collections.abc import Callable, Iterator

    from multus.core.ports import Clock
    from multus.types.cluster import Cluster

USER_AGENT = "multus"
MAX_BODY_BYTES = 64 * 1024 * 1024
"""Of an answer: lists of resource slices can be long."""
STREAM_PIECE_BYTES = 64 * 1024

class KubeRest(ApiCalls):
    """``ports.Kube`` for one request of a container runtime; one thread at a time."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        *,
        deadline_s: float = 30.0,
        reload: Callable[[], Cluster] | None = None,
        jitter: Callable[[], float] | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            deadline_s: Seconds that all calls together may take, events apart.
            reload: Answers the cluster with credentials read anew, after the API server refused the present ones.
        """
        super().__init__(Connection(cluster, clock, reload), clock, deadline_s, jitter)


class Connection:
    """One connection that is kept open, made again when the server has closed it: a ``Transport``."""

    def __init__(self, cluster: Cluster, clock: Clock, reload: Callable[[], Cluster] | None) -> None:
        self._cluster = cluster
        self._clock = clock
        self._reload = reload
        self._channel: Channel | None = None
        self._tls: _SSLContext | None = None
        self._token: str | None = None

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        """Send a request once and read the answer.

        Raises:
            MultusError: Code 999, the server's certificate is not trusted.
            IOFailureError: Code 5, a file of certificates, keys or the token cannot be read.
            DecodingError: Code 6, the answer is not HTTP.
            InvalidConfigError: Code 7, the host is not a possible name.
        """
        request = wire.request(method, self._cluster.base_path + target, self._headers(content_type), body)
        self._prepare_tls()
        end = self._clock.monotonic() + limit_s
        try:
            self._drop_if_closed()
            connected = self._channel or self._connect(end)
            connected.settimeout(self._left(end))
            connected.sendall(request)
            response = wire.read_response(lambda size: self._receive(connected, size, end), method, MAX_BODY_BYTES)
        except OSError as exc:
            self.close()
            return self._unanswered(exc)
        except IOFailureError as exc:
            self.close()
            return Answer(NO_ANSWER, error=f"API server {self._cluster.authority}: {exc}", cause=exc)
        except ValueError as exc:
            self.close()
            raise InvalidConfigError(f"API server {self._cluster.authority}: its name, or its TLS name, cannot be one: {exc}") from exc
        except MultusError:
            self.close()
            raise
        if not response.keep_alive:
            self.close()
        return Answer(response.status, response.body, response.headers.get("retry-after", ""))

    def stream(self, target: str, limit_s: float, silence_s: float) -> Stream:
        """Send a GET over a new connection, with credentials read anew, and leave its answer to be read as it arrives.

        Args:
            limit_s: Seconds for the answer to begin.
            silence_s: Seconds that any part of it may take.

        Raises:
            TryAgainLaterError: No answer began.
            MultusError: As ``exchange`` does.
        """
        import http.client  # 10 ms, for the daemon

        self.renew()
        request = wire.request("GET", self._cluster.base_path + target, self._headers(""))
        self._prepare_tls()
        end = self._clock.monotonic() + limit_s
        try:
            connected = self._connect(end)
            connected.keep_alive()
            connected.settimeout(self._left(end))
            connected.sendall(request)
            response = http.client.HTTPResponse(connected, method="GET")  # type: ignore[arg-type]  # of a socket it wants makefile alone
            response.begin()
            connected.settimeout(silence_s)
        except http.client.HTTPException as exc:
            self.close()
            raise TryAgainLaterError(f"API server {self._cluster.authority}: its answer is not HTTP: {type(exc).__name__}") from exc
        except OSError as exc:
            self.close()
            raise TryAgainLaterError(self._unanswered(exc).error) from exc
        except ValueError as exc:
            self.close()
            raise InvalidConfigError(f"API server {self._cluster.authority}: its name, or its TLS name, cannot be one: {exc}") from exc
        return Stream(self, connected, response, f"API server {self._cluster.authority}")

    def renew(self) -> None:
        """Read token, certificates and keys again; the next request makes a new connection."""
        self.close()
        self._token = self._tls = None
        if self._reload is not None:
            self._cluster = self._reload()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _headers(self, content_type: str) -> list[tuple[str, str]]:
        headers = [("Host", self._cluster.authority), ("User-Agent", USER_AGENT), ("Accept", "application/json")]
        if content_type:
            headers.append(("Content-Type", content_type))
        if self._token is None:
            self._token = _read_token(self._cluster)
        if self._token:
            headers.append(("Authorization", f"Bearer {self._token}"))
        headers.extend(self._cluster.impersonation)
        return headers

    def _drop_if_closed(self) -> None:
        """Nothing is to be read between two answers, so what can be read is the end of the connection."""
        if self._channel is not None and self._channel.is_readable():
            self.close()

    def _connect(self, end: float) -> Channel:
        cluster = self._cluster
        tls_name = _wire_name(cluster.tls_server_name or cluster.host).decode()
        self._channel = Channel.connect(_wire_name(cluster.host), cluster.port, self._tls, tls_name, lambda: self._left(end))
        return self._channel

    def _prepare_tls(self) -> None:
        if self._tls is None and self._cluster.scheme == "https":
            from multus import tls  # 3 ms, for HTTPS only

            self._tls = tls.context(self._cluster)

    def _receive(self, connected: Channel, size: int, end: float) -> bytes:
        connected.settimeout(self._left(end))
        return connected.recv(size)

    def _left(self, end: float) -> float:
        left_s = end - self._clock.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s

    def _unanswered(self, exc: OSError) -> Answer:
        where = f"API server {self._cluster.authority}"
        verify_message = getattr(exc, "verify_message", "")  # of ssl.SSLCertVerificationError
        if verify_message:
            raise MultusError(f"certificate of {where} is not trusted: {verify_message}") from exc
        return Answer(NO_ANSWER, error=f"{where}: {exc.strerror or exc}", cause=exc)


class Stream:
    """The answer to ``Connection.stream``: its status and, as they arrive, the parts of its body."""

    def __init__(self, connection: Connection, connected: Channel, response: http.client.HTTPResponse, where: str) -> None:
        self.status = response.status
        self.retry_after = response.getheader("Retry-After", "")
        self._connection = connection
        self._channel = connected
        self._response = response
        self._where = where

    def chunks(self) -> Iterator[bytes]:
        """The body, without its transfer coding.  Raises TryAgainLaterError when it breaks off or falls silent."""
        import http.client  # loaded by whoever opened the stream

        try:
            while chunk := self._response.read1(STREAM_PIECE_BYTES):
                yield chunk
        except (OSError, http.client.HTTPException, ValueError) as exc:
            raise TryAgainLaterError(f"{self._where}: its answer broke off: {str(exc) or type(exc).__name__}") from exc

    def cut(self) -> None:
        """End ``chunks`` at once; from any thread."""
        self._channel.cut()

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def _wire_name(host: str) -> bytes:
    """A host name as bytes: given as text, even a plain one would be encoded by ``encodings.idna``, 2 ms at import."""
    is_plain = host.isascii() and all(0 < len(label) < 64 for label in host.removesuffix(".").split("."))
    return host.encode("ascii" if is_plain else "idna")


def _read_token(cluster: Cluster) -> str:
    if not cluster.token_file:
        return cluster.token
    try:
        return files.read(cluster.token_file).decode("ascii", "replace").strip()
    except OSError as exc:
        if cluster.token:
            return cluster.token
        raise IOFailureError(f"cannot read token file {cluster.token_file}: {exc.strerror}") from exc
