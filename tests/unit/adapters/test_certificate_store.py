"""The certificate of a node on disk."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from multus.adapters.certificate_store import CURRENT, UPDATED, CertificateStore
from multus.errors import IOFailureError, TryAgainLaterError


@pytest.fixture
def store(tmp_path: Path) -> CertificateStore:
    store = CertificateStore(str(tmp_path / "certs"))
    store.prepare()
    return store


def names(store: CertificateStore) -> set[str]:
    return set(os.listdir(os.path.dirname(store.path)))


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def put_dated(store: CertificateStore, year: int) -> str:
    """A file as an earlier certificate has left it."""
    name = f"multus-client-{year}-01-02-03-04-05.pem"
    Path(store.path).with_name(name).write_bytes(b"old")
    return name


def test_what_was_put_is_read(store: CertificateStore) -> None:
    store.replace(b"one")
    assert store.read() == b"one"


def test_files_are_those_of_the_reference(store: CertificateStore) -> None:
    store.replace(b"one")
    target = os.readlink(store.path)
    assert re.fullmatch(r"multus-client-\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d\.pem", target)
    assert (names(store), os.path.basename(store.path)) == ({target, "multus-client-current.pem"}, CURRENT)
    assert (mode(store.path), mode(os.path.dirname(store.path))) == (0o600, 0o755)


def test_the_link_holds_where_the_folder_is_mounted_elsewhere(store: CertificateStore, tmp_path: Path) -> None:
    store.replace(b"one")
    os.rename(tmp_path / "certs", tmp_path / "host")
    assert (tmp_path / "host" / CURRENT).read_bytes() == b"one"


def test_the_one_in_use_and_the_one_before_are_kept(store: CertificateStore) -> None:
    first, second = put_dated(store, 2001), put_dated(store, 2002)
    os.symlink(second, store.path)
    store.replace(b"new")
    assert names(store) == {second, os.readlink(store.path), CURRENT}
    assert first not in names(store)


def test_only_our_files_are_removed(store: CertificateStore) -> None:
    folder = Path(store.path).parent
    for name in ("other.pem", "multus-client-2001.pem", "kubeconfig"):
        (folder / name).write_text("")
    left = f".{put_dated(store, 2001)}.12.ab.tmp"
    (folder / left).write_text("a key that was written half")
    store.replace(b"new")
    assert {"other.pem", "multus-client-2001.pem", "kubeconfig"} < names(store)
    assert left not in names(store)


def test_two_in_one_second_are_fine(store: CertificateStore) -> None:
    for content in (b"one", b"two", b"three"):
        store.replace(content)
        assert store.read() == content


def test_a_replacement_that_was_cut_short_is_finished(store: CertificateStore) -> None:
    os.symlink(put_dated(store, 2001), Path(store.path).with_name(UPDATED))
    store.prepare()
    assert (store.read(), UPDATED in names(store)) == (b"old", False)


def test_a_left_link_beside_a_current_one_changes_nothing(store: CertificateStore) -> None:
    store.replace(b"one")
    os.symlink(put_dated(store, 2001), Path(store.path).with_name(UPDATED))
    store.prepare()
    assert store.read() == b"one"
    store.replace(b"two")
    assert (store.read(), UPDATED in names(store)) == (b"two", False)


def test_none_yet_and_a_file_that_has_gone_are_worth_another_try(store: CertificateStore) -> None:
    with pytest.raises(TryAgainLaterError) as caught:
        store.read()
    assert caught.value.msg.startswith("there is no certificate in ")
    os.symlink("gone.pem", store.path)
    with pytest.raises(TryAgainLaterError) as caught:
        store.read()
    assert caught.value.msg == f"{store.path} leads to a file that is not there"


@pytest.mark.parametrize("name", [CURRENT, UPDATED])
def test_a_file_in_place_of_a_link_is_final_and_stays(store: CertificateStore, name: str) -> None:
    path = Path(store.path).with_name(name)
    path.write_text("somebody's")
    for act in (store.prepare, lambda: store.replace(b"new")):
        with pytest.raises(IOFailureError) as caught:
            act()
        assert caught.value.msg == f"{path} is no symbolic link, as it should be: move it away"
    assert path.read_text() == "somebody's"


def test_a_folder_in_place_of_the_certificate_is_final(store: CertificateStore) -> None:
    os.symlink(".", store.path)
    with pytest.raises(IOFailureError):
        store.read()


def test_what_cannot_be_written_leaves_the_one_before(store: CertificateStore, tmp_path: Path) -> None:
    store.replace(b"one")
    content = Path(store.path).resolve()
    blocked = CertificateStore(str(content))  # a file where the folder should be
    for act in (blocked.prepare, lambda: blocked.replace(b"two")):
        with pytest.raises(IOFailureError) as caught:
            act()
        assert caught.value.msg.startswith("cannot ")
    assert store.read() == b"one"
