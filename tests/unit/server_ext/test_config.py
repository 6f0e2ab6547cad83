"""Settings of the extension: what is read, what is refused, and what is said of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm import cli
from tenuto_vllm.config import TABLE, ConfigError, Settings, read_settings, shown, variable

ROOT = Path(__file__).parents[3]
KEY = "a-key-of-the-operators"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tenuto.toml"


def read(file: Path, text: str, **variables: str) -> Settings:
    file.write_text(text, encoding="utf-8")
    environ = {variable(key): value for key, value in variables.items()}
    return read_settings({"TENUTO_CONFIG": str(file), **environ})[0]


def refusal(*arguments: Any, **variables: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(*arguments, **variables)
    return str(raised.value)


def test_nothing_set_is_the_defaults() -> None:
    empty = dict.fromkeys(map(variable, TABLE), " ")
    for environ in ({}, empty, {"TENUTO_CONFIG": ""}, {"TENUTO_DISABLED": "1"}):
        settings, sources = read_settings(environ)
        assert settings == Settings()
        assert set(sources.values()) == {"default"}


def test_the_table_has_a_row_for_each_field_in_its_order() -> None:
    assert list(TABLE) == list(Settings.__dataclass_fields__)


GOOD = [
    ("trust_rank", "1", True),
    ("trust_rank", "TRUE", True),
    ("trust_rank", " off ", False),
    ("sessions", "1", 1),
    ("sessions", " 007 ", 7),
    ("sessions", "999999999", 999_999_999),
    ("endpoint", "node_1-B", "node_1-B"),
    ("shadow", "on", True),
    ("content", "yes", True),
    ("log", "INFO", "info"),
    ("state_dir", "/run/tenuto", Path("/run/tenuto")),
    ("admin_key", KEY, KEY),
    ("retention", "off", False),
    ("lease_share", "0", 0.0),
    ("lease_share", "1", 1.0),
    ("tenant_share", " .25 ", 0.25),
    ("boundaries", "no", False),
    ("decision_log", "/run/tenuto", Path("/run/tenuto")),
]


@pytest.mark.parametrize(("key", "text", "value"), GOOD)
def test_a_variable_sets_its_field(key: str, text: str, value: Any) -> None:
    settings, sources = read_settings({variable(key): text})
    assert getattr(settings, key) == value
    assert sources[key] == variable(key)


BAD = [
    ("trust_rank", "maybe"),
    ("trust_rank", "2"),
    ("sessions", "0"),
    ("sessions", "-3"),
    ("sessions", "many"),
    ("sessions", "1e3"),
    ("sessions", "٣"),
    ("sessions", "1" * 10),
    ("endpoint", "a.b"),
    ("endpoint", "e" * 41),
    ("log", "loud"),
    ("state_dir", "run/tenuto"),
    ("lease_share", "1.01"),
    ("lease_share", "-0.1"),
    ("lease_share", "nan"),
    ("lease_share", "."),
    ("tenant_share", "90%"),
    ("tenant_share", "1_0"),
    ("decision_log", "decisions"),
]


@pytest.mark.parametrize(("key", "text"), BAD)
def test_a_value_that_is_none_is_refused_with_its_name_and_what_is_allowed(
    file: Path, key: str, text: str
) -> None:
    expected = f"is {text!r}; it must be {TABLE[key].allowed}."
    assert refusal(file, "", **{key: text}) == f"{variable(key)} {expected}"
    assert refusal(file, f'{key} = "{text}"') == f"{key} in {file} {expected}"


@pytest.mark.parametrize("text", ["short", "a key with spaces in it", "k" * 257, "ключ" * 8])
def test_a_bad_secret_is_refused_and_not_shown(file: Path, text: str) -> None:
    said = refusal(file, "", admin_key=text)
    assert said == "TENUTO_ADMIN_KEY cannot be used; it must be 16 to 256 visible ASCII characters."


def test_a_long_value_is_cut_in_its_refusal(file: Path) -> None:
    assert len(refusal(file, "", endpoint="e" * 5_000)) < 200


def test_the_file_is_read_with_values_of_its_own_types_and_the_environment_wins(
    file: Path,
) -> None:
    text = 'trust_rank = true\nsessions = 50\nlog = "info"\nendpoint = ""\n'
    environ = {"TENUTO_CONFIG": str(file), "TENUTO_SESSIONS": "60", "TENUTO_LOG": ""}
    assert read(file, text, sessions="60") == Settings(trust_rank=True, sessions=60, log="info")
    _, sources = read_settings(environ)
    told = {"trust_rank": str(file), "sessions": "TENUTO_SESSIONS", "log": str(file)}
    assert {key: source for key, source in sources.items() if source != "default"} == told


@pytest.mark.parametrize(
    "text", ["sessions = true", "sessions = 1.5", "sessions = [1]", "trust_rank = [true]"]
)
def test_a_value_of_another_type_is_refused(file: Path, text: str) -> None:
    assert f"{text.partition(' ')[0]} in {file} is " in refusal(file, text)


def test_an_unknown_key_is_refused_and_the_known_ones_are_told(file: Path) -> None:
    for text in ("sesions = 5", "[tenuto]\nsessions = 5", "TENUTO_SESSIONS = 5"):
        said = refusal(file, text)
        assert f"in {file} is no setting" in said
        assert all(key in said for key in TABLE)


def test_a_file_that_is_none_is_refused_with_the_reason(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"TENUTO_CONFIG names, cannot be read: No such file"):
        read_settings({"TENUTO_CONFIG": str(file)})
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        read_settings({"TENUTO_CONFIG": str(file.parent)})
    assert re.search(r"is no TOML: .*line 1", refusal(file, "sessions is 5"))
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="no UTF-8 text"):
        read_settings({"TENUTO_CONFIG": str(file)})


def test_the_secret_may_be_in_a_file_of_its_own(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text(f"{KEY}\n")
    settings, sources = read_settings({"TENUTO_ADMIN_KEY_FILE": str(secret)})
    assert (settings.admin_key, sources["admin_key"]) == (KEY, str(secret))
    assert read(file, f'admin_key_file = "{secret}"').admin_key == KEY
    assert "are both set" in refusal(file, f'admin_key_file = "{secret}"', admin_key=KEY)
    secret.write_text("too short")
    said = refusal(file, f'admin_key_file = "{secret}"')
    assert said.startswith(f"The key in {secret} cannot be used; ")
    secret.unlink()
    assert f"{secret}, which {file} names as the file of the admin key, cannot be read" in refusal(
        file, f'admin_key_file = "{secret}"'
    )


def test_a_secret_and_a_path_are_shown_only_as_being_there(tmp_path: Path) -> None:
    settings = Settings(admin_key=KEY, state_dir=tmp_path)
    assert KEY not in repr(settings)
    assert shown(settings)["admin_key"] is True
    assert shown(settings)["state_dir"] is True
    assert shown(Settings())["admin_key"] is False
    assert shown(Settings(sessions=7, log="info")).items() >= {"sessions": 7, "log": "info"}.items()


@given(st.dictionaries(st.sampled_from([*map(variable, TABLE)]), st.text(max_size=50)))
def test_any_environment_gives_settings_or_one_kind_of_error(environ: dict[str, str]) -> None:
    said = ""
    try:
        assert Settings.from_env(environ).sessions >= 1
    except ConfigError as error:
        said = str(error)
    assert "\n" not in said


def test_the_page_has_a_row_with_the_default_of_each_setting_and_none_beside() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    server = page.partition("## In the client")[0]
    rows = re.findall(r"^\| `(TENUTO_[A-Z_]+)` \| (.*?) \| (.*) \|$", server, re.MULTILINE)
    defaults = [(variable(key), _cell(getattr(Settings(), key))) for key in TABLE]
    assert [(name, default) for name, default, _ in rows if name != "TENUTO_CONFIG"] == defaults
    assert all(meaning for _, _, meaning in rows)


def _cell(default: Any) -> str:
    if default is None or default == "":
        return ""
    return f"`{default if isinstance(default, float) else int(default)}`"


def test_the_command_prints_what_is_in_effect_and_where_it_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in map(variable, TABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TENUTO_TRUST_RANK", "yes")
    monkeypatch.setenv("TENUTO_ADMIN_KEY", KEY)
    assert cli.main(["settings"]) == 0
    shown = capsys.readouterr().out
    rows = [line.split() for line in shown.splitlines()]
    assert [row[0] for row in rows] == [variable(key) for key in TABLE]
    assert ["TENUTO_TRUST_RANK", "1", "TENUTO_TRUST_RANK"] in rows
    assert ["TENUTO_SESSIONS", "32768", "default"] in rows
    assert ["TENUTO_ADMIN_KEY", "(hidden)", "TENUTO_ADMIN_KEY"] in rows
    assert KEY not in shown


def test_the_command_fails_with_the_error_of_the_server() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tenuto_vllm.cli", "settings"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TENUTO_SESSIONS": "many"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    allowed = TABLE["sessions"].allowed
    assert done.stderr == f"tenuto: TENUTO_SESSIONS is 'many'; it must be {allowed}.\n"
