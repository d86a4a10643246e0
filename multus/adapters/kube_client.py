"""The API server over the official client: for kubeconfigs that ``kubeconfig`` calls unsupported.

The only import of ``kubernetes``; it costs 220 ms, so it happens in the functions that connect.  Only the client's
credentials and connections are used: requests, attempts and errors are those of every other transport.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from multus import channel
from multus.errors import InvalidConfigError, IOFailureError, MultusError, TryAgainLaterError
from multus.protocol.api_calls import ApiCalls
from multus.protocol.api_errors import NO_ANSWER, Answer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    import urllib3
    from kubernetes.client import ApiClient

    from multus.core.ports import Clock

USER_AGENT = "multus"
STREAM_PIECE_BYTES = 64 * 1024

_Value = TypeVar("_Value")


def require(reason: str) -> None:
    """Load the official client.  Raises InvalidConfigError, code 7, that gives the reason: the package is not there."""
    try:
        import kubernetes  # noqa: F401  # a bundle for hosts is made without it
    except ImportError as exc:
        raise InvalidConfigError(f"{reason}: needs the Python package kubernetes, and this installation was made without it") from exc


def connect(config_path: str, clock: Clock, *, deadline_s: float = 30.0, jitter: Callable[[], float] | None = None) -> ApiCalls:
    """``ports.Kube`` over the official client.

    Args:
        config_path: Of a kubeconfig; empty: the settings of the cluster that we run in.
        deadline_s: Seconds that all calls together may take, events apart.

    Raises:
        InvalidConfigError: Code 7, the official client cannot use the configuration, or its credential plugin failed.
        IOFailureError: Code 5, a file that it names cannot be read.
    """
    return ApiCalls(transport(config_path), clock, deadline_s, jitter)


def transport(config_path: str) -> OfficialClient:
    """The official client as a transport.  Raises as ``connect`` does."""
    return OfficialClient(lambda: _load(config_path))


class OfficialClient:
    """An official ``ApiClient``, loaded again by ``renew``: a ``Transport``."""

    def __init__(self, load: Callable[[], ApiClient]) -> None:
        self._load = load
        self._client = load()

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        """Send a request once and read the answer.

        Raises:
            MultusError: Code 999, the server's certificate is not trusted.
            InvalidConfigError: Code 7, the credential plugin failed.
        """
        import urllib3  # the official client has imported it already

        try:
            response = self._request(method, target, content_type, body, urllib3.Timeout(total=limit_s))
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            return _unanswered(self._client.configuration.host, exc)
        return Answer(response.status, response.data, response.headers.get("Retry-After", ""))

    def stream(self, target: str, limit_s: float, silence_s: float) -> Stream:
        """Send a GET, and leave its answer to be read as it arrives.

        Args:
            limit_s: Seconds for the answer to begin.
            silence_s: Seconds that any part of it may take.

        Raises:
            TryAgainLaterError: No answer began.
            MultusError: As ``exchange`` does.
        """
        import urllib3  # the official client has imported it already

        host = self._client.configuration.host
        try:
            response = self._request("GET", target, "", b"", urllib3.Timeout(total=limit_s), preload_content=False)
        except (urllib3.exceptions.HTTPError, OSError) as exc:
            raise TryAgainLaterError(_unanswered(host, exc).error) from exc
        return Stream(response, silence_s, f"API server {host}")

    def renew(self) -> None:
        """Read the configuration again, and ask its credential plugin again."""
        self.close()
        self._client = self._load()

    def close(self) -> None:
        self._client.rest_client.pool_manager.clear()

    def _request(
        self, method: str, target: str, content_type: str, body: bytes, timeout: urllib3.Timeout, *, preload_content: bool = True
    ) -> urllib3.BaseHTTPResponse:
        configuration = self._client.configuration
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        for setting in _translated(configuration.auth_settings, "credentials").values():
            headers[str(setting["key"])] = str(setting["value"])
        response: urllib3.BaseHTTPResponse = self._client.rest_client.pool_manager.request(
            method,
            configuration.host + target,
            body=body or None,
            headers=headers,
            timeout=timeout,
            retries=False,
            redirect=False,
            preload_content=preload_content,
        )
        return response


class Stream:
    """The answer to ``OfficialClient.stream``: its status and, as they arrive, the parts of its body."""

    def __init__(self, response: urllib3.BaseHTTPResponse, silence_s: float, where: str) -> None:
        self.status = response.status
        self.retry_after = response.headers.get("Retry-After", "")
        self._response = response
        self._where = where
        self._socket: socket.socket | None = getattr(response.connection, "sock", None)
        if self._socket is not None:
            channel.keep_alive(self._socket)
            self._socket.settimeout(silence_s)

    def chunks(self) -> Iterator[bytes]:
        """The body, without its transfer coding.  Raises TryAgainLaterError when it breaks off or falls silent."""
        import urllib3  # loaded by whoever opened the stream

        try:
            yield from self._response.stream(STREAM_PIECE_BYTES)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as exc:
            raise TryAgainLaterError(f"{self._where}: its answer broke off: {str(exc)[:300]}") from exc

    def cut(self) -> None:
        """End ``chunks`` at once; from any thread."""
        if self._socket is not None:
            channel.cut(self._socket)

    def close(self) -> None:
        self._response.close()


def _load(config_path: str) -> ApiClient:
    import kubernetes.client  # 220 ms, for configurations that nothing cheaper serves
    import kubernetes.config

    configuration = kubernetes.client.Configuration()

    def load() -> None:
        if config_path:
            kubernetes.config.load_kube_config(  # type: ignore[no-untyped-call]  # the package types only its generated half
                config_path, client_configuration=configuration, persist_config=False
            )
        else:
            kubernetes.config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]

    _translated(load, f"kubeconfig {config_path}" if config_path else "settings of the cluster")
    return kubernetes.client.ApiClient(configuration)


def _translated(call: Callable[[], _Value], what: str) -> _Value:
    """Call the official client's configuration code; its errors become ours."""
    import kubernetes.config
    import yaml

    try:
        return call()
    except OSError as exc:
        raise IOFailureError(f"official client cannot read {what}: {exc.filename or ''} {exc.strerror}") from exc
    except kubernetes.config.ConfigException as exc:
        raise InvalidConfigError(f"official client cannot use {what}: {str(exc)[:300]}") from exc
    except (yaml.YAMLError, ValueError, TypeError, LookupError) as exc:
        raise InvalidConfigError(f"official client cannot use {what}: {type(exc).__name__}") from exc


def _unanswered(host: str, exc: Exception) -> Answer:
    inner = exc.args[0] if exc.args and isinstance(exc.args[0], Exception) else exc
    verify_message = getattr(inner, "verify_message", "")  # of ssl.SSLCertVerificationError
    if verify_message:
        raise MultusError(f"certificate of API server {host} is not trusted: {verify_message}") from exc
    return Answer(NO_ANSWER, error=f"API server {host}: {str(exc)[:300]}", cause=exc)
