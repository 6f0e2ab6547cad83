"""`tenuto-vllm flags --role`: what a model's shape tells of prefill and decode apart."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm import cli
from tenuto_vllm.flags import Advice, Side, advise

from .models import DENSE, EXPERTS, LATENT, LINEAR, WINDOW

TENSOR, DATA, EXPERT = "--tensor-parallel-size", "--data-parallel-size", "--enable-expert-parallel"
BATCH, SEQUENCES = "--max-num-batched-tokens", "--max-num-seqs"
HYBRID = "--no-disable-hybrid-kv-cache-manager"
CONNECTOR = "--kv-transfer-config"


def needed(advice: Advice) -> dict[str, str]:
    return {flag.name: flag.value for flag in advice.flags if flag.is_needed}


def asked(config: dict[str, Any], role: Any, gpus: int | None = None, **more: Any) -> Advice:
    return advise(config, Side(role, gpus, **more))


@pytest.mark.parametrize(
    ("config", "role", "gpus", "spread"),
    [
        (DENSE, "prefill", None, {TENSOR: "8"}),
        (DENSE, "decode", 4, {TENSOR: "4"}),
        (DENSE, "decode", 6, {TENSOR: "2"}),
        (DENSE, "decode", 16, {TENSOR: "8"}),
        (DENSE | {"num_key_value_heads": 3}, "decode", 8, {TENSOR: "1"}),
        (EXPERTS, "decode", None, {TENSOR: "4"}),
        (EXPERTS, "decode", 4, {TENSOR: "4"}),
        (EXPERTS, "prefill", 8, {TENSOR: "4", DATA: "2", EXPERT: ""}),
        (LATENT, "prefill", 16, {TENSOR: "8", DATA: "2", EXPERT: ""}),
        (LATENT, "decode", 16, {TENSOR: "1", DATA: "16", EXPERT: ""}),
        (LATENT, "decode", None, {TENSOR: "1"}),
        (LATENT | {"n_routed_experts": 0}, "decode", 4, {TENSOR: "1"}),
        # A state's layers are split, and its blocks have to be as large on both sides.
        (LINEAR | {"kv_lora_rank": 512}, "prefill", 8, {TENSOR: "8"}),
        (LINEAR | {"kv_lora_rank": 512}, "decode", 8, {TENSOR: "8"}),
    ],
)
def test_no_rank_holds_the_cache_that_another_holds(
    config: dict[str, Any], role: str, gpus: int | None, spread: dict[str, str]
) -> None:
    advice = asked(config, role, gpus)
    told = needed(advice)
    assert {name: told[name] for name in (TENSOR, DATA, EXPERT) if name in told} == spread
    assert any("--gpus N" in note for note in advice.notes) == (gpus is None)


def test_gpus_beyond_the_kv_heads_of_a_dense_model_are_more_servers() -> None:
    assert any("16 GPUs hold 2 such servers" in note for note in asked(DENSE, "decode", 16).notes)


def test_a_decode_servers_chunk_is_the_largest_that_delays_the_others_little() -> None:
    def chunk(config: dict[str, Any], gpus: int) -> tuple[int, int]:
        told = needed(asked(config, "decode", gpus))
        return int(told[BATCH]), int(told[SEQUENCES])

    # 2 * 68 billion weights and 4 * 64 * 128 * 80 FLOPs for each of 65,536 tokens: 309 GFLOP.
    assert chunk(DENSE, 8) == (512, 256)
    assert chunk(DENSE, 1) == (256, 128)
    assert chunk(EXPERTS, 4) == (1024, 512)
    assert chunk(WINDOW, 8) == (2048, 1024)
    (why,) = (flag.why for flag in asked(DENSE, "decode", 8).flags if flag.name == BATCH)
    assert "309 GFLOP a token (137 for the weights" in why
    assert "49 ms" in why
    assert "above the 50 ms" in str(asked(DENSE, "decode", 1).flags)


@pytest.mark.parametrize(
    ("config", "flops"),
    [
        (LATENT, "399 GFLOP a token (71"),
        (LATENT | {"index_topk": 2048}, "81 GFLOP a token (71"),
        (EXPERTS, "57 GFLOP a token (5"),
        # One layer in four attends to everything.
        (LINEAR, "18 GFLOP a token (5"),
        (WINDOW, "19 GFLOP a token (6"),
    ],
)
def test_what_a_token_costs_follows_the_layers(config: dict[str, Any], flops: str) -> None:
    (why,) = (flag.why for flag in asked(config, "decode").flags if flag.name == BATCH)
    assert flops in why


def test_a_prefill_servers_chunk_fills_the_experts() -> None:
    sizes = [int(needed(asked(one, "prefill"))[BATCH]) for one in (DENSE, EXPERTS, LATENT)]
    assert sizes == [8192, 8192, 16384]
    sparse = EXPERTS | {"num_experts": 4096, "num_experts_per_tok": 1}
    assert needed(asked(sparse, "prefill"))[BATCH] == "32768"
    assert SEQUENCES not in needed(asked(DENSE, "prefill"))


def connector(role: str, **more: Any) -> dict[str, Any]:
    return json.loads(needed(asked(DENSE, role, **more))[CONNECTOR])


def test_the_connector_is_told_its_role_and_what_happens_after_a_failed_transfer() -> None:
    assert connector("prefill") == {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
    assert connector("decode") == {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_consumer",
        "kv_load_failure_policy": "fail",
    }


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_both_sides_are_told_the_lease_and_that_transfers_go_both_ways(role: str) -> None:
    told = connector(role, is_bidirectional=True, lease_s=60)
    assert told["kv_connector_extra_config"] == {
        "bidirectional_kv_xfer": True,
        "kv_lease_duration": 60,
    }
    # Either fetches.
    assert told["kv_load_failure_policy"] == "fail"
    whys = " ".join(flag.why for flag in asked(DENSE, role, lease_s=60).flags)
    assert "pd --lease 60" in whys


def test_states_and_windows_are_moved_as_they_are() -> None:
    for config in (LINEAR, WINDOW):
        assert HYBRID in needed(asked(config, "decode"))
    assert HYBRID not in needed(asked(DENSE, "decode"))
    layouts = {flag.name: flag.value for flag in asked(LINEAR, "prefill").environment}
    assert layouts["VLLM_SSM_CONV_STATE_LAYOUT"] == "DS"
    assert "VLLM_SSM_CONV_STATE_LAYOUT" not in str(asked(WINDOW, "prefill").environment)
    assert "same --tensor-parallel-size" in " ".join(asked(LINEAR, "decode").notes)
    assert "--block-size" not in {flag.name for flag in asked(LINEAR, "decode").flags}


def test_blocks_are_of_one_size_only_where_the_sides_would_differ() -> None:
    for config, size in ((DENSE, "16"), (WINDOW, "16"), (LATENT, "64")):
        (block,) = (one for one in asked(config, "decode").flags if one.name == "--block-size")
        assert (block.value, block.is_needed) == (size, False)


def test_two_servers_of_one_host_ask_at_different_ports() -> None:
    ports = {
        flag.value
        for role in ("prefill", "decode")
        for flag in asked(DENSE, role).environment
        if flag.name.endswith("_PORT")
    }
    assert len(ports) == 2


def test_what_a_configuration_does_not_tell_is_not_guessed() -> None:
    advice = asked({"model_type": "llama"}, "decode")
    assert TENSOR not in needed(advice)
    assert needed(advice)[BATCH] == "1024"
    assert "no number of heads" in " ".join(advice.notes)
    jamba = {"model_type": "jamba", "num_attention_heads": 32, "num_key_value_heads": 8}
    assert needed(asked(jamba, "decode"))[BATCH] == "1024"


anything = st.none() | st.booleans() | st.integers(-5, 1 << 40) | st.text(max_size=4)
KEYS = sorted({key for one in (DENSE, EXPERTS, LATENT, LINEAR, WINDOW) for key in one})


@given(
    st.dictionaries(st.sampled_from(KEYS), anything | st.lists(anything, max_size=3)),
    st.builds(
        Side,
        st.sampled_from(("prefill", "decode")),
        st.none() | st.integers(1, 100),
        st.booleans(),
        st.none() | st.integers(6, 600),
    ),
)
def test_any_configuration_gets_an_answer_that_uses_no_more_gpus(
    config: dict[str, Any], side: Side
) -> None:
    told = needed(advise(config, side))
    assert int(told.get(TENSOR, 1)) * int(told.get(DATA, 1)) <= (side.gpus or 8)
    assert int(told[BATCH]) >= 2 * int(told.get(SEQUENCES, 1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a model").mkdir()
    (tmp_path / "a model" / "config.json").write_text(json.dumps(DENSE))
    return tmp_path / "a model"


def test_the_command_can_be_given_to_a_shell(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--role", "decode", "--gpus", "8", "--bidirectional", "--lease", "60"]
    assert cli.main(["flags", str(folder), *options]) == 0
    out = capsys.readouterr().out
    words = shlex.split(out.partition("\n\n")[0].partition("\n")[2].replace("\\\n", ""))
    assert words[:2] == ["PYTHONHASHSEED=0", "VLLM_NIXL_SIDE_CHANNEL_PORT=5700"]
    assert words[2:5] == ["vllm", "serve", str(folder)]
    extra = json.loads(words[words.index(CONNECTOR) + 1])["kv_connector_extra_config"]
    assert extra == {"bidirectional_kv_xfer": True, "kv_lease_duration": 60}
    assert out.startswith("# decode: full attention\n")
    assert "VLLM_NIXL_SIDE_CHANNEL_HOST=ADDRESS\n    optional: " in out


def test_the_same_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["flags", "--json", str(folder), "--role", "prefill"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["role"] == "prefill"
    for words in (told["flags"], told["environment"]):
        assert all(word["name"] and word["why"] for word in words)
    assert cli.main(["flags", "--json", str(folder)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["role"], told["environment"]) == (None, [])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--gpus", "8"], "--gpus tells of a server for prefill or decode: add --role"),
        (["--bidirectional"], "--bidirectional tells"),
        (["--lease", "60"], "--lease tells"),
        (["--role", "decode", "--gpus", "0"], "--gpus is above 0"),
        (["--role", "decode", "--lease", "5"], "--lease is at least 6"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_with_a_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    assert cli.main(["flags", str(folder), *options]) == 2
    told = capsys.readouterr()
    assert not told.out
    assert why in told.err


def test_a_model_without_a_cached_prefix_stays_in_one_place(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "mamba2"}))
    assert cli.main(["flags", str(folder), "--role", "decode"]) == 2
    assert "no turn is ever warm" in capsys.readouterr().err
