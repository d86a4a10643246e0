"""The one container image of these tests: a static busybox, packed as an OCI image archive.

It serves as sandbox ("pause") image and as the container that looks at the network from inside. The same busybox gives
the same archive, byte for byte.

Spec: OCI image layout 1.0.0; image names as containerd reads them from ``io.containerd.image.name``.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile

_APPLETS = ("arping", "cat", "ip", "ping", "sleep")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "ppc64le": "ppc64le", "s390x": "s390x"}
_IDLE = ["/bin/sleep", "86400"]


def _member(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, size: int = 0, target: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size, member.linkname = kind, mode, size, target
    return member


def _layer(busybox: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as layer:
        for folder in ("bin", "dev", "etc", "proc", "sys", "tmp"):
            layer.addfile(_member(folder, tarfile.DIRTYPE))
        layer.addfile(_member("bin/busybox", size=len(busybox)), io.BytesIO(busybox))
        for applet in _APPLETS:
            layer.addfile(_member(f"bin/{applet}", tarfile.SYMTYPE, target="busybox"))
    return out.getvalue()


def archive(busybox: bytes, name: str) -> bytes:
    """Pack a static busybox into an OCI archive that imports under ``name`` and idles when run."""
    blobs: dict[str, bytes] = {}

    def blob(media_type: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{media_type}", "digest": f"sha256:{digest}", "size": len(content)}

    architecture = {"architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux"}
    layer = blob("layer.v1.tar", _layer(busybox))
    config = {
        **architecture,
        "config": {"Entrypoint": _IDLE, "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {"schemaVersion": 2, "config": blob("config.v1+json", _canonical(config)), "layers": [layer]}
    entry = {
        **blob("manifest.v1+json", _canonical(manifest)),
        "platform": architecture,
        "annotations": {"io.containerd.image.name": name},
    }
    files = {
        "oci-layout": _canonical({"imageLayoutVersion": "1.0.0"}),
        "index.json": _canonical({"schemaVersion": 2, "manifests": [entry]}),
        **dict(sorted(blobs.items())),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as image:
        for path, content in files.items():
            image.addfile(_member(path, mode=0o644, size=len(content)), io.BytesIO(content))
    return out.getvalue()


def _canonical(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
