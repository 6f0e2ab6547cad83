"""What `tenuto-vllm flags --role` prints, read by vLLM's own parser and configurations."""

from __future__ import annotations

import json
import shlex
import subprocess

from examples.demo.engines import vllm_python
from tenuto_vllm import cli
from tests.unit.server_ext.models import DENSE, EXPERTS, LATENT, LINEAR, WINDOW

MODELS = {"dense": DENSE, "experts": EXPERTS, "MLA": LATENT, "linear": LINEAR, "window": WINDOW}

PARSE = """\
import json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

for words in json.loads(sys.argv[1]):
    told = make_arg_parser(FlexibleArgumentParser()).parse_args(words)
    validate_parsed_serve_args(told)
    transfer = told.kv_transfer_config
    print(json.dumps([
        transfer.kv_connector, transfer.kv_role, transfer.kv_load_failure_policy,
        transfer.kv_connector_extra_config, told.middleware, told.enable_prompt_tokens_details,
        told.tensor_parallel_size, told.data_parallel_size, told.enable_expert_parallel,
        told.max_num_batched_tokens >= (told.max_num_seqs or 1),
        told.disable_hybrid_kv_cache_manager, told.long_prefill_token_threshold,
    ]))
"""


def commands(folder, capsys, *options):
    """Return what is printed for each model, split as a shell does, without `vllm serve`."""
    lines = []
    for config in MODELS.values():
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
        assert cli.main(["flags", str(folder), *options]) == 0
        out = capsys.readouterr().out
        words = shlex.split(out.partition("\n\n")[0].partition("\n")[2].replace("\\\n", ""))
        lines.append(words[words.index("serve") + 1 :])
    return lines


def test_vllm_takes_the_flags_that_are_advised_for_a_role(tmp_path, capsys):
    options = ("--gpus", "8", "--bidirectional", "--lease", "60", "--role")
    lines = [
        line
        for role in ("prefill", "decode")
        for line in commands(tmp_path, capsys, *options, role)
    ]
    command = [vllm_python(), "-c", PARSE, json.dumps(lines)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    told = [json.loads(line) for line in ended.stdout.splitlines()[-len(lines) :]]
    extra = {"bidirectional_kv_xfer": True, "kv_lease_duration": 60}
    connectors = [
        ["NixlConnector", role, "fail", extra, ["tenuto_vllm.TurnMiddleware"], True]
        for role in ("kv_producer", "kv_consumer")
        for _ in MODELS
    ]
    assert [each[:6] for each in told] == connectors
    prefill = [[8, 1, False], [4, 2, True], [8, 1, False], [2, 4, True], [8, 1, False]]
    decode = [[8, 1, False], [4, 2, True], [1, 8, True], [2, 4, True], [8, 1, False]]
    assert [each[6:9] for each in told] == prefill + decode
    assert all(each[9] for each in told)
    assert [each[10] for each in told] == [None, None, None, False, False] * 2
    assert all(each[11] == 0 for each in told)
