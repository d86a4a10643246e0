"""The documentation says what the code does: keys, errors, hooks, fields; its examples are valid and its links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from multus import errors
from multus.adapters import server
from multus.adapters.metrics import Metrics
from multus.commands import daemon, entrypoint_flags, gauges, install, kubeconfig, shim
from multus.core import derive, primary
from multus.hooks import manager, manifest, spec
from multus.protocol import annotations as pod_annotations
from multus.protocol import conflists, daemon_config, multus_config, primary_settings
from multus.testing import conformance, laws
from multus.types.certificates import CertificateSettings
from multus.types.config import ConfList, MultusConfig
from multus.types.daemon import DaemonConfig
from multus.types.delegate import Delegate
from multus.types.primary import PrimarySettings
from multus.types.selection import NetworkSelectionElement

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), ROOT / "tests" / "README.md", ROOT / "tests" / "e2e" / "README.md"])
READ_BY_OTHERS = {"type", "capabilities", "ipam", "dns"}
"""Keys of a Multus configuration that only the container runtime reads."""


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of the same or a higher level."""
    level = len(heading) - len(heading.lstrip("#"))
    _, found, rest = f"\n{text}".partition(f"\n{heading}\n")
    assert found, f"no section {heading!r}"
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """The names in backquotes in the first column of a text's tables."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def blocks(language: str) -> list[Any]:
    """The code blocks of a language on all pages, as parameters named by page and line."""
    found = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(rf"^( *)```{language}\n(.*?)^ *```$", text, flags=re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            found.append(pytest.param(textwrap.dedent(match[2]), id=f"{path.relative_to(ROOT)}:{line}"))
    return found


def loader_keys() -> set[str]:
    """The keys that the loader looks for, read from its source: a key that only the documentation or a table knows would not count."""
    tree = ast.parse(inspect.getsource(multus_config))
    asked: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("given.get", "lowered.get"):
            prefix = "logoptions." if ast.unparse(node.func) == "lowered.get" else ""
            asked.add(prefix + str(ast.literal_eval(node.args[0])))
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "given" and isinstance(node.left, ast.Constant):
            asked.add(str(node.left.value))
    return asked | set(multus_config._FIELDS) | set(multus_config._CHOICES)


# --- Installation ---


@pytest.mark.parametrize(
    ("heading", "parser"), [("## install_multus", install.parser()), ("## thin_entrypoint", entrypoint_flags.parser())]
)
def test_every_flag_is_documented_with_its_default(heading: str, parser: argparse.ArgumentParser) -> None:
    rows = [line.split("|")[1:3] for line in section(page("installation.md"), heading).splitlines() if line.startswith("| `-")]
    documented = {flag: default.strip().strip("`") for names, default in rows for flag in re.findall(r"`(-[^`]+)`", names)}
    shown = {True: "true", False: "false", "": "empty"}
    defaults = {
        flag: "" if action.dest in ("help", "type", "uninstall") else shown.get(action.default, str(action.default))
        for action in parser._actions
        for flag in action.option_strings
    }
    defaults.update({"--host-dir": "--dest-dir` without a leading `/host"} if "--host-dir" in defaults else {})
    assert defaults == documented


# --- Configuration ---


def test_every_configuration_key_is_documented_and_none_is_made_up() -> None:
    documented = first_cells(section(page("configuration.md"), "## Keys"))
    assert sorted(key.lower() for key in documented) == sorted(loader_keys())


def test_documented_keys_are_spelled_as_the_loader_spells_them() -> None:
    """The spelling wins over another one beside it, so it matters."""
    documented = first_cells(section(page("configuration.md"), "## Keys"))
    special = {key for key in documented if key.startswith(("logOptions.", "cni.dev/"))}
    assert set(documented) - special == set(multus_config._SPELLINGS)


@pytest.mark.parametrize("key", first_cells(section(page("configuration.md"), "### Keys of our own")))
def test_own_key_is_described_with_its_default(key: str) -> None:
    row = next(line for line in page("configuration.md").splitlines() if line.startswith(f"| `{key}` |"))
    spelled = re.sub("(?<!^)(?=[A-Z])", "_", key.replace("ID", "Id")).lower()
    fields = MultusConfig._field_defaults
    default = fields[{"api_deadline": "api_deadline_s"}.get(spelled, spelled)]
    shown = row.split("|")[3].strip().strip("`")
    assert shown == str({(): "none", False: "false", 30.0: "30"}.get(default, default))


DAEMON = "## The daemon's configuration file"
SAID_OTHERWISE = {
    "connectionLimit": "twice the processors, at least 4",
    "apiServerPort": "`443`",
    "multusAutoconfigDir": "`cniConfigDir`",
    "cniVersion": "the primary's",
    "logLevel": "`panic`",
    "logOptions": "see above",
}
"""Keys of the daemon whose default is no value of a field."""


def daemon_fields() -> dict[str, str]:
    """The keys that the daemon reads for itself and for the configuration it generates, with the default of each as the page shows it."""
    fields = {
        **{spelling: DaemonConfig._field_defaults[field] for spelling, field in daemon_config._TEXTS.values()},
        **{spelling: DaemonConfig._field_defaults[field] for spelling, field, *_ in daemon_config._NUMBERS.values()},
        **{spelling: DaemonConfig._field_defaults[field] for spelling, field, *_ in daemon_config._SECONDS.values()},
        **{spelling: PrimarySettings._field_defaults[field] for spelling, (field, _) in primary_settings._FIELDS.items()},
        "enablePprof": DaemonConfig._field_defaults["debug_endpoints"],
        "capabilities": PrimarySettings._field_defaults["capabilities"],
        "logToStderr": daemon_config.DEFAULT_LOG.to_stderr,
        "logFile": daemon_config.DEFAULT_LOG.file,
        **{
            f"perNodeCertificate.{key}": CertificateSettings._field_defaults[field]
            for key, field in daemon_config._CERTIFICATE_TEXTS.items()
        },
        "perNodeCertificate.enabled": False,
        **dict.fromkeys(("kubeconfig", "apiServerHost", "perNodeCertificate", "daemonSocketDir", "shimDeadline", "shimTimeout")),
    }
    shown = {key: "none" if value in (None, "", {}) and value is not False else f"`{_plain(value)}`" for key, value in fields.items()}
    return {**shown, **SAID_OTHERWISE}


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def daemon_rows() -> dict[str, str]:
    """The keys on the page, with the default of each."""
    rows = [line.split("|") for line in section(page("configuration.md"), DAEMON).splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): row[3].strip() for row in rows}


def test_every_key_of_the_daemon_is_documented_with_its_default_and_none_is_made_up() -> None:
    assert daemon_rows() == daemon_fields()


def test_every_key_that_the_daemon_knows_is_on_the_page() -> None:
    """Also those that it only lays over requests or hands on: they are keys of the thin plugin or of the shim."""
    known = daemon_config._PASSED_ON | daemon_config._OWN | daemon_config._TEXTS.keys() | daemon_config._NUMBERS.keys()
    documented = {*daemon_rows(), *first_cells(section(page("configuration.md"), "## Keys")), *READ_BY_OTHERS, *shim_keys()}
    assert sorted((known | daemon_config._SECONDS.keys()) - {key.lower() for key in documented}) == []


def test_keys_that_stand_in_the_generated_file_are_listed() -> None:
    text = section(page("configuration.md"), "### The generated file").rpartition("unless they are empty or false:")[2]
    assert set(re.findall(r"`(\w+)`", text)) == set(primary_settings._PASSED)


def test_generated_file_is_what_the_daemon_makes_of_the_example() -> None:
    text = section(page("configuration.md"), "### The generated file")
    given, cluster, generated = (json.loads(match) for match in re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL))
    settings = primary_settings.from_document(given, "example")
    conf = conflists.parse(cluster, where="example", default_name="")
    assert primary.generate(conf, settings, "/host/etc/cni/net.d/10-main.conflist") == generated


def shim_keys() -> set[str]:
    """The keys that the shim looks for, read from its source."""
    asked = {"logLevel"}  # looked for without a check
    for node in ast.walk(ast.parse(inspect.getsource(shim))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("_text", "_seconds"):
            asked.add(str(ast.literal_eval(node.args[1])))
    return asked


def test_every_key_of_the_shim_is_documented_and_none_is_made_up() -> None:
    assert set(first_cells(section(page("configuration.md"), "## The shim's keys"))) == shim_keys()


def test_times_of_the_shim_are_documented_as_they_are() -> None:
    text = section(page("configuration.md"), "## The shim's keys")
    assert f"| `shimDeadline` | number | `{shim.WAIT_S:g}` |" in text
    assert f"| `shimTimeout` | number | `{shim.LIMIT_S:g}` |" in text


@pytest.mark.parametrize("text", blocks("json"))
def test_json_example_is_valid(text: str) -> None:
    """A configuration loads and has no unknown key, a list of selections is a valid annotation."""
    document = json.loads(text)
    if isinstance(document, dict) and document.get("type") in conflists.OWN_TYPES:
        multus_config.from_document(document)
        assert {key.lower() for key in document} <= loader_keys() | READ_BY_OTHERS
    elif isinstance(document, dict) and "socketDir" in document:
        assert daemon_config.from_document(document, "example", 2).warnings == ()
        primary_settings.from_document(document, "example")
    elif isinstance(document, dict) and "plugins" in document:
        assert conflists.parse(document, where="example", default_name="").plugins
    elif isinstance(document, list):
        assert len(pod_annotations.parse_selections(text, "networks", "default")) == len(document)
    else:
        assert document["code"] in [cls.code for cls in error_classes()]


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_example_is_valid(text: str) -> None:
    for document in yaml.safe_load_all(text):
        if document["kind"] == "NetworkAttachmentDefinition":
            conf = conflists.parse(json.loads(document["spec"]["config"]), where="example", default_name=document["metadata"]["name"])
            assert conf.plugins
        wanted = document["metadata"].get("annotations", {}).get("k8s.v1.cni.cncf.io/networks", "")
        assert bool(pod_annotations.parse_selections(wanted, "networks", "default")) == bool(wanted)


@pytest.mark.parametrize("text", blocks("python"))
def test_python_example_compiles(text: str) -> None:
    compile(text, "example", "exec")


@pytest.mark.parametrize("text", [each for each in blocks("python") if "hookimpl" in each.values[0]])
def test_hook_example_fits_the_specification(text: str) -> None:
    """Hook names and arguments are those of the specification."""
    hooks = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name.startswith("multus_")]
    assert hooks
    for hook in hooks:
        assert {argument.arg for argument in hook.args.args} <= set(inspect.signature(getattr(spec, hook.name)).parameters)


def test_every_field_of_a_selection_is_documented_and_none_is_made_up() -> None:
    documented = first_cells(section(page("configuration.md"), "### Networks annotation"))
    assert sorted(documented) == sorted(spelling for spelling, *_ in pod_annotations._KEYS.values())


def test_every_field_of_a_status_is_documented() -> None:
    documented = first_cells(section(page("configuration.md"), "### Network-status annotation"))
    written = {
        "name", "interface", "ips", "mac", "mtu", "default", "dns", "device-info", "gateway", "default-route",
    }  # fmt: skip
    assert set(documented) == written


def test_every_capability_is_documented() -> None:
    selection = NetworkSelectionElement(
        "n", "d", ips=("192.0.2.1",), mac="m", infiniband_guid="g", port_mappings=({"hostPort": 1},), bandwidth={"ingressRate": 1}
    )
    delegate = Delegate("n", ConfList({}, "n", "1.0.0", (), is_list=False), selection, device_id="d")
    given = set(derive.capability_args(delegate, {}, "/file"))
    assert given <= set(first_cells(section(page("configuration.md"), "## Capabilities")))


def test_our_environment_variables_and_groups_are_documented() -> None:
    documented = first_cells(section(page("configuration.md"), "## Environment variables"))
    assert {manifest.PATH_VARIABLE, manager.DISABLED_VARIABLE} <= set(documented)
    assert {manifest.HOOK_GROUP, manifest.DELEGATE_GROUP} == set(first_cells(section(page("hooks.md"), "## Finding and loading")))


# --- Errors ---


def error_classes() -> list[type[errors.MultusError]]:
    return [cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, errors.MultusError)]


def test_every_error_class_is_documented_with_its_code_and_none_is_made_up() -> None:
    rows = re.findall(r"^\| ([\w ]+) \| `(\w+)` \|", section(page("errors.md"), "## Codes"), flags=re.MULTILINE)
    documented = {name: code for code, name in rows}
    expected = {cls.__name__: "its own" if cls is errors.DelegateError else str(cls.code) for cls in error_classes()}
    assert documented == expected


def test_reasons_of_events_are_documented() -> None:
    modules = ("core/attach.py", "core/delegates.py", "defaults/reporting.py")
    sources = "".join((ROOT / "multus" / name).read_text(encoding="utf-8") for name in modules)
    reasons = set(re.findall(r'"((?:[A-Z][a-z]+){2,})"', sources))
    assert reasons == set(first_cells(section(page("configuration.md"), "## Events")))


# --- The daemon ---


def metrics() -> dict[str, tuple[str, ...]]:
    """The daemon's own metrics, by the name that is read, with their labels: its counters, and what it watches."""
    found = {}
    for each in vars(Metrics()).values():
        if hasattr(each, "describe"):
            (family,) = each.describe()
            found[family.name + ("_total" if family.type == "counter" else "")] = each._labelnames
    for node in (each for module in (daemon, gauges) for each in ast.walk(ast.parse(inspect.getsource(module)))):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("metrics.watch", "metrics.watch_each"):
            values = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            found[str(values[0])] = tuple(map(str, values[2:]))
    return found


