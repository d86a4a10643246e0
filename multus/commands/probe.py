"""``multus-probe``: asks the daemon for its health over the node socket, for the probes of a container.

The kubelet's own HTTP probes reach no Unix socket.
"""

from __future__ import annotations

import argparse
import socket
import sys

from multus.errors import MultusError
from multus.protocol import wire

DEFAULT_SOCKET = "/run/multus/multus.sock"
PATHS = ("/healthz", "/readyz")
TIMEOUT_S = 5.0
_ANSWER_MAX = 64 * 1024


def main() -> None:
    """Exit status 0: the daemon says yes; 1: it says no, with its reason on standard error, or it does not answer."""
    parser = argparse.ArgumentParser(prog="multus-probe", description="Asks the node daemon of Multus for its health.", allow_abbrev=False)
    parser.add_argument("--socket", default=DEFAULT_SOCKET, metavar="PATH", help="the daemon's socket (default: %(default)s)")
    parser.add_argument("path", choices=PATHS, help="healthz: it lives; readyz: it takes ADDs")
    options = parser.parse_args()
    sys.exit(run(options.socket, options.path))


def run(socket_path: str, path: str) -> int:
    """Ask once; the exit status."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(socket_path)
            connection.sendall(wire.request("GET", path, (("Host", "dummy"), ("Connection", "close"))))
            answer = wire.read_response(connection.recv, "GET", _ANSWER_MAX)
    except OSError as exc:
        return _failed(f"multus daemon at {socket_path} does not answer: {exc}")
    except MultusError as exc:
        return _failed(f"multus daemon at {socket_path} answers {path} with something else: {exc}")
    if answer.status == 200:
        return 0
    return _failed(f"{path} {answer.status}: {answer.body.decode(errors='replace').strip()}")


def _failed(problem: str) -> int:
    print(f"multus-probe: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
