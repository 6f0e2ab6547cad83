"""What the two distributions promise to whoever installs them."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import tenuto
import tenuto_vllm

ROOT = Path(__file__).parents[2]
_TOOLS = (
    *("trace", "results", "recording", "replay", "simulate", "compare", "report"),
    *("conformance", "cli"),
)
MIRRORED = ("_wire.py", "_structured.py")


@pytest.mark.parametrize("name", MIRRORED)
def test_both_packages_carry_the_same_bytes_of_the_protocol(name: str) -> None:
    client = (ROOT / "sdk/src/tenuto" / name).read_bytes()
    server = (ROOT / "server_ext/src/tenuto_vllm" / name).read_bytes()
    assert client == server


def test_one_check_alone_is_loaded_by_another_program_of_itself() -> None:
    # vLLM loads every installed `vllm.general_plugins` entry point in every process, and
    # pytest every `pytest11`. A console script is loaded by nobody but its user.
    points = {
        (point.group, point.value)
        for name in ("tenuto", "tenuto-vllm")
        for point in importlib.metadata.distribution(name).entry_points
    }
    others = {point for point in points if point[0] != "console_scripts"}
    assert others == {("vllm.general_plugins", "tenuto_vllm.plugin:check")}


@pytest.mark.parametrize("package", [tenuto, tenuto_vllm])
def test_every_public_name_is_there_and_documented(package: object) -> None:
    reference = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name).__doc__
        assert f"`{package.__name__}.{name}" in reference  # type: ignore[attr-defined]


def modules_after(statement: str) -> set[str]:
    code = f"import sys, json; {statement}; print(json.dumps(list(sys.modules)))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(answer.stdout))


def test_import_tenuto_loads_no_tool_no_framework_and_no_part_of_the_server() -> None:
    loaded = modules_after("import tenuto")
    tools = {f"tenuto.{room}" for room in _TOOLS}
    assert not loaded & (tools | {"tenuto_vllm", "langgraph", "agents", "uvicorn"})


def test_the_extension_loads_nothing_but_the_standard_library() -> None:
    extra = modules_after("import tenuto_vllm") - modules_after("pass")
    outside = {name.split(".")[0] for name in extra} - set(sys.stdlib_module_names)
    assert outside - {"tenuto_vllm"} == set()


def test_both_wheels_install_and_import_in_a_clean_environment(tmp_path: Path) -> None:
    def run(*command: str | Path) -> str:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=300, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT / "sdk")
    run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT / "server_ext"
    )
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", *tmp_path.glob("*.whl"))
    code = "import tenuto, tenuto_vllm; print(tenuto.__version__, tenuto_vllm.__version__)"
    versions = run(python, "-W", "error", "-c", code).split()
    assert versions == [tenuto.__version__, tenuto_vllm.__version__]
    assert versions == [importlib.metadata.version(name) for name in ("tenuto", "tenuto-vllm")]
