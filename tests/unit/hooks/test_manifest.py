"""Plugins are found through the manifest, or by a scan where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from multus.errors import DecodingError, InvalidConfigError, IOFailureError
from multus.hooks import manifest

if TYPE_CHECKING:
    from pathlib import Path

MODULE = """
class Delegate: ...
class Broken:
    def __init__(self):
        raise OSError("no device")
plugin = Delegate()
class nested:
    plugin = "deep"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the module path with a distribution that has entry points of both groups."""
    name = f"f_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_raises.py").write_text("raise RuntimeError('not today')")
    info = tmp_path / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[multus]\naudit = {name}:plugin\nwhole = {name}\n\n[multus.delegates]\nlan = {name}:Delegate\nready = {name}:plugin\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def module_of(site: Path) -> str:
    return next(path.stem for path in site.glob("*.py") if not path.stem.endswith("_raises"))


def written(tmp_path: Path, document: object) -> manifest.Registry:
    path = tmp_path / "plugins.json"
    path.write_text(json.dumps(document))
    return manifest.Registry(str(path))


def test_the_manifest_holds_what_is_installed_by_group_and_name(site: Path) -> None:
    path = site / "etc" / "plugins.json"
    manifest.compile_manifest(str(path))
    groups = json.loads(path.read_bytes())
    name = module_of(site)
    assert groups["multus"].items() >= {"audit": f"{name}:plugin", "whole": name}.items()
    assert groups["multus.delegates"].items() >= {"lan": f"{name}:Delegate", "ready": f"{name}:plugin"}.items()
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_manifest_is_read_without_a_scan(site: Path) -> None:
    path = site / "plugins.json"
    manifest.compile_manifest(str(path))
    code = (
        "import sys; from multus.hooks.manifest import Registry; "
        f"r = Registry({str(path)!r}); found = r.delegate('lan'), r.hook_plugins(['audit']), r.delegate('none'); "
        "print(type(found[0]).__name__, list(found[1]), found[2], 'importlib.metadata' in sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout == "Delegate ['audit'] None False\n"


def test_without_a_manifest_the_installed_distributions_are_scanned(site: Path) -> None:
    registry = manifest.Registry(str(site / "none.json"))
    name = module_of(site)
    module = __import__(name)
    assert type(registry.delegate("lan")) is module.Delegate
    assert registry.all_hook_plugins().items() >= {"audit": module.plugin, "whole": module}.items()


def test_a_delegate_that_is_a_class_is_made_and_one_that_is_an_object_is_taken(site: Path) -> None:
    name = module_of(site)
    targets = {"a": f"{name}:Delegate", "b": f"{name}:plugin", "c": f"{name}:nested.plugin"}
    registry = written(site, {"multus": {}, "multus.delegates": targets})
    module = __import__(name)
    assert (type(registry.delegate("a")), registry.delegate("b"), registry.delegate("c")) == (module.Delegate, module.plugin, "deep")


def test_a_type_that_nobody_serves_has_no_delegate(tmp_path: Path) -> None:
    assert written(tmp_path, {"multus": {}, "multus.delegates": {}}).delegate("lan") is None


def test_a_plugin_that_the_manifest_does_not_know_is_an_error_that_says_what_is_known_and_what_to_do(tmp_path: Path) -> None:
    registry = written(tmp_path, {"multus": {"b": "x", "a": "y"}, "multus.delegates": {}})
    with pytest.raises(InvalidConfigError) as caught:
        registry.hook_plugins(["new"])
    assert caught.value.msg == (
        "plugin 'new' of group 'multus' is not installed; known are: a, b; "
        "after an installation, compile the manifest again: python -m multus.hooks.manifest"
    )


def test_the_error_says_so_when_no_plugin_is_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="known are: none"):
        written(tmp_path, {"multus": {}, "multus.delegates": {}}).hook_plugins(["new"])


@pytest.mark.parametrize(
    ("target", "cause"),
    [
        ("multus_no_such_module:x", "ModuleNotFoundError: No module named 'multus_no_such_module'"),
        ("{name}:missing", "AttributeError: module"),
        ("{name}:nested.missing", "AttributeError: type object"),
        ("{name}_raises:x", "RuntimeError: not today"),
        (":x", "ValueError: Empty module name"),
    ],
)
def test_a_target_that_cannot_be_loaded_is_an_error_that_names_plugin_target_and_cause(site: Path, target: str, cause: str) -> None:
    target = target.replace("{name}", module_of(site))
    registry = written(site, {"multus": {"p": target}, "multus.delegates": {}})
    with pytest.raises(InvalidConfigError) as caught:
        registry.hook_plugins(["p"])
    assert caught.value.msg.startswith(f"plugin 'p' of group 'multus' cannot be loaded from {target!r}: {cause}")


def test_a_delegate_that_cannot_be_made_is_an_error_that_names_type_and_cause(site: Path) -> None:
    registry = written(site, {"multus": {}, "multus.delegates": {"lan": f"{module_of(site)}:Broken"}})
    with pytest.raises(InvalidConfigError, match=r"^delegate 'lan' cannot be made: OSError: no device$"):
        registry.delegate("lan")


@pytest.mark.parametrize("document", [{}, {"multus": []}, {"multus": {"a": 1}}])
def test_a_manifest_of_the_wrong_shape_is_an_error_that_names_it_and_what_to_do(tmp_path: Path, document: object) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        written(tmp_path, document).hook_plugins(["a"])
    assert caught.value.msg == (
        f"plugin manifest {tmp_path / 'plugins.json'}: key 'multus' is no object of strings; "
        "compile it again: python -m multus.hooks.manifest"
    )


def test_a_manifest_that_is_no_json_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "plugins.json").write_text("{")
    with pytest.raises(DecodingError, match=f"^plugin manifest {tmp_path}/plugins.json is not JSON"):
        manifest.Registry(str(tmp_path / "plugins.json")).delegate("lan")


def test_a_manifest_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(IOFailureError, match=f"^plugin manifest {tmp_path} cannot be read: Is a directory$"):
        manifest.Registry(str(tmp_path)).delegate("lan")


def test_the_manifest_is_read_once(tmp_path: Path) -> None:
    registry = written(tmp_path, {"multus": {}, "multus.delegates": {}})
    registry.delegate("lan")
    (tmp_path / "plugins.json").unlink()
    assert registry.delegate("wan") is None


def test_a_registry_of_no_path_reads_the_manifest_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, {"multus": {"here": "os"}, "multus.delegates": {}})
    monkeypatch.setenv("MULTUS_PLUGIN_MANIFEST", str(tmp_path / "plugins.json"))
    assert manifest.Registry().all_hook_plugins() == {"here": os}


def test_the_manifest_lies_in_the_environment_unless_the_variable_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MULTUS_PLUGIN_MANIFEST", raising=False)
    assert manifest.default_path() == f"{sys.prefix}/etc/multus/plugins.json"
    monkeypatch.setenv("MULTUS_PLUGIN_MANIFEST", "/x.json")
    assert manifest.default_path() == "/x.json"


def test_the_command_prints_the_path_of_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MULTUS_PLUGIN_MANIFEST", "plugins.json")
    manifest.main()
    assert (capsys.readouterr(), (tmp_path / "plugins.json").exists()) == (("plugins.json\n", ""), True)


def test_the_command_fails_with_one_line_when_it_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MULTUS_PLUGIN_MANIFEST", str(tmp_path / "file" / "plugins.json"))
    with pytest.raises(SystemExit) as caught:
        manifest.main()
    assert caught.value.code == f"plugin manifest {tmp_path}/file/plugins.json cannot be written: File exists"


def test_a_failing_command_exits_with_1_and_says_why_on_standard_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {**os.environ, "MULTUS_PLUGIN_MANIFEST": str(tmp_path / "file" / "x"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-m", "multus.hooks.manifest"], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