def test_every_metric_is_documented_with_its_labels_and_none_is_made_up() -> None:
    rows = [line.split("|") for line in section(page("thick.md"), "## Metrics").splitlines() if line.startswith("| `")]
    assert {row[1].strip(" `"): tuple(re.findall(r"`(\w+)`", row[3])) for row in rows} == metrics()


def test_limits_of_the_socket_are_documented_as_they_are() -> None:
    rows = [line.split("|")[2].strip() for line in section(page("thick.md"), "### Limits").splitlines() if line.startswith("| ")][2:]
    assert rows == [
        f"{server.BODY_MAX >> 20} MiB; the shim takes {shim.MAX_STDIN_BYTES >> 20} MiB of standard input",
        f"{shim.MAX_ANSWER_BYTES >> 20} MiB, for the shim",
        f"{server.READ_TIMEOUT_S:g} s",
        f"{server.WRITE_TIMEOUT_S:g} s",
        str(server._READERS_MAX),
        str(server.BACKLOG),
    ]


def test_deadlines_are_documented_as_they_are() -> None:
    rows = re.findall(r"^\| `(\w+)`, (\d+) s \|", section(page("thick.md"), "## Queue, order and deadlines"), flags=re.MULTILINE)
    default = {**DaemonConfig._field_defaults, **MultusConfig._field_defaults}
    fields = [re.sub("(?=[A-Z])", "_", key).lower() + "_s" for key, _ in rows]
    assert [seconds for _, seconds in rows] == [f"{default[field]:g}" for field in fields]
    assert len(rows) == 4


