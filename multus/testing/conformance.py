"""A delegate, binary or in-process, tried against the CNI specification with generated configurations.

In a test file of the delegate's author; root and iproute2 are needed, else the tests skip::

    TestDummy = conformance.suite(conformance.InProcess("dummy", Dummy()), st.just({}))
    TestBridge = conformance.suite(conformance.Binary("/opt/cni/bin/bridge"), st.builds(dict, bridge=st.just("br0")), stays=["bridge"])

From a shell, one configuration::

    python -m multus.testing.conformance /opt/cni/bin/bridge bridge.json --stays bridge
    python -m multus.testing.conformance multus_dummy:Dummy dummy.json
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multus.adapters.guard import Guard
from multus.defaults.execution import InProcessExecution
from multus.errors import MultusError
from multus.protocol import versions
from multus.protocol.documents import load_object
from multus.testing import laws, strategies
from multus.testing.fakes import FakePrograms, FakeRegistry, RecordingLog
from multus.testing.pods import PLUGIN_FOLDER, Answer
from multus.types.config import ConfList, MultusConfig
from multus.types.delegate import Delegate
from multus.types.invocation import CNICommand, Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from hypothesis.strategies import SearchStrategy

    from multus.testing.laws import Law, Subject
    from multus.testing.pods import Namespace, Pod

_WITH_POD = frozenset((CNICommand.ADD, CNICommand.DEL, CNICommand.CHECK))
_CONFIG = MultusConfig("conformance", delegate_preference="in-process")


class Binary:
    """A CNI binary.

    Args:
        plugin_folder: For the IPAM plugins that it calls.
    """

    def __init__(self, path: str, plugin_folder: str = PLUGIN_FOLDER) -> None:
        self.type = os.path.basename(path)
        self._path = path
        self._plugin_folder = plugin_folder

    def call(self, pod: Pod, verb: str, config: Mapping[str, Any]) -> Answer:
        return pod.call(self._path, verb, config, plugin_folder=self._plugin_folder)


class InProcess:
    """A Python object, called as Multus calls it.

    An exception that is no class of ``multus.errors``, a change of the configuration that it is given, and anything
    that it leaves changed in its thread, is a violation as well.
    """

    def __init__(self, delegate_type: str, delegate: object, plugin_folder: str = PLUGIN_FOLDER) -> None:
        self.type = delegate_type
        self._log = RecordingLog()
        guard = Guard(self._log)
        self._execution = InProcessExecution(FakeRegistry({delegate_type: delegate}), FakePrograms(), lambda: guard, self._log)
        self._plugin_folder = plugin_folder

    def call(self, pod: Pod, verb: str, config: Mapping[str, Any]) -> Answer:
        command, before = CNICommand(verb), json.dumps(config)
        invocation = Invocation(command, self.type, config, path=(self._plugin_folder,))
        if command in _WITH_POD:
            args = pod.environment(verb)["CNI_ARGS"]
            invocation = invocation._replace(container_id=pod.container_id, netns=pod.path, ifname=pod.ifname, generic_args=args)
        delegate = Delegate(self.type, ConfList(config, str(config["name"]), str(config["cniVersion"]), (), is_list=False))
        try:
            outcome = self._execution.multus_invoke_delegate(invocation, delegate, _CONFIG)
        except MultusError as exc:
            cause = exc.__cause__
            if cause is not None and not isinstance(cause, MultusError) and "the in-process delegate failed" in exc.msg:
                raise laws.Violation(f"{verb} raised {type(cause).__name__}, which is no error of CNI: {cause}") from cause
            answer = Answer(1, exc.document(str(config["cniVersion"])), "")
        else:
            result = outcome.result if outcome is not None else None
            answer = Answer(0, None if result is None else json.loads(json.dumps(result.document)), "")
        left = [fields for _, event, fields in self._log.lines if event == "guard.put_back"]
        laws.require(not left, f"{verb} left something changed: {left}")
        laws.require(json.dumps(config) == before, f"{verb} changed the configuration that it was given")
        return answer


def suite(
    subject: Binary | InProcess,
    configs: SearchStrategy[dict[str, Any]],
    *,
    prepare: Callable[[Namespace], object] | None = None,
    stays: Collection[str] = (),
    also: Callable[[], object] = lambda: None,
    cni_versions: Sequence[str] = versions.SUPPORTED,
    without: Collection[Law] = (),
    examples: int = 5,
) -> type:
    """A class of tests, one for each law: name it ``Test…`` in a file that pytest collects.

    Args:
        configs: Configurations that the delegate serves, without ``cniVersion``, ``name`` and ``type``.
        prepare, stays, also: See ``multus.testing.laws.Trial``.
        cni_versions: Those that the delegate knows.
        without: Laws that it is not bound to.
        examples: Configurations for each law.
    """

    def test_of(law: Law, verb: str) -> Callable[..., None]:
        known = [each for each in reversed(cni_versions) if versions.allows(verb, each)]
        is_damaged = law is laws.a_damaged_configuration_does_no_damage

        @settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
        @given(strategies.damaged(configs) if is_damaged else configs, st.sampled_from(known))
        def test(_: object, config: Any, version: str) -> None:
            named = config if isinstance(config, dict) else {}
            complete = {**named, "cniVersion": version, "name": "conformance", "type": subject.type}
            with laws.Trial(subject, complete, prepare, stays, also) as trial:
                law(trial)

        test.__name__ = f"test_{law.__name__}"
        test.__doc__ = law.__doc__
        return test

    chosen = [(law, verb) for law, verb in laws.LAWS if law not in without and any(versions.allows(verb, each) for each in cni_versions)]
    tests: dict[str, Any] = {f"test_{law.__name__}": test_of(law, verb) for law, verb in chosen}
    tests["pytestmark"] = [pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")]
    return type(f"TestConformanceOf{subject.type}", (), tests)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a delegate with one configuration, and print each law with its outcome; the exit status: 1 if one was broken."""
    parser = argparse.ArgumentParser(prog="python -m multus.testing.conformance", description="Try a delegate against the specification.")
    parser.add_argument("delegate", help="path of a CNI plugin, or module:attribute of an in-process delegate")
    parser.add_argument("config", help="path of a configuration, with its cniVersion")
    parser.add_argument("--prepare", default="true", metavar="COMMAND", help="shell command that makes what the network needs on the node")
    parser.add_argument("--stays", action="append", default=[], metavar="KIND", help="a kind of links that may stay on the node after DEL")
    options = parser.parse_args(arguments)
    subject = _subject(options.delegate)
    with open(options.config, encoding="utf-8") as file:
        config = {"name": "conformance", "type": subject.type, "cniVersion": versions.DEFAULT, **load_object(file.read(), options.config)}
    return _print_outcomes(subject, config, lambda node: node.run("sh", "-c", options.prepare), options.stays)


def _subject(name: str) -> Binary | InProcess:
    if ":" not in name:
        return Binary(os.path.abspath(name))
    found = pkgutil.resolve_name(name)
    return InProcess(name.rpartition(":")[2].lower(), found() if isinstance(found, type) else found)


def _print_outcomes(
    subject: Subject, config: Mapping[str, Any], prepare: Callable[[Namespace], object], stays: Collection[str]
) -> int:
    broken = 0
    for law, verb in laws.LAWS:
        outcome = "ok"
        if law is laws.a_damaged_configuration_does_no_damage or not versions.allows(verb, str(config["cniVersion"])):
            continue
        try:
            with laws.Trial(subject, config, prepare, stays) as trial:
                law(trial)
        except laws.Violation as exc:
            outcome = f"BROKEN: {exc}"
            broken += 1
        print(f"{law.__name__.replace('_', ' '):<40} {outcome}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
