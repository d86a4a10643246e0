#!/usr/bin/env python3
"""Run black-box scenarios against a multus binary and compare with what is expected.

    run.py --multus PATH [--record] [-k WORD] scenarios/*.json
    run.py --shim PATH --daemon 'CMD ... --config {config}' scenarios/*.json

A scenario file is a list of scenarios; README.md beside this file gives the format.  Each step is one CNI
invocation; what is compared is what a container runtime, a delegate and a cluster user can see:
exit status and stdout, the delegates' calls in order, the pod's network-status annotation, the events,
the interfaces' default routes, and which scratch files remain.  Needs root (network namespaces) and iproute2.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from kubeapi import KubeAPI  # noqa: E402

FAKE = Path(__file__).with_name("fakecni.py")
INCLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
STATUS = "k8s.v1.cni.cncf.io/network-status"


def substitute(value, table):
    if isinstance(value, str):
        for key, replacement in table.items():
            value = value.replace(key, replacement)
        return value
    if isinstance(value, list):
        return [substitute(v, table) for v in value]
    if isinstance(value, dict):
        return {substitute(k, table): substitute(v, table) for k, v in value.items()}
    return value


class World:
    """One scenario's folder, API server, namespaces and fake delegates."""

    def __init__(self, scenario: dict, under_test: argparse.Namespace):
        self.scenario, self.tool = scenario, under_test
        self.dir = Path(tempfile.mkdtemp(prefix="mconf-"))
        self.bin = self.dir / "bin"
        self.bin.mkdir()
        for sub in ("net.d", "multus.d", "run", "cache", "devinfo"):
            (self.dir / sub).mkdir()
        self.api = KubeAPI(*(self.certificate() if under_test.daemon else ())).__enter__()
        self.netns = f"mconf{os.getpid() % 10000}"
        self.table = {"${DIR}": str(self.dir), "${NETNS}": f"/var/run/netns/{self.netns}"}
        self.daemon = None

    def up(self):
        s = self.scenario
        subprocess.run(["ip", "netns", "add", self.netns], check=True)
        for link in s.get("existingLinks", []):
            subprocess.run(["ip", "-n", self.netns, "link", "add", link, "type", "veth", "peer", "name", "p" + link], check=True)
        types = set(s.get("delegates", {})) | set(s.get("types", []))
        for name in types - set(s.get("absentTypes", [])):
            shutil.copy(FAKE, self.bin / name)
        (self.dir / "delegates.json").write_text(json.dumps(substitute(s.get("delegates", {}), self.table)))
        for rel, content in s.get("files", {}).items():
            path = self.dir / rel
            path.parent.mkdir(parents=True, exist_ok=True)
            content = substitute(content, self.table)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        for pod in s.get("pods", []):
            pod = json.loads(json.dumps(pod))
            pod["metadata"].setdefault("namespace", "default")
            pod["metadata"].setdefault("uid", "uid-" + pod["metadata"]["name"])
            pod.setdefault("spec", {}).setdefault("nodeName", "node-a")
            pod["spec"].setdefault("containers", [{"name": "c", "image": "i"}])
            pod.setdefault("status", {"phase": "Pending"})
            self.api.store.put("pods", substitute(pod, self.table))
        for nad in s.get("nads", []):
            nad = json.loads(json.dumps(nad))
            nad["metadata"].setdefault("namespace", "default")
            if isinstance(nad.get("spec", {}).get("config"), (dict, list)):
                nad["spec"]["config"] = json.dumps(nad["spec"]["config"])
            self.api.store.put("network-attachment-definitions", substitute(nad, self.table))
        self.api.store.faults = json.loads(json.dumps(s.get("apiFaults", [])))
        self.kubeconfig = self.api.kubeconfig(self.dir / "kubeconfig")
        self.table["${KUBECONFIG}"] = self.kubeconfig
        if self.tool.daemon:
            self.start_daemon()

    def certificate(self):
        """A self-signed pair for the API server; a daemon reads in-cluster credentials, as in a real pod."""
        cert, key = self.dir / "api.crt", self.dir / "api.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
        INCLUSTER.mkdir(parents=True, exist_ok=True)
        (INCLUSTER / "token").write_text("test-token")
        (INCLUSTER / "ca.crt").write_text(cert.read_text())
        return str(cert), str(key)

    def start_daemon(self):
        netconf = substitute(self.scenario["netconf"], self.table)
        config = {k: v for k, v in netconf.items() if k not in ("type", "name", "kubeconfig")}
        config.update(self.scenario.get("daemonConfig", {}))
        config = substitute({"socketDir": "${DIR}/run", "multusConfigFile": "${DIR}/multus.d/none.conf", "cniConfigDir": "${DIR}/multus.d",
                             "multusAutoconfigDir": "${DIR}/multus.d", "logLevel": "error", "logToStderr": True, **config}, self.table)
        (self.dir / "multus.d/none.conf").write_text("{}")
        path = self.dir / "daemon-config.json"
        path.write_text(json.dumps(config))
        host, port = self.api.url.split("//")[1].split(":")
        env = {**os.environ, "MULTUS_NODE_NAME": "node-a", "CNI_PATH": str(self.bin), "KUBERNETES_SERVICE_HOST": host,
               "KUBERNETES_SERVICE_PORT": port, "KUBECONFIG": self.kubeconfig}
        self.log = open(self.dir / "daemon.log", "wb")
        self.daemon = subprocess.Popen(shlex.split(self.tool.daemon.format(config=path, kubeconfig=self.kubeconfig)), env=env,
                                       stdout=self.log, stderr=self.log)
        for _ in range(200):
            if (self.dir / "run/multus.sock").exists():
                break
            time.sleep(0.05)

    def step(self, step: dict) -> dict:
        if "sleep" in step:
            time.sleep(step["sleep"])
        for change in step.get("before", []):
            self.change(change)
        calls = self.dir / "calls.jsonl"
        calls.write_text("")
        netconf = substitute({**self.scenario["netconf"], **step.get("netconf", {})}, self.table)
        for key in step.get("dropKeys", []):
            netconf.pop(key, None)
        stdin = substitute(step["stdin"], self.table) if "stdin" in step else json.dumps(netconf)
        pod = step.get("pod", "pod-a")
        default_args = (f"IgnoreUnknown=1;K8S_POD_NAMESPACE={step.get('namespace', 'default')};K8S_POD_NAME={pod};"
                        f"K8S_POD_INFRA_CONTAINER_ID={step.get('containerID', 'cid-1')};K8S_POD_UID={step.get('uid', 'uid-' + pod)}")
        env = {k: v for k, v in os.environ.items() if not k.startswith("CNI_")}
        env.update({"CNI_COMMAND": step["command"], "CNI_CONTAINERID": step.get("containerID", "cid-1"),
                    "CNI_NETNS": substitute(step.get("netns", "${NETNS}"), self.table), "CNI_IFNAME": step.get("ifName", "eth0"),
                    "CNI_PATH": substitute(step.get("path", str(self.bin)), self.table), "CNI_ARGS": step.get("args", default_args)})
        for key in step.get("unsetEnv", []):
            env.pop(key, None)
        env.update(substitute(step.get("env", {}), self.table))
        binary = self.tool.shim or self.tool.multus
        if self.tool.shim:
            try:
                config = json.loads(stdin)
            except ValueError:
                config = None  # the shim is to refuse it
            if isinstance(config, dict):
                config.setdefault("daemonSocketDir", str(self.dir / "run"))
                stdin = json.dumps(config)
        start = time.perf_counter()
        done = subprocess.run(shlex.split(binary), input=stdin.encode(), env=env, capture_output=True, timeout=60)
        elapsed = time.perf_counter() - start
        time.sleep(0.05)
        wanted = step.get("expect", {}).get("events")
        for _ in range(40 if self.tool.daemon else 0):  # a daemon sends events after its answer
            if self.events() == wanted:
                break
            time.sleep(0.05)
        return self.observe(done, calls, elapsed)

    def events(self) -> list:
        """What was announced as attached; warnings are each implementation's own."""
        seen = {(o.get("reason", ""), o.get("message") or o.get("note") or "") for (r, _, _), o in self.api.store.objects.items() if r == "events"}
        return [list(e) for e in sorted(seen) if e[0] == "AddedInterface"]

    def change(self, change: dict):
        kind, value = next(iter(change.items()))
        value = substitute(value, self.table)
        if kind == "deletePod":
            self.api.store.delete("pods", value.get("namespace", "default"), value["name"])
        elif kind == "deleteNad":
            self.api.store.delete("network-attachment-definitions", value.get("namespace", "default"), value["name"])
        elif kind == "delegates":
            (self.dir / "delegates.json").write_text(json.dumps(value))
        elif kind == "write":
            for rel, content in value.items():
                (self.dir / rel).parent.mkdir(parents=True, exist_ok=True)
                (self.dir / rel).write_text(content if isinstance(content, str) else json.dumps(content))
        elif kind == "remove":
            (self.dir / value).unlink()
        elif kind == "deleteNetns":
            subprocess.run(["ip", "netns", "del", self.netns], check=True)
        elif kind == "faults":
            self.api.store.faults = value
        if self.tool.daemon:
            time.sleep(0.6)

    def observe(self, done, calls: Path, elapsed: float) -> dict:
        back = {v: k for k, v in sorted(self.table.items(), key=lambda kv: -len(kv[1]))}
        try:
            stdout = json.loads(done.stdout) if done.stdout.strip() else None
        except ValueError:
            stdout = {"unparsable": done.stdout.decode(errors="replace")}
        seen = {"exit": done.returncode, "stdout": stdout,
                "calls": [json.loads(line) for line in calls.read_text().splitlines()]}
        pods = [o for (r, _, _), o in self.api.store.objects.items() if r == "pods"]
        statuses = {}
        for pod in pods:
            text = pod["metadata"].get("annotations", {}).get(STATUS)
            if text is not None:
                try:
                    statuses[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = json.loads(text)
                except ValueError:
                    statuses[pod["metadata"]["name"]] = text
        seen["networkStatus"] = statuses
        cache = self.dir / "cache"
        seen["scratch"] = sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file())
        if self.scenario.get("observeRoutes"):
            routes = []
            for family in ("-4", "-6"):
                out = subprocess.run(["ip", "-j", family, "-n", self.netns, "route", "show", "default"], capture_output=True, text=True)
                routes += [{"family": family, "dev": r.get("dev"), "via": r.get("gateway")} for r in json.loads(out.stdout or "[]")]
            seen["defaultRoutes"] = sorted(routes, key=json.dumps)
        seen["events"] = self.events()
        self.stderr, self.elapsed = done.stderr.decode(errors="replace"), elapsed
        return substitute(seen, back)

    def down(self):
        if self.daemon:
            self.daemon.terminate()
            try:
                self.daemon.wait(10)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
        self.api.__exit__()
        subprocess.run(["ip", "netns", "del", self.netns], capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


def normalise(value):
    """What may differ without a user noticing: key order, CNI_PATH, empty optional members."""
    if isinstance(value, dict):
        drop = {"CNI_PATH"}
        return {k: normalise(v) for k, v in sorted(value.items()) if k not in drop and v not in (None, [], {}, "")}
    if isinstance(value, list):
        return [normalise(v) for v in value]
    return value


def split_args(text: str) -> dict:
    """CNI_ARGS as a runtime reads them: the last value of a key counts; IgnoreUnknown is a matter of form."""
    pairs = dict(item.partition("=")[::2] for item in filter(None, text.split(";")))
    pairs.pop("IgnoreUnknown", None)
    return pairs


def compare(expected: dict, seen: dict, loose: list[str], any_order: bool = False) -> list[str]:
    out = []
    for key, want in expected.items():
        if key in loose or key == "note":
            continue
        have = seen.get(key)
        if key == "stdout" and isinstance(want, dict) and "code" in want:
            if not isinstance(have, dict) or have.get("code") is None:
                out.append(f"stdout: expected a CNI error, got {have!r}")
            elif want["code"] != 999 and want["code"] != have["code"]:
                out.append(f"stdout: expected error code {want['code']}, got {have!r}")
            for word in expected.get("errorContains", []):
                if word not in json.dumps(have):
                    out.append(f"stdout: error does not mention {word!r}: {have!r}")
            continue
        if key in ("errorContains",):
            continue
        if key == "exit":
            if bool(want) != bool(have):
                out.append(f"exit: expected {want}, got {have}")
            continue
        if key == "calls":
            want, have = [dict(c) for c in want], [dict(c) for c in have or []]
            for c in want + have:
                if "CNI_ARGS" in c:
                    c["CNI_ARGS"] = split_args(c["CNI_ARGS"])
                c.pop("CNI_NETNS_OVERRIDE", None)
            if any_order:
                want, have = (sorted(map(normalise, v), key=json.dumps) for v in (want, have))
        if normalise(want) != normalise(have):
            out.append(f"{key}: expected {json.dumps(normalise(want))}\n{' ' * len(key)}       got {json.dumps(normalise(have))}")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--multus", help="thin binary (a command line)")
    parser.add_argument("--shim", help="thick: the shim (a command line)")
    parser.add_argument("--daemon", help="thick: the daemon's command line; {config} and {kubeconfig} are filled in")
    parser.add_argument("--record", action="store_true", help="write what was seen into the files as the expectation")
    parser.add_argument("-k", metavar="WORD", help="only scenarios whose id has WORD")
    parser.add_argument("-v", action="store_true", help="print what was seen")
    opts = parser.parse_args()
    if not opts.multus and not (opts.shim and opts.daemon):
        parser.error("give --multus, or --shim with --daemon")
    passed = failed = 0
    for file in opts.files:
        scenarios = json.loads(file.read_text())
        for scenario in scenarios:
            if opts.k and opts.k not in scenario["id"]:
                continue
            if opts.daemon and scenario.get("thinOnly") or opts.multus and scenario.get("thickOnly"):
                continue
            world = World(scenario, opts)
            problems = []
            try:
                world.up()
                for index, step in enumerate(scenario["steps"]):
                    seen = world.step(step)
                    if opts.v:
                        print(json.dumps(seen, indent=1), world.stderr[-1500:])
                    if opts.record:
                        keep = step.get("expect", {})
                        step["expect"] = {**seen, **{k: keep[k] for k in ("note", "errorContains") if k in keep}}
                    else:
                        problems += [f"step {index + 1} {step['command']}: {p}" for p in compare(step.get("expect", {}), seen, step.get("loose", []), step.get("anyOrder", False))]
            except Exception as error:  # a broken scenario must not hide the others
                problems.append(f"{type(error).__name__}: {error}")
            finally:
                if problems and world.daemon:
                    problems.append("daemon log: " + (world.dir / "daemon.log").read_text()[-600:])
                world.down()
            if problems:
                failed += 1
                print(f"FAIL {file.name} {scenario['id']}")
                for problem in problems:
                    print("   ", problem)
            else:
                passed += 1
                if not opts.k:
                    print(f"ok   {scenario['id']}") if opts.v else None
        if opts.record:
            file.write_text(json.dumps(scenarios, indent=1, ensure_ascii=False) + "\n")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
