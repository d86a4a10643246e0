"""Containers of the manifests without a container runtime: their mounts, their root file system, their capabilities.

Each runs in a mount namespace of its own.  The image is the machine, read-only, with the commands where the image has them, and
without what a host has and an image has not; the host is a folder.  Needs root, overlayfs, unshare and setpriv.
"""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from multus.testing.pods import PLUGIN_FOLDER
from tests.deployments.manifests import DAEMON_CONFIG, Container, container, daemon_config

SERVICE_ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
"""Where the kubelet mounts it, ``/var/run`` being a link."""
_OF_A_HOST = ("/etc/cni", "/opt", "/run", "/var/lib")
"""Empty in the image."""
_SYSTEM = ("bin", "lib", "lib64", "sbin", "usr")
_PLUGINS = ("bridge", "host-local", "macvlan", "loopback")

ENTER = """#!/bin/sh -e
# A container, in mounts of its own: they are gone with it.
[ -n "$IN_MOUNTS" ] || IN_MOUNTS=1 exec unshare --mount --propagation private "$0" "$@"
unset IN_MOUNTS
mount -t tmpfs none {scratch}
mkdir {scratch}/changes {scratch}/work {root}
mount -t overlay overlay -o lowerdir=/,upperdir={scratch}/changes,workdir={scratch}/work {root}
{mounts}
mount -o remount,ro {root}
exec chroot {root} {privileges} "$@"
"""
ON_HOST = """#!/bin/sh -e
# What the runtime executes on the host.
[ -n "$IN_MOUNTS" ] || IN_MOUNTS=1 exec unshare --mount --propagation private "$0" "$@"
unset IN_MOUNTS
{system}
exec chroot {host} {executable} "$@"
"""


class Host:
    """A host's file system in a folder: CNI plugins, a primary configuration, and what containers of ours leave there."""

    def __init__(self, folder: Path, bundle: Path, bin_dir: str = "/opt/cni/bin") -> None:
        self.folder = folder / "host"
        self._scratch = folder / "scratch"
        self._scripts = folder / "scripts"
        self._bundle = bundle
        self.service_account = folder / "serviceaccount"
        self._plugins, self._bin_dir = folder / "plugins", bin_dir
        own = (self._scratch, self._scripts, self._plugins, self.service_account)
        for each in (*own, *(self.path(name) for name in ("/proc", "/sys", "/run", "/var", "/opt"))):
            each.mkdir(parents=True, exist_ok=True)
        for name in _PLUGINS:
            shutil.copy(os.path.join(PLUGIN_FOLDER, name), self._plugins)

    def path(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def command(self, way: str, name: str) -> list[str]:
        """What runs a container's own command, its arguments included."""
        each = container(way, name)
        return [self.enter(each), *each.document["command"], *each.document.get("args", [])]

    def probe(self, way: str, name: str, probe: str) -> subprocess.CompletedProcess[str]:
        """Run a probe as the kubelet does, in the container's mounts."""
        each = container(way, name)
        command = [self.enter(each), *each.document[probe]["exec"]["command"]]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    def enter(self, each: Container) -> str:
        """An executable that runs its arguments in a container."""
        script = self._scripts / f"{each.way}-{each.name}"
        scratch = self._scratch / script.name
        scratch.mkdir(exist_ok=True)
        root = scratch / "root"
        lines = [*_image(root, self._bundle), *self._system(), *self._mounts(each, root)]
        lines += [f"mount -o remount,ro {root}{path}" for path in _OF_A_HOST]
        text = ENTER.format(scratch=scratch, root=root, mounts="\n".join(lines), privileges=_privileges(each))
        script.write_text(text)
        script.chmod(0o755)
        return str(script)

    def on_host(self, executable: str) -> str:
        """An executable that runs one of the host's, with the host's root."""
        script = self._scripts / f"host-{posixpath.basename(executable)}"
        script.write_text(ON_HOST.format(system="\n".join(self._system()), host=self.folder, executable=executable))
        script.chmod(0o755)
        return str(script)

    def _mounts(self, each: Container, root: Path) -> list[str]:
        volumes = {volume["name"]: volume for volume in each.pod.get("volumes", [])}
        lines = [*_bind(self.service_account, root, SERVICE_ACCOUNT, read_only=True)]
        for mount in sorted(each.document.get("volumeMounts", []), key=lambda mount: len(mount["mountPath"])):
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                source = self.path(volume["hostPath"]["path"])
                if volume["hostPath"]["type"] == "DirectoryOrCreate":
                    lines.append(f"mkdir -p {source}")
            else:
                source = self._scripts.parent / volume["configMap"]["name"]
                source.mkdir(exist_ok=True)
                (source / DAEMON_CONFIG).write_text(json.dumps(daemon_config(each.way)))
            lines += _bind(source, root, mount["mountPath"], read_only=mount.get("readOnly", False))
        return lines

    def _system(self) -> list[str]:
        """Programs and libraries of the host: the machine's; its processes, and its devices."""
        lines = []
        for name in _SYSTEM:
            target = self.path(name)
            if os.path.islink(f"/{name}"):
                if not target.is_symlink():
                    target.symlink_to(os.readlink(f"/{name}"))
            else:
                target.mkdir(exist_ok=True)
                lines.append(f"mount --bind /{name} {target}")
        lines += [f"mount --rbind /{name} {self.path(name)}" for name in ("proc", "sys")]
        bin_dir = self.path(self._bin_dir)
        if self._bin_dir.startswith("/usr/"):  # the machine's, in which no folder is to be made
            lines.append(f"mount -t tmpfs none {bin_dir.parent}")
        return [*lines, f"mkdir -p {bin_dir}", f"mount --bind {self._plugins} {bin_dir}"]


def _image(root: Path, bundle: Path) -> list[str]:
    lines = [f"mkdir -p {root}{path} && mount -t tmpfs none {root}{path}" for path in _OF_A_HOST]
    lines += [f"mount --rbind /{name} {root}/{name}" for name in ("dev", "proc", "sys")]
    lines += [f"mkdir -p {root}/usr/src/multus-cni", f"ln -s {Path(sys.executable).parent} {root}/usr/src/multus-cni/bin"]
    return [*lines, *_bind(bundle, root, "/usr/src/multus-cni/bundle", read_only=True)]


def _bind(source: Path, root: Path, path: str, *, read_only: bool) -> list[str]:
    target = f"{root}{path.rstrip('/')}"
    place = f"mkdir -p {posixpath.dirname(target)} && touch {target}" if source.is_file() else f"mkdir -p {target}"
    lines = [place, f"mount --rbind {source} {target}"]
    return [*lines, f"mount -o remount,bind,ro {target}"] if read_only else lines


def _privileges(each: Container) -> str:
    """A command in front of the container's, which takes away what it does not have; the user stays root.

    Another one could not read an interpreter that is in root's home.
    """
    if each.security.get("privileged"):
        return ""
    added = "".join(f",+{name.lower()}" for name in each.security["capabilities"].get("add", ()))
    return f"setpriv --no-new-privs --bounding-set=-all{added} --inh-caps=-all"


def environment(port: int, more: Mapping[str, str] = {}) -> dict[str, str]:
    """Of a container in a cluster whose API server is on a port of the loopback."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(port),
        **more,
    }
