"""Where the install key comes from, and what happens where it cannot be had."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tenuto import install_key as room
from tenuto.install_key import install_key


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TENUTO_KEY", "TENUTO_KEY_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    room._remembered.cache_clear()


def key_afresh() -> bytes:
    room._remembered.cache_clear()
    return install_key()


def test_the_file_named_is_used_with_a_tilde_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TENUTO_KEY_FILE", "~/secrets/mine")
    key = key_afresh()
    assert (tmp_path / "secrets" / "mine").is_file()
    assert key_afresh() == key


def test_a_relative_configuration_folder_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    key_afresh()
    assert (tmp_path / ".config" / "tenuto" / "key").is_file()


def test_a_file_system_without_links_gets_one_private_key_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setenv("TENUTO_KEY_FILE", str(tmp_path / "key"))
    key = key_afresh()
    assert key_afresh() == key
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_full_disk_leaves_no_empty_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def __init__(self, descriptor: int, mode: str) -> None:
            self._file = os.fdopen(descriptor, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, _: bytes) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(room, "os", SimpleNamespace(**{**vars(os), "fdopen": Full}))
    monkeypatch.setenv("TENUTO_KEY_FILE", str(tmp_path / "key"))
    key_afresh()
    assert list(tmp_path.iterdir()) == []
    assert "No space left" in caplog.text


@pytest.mark.parametrize("kind", ["folder", "pipe", "empty", "short", "no folder"])
def test_an_unusable_file_gives_a_key_for_the_process_and_one_warning(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "key"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "empty":
            path.touch()
        case "short":
            path.write_bytes(b"fifteen bytes..")
        case _:
            (tmp_path / "file").touch()
            path = tmp_path / "file" / "key"
    monkeypatch.setenv("TENUTO_KEY_FILE", str(path))
    assert key_afresh() == install_key() == install_key()
    assert [record.message.count("no install key") for record in caplog.records] == [1]


def test_threads_at_first_use_agree_on_the_key_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENUTO_KEY_FILE", str(tmp_path))
    start, keys = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        keys.append(install_key())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(keys)) == 1
