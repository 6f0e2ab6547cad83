"""Keep the states of a hybrid model where the turns of its sessions begin and end.

Sliding windows and linear attention resume only where a state was kept, and vLLM keeps that of
a prompt's end. Three of its methods are widened, each for requests that carry a hint alone:

| method | what is added |
|---|---|
| `cache_blocks` of a group's manager | the wanted positions are kept as a prompt's end is |
| `_mamba_block_aligned_split` | a chunk of the prompt ends there: linear attention has a state \
nowhere else |
| `_free_blocks` | the window at the end of the answer is kept |
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Sequence
from typing import Any

from tenuto_vllm import logs
from tenuto_vllm.config import ConfigError, Settings
from tenuto_vllm.engine.states import Group, States
from tenuto_vllm.retention.messages import Roles, learn

# Parameters of the two methods that are called in a way of ours (the same in vLLM 0.30 to 0.33).
_CACHE = ("request", "num_tokens", "retention_interval", "replay_boundaries")
_SPLIT = (
    *("request", "num_new_tokens"),
    *("num_new_local_computed_tokens", "num_external_computed_tokens"),
)


class BoundaryMixin:
    """For a class that derives from vLLM's scheduler; it comes first among the bases.

    Attributes:
        tenuto_states: None where the model resumes anywhere, or vLLM is an unknown one.
    """

    tenuto_states: States | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Take what vLLM's Scheduler takes."""
        super().__init__(*args, **kwargs)
        try:
            self.tenuto_states = _installed(self)
        except Exception as error:
            _off(f"this vLLM is unknown ({type(error).__name__})")

    def _free_blocks(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self.tenuto_states is not None:
            self.tenuto_states.ended(request)
        above: Any = super()
        above._free_blocks(request, *args, **kwargs)


def _installed(scheduler: Any) -> States | None:
    """Widen the methods of a scheduler that has been made; None where nothing is to be done."""
    manager = scheduler.kv_cache_manager
    groups = [
        group
        for one in manager.coordinator.single_type_managers
        if (group := _group(one)) is not None
    ]
    if not groups or not manager.enable_caching:
        return None
    methods = [group.manager.cache_blocks for group in groups]
    if any(_parameters(method) != _CACHE for method in methods):
        _off("this vLLM keeps a request's states in another way than 0.30 to 0.33 do")
        return None
    if why := _problem(scheduler):
        _off(why)
        # A lease on all but the states would be worth less than none.
        return States(scheduler, groups, None, is_more=False)
    roles = _roles(scheduler)
    if roles is None:
        logs.tell(
            logging.WARNING,
            "messages_unknown",
            why="the chat template does not tell where messages begin: neither the end of the "
            "system prompt nor `at` has an effect",
        )
    logs.tell(logging.INFO, "boundaries", groups=len(groups), block=scheduler.block_size)
    return States(scheduler, groups, roles)


def _problem(scheduler: Any) -> str:
    """Return what keeps the boundaries off, or ""."""
    try:
        if not Settings.from_env(os.environ).boundaries:
            return "it is switched off"
    except ConfigError as error:
        return str(error)
    if scheduler.vllm_config.speculative_config is not None:
        # The position that a draft model's last block is dropped from differs by release.
        return "speculative decoding (EAGLE, MTP) moves where a prompt can be resumed"
    is_known = _parameters(scheduler._mamba_block_aligned_split) == _SPLIT
    if not is_known or scheduler.block_size % scheduler.cache_config.block_size:
        return "this vLLM ends the chunks of a prompt elsewhere than 0.30 to 0.33 do"
    return ""


def _parameters(method: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(method).parameters)


def _group(manager: Any) -> Group | None:
    names = {kind.__name__ for kind in type(manager).__mro__}
    size: int = manager.block_size
    if "SlidingWindowManager" in names:
        return Group(manager, size, -(-(manager.sliding_window - 1) // size), is_linear=False)
    if "MambaManager" in names and manager.mamba_cache_mode == "align":
        return Group(manager, size, 1, is_linear=True)
    return None


def _roles(scheduler: Any) -> Roles | None:
    try:
        tokenizer = scheduler.structured_output_manager.tokenizer
        added: dict[str, int] = tokenizer.get_added_vocab()
    except Exception:
        return None

    def render(chat: list[dict[str, str]], opens_answer: bool) -> str:
        return tokenizer.apply_chat_template(
            chat, tokenize=False, add_generation_prompt=opens_answer
        )

    def encode(text: str) -> Sequence[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    return learn(render, encode, added)


def _off(why: str) -> None:
    logs.tell(logging.WARNING, "boundaries_off", why=why)
