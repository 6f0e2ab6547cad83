"""`tenuto-vllm flags`: what a model's configuration tells, and where that is looked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import retention_hybrid
from tenuto_vllm import cli
from tenuto_vllm.flags import advise

OURS = ["--scheduler-cls", "--middleware"]
INTERVAL = "--prefix-cache-retention-interval"
FULL, CHUNKED, WINDOW, LINEAR, NONE = (
    *("full attention", "chunked attention", "sliding window", "linear state", "no cache"),
)
SLIDING = ["sliding_attention"] * 5 + ["full_attention"]
# As the models' own files say it, the keys that matter.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 3": (FULL, {"model_type": "llama", "max_position_embeddings": 131072}),
    "Qwen 2.5": (
        FULL,
        {"model_type": "qwen2", "sliding_window": 131072, "use_sliding_window": False},
    ),
    "Qwen 3": (FULL, {"model_type": "qwen3", "sliding_window": None}),
    "Phi 3": (
        FULL,
        {"model_type": "phi3", "sliding_window": 262144, "max_position_embeddings": 131072},
    ),
    "DeepSeek V3": (
        FULL,
        {"model_type": "deepseek_v3", "kv_lora_rank": 512, "num_nextn_predict_layers": 1},
    ),
    "Granite 4 micro": (
        FULL,
        {"model_type": "granitemoehybrid", "layer_types": ["attention"] * 40},
    ),
    "Llama 4": (
        CHUNKED,
        {"model_type": "llama4", "text_config": {"attention_chunk_size": 8192}},
    ),
    "Mistral 7B 0.1": (
        WINDOW,
        {"model_type": "mistral", "sliding_window": 4096, "max_position_embeddings": 32768},
    ),
    "Gemma 2": (
        WINDOW,
        {"model_type": "gemma2", "sliding_window": 4096, "max_position_embeddings": 8192},
    ),
    "Gemma 3": (
        WINDOW,
        {
            "model_type": "gemma3",
            "text_config": {"model_type": "gemma3_text", "sliding_window": 1024},
        },
    ),
    "gpt-oss": (WINDOW, {"sliding_window": 128, "layer_types": SLIDING}),
    "MiMo V2": (
        WINDOW,
        {"model_type": "mimo_v2_flash", "sliding_window_size": 128, "hybrid_layer_pattern": [0, 1]},
    ),
    "Granite 4": (LINEAR, {"model_type": "granitemoehybrid", "layer_types": ["mamba"] * 9}),
    "Nemotron H": (LINEAR, {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M-M*-"}),
    "Bamba": (LINEAR, {"model_type": "bamba", "architectures": ["BambaForCausalLM"]}),
    "Jamba": (LINEAR, {"model_type": "jamba", "attn_layer_period": 8}),
    "Zamba 2": (LINEAR, {"model_type": "zamba2", "layers_block_type": ["mamba", "hybrid"]}),
    "Falcon H1": (LINEAR, {"model_type": "falcon_h1", "mamba_d_ssm": 3072}),
    "Qwen 3 Next": (LINEAR, {"model_type": "qwen3_next", "full_attention_interval": 4}),
    "Qwen 3.5": (
        LINEAR,
        {
            "model_type": "qwen3_5",
            "text_config": {"layer_types": ["linear_attention"] * 3, "mtp_num_hidden_layers": 1},
        },
    ),
    "MiniMax M1": (LINEAR, {"model_type": "minimax_m1", "attn_type_list": [0, 0, 1]}),
    "MiniMax M2": (FULL, {"model_type": "minimax_m2", "attn_type_list": [1, 1, 1]}),
    "Kimi Linear": (
        LINEAR,
        {"model_type": "kimi_linear", "linear_attn_config": {"num_heads": 32}, "kv_lora_rank": 512},
    ),
    "Mamba 2": (NONE, {"model_type": "mamba2"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_models_kind_is_told_by_its_configuration_and_decides_the_flags(name: str) -> None:
    kind, config = MODELS[name]
    advice = advise(config)
    needed = [flag.name for flag in advice.flags if flag.is_needed]
    assert advice.kind == kind
    if kind == LINEAR:
        assert needed == [*OURS, "--enable-prefix-caching", INTERVAL]
    else:
        assert needed == [*OURS, INTERVAL] if kind == WINDOW else OURS
    assert all(flag.value == "0" for flag in advice.flags if flag.name == INTERVAL)


def notes(name: str) -> str:
    return " ".join(advise(MODELS[name][1]).notes)


def test_what_no_flag_does_is_said_in_words() -> None:
    assert "layers for speculative decoding" in notes("Qwen 3.5")
    assert "layers for speculative decoding" not in notes("Gemma 3")
    assert "boundaries are off" in notes("Gemma 3")
    assert "boundaries" not in notes("DeepSeek V3")
    assert "0.23" in notes("Bamba")
    assert "--block-size alone" in notes("Granite 4")
    assert "refuses" in notes("Llama 3")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KEYS = sorted({key for _, config in MODELS.values() for key in config})


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=6))
def test_any_configuration_gets_an_answer(config: dict[str, Any]) -> None:
    assert [flag.name for flag in advise(config).flags][:2] == OURS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODELS["Gemma 3"][1]))
    return tmp_path / "model"


def test_it_prints_a_command_and_a_reason_for_each_flag(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in (folder, folder / "config.json"):
        assert cli.main(["flags", str(model)]) == 0
        out = capsys.readouterr().out
        command = out.partition("\n\n")[0].replace("\\\n", "").split()
        assert "sliding window of 1024 tokens" in out
        assert command[-9:] == [
            *("vllm", "serve", str(folder), "--scheduler-cls", "tenuto_vllm.TurnScheduler"),
            *("--middleware", "tenuto_vllm.TurnMiddleware", INTERVAL, "0"),
        ]
        assert "optional:" in out


def test_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model in (folder, folder / "config.json"):
        assert cli.main(["flags", "--json", str(model)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["model"], told["kind"]) == (str(folder), WINDOW)
        assert {flag["name"]: flag["value"] for flag in told["flags"]}[INTERVAL] == "0"
        assert all(flag["why"] for flag in told["flags"])


def test_the_advised_events_are_open_to_nobody_on_another_machine() -> None:
    (events,) = (flag for flag in advise({}).flags if flag.name == "--kv-events-config")
    assert json.loads(events.value)["endpoint"] == "tcp://127.0.0.1:5557"
    assert not events.is_needed
    assert "token ids" in events.why


@pytest.mark.parametrize(
    ("variable", "below"),
    [("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")],
)
def test_a_name_is_looked_up_in_the_local_cache(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, below: str
) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "cache"))
    model = tmp_path / "cache" / below / "models--org--a-model"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("0123abc\n")
    (model / "snapshots" / "0123abc").mkdir(parents=True)
    (folder / "config.json").rename(model / "snapshots" / "0123abc" / "config.json")
    assert cli.main(["flags", "org/a-model"]) == 0


@pytest.mark.parametrize(
    ("model", "text", "why"),
    [
        ("org/unknown", None, "nothing is downloaded"),
        ("../../etc", None, "nothing is downloaded"),
        ("model", None, "no config.json"),
        ("model", "{", "cannot be read"),
        ("model", "[" * 100_000, "cannot be read"),
        ("model", "[1]", "no JSON object"),
    ],
)
def test_without_a_configuration_a_sentence_says_where_it_was_looked_for(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    model: str,
    text: str | None,
    why: str,
) -> None:
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HF_HUB_CACHE", str(folder.parent))
    (folder / "config.json").unlink()
    if text is not None:
        (folder / "config.json").write_text(text)
    assert cli.main(["flags", model]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert told.err.startswith("tenuto: ")
    assert why in told.err


def test_the_page_of_hybrid_models_shows_the_stored_figures_and_they_are_what_is_promised() -> None:
    stored = json.loads(retention_hybrid.FILE.read_text("utf-8"))
    page = retention_hybrid.FILE.parents[1] / "hybrid.md"
    assert retention_hybrid.table(stored) in page.read_text("utf-8")
    for kind, told in stored["models"].items():
        block, sides = stored["block_size"][kind], told["settings"]
        assert told["same_answers"]
        assert all(
            case["cached"] == max(0, case["boundary"] - 1) // block * block
            for case in sides["tenuto"]["cases"]
        )
        missed = [
            case["name"]
            for case, ours in zip(
                sides["interval 0"]["cases"], sides["tenuto"]["cases"], strict=True
            )
            if case["cached"] < ours["cached"]
        ]
        assert len(missed) >= 5