def test_exit_statuses_of_the_daemon_are_documented() -> None:
    rows = re.findall(r"^\| (\d) \|", section(page("thick.md"), "## Stop and restart"), flags=re.MULTILINE)
    assert rows == ["0", *map(str, sorted((daemon.EXIT_CONFIG, daemon.EXIT_PRIMARY, daemon.EXIT_SERVER)))]


# --- Certificates ---


def test_flags_of_the_kubeconfig_generator_are_documented_with_their_defaults() -> None:
    rows = [line.split("|") for line in section(page("certificates.md"), "## The thin plugin").splitlines() if line.startswith("| `")]
    documented = {row[1].strip().replace("`", ""): row[2].strip(" `") for row in rows}
    given = {", ".join(action.option_strings): action.default for action in kubeconfig.parser()._actions}
    assert documented == {**given, "--host-certdir": "as `--certdir", "-h, --help": "\u2013"}


# --- Hooks ---


def hook_names() -> list[str]:
    return [name for name, _ in inspect.getmembers(spec, inspect.isfunction) if name.startswith("multus_")]


@pytest.mark.parametrize("name", hook_names())
def test_hook_has_a_section_with_its_signature_and_an_example(name: str) -> None:
    text = section(page("hooks.md"), f"## {name}")
    signature = f"{name}({', '.join(inspect.signature(getattr(spec, name)).parameters)})"
    assert signature in text
    for part in ("**When.**", "**Returns.**", "**Exceptions.**", "**Default.**", f"def {name}("):
        assert part in text, part


