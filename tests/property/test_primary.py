"""Laws of the primary configuration and ours, on any configuration."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from multus.core import primary
from multus.core.repairs import MANY, WINDOW_S, Repairs
from multus.errors import InvalidConfigError, MultusError
from multus.protocol import conflists, documents, multus_config
from multus.protocol.primary_settings import from_document
from multus.testing import strategies
from multus.types.primary import Candidate, PrimarySettings

Document: TypeAlias = dict[str, Any]

NETWORKS = strategies.conflists() | strategies.single_plugin_confs()
CONFS = NETWORKS.map(lambda document: conflists.parse(document, where="x"))
OWN_TYPES = st.sampled_from(("multus", "multus-shim"))
HOLDERS = st.sampled_from(("plugins", "delegates", "Delegates"))
PATH = "/etc/cni/net.d/10-a.conf"


@given(NETWORKS)
def test_no_network_of_others_is_ours(document: dict[str, Any]) -> None:
    assert not primary.is_own(document)


@given(NETWORKS, OWN_TYPES, st.lists(st.tuples(HOLDERS, st.integers(0, 2), NETWORKS), max_size=4))
def test_what_holds_one_of_ours_is_ours_however_deep(document: Document, own: str, around: list[tuple[str, int, Document]]) -> None:
    inner: dict[str, Any] = {**document, "type": own}
    for key, position, outer in around:
        members = [{"type": "bridge"}] * 2
        members.insert(position, inner)
        inner = {**{name: value for name, value in outer.items() if name.lower() != key.lower()}, key: members}
    assert primary.is_own(inner)


@given(CONFS, strategies.multus_configs(), st.booleans())
def test_what_is_generated_is_readable_ours_and_of_the_primary(conf: Any, daemon: dict[str, Any], override: bool) -> None:
    settings = from_document({**daemon, "overrideNetworkName": override, "type": "multus-shim", "capabilities": {"mac": True}}, "d.json")
    document = primary.generate(conf, settings, PATH)
    assert documents.loads(documents.dumps(document), "x") == document
    assert primary.is_own(document)
    config = multus_config.from_document(document)
    assert (config.cluster_network, config.cni_version) == (PATH, daemon.get("cniVersion") or conf.cni_version or "0.1.0")
    assert config.name == (conf.name if override else "multus-cni-network")
    declared = {name for name, value in document["capabilities"].items() if value}  # type: ignore[attr-defined]
    assert declared == conf.capabilities | {"mac"}
    assert document.keys() <= set(daemon) | {"capabilities", "cniVersion", "name", "clusterNetwork", "type"}


@given(strategies.damaged(NETWORKS))
def test_a_damaged_network_is_wrapped_or_refused_and_never_crashes(document: Any) -> None:
    if not isinstance(document, dict):
        return
    primary.is_own(document)
    try:
        conf = conflists.parse(document, where=PATH)
        generated = primary.generate(conf, PrimarySettings(override_network_name=True), PATH)
    except MultusError:
        return
    assert multus_config.load(documents.dumps(generated).encode()).cluster_network == PATH


@given(strategies.damaged(strategies.multus_configs()))
def test_any_daemon_configuration_is_settings_or_an_error_that_names_the_file(document: Any) -> None:
    if not isinstance(document, dict):
        return
    said = ""
    try:
        from_document(document, "d.json")
    except MultusError as exc:
        said = exc.msg
    assert said == "" or said.startswith("d.json: ")


@given(st.dictionaries(st.integers(0, 99), st.sampled_from(("valid", "own", "broken"))), st.integers(0, 99))
def test_the_choice_is_valid_never_ours_and_nothing_valid_comes_before_it(files: dict[int, str], present: int) -> None:
    conf = conflists.parse({"name": "a", "type": "bridge"}, where="x")
    found = [
        Candidate(f"/{number:02}.conf", conf if kind == "valid" else None, kind == "own", "broken" if kind == "broken" else "")
        for number, kind in sorted(files.items())
    ]
    current = f"/{present:02}.conf"
    others = [candidate for candidate in found if not candidate.is_own]
    try:
        choice = primary.choose(found, current, "/")
    except InvalidConfigError:
        assert not others or others[0].conf is None
        return
    assert choice.path in {candidate.path for candidate in others if candidate.conf is not None}
    assert choice.path == (others[0].path if others[0].conf is not None else current)


@given(st.lists(st.text(max_size=12)))
def test_the_order_of_candidates_is_that_of_their_bytes_however_they_are_listed(names: list[str]) -> None:
    names = [f"{name}.conf" for name in names if "\0" not in name and name.isprintable()]
    assert list(primary.candidates(reversed(names))) == sorted(names, key=str.encode)


@given(st.lists(st.floats(0, 200), max_size=60))
def test_repairs_never_come_faster_than_five_a_minute_and_then_two_seconds_apart(pauses: list[float]) -> None:
    repairs, now, done = Repairs(), 0.0, []
    for pause in pauses:
        now += pause
        now += repairs.due_in(now)
        repairs.note(now)
        done.append(now)
    for first, last in zip(done, done[MANY:], strict=False):
        assert last - first >= min(2.0, WINDOW_S) - 1e-6
