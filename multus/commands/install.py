"""``install_multus``: puts the executables of the thin or of the thick plugin on the host, with all that they need to run.

An init container calls it; ``adapters.installation`` tells what it makes.  Spec: Multus behaviour, "install_multus".
"""

from __future__ import annotations

import argparse
import sys

from multus.adapters.installation import Installation, host_path
from multus.errors import MultusError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

BUNDLE = "/usr/src/multus-cni/bundle"
DEST_DIR = "/host/opt/cni/bin"
EXECUTABLES = {"thick": ("multus-shim", "passthru"), "thin": ("multus", "passthru")}


def main() -> None:
    """Install, or take away; the exit status is 0, 1 after a failure, 2 for arguments that nobody knows."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The same with these arguments, without leaving.  Unknown ones raise SystemExit with 2."""
    flags = parser()
    options = flags.parse_args(arguments)
    if options.help:
        flags.print_help(sys.stderr)
        return 1
    names = EXECUTABLES.get(options.type, ())
    if not names and not options.uninstall:
        print(f"install_multus: --type {options.type!r} is neither thick nor thin", file=sys.stderr)
        return 1
    installation = Installation(options.dest_dir, options.host_dir or host_path(options.dest_dir))
    try:
        if options.uninstall:
            for path in installation.uninstall():
                print(f"{path} is removed")
        else:
            for path in installation.install(options.bundle, names):
                print(f"{path} is installed")
    except (OSError, MultusError) as exc:
        print(f"install_multus: {reason(exc)}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(prog="install_multus", description="Install multus on a host.", add_help=False, allow_abbrev=False)
    made.add_argument("-t", "--type", default="", help="thick: multus-shim; thin: multus; passthru goes with both")
    made.add_argument("-d", "--dest-dir", default=DEST_DIR, metavar="DIR", help="the host's CNI plugins (default: %(default)s)")
    made.add_argument("--host-dir", default="", metavar="DIR", help="the same as the host sees it (default: without a leading /host)")
    made.add_argument("--bundle", default=BUNDLE, metavar="DIR", help="what to install (default: %(default)s)")
    made.add_argument("--uninstall", action="store_true", help="remove all that was installed there, of either type")
    made.add_argument("-h", "--help", action="store_true", help="print this and exit with 1")
    return made


def reason(exc: OSError | MultusError) -> str:
    """What went wrong, for people."""
    if isinstance(exc, OSError):
        path = exc.filename2 or exc.filename  # of a rename, what was to be made
        return f"{path}: {exc.strerror}" if path else str(exc)
    return str(exc)


if __name__ == "__main__":
    main()
