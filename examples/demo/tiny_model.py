"""A model folder small enough to make on the spot: one byte is one token."""

from __future__ import annotations

import json
from pathlib import Path

from tenuto_vllm.embedded.tokens import CHAT_TEMPLATE

MAX_POSITIONS = 32768
_SPECIALS = ("<s>", "</s>", "<pad>")
_BOS, _EOS, _PAD = 256, 257, 258

_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "use_cache": True,
    "bos_token_id": _BOS,
    "eos_token_id": _EOS,
    "pad_token_id": _PAD,
    "dtype": "float32",
}


def make_tiny_model(folder: Path) -> Path:
    r"""Write a two-layer Llama without weights that vLLM can serve.

    Serve it with `--load-format dummy`. Every UTF-8 byte of a prompt is one
    token whose id is the byte's value, and no token is added in front, so
    `len(text.encode())` is the token count of a rendered prompt. Needs no
    tokenizer library; a second call writes the same bytes again.

    Args:
        folder: where the files go; made when missing.

    Returns:
        `folder`, with config.json, tokenizer.json and tokenizer_config.json.

    Raises:
        OSError: when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        "config.json": _CONFIG,
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": _SPECIALS[0],
            "eos_token": _SPECIALS[1],
            "pad_token": _SPECIALS[2],
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "model_max_length": MAX_POSITIONS,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return folder


def _tokenizer() -> dict[str, object]:
    """Return tokenizer.json: byte-level BPE with an empty list of merges."""
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 256 + n, "content": content, "special": True, **flags}
            for n, content in enumerate(_SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
            | {content: 256 + n for n, content in enumerate(_SPECIALS)},
            "merges": [],
        },
    }


def _byte_symbols() -> list[str]:
    """Return the printable character that byte-level BPE writes for each byte, 0 to 255.

    GPT-2's table: printable Latin-1 stands for itself, every other byte takes
    the next free code point from 256 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in printable else next(spare)) for byte in range(256)]
