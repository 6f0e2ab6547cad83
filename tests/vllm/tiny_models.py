"""Model folders small enough to make on the spot: a sliding window, and Mamba-2.

One byte is one token, as in the demo's model; a message begins with a special token of its role's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examples.demo.engines import vllm_python
from examples.demo.tiny_model import make_tiny_model

ROLES = ("system", "user", "assistant", "tool")
FIRST_ROLE = 259
"""The token that begins a message of the first role; the others follow."""

_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SHARED = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
    "dtype": "float32",
    "tie_word_embeddings": False,
}
WINDOW = 128
CONFIGS = {
    "sliding window": {
        **_SHARED,
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "head_dim": 32,
        "query_pre_attn_scalar": 32,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "Mamba-2": {
        **_SHARED,
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "model_type": "granitemoehybrid",
        "layer_types": ["mamba", "attention"] * 2,
        "mamba_n_heads": 8,
        "mamba_d_head": 32,
        "mamba_n_groups": 1,
        "mamba_d_state": 32,
        "mamba_d_conv": 4,
        "mamba_expand": 2,
        "mamba_chunk_size": 64,
        "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 256,
        "position_embedding_type": "rope",
    },
}
BLOCKS = {"sliding window": 32, "Mamba-2": 128}
"""Tokens of a block; a state of this Mamba-2 model takes as much as 128 tokens do."""

_PLUGIN = """\
import json, os
from collections import Counter
from dataclasses import replace


def register():
    from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
    from vllm.v1.core.sched.scheduler import Scheduler

    spec_of, free = MambaMixer2.get_kv_cache_spec, Scheduler._free_blocks
    if spec_of.__name__ == "without_checkpoints":
        return

    def without_checkpoints(self, *args, **kwargs):
        return replace(spec_of(self, *args, **kwargs), num_prefill_checkpoint_blocks=0)

    def _free_blocks(self, request):
        free(self, request)
        manager = self.kv_cache_manager
        hashes = [b.block_hash for b in manager.block_pool.blocks if b.block_hash is not None]
        counts = Counter(int.from_bytes(one[-4:], "big") for one in hashes)
        kinds = [type(one).__name__ for one in manager.coordinator.single_type_managers]
        with open(os.environ["TENUTO_LAB"], "w") as file:
            json.dump({kind: counts[group] for group, kind in enumerate(kinds)}, file)

    MambaMixer2.get_kv_cache_spec = without_checkpoints
    if "TENUTO_LAB" in os.environ:
        Scheduler._free_blocks = _free_blocks
"""


_WEIGHTS = """\
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM

folder = sys.argv[1]
torch.manual_seed(1)
model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
with torch.no_grad():
    for weights in model.parameters():
        if weights.ndim > 1:
            weights.mul_(6)
model.save_pretrained(folder)
"""


def write_weights(folder: Path) -> None:
    """Write random weights for the configuration in a folder, which stays as it is."""
    config = folder / "config.json"
    text = config.read_text(encoding="utf-8")
    subprocess.run([vllm_python(), "-c", _WEIGHTS, str(folder)], check=True, capture_output=True)
    config.write_text(text, encoding="utf-8")


def make_hybrid_model(folder: Path, kind: str) -> Path:
    """Write a model with random weights that all tokens depend on; return `folder`.

    vLLM's own dummy weights are so small that a wrong state would change no answer. The weights
    are made where vLLM is installed, since that brings torch and transformers.
    """
    make_tiny_model(folder)
    (folder / "config.json").write_text(json.dumps(CONFIGS[kind]), encoding="utf-8")
    write_weights(folder)
    _rewrite(folder / "tokenizer.json", _with_roles)
    _rewrite(folder / "tokenizer_config.json", lambda told: {**told, "chat_template": _TEMPLATE})
    return folder


def make_plugin(folder: Path) -> Path:
    """Write a plugin of vLLM's for tests alone; return the folder that goes on the path.

    On CPUs vLLM's Mamba-2 kernel keeps no state within a chunk and fails where it is asked for
    one, so none is asked for. With `TENUTO_LAB` naming a file, the blocks that can be found in
    the cache, by the kind of their layers, are written there when a request ends.
    """
    about = folder / "tenuto_lab-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (folder / "tenuto_lab.py").write_text(_PLUGIN, encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tenuto-lab\nVersion: 0\n")
    (about / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ntenuto_lab = tenuto_lab:register\n"
    )
    return folder


def _rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    told = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(told), indent=1), encoding="utf-8")


def _with_roles(told: dict[str, Any]) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    tokens = {f"<|{role}|>": FIRST_ROLE + n for n, role in enumerate(ROLES)}
    told["added_tokens"] += [
        {"id": number, "content": text, "special": True, **flags} for text, number in tokens.items()
    ]
    told["model"]["vocab"] |= tokens
    return told
