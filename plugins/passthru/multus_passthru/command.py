"""``passthru-cni``: the same delegate as a CNI binary, installed in the plugin folder under the name ``passthru``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from multus.errors import MultusError
from multus.protocol import environment, versions
from multus.protocol.documents import dumps, load_object
from multus.types.invocation import CNICommand, Invocation
from multus_passthru.delegate import Passthru

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO


def main() -> None:
    """Serve one CNI call of this process."""
    sys.exit(run(os.environ, sys.stdin.buffer.read(), sys.stdout))


def run(environ: Mapping[str, str], stdin: bytes, stdout: TextIO) -> int:
    """Answer one call on ``stdout``; the exit status.  Spec: CNI 1.1.0 §2."""
    version = versions.SUPPORTED[-1]
    try:
        call = environment.parse_call(environ)
        config = load_object(stdin or b"{}", "standard input")
        version = versions.require_supported(str(config.get("cniVersion") or (version if call.command is CNICommand.VERSION else "")))
        if call.command is CNICommand.VERSION:
            stdout.write(dumps({"cniVersion": version, "supportedVersions": list(versions.SUPPORTED)}))
        elif call.command is CNICommand.ADD:
            invocation = Invocation(call.command, "passthru", config, call.container_id, call.netns, call.ifname)
            stdout.write(dumps(Passthru().add(invocation).document))
    except MultusError as exc:
        stdout.write(dumps(exc.document(version)))
        return 1
    return 0


if __name__ == "__main__":
    main()