def test_no_hook_is_made_up() -> None:
    assert set(re.findall(r"\bmultus_(?:select|resolve|invoke|merge|report)_\w+", page("hooks.md"))) == set(hook_names())


# --- Delegates ---


def public_modules() -> list[str]:
    return first_cells(section(page("writing-delegates.md"), "### What is public"))


def is_public(module: str) -> bool:
    return any(f"{module}.".startswith(f"{name}.") for name in public_modules())


def imports_of(text: str) -> set[str]:
    """The modules of Multus that a source imports, as far as they can be told from names in them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module == "multus":
            found |= {f"multus.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] == "multus"}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*-*/**/*.py")), ids=lambda path: path.name)
def test_an_example_imports_what_is_public_alone(path: Path) -> None:
    assert [name for name in sorted(imports_of(path.read_text(encoding="utf-8"))) if not is_public(name)] == []


def test_what_is_public_can_be_imported() -> None:
    assert {"multus.errors", "multus.hooks.delegates", "multus.netns"} <= set(public_modules())
    for name in public_modules():
        importlib.import_module(name)


def test_every_law_of_the_conformance_kit_is_documented_and_none_is_made_up() -> None:
    text = section(page("writing-delegates.md"), "## Testing")
    rows = re.findall(r"^\| `(\w+)`.* \| ([A-Z]+) \|$", text, flags=re.MULTILINE)
    assert rows == [(law.__name__, verb) for law, verb in laws.LAWS]


def test_every_argument_of_a_suite_is_documented_and_none_is_made_up() -> None:
    text = section(page("writing-delegates.md"), "## Testing")
    known = {law.__name__ for law, _ in laws.LAWS}
    documented = [name for name in re.findall(r"^\| `(\w+)` \| ", text, flags=re.MULTILINE) if name not in known]
    assert documented == list(inspect.signature(conformance.suite).parameters)[2:]


# --- Pages ---


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        found = (path.parent / target).resolve() if target else path
        assert found.exists(), link
        if anchor:
            assert anchor in anchors(found), link


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_are_named_exist(path: Path) -> None:
    """Scripts, benchmarks, modules and folders of this repository in backquotes or commands."""
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.<-])((?:scripts|benchmarks|examples|tests|plugins)/[\w./-]*\w)", text))
    named |= {f"multus/{name}" for name in re.findall(r"`((?:core|protocol|adapters|hooks|types|commands|defaults)/\w+\.py)`", text)}
    missing = sorted(name for name in named if not (ROOT / name).exists() and not (path.parent / name).exists())
    assert missing == []


def test_every_decision_is_listed_and_has_its_parts() -> None:
    pages = sorted((DOCS / "decisions").glob("0*.md"))
    index = page("decisions/README.md")
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert f"]({path.name})" in index, path.name
        for part in ("Status: accepted", "## Context", "## Decision", "## Consequences", "## Turned down"):
            assert part in text, f"{path.name}: {part}"
    assert [int(path.name[:4]) for path in pages] == list(range(1, len(pages) + 1))


def test_changelog_fragments_are_named_by_their_kind() -> None:
    names = [path.name for path in (DOCS / "changelog").glob("*.md") if path.name != "README.md"]
    assert [name for name in names if not re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed|removed)\.md", name)] == []
