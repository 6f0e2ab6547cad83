"""Which positions of a prompt are worth a state, and where its messages begin."""

from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto_vllm._wire import Turn
from tenuto_vllm.engine.boundaries import BoundaryMixin
from tenuto_vllm.engine.hints import Asked
from tenuto_vllm.engine.states import _SESSIONS
from tenuto_vllm.retention.boundaries import LAST_TURNS, MOST_POSITIONS, End, wanted
from tenuto_vllm.retention.hint import Hint
from tenuto_vllm.retention.messages import (
    Roles,
    learn,
    message_ends,
    message_starts,
    system_end,
)

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "ChatML": CHATML,
    "ChatML with a system prompt of its own": (
        "{% if messages[0].role != 'system' %}<|im_start|>system\nbe good<|im_end|>\n{% endif %}"
        + CHATML
    ),
    "Llama 3": (
        "<|bos|>{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "GLM": (
        "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "Kimi": (
        "{% for m in messages %}<|im_{{ m.role }}|>{{ m.role }}<|im_middle|>{{ m.content }}"
        "<|im_end|>{% endfor %}{% if add_generation_prompt %}"
        "<|im_assistant|>assistant<|im_middle|>{% endif %}"
    ),
    "DeepSeek": (
        "<|bos|>{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
        "{% elif m.role == 'user' %}<|user|>{{ m.content }}"
        "{% else %}<|assistant|>{{ m.content }}<|eos|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    ),
    "harmony": (
        "<|start|>system<|message|>about today<|end|>{% for m in messages %}<|start|>"
        "{{ 'developer' if m.role == 'system' else m.role }}<|message|>{{ m.content }}<|end|>"
        "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
    ),
}
GEMMA = (
    "<|bos|>{% set ns = namespace(first='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.first = m.content + '\n\n' %}{% else %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ ns.first }}"
    "{{ m.content }}<end_of_turn>\n{% set ns.first = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
REFUSES_SYSTEM = "{{ raise('no system role') if messages[0].role == 'system' }}" + GEMMA
MISTRAL = (
    "<|bos|>{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{% else %}{{ m.content }}<|eos|>{% endif %}{% endfor %}"
)
SPECIAL = re.compile(r"<\|?\w+\|?>|\[/?\w+\]")
TEXTS = {"system": "rules " * 20, "user": "why ? " * 9, "assistant": "because " * 7}


class Words:
    """A tokenizer: a special token or a word is one token."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        parts = re.findall(rf"{SPECIAL.pattern}|\w+|\s+|.", text)
        return [self.ids.setdefault(part, len(self.ids)) for part in parts]

    def added(self) -> dict[str, int]:
        return {text: number for text, number in self.ids.items() if SPECIAL.fullmatch(text)}


def _raise(why: str) -> None:
    raise ValueError(why)


def learnt(template: str) -> tuple[Roles | None, Any, Words]:
    compiled = jinja2.Environment(keep_trailing_newline=True).from_string(template)
    words = Words()

    def render(chat: list[dict[str, str]], opens_answer: bool) -> str:
        return compiled.render(
            messages=chat, add_generation_prompt=opens_answer, **{"raise": _raise}
        )

    words.encode(" ".join(SPECIAL.findall(template)))
    for role in TEXTS:
        words.encode(f"<|{role}|><|im_{role}|>")
    return learn(render, words.encode, words.added()), render, words


def chat(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": TEXTS[role]} for role in roles]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_messages_of_a_template_are_found_where_it_put_them(name: str) -> None:
    roles, render, words = learnt(TEMPLATES[name])
    assert roles is not None
    conversation = chat("system", "user", "assistant", "user", "assistant", "user")
    ids = words.encode(render(conversation, True))
    starts = message_starts(ids, roles)
    ends = message_ends(ids, starts, roles)
    before_user = words.encode(render(conversation[:1], False))
    assert system_end(ids, starts, roles) == len(before_user)
    for index in range(-5, 0):
        shorter = words.encode(render(conversation[: len(conversation) + index], False))
        assert ends[index - 1] == len(shorter)


@pytest.mark.parametrize("name", ["ChatML", "Llama 3", "GLM", "Kimi", "DeepSeek"])
def test_without_a_system_prompt_the_first_message_is_the_first(name: str) -> None:
    roles, render, words = learnt(TEMPLATES[name])
    assert roles is not None
    conversation = chat("user", "assistant", "user")
    ids = words.encode(render(conversation, True))
    first = len(words.encode(render(conversation[:1], False)))
    starts = message_starts(ids, roles)
    assert message_ends(ids, starts, roles)[0] == system_end(ids, starts, roles) == first


@pytest.mark.parametrize("template", [GEMMA, REFUSES_SYSTEM], ids=["folded", "refused"])
def test_a_system_prompt_without_a_message_of_its_own_ends_with_the_first_message(
    template: str,
) -> None:
    roles, render, words = learnt(template)
    assert roles is not None
    conversation = chat("user", "assistant", "user")
    if template == GEMMA:
        conversation = [*chat("system"), *conversation]
    ids = words.encode(render(conversation, True))
    first = conversation[:2] if template == GEMMA else conversation[:1]
    starts = message_starts(ids, roles)
    assert system_end(ids, starts, roles) == len(words.encode(render(first, False)))


def test_a_template_without_a_token_for_each_message_is_not_guessed_at() -> None:
    assert learnt(MISTRAL)[0] is None


def test_without_a_template_the_token_of_a_known_family_is_taken() -> None:
    words = Words()
    words.encode("<|im_start|><|im_end|>")

    def render(chat: list[dict[str, str]], opens_answer: bool) -> str:
        raise ValueError("no template")

    roles = learn(render, words.encode, words.added())
    assert roles is not None
    ids = words.encode("<|im_start|>system\nrules<|im_end|>\n<|im_start|>user\nwhy<|im_end|>\n")
    assert system_end(ids, message_starts(ids, roles), roles) == 6
    assert learn(render, words.encode, {"<|none|>": 3}) is None


START, SYSTEM, USER, BLOCK = 1000, 1001, 1002, 16
ROLES = Roles(frozenset({START}), frozenset({(START, SYSTEM)}))


def prompt(*lengths: int) -> list[int]:
    """A system prompt, messages, and the beginning of the answer."""
    kinds = [SYSTEM, *[USER] * (len(lengths) - 1)]
    told = zip(kinds, lengths, strict=True)
    return [t for kind, n in told for t in (START, kind, *range(n - 2))] + [START, USER]


PROMPT = prompt(100, 50, 70, 40)  # ends at 100, 150, 220, 260; 262 tokens


def positions(turn: Turn, **more: Any) -> tuple[int, ...]:
    return wanted(PROMPT, turn, block=BLOCK, roles=ROLES, **more)


def test_the_first_turn_keeps_the_end_of_the_system_prompt_and_later_ones_do_not() -> None:
    assert positions(Turn(n=0)) == (96,)
    assert positions(Turn(n=0), cached=32) == (96,)
    assert positions(Turn(n=0), cached=96) == ()
    assert positions(Turn(n=3), cached=32) == ()


def test_a_turn_whose_prompt_is_lost_keeps_it_again() -> None:
    assert positions(Turn(n=3)) == (96,)


def test_a_client_that_counts_no_turns_is_at_its_first_where_none_is_remembered() -> None:
    assert positions(Turn(), cached=16) == (96,)
    assert positions(Turn(), cached=16, earlier=[End(32, "another")]) == ()


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        (Turn(n=1, at=(0, 1, 2)), (96, 144, 208)),
        (Turn(n=1, at=(-1, -2)), (208,)),
        (Turn(n=1, at=(4, -5, 9999, -9999)), ()),
        (Turn(n=1, keep=130), (128,)),
        (Turn(n=1, prefix=250, keep=100), (96, 240)),
        # vLLM keeps the last whole block's state by itself.
        (Turn(n=1, prefix=255, keep=256), (240,)),
        (Turn(n=1, keep=262), ()),
        (Turn(n=1, keep=999_999_999, prefix=15), ()),
    ],
)
def test_what_the_client_names_is_kept_at_the_block_before(
    turn: Turn, expected: tuple[int, ...]
) -> None:
    assert positions(turn, cached=16) == expected


def test_turn_ends_are_kept_where_the_prompt_still_begins_as_it_did_then() -> None:
    earlier = [End(64, "a"), End(128, "b"), End(192, "other"), End(272, "c")]
    keys = {64: "a", 128: "b", 192: "c"}
    assert positions(Turn(n=2), cached=16, earlier=earlier, key_at=keys.get) == (64, 128)
    assert positions(Turn(n=2), cached=64, earlier=earlier, key_at=keys.get) == (128,)


def test_of_too_many_positions_the_last_are_kept() -> None:
    earlier = [End(position, "k") for position in range(16, 512, 16)]
    found = wanted(
        [0] * 500, Turn(n=1), block=BLOCK, cached=1, earlier=earlier, key_at=lambda _: "k"
    )
    assert found == tuple(range(480 - 15 * 16, 496, 16))


def test_without_known_messages_tokens_can_still_be_named() -> None:
    assert wanted(PROMPT, Turn(n=0, at=(0,), keep=40), block=BLOCK) == (32,)


@given(
    st.lists(st.sampled_from([START, SYSTEM, USER, 5, 6]), max_size=400),
    st.builds(
        Turn,
        n=st.none() | st.integers(0, 3),
        keep=st.none() | st.integers(0, 500),
        prefix=st.none() | st.integers(0, 500),
        at=st.lists(st.integers(-30, 30), max_size=4).map(tuple),
    ),
    st.sampled_from([1, 16, 128]),
    st.integers(0, 400),
    st.lists(st.builds(End, st.integers(0, 500), st.just("k")), max_size=40),
    st.sampled_from([None, ROLES, ROLES._replace(opens_answer=False)]),
)
def test_positions_are_few_aligned_and_of_what_must_be_computed(
    ids: list[int],
    turn: Turn,
    block: int,
    cached: int,
    earlier: list[End],
    roles: Roles | None,
) -> None:
    found = wanted(
        ids, turn, block=block, cached=cached, roles=roles, earlier=earlier, key_at=lambda _: "k"
    )
    assert len(found) <= MOST_POSITIONS
    assert list(found) == sorted(set(found))
    assert all(cached < one < len(ids) - block and one % block == 0 for one in found)


class SlidingWindowManager:
    """As vLLM's: it keeps what a request's positions ask for, here all of them as they are."""

    sliding_window, block_size = 32, 16

    def __init__(self) -> None:
        self.num_cached_block: dict[str, int] = {}
        self.req_to_blocks: dict[str, list[Any]] = {}
        self.kept: list[tuple[int, ...]] = []

    def cache_blocks(
        self,
        request: Any,
        num_tokens: int,
        retention_interval: int | None = None,
        *,
        replay_boundaries: tuple[int, ...],
    ) -> None:
        self.num_cached_block[request.request_id] = num_tokens // self.block_size
        self.kept.append(tuple(replay_boundaries))


class OlderManager(SlidingWindowManager):
    """As that of vLLM 0.28."""

    def cache_blocks(self, request: Any, num_tokens: int) -> None:  # type: ignore[override]
        pass


class FullAttentionManager:
    block_size = 16


class Stock:
    """What of vLLM's scheduler is there to be widened."""

    def __init__(self, manager: Any, speculative: object = None) -> None:
        self.block_size = 16
        self.freed: list[Any] = []
        self.tenuto: Any = None
        self.vllm_config = SimpleNamespace(speculative_config=speculative)
        self.cache_config = SimpleNamespace(block_size=16)
        self.structured_output_manager = SimpleNamespace()
        self.kv_cache_manager = SimpleNamespace(
            enable_caching=True,
            block_pool=SimpleNamespace(hash_block_size=16),
            coordinator=SimpleNamespace(single_type_managers=(FullAttentionManager(), manager)),
        )

    def _free_blocks(self, request: Any) -> None:
        self.freed.append(request)

    def _mamba_block_aligned_split(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_local_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
    ) -> int:
        return num_new_tokens


class Turns(BoundaryMixin, Stock):
    pass


def request(ids: list[int], hint: Hint | None = None, **more: Any) -> Any:
    told = SimpleNamespace(
        request_id="r",
        prompt_token_ids=ids,
        num_prompt_tokens=len(ids),
        num_computed_tokens=0,
        num_tokens=len(ids),
        shared_prefix_boundary=0,
        status=SimpleNamespace(name="FINISHED_STOPPED"),
        **{"block_hashes": [], **more},
    )
    if hint is not None:
        told.tenuto = Asked(hint, None)
    return told


HINT = Hint("t.session-1", turn=Turn(n=1, keep=130))


@pytest.mark.parametrize(
    ("manager", "why"),
    [
        (OlderManager(), "0.30 to 0.33"),
        (SimpleNamespace(block_size="?"), None),
        (type("SlidingWindowManager", (), {"block_size": 16})(), "is unknown"),
    ],
    ids=["an old vLLM", "resumes anywhere", "an unknown vLLM"],
)
def test_where_it_cannot_work_one_sentence_says_so_and_vllm_goes_on(
    manager: Any, why: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tenuto_vllm"):
        scheduler = Turns(manager)
    assert scheduler.tenuto_states is None
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == (why is not None)
    assert why is None or (told[0].startswith("boundaries_off") and why in told[0])
    one = request(PROMPT, HINT)
    assert scheduler._mamba_block_aligned_split(one, 200) == 200
    scheduler._free_blocks(one)
    assert scheduler.freed == [one]


class Keeper:
    """Who keeps the leases, here by remembering what it was given."""

    def __init__(self) -> None:
        self.adopted: list[tuple[str, int]] = []

    def adopt(self, hint: Hint, block: Any) -> None:
        self.adopted.append((hint.session, block.block_id))


def blocks(*hashed: int) -> list[Any]:
    """Twenty blocks; those named can be found in the cache."""
    return [
        SimpleNamespace(block_id=n, is_null=n == 0, block_hash=n in hashed or None)
        for n in range(20)
    ]


def test_where_chunks_are_cut_in_an_unknown_way_they_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Later(Turns):
        def _mamba_block_aligned_split(  # type: ignore[override]
            self, request: Any, num_new_tokens: int, *, is_last: bool
        ) -> int:
            return num_new_tokens

    scheduler = Later(SlidingWindowManager())
    assert "chunks of a prompt" in caplog.text
    assert scheduler._mamba_block_aligned_split(request(PROMPT, HINT), 200, is_last=True) == 200


@pytest.mark.parametrize(
    ("setting", "speculative", "why"),
    [
        ("1", SimpleNamespace(method="mtp"), "speculative decoding"),
        ("0", None, "switched off"),
        ("maybe", None, "TENUTO_BOUNDARIES"),
    ],
)
def test_where_it_is_off_one_sentence_says_so_and_vllms_own_states_still_get_their_owner(
    setting: str,
    speculative: object,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("TENUTO_BOUNDARIES", setting)
    manager = SlidingWindowManager()
    scheduler = Turns(manager, speculative)
    scheduler.tenuto = Keeper()
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("boundaries_off")
    assert why in told
    one = request(PROMPT, HINT)
    assert scheduler._mamba_block_aligned_split(one, 200) == 200
    manager.req_to_blocks["r"] = blocks(0, 3, 14, 15)
    manager.cache_blocks(one, 250, retention_interval=0, replay_boundaries=(261,))
    assert manager.kept == [(261,)]
    assert scheduler.tenuto.adopted == [("t.session-1", 3), ("t.session-1", 14)]
    scheduler._free_blocks(one)
    assert scheduler.freed == [one]


def test_of_a_model_whose_every_block_is_kept_the_wanted_states_alone_get_an_owner() -> None:
    manager = SlidingWindowManager()
    scheduler = Turns(manager)
    scheduler.tenuto = Keeper()
    manager.req_to_blocks["r"] = blocks(*range(20))
    manager.num_cached_block["r"] = 7
    one = request(PROMPT, HINT)
    manager.cache_blocks(one, 240, replay_boundaries=(250,))
    # Two blocks of 16 tokens are a window of 32; of those before 128 one was there.
    assert [number for _, number in scheduler.tenuto.adopted] == [7, 13, 14]


def test_a_prompts_chunks_end_where_a_state_is_wanted_and_nowhere_else() -> None:
    scheduler = Turns(SlidingWindowManager())
    one = request(PROMPT, HINT)
    assert scheduler._mamba_block_aligned_split(one, 250) == 128
    one.num_computed_tokens = 128
    assert scheduler._mamba_block_aligned_split(one, 122) == 122
    # What is wanted is found out once, and not for each chunk.
    assert scheduler.tenuto_states is not None
    assert scheduler.tenuto_states.counts["wanted"] == 1
    assert scheduler._mamba_block_aligned_split(request(PROMPT), 250) == 250
    assert scheduler._mamba_block_aligned_split(request(PROMPT, HINT), 128) == 128


def test_a_request_that_was_preempted_and_lost_its_blocks_is_cut_again() -> None:
    scheduler = Turns(SlidingWindowManager())
    one = request(PROMPT, HINT)
    assert scheduler._mamba_block_aligned_split(one, 100, 144) == 100
    assert scheduler._mamba_block_aligned_split(one, 250) == 128


@pytest.mark.parametrize("kind", ["auxiliary", None])
def test_a_request_that_says_nothing_or_is_on_the_side_is_vllms_alone(kind: str | None) -> None:
    manager = SlidingWindowManager()
    scheduler = Turns(manager)
    hint = HINT._replace(turn=HINT.turn._replace(kind=kind)) if kind else None
    one = request(PROMPT, hint)
    manager.cache_blocks(one, 250, retention_interval=0, replay_boundaries=(261,))
    assert manager.kept == [(261,)]
    assert scheduler._mamba_block_aligned_split(one, 250) == 250


def test_wanted_positions_are_kept_beside_those_of_vllm() -> None:
    manager = SlidingWindowManager()
    Turns(manager)
    one = request(PROMPT, HINT)
    manager.cache_blocks(one, 250, retention_interval=0, replay_boundaries=(261,))
    # No block more is complete.
    manager.cache_blocks(one, 255, retention_interval=0, replay_boundaries=(261,))
    assert manager.kept == [(261, 128), (261,)]


def test_what_fails_is_counted_and_leaves_vllms_behaviour() -> None:
    manager = SlidingWindowManager()
    scheduler = Turns(manager)
    one = request(PROMPT, HINT)
    one.prompt_token_ids = 7
    assert scheduler._mamba_block_aligned_split(one, 250) == 250
    manager.cache_blocks(one, 250, retention_interval=0, replay_boundaries=(261,))
    one.num_computed_tokens = None
    scheduler._free_blocks(one)
    assert manager.kept == [(261,)]
    assert scheduler.freed == [one]
    assert scheduler.tenuto_states is not None
    assert scheduler.tenuto_states.counts["failed"] == 2


def test_the_last_turn_ends_of_a_session_and_of_its_parent_are_remembered() -> None:
    manager = SlidingWindowManager()
    scheduler = Turns(manager)
    ids = list(range(220))
    hashes = [f"h{n}" for n in range(13)]
    for length in range(16, 16 * (LAST_TURNS + 3), 16):
        turn = request(ids[:length], Hint("t.session-1", turn=Turn(n=1)), block_hashes=hashes)
        turn.num_computed_tokens, turn.num_tokens = length, length + 1
        scheduler._free_blocks(turn)
    aborted = request(ids[:160], Hint("t.session-1", turn=Turn(n=1)), block_hashes=hashes)
    aborted.status.name = "FINISHED_ABORTED"
    aborted.num_computed_tokens, aborted.num_tokens = 160, 161
    scheduler._free_blocks(aborted)
    newest = tuple(range(48, 16 * (LAST_TURNS + 3), 16))
    for hint in (Hint("t.session-1"), Hint("t.child-of-it", parent="t.session-1")):
        manager.num_cached_block.clear()
        one = request(ids, hint._replace(turn=Turn(n=1)), block_hashes=hashes)
        manager.cache_blocks(one, 200, retention_interval=0, replay_boundaries=())
        assert manager.kept[-1] == newest
    manager.num_cached_block.clear()
    edited = request(ids, Hint("t.session-1", turn=Turn(n=1)), block_hashes=["x", *hashes[1:4]])
    manager.cache_blocks(edited, 200, retention_interval=0, replay_boundaries=())
    assert manager.kept[-1] == (48, 64)


def test_of_very_many_sessions_those_of_late_are_remembered() -> None:
    manager = SlidingWindowManager()
    scheduler = Turns(manager)
    names = ["t.session-1", *(f"t.other-{n}" for n in range(_SESSIONS - 1))]
    for name in (*names, "t.session-1", "t.one-too-many"):
        turn = request([0] * 17, Hint(name, turn=Turn(n=1)), block_hashes=["h"])
        turn.num_computed_tokens = 17
        scheduler._free_blocks(turn)
    for name, kept in (("t.session-1", (16,)), ("t.other-0", ())):
        one = request([0] * 60, Hint(name, turn=Turn(n=1)), block_hashes=["h", "i", "j"])
        manager.num_cached_block.clear()
        manager.cache_blocks(one, 60, retention_interval=0, replay_boundaries=())
        assert manager.kept[-1] == kept
