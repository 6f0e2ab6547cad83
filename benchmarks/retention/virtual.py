"""vLLM's own Scheduler, KVCacheManager and BlockPool with a made-up model and a virtual clock.

No weights, no server and no real time, so a run repeats to the token: schedulers can be compared
and fuzzed. Import takes some ten seconds, which are vLLM's.
"""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.retention.tiny import (
    MESSAGE,
    SYSTEM,
    AsyncScheduler,
    ChatTokens,
    KVCacheConfig,
    ModelRunnerOutput,
    Request,
    RequestStatus,
    SamplingParams,
    Scheduler,
    StructuredOutputManager,
    cache_groups,
    carried,
    engine_config,
    envelope,
    get_request_block_hasher,
    init_none_hash,
    sha256,
)

__all__ = ["MESSAGE", "SYSTEM", "Ask", "AsyncScheduler", "Scheduler", "VirtualEngine", "envelope"]

STEP_S = 0.004
PREFILL_TOKENS_PER_S = 20_000


@dataclass(slots=True)
class Ask:
    """One request and what became of it; times are seconds of the virtual clock.

    Attributes:
        request: vLLM's.
        asked_s: when it was asked.
        cached: prompt tokens that were there when it was scheduled first.
        first_s: when the client saw the first token.
        done_s: when the client saw the end; None also for an aborted one.
        sampled: what the model has made, which the scheduler may not know yet.
        out: what the client has seen.
    """

    request: Request
    asked_s: float
    cached: int | None = None
    first_s: float | None = None
    done_s: float | None = None
    sampled: list[int] = field(default_factory=list)
    out: list[int] = field(default_factory=list)

    @property
    def known(self) -> list[int]:
        """The prompt and what the model has made of it."""
        return [*self.request.prompt_token_ids, *self.sampled]

    @property
    def tokens(self) -> list[int]:
        """The prompt and its answer."""
        return [*self.request.prompt_token_ids, *self.out]


class VirtualEngine:
    """One engine.

    Args:
        scheduler: a class like vLLM's Scheduler.
        blocks: in the pool, with the null block.
        block_size: in tokens.
        kind: "full" attention, or with a "window" of 128 tokens or a "mamba" group beside it.
        interval: vLLM's prefix cache retention interval, in tokens.
        late: outputs reach the scheduler one step late, as with asynchronous scheduling.
        batched_tokens: most tokens in a step.
        policy: "fcfs" or "priority".
        longest: most tokens of a request.
    """

    def __init__(
        self,
        scheduler: type,
        blocks: int,
        *,
        block_size: int = 16,
        kind: str = "full",
        interval: int | None = 0,
        late: bool = True,
        batched_tokens: int = 2048,
        policy: str = "fcfs",
        longest: int = 32768,
    ) -> None:
        self.now_s = 0.0
        self.block_size = block_size
        self.asks: dict[str, Ask] = {}
        self._late = late
        self._pending: deque[tuple[Any, Any]] = deque()
        config = copy.deepcopy(engine_config(batched_tokens, policy))
        config.model_config.max_model_len = longest
        config.cache_config.num_gpu_blocks = blocks
        config.cache_config.block_size = block_size
        config.cache_config.mamba_cache_mode = "align" if kind == "mamba" else "none"
        config.scheduler_config.async_scheduling = late
        structured = StructuredOutputManager(config)
        structured.tokenizer = ChatTokens()
        init_none_hash(sha256)
        self._hasher = get_request_block_hasher(block_size, sha256)
        self.scheduler = scheduler(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks,
                kv_cache_tensors=[],
                kv_cache_groups=cache_groups(kind, block_size),
                prefix_cache_retention_interval=interval,
            ),
            structured_output_manager=structured,
            block_size=block_size,
            hash_block_size=block_size,
            log_stats=False,
        )
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.ours = getattr(self.scheduler, "tenuto", None)
        if self.ours is not None:
            self.ours.clock = lambda: self.now_s
        if (log := getattr(self.scheduler, "tenuto_log", None)) is not None:
            log.clock = lambda: self.now_s

    def submit(
        self,
        tokens: Sequence[int],
        most: int,
        *,
        hint: str = "",
        stop: Sequence[str] = (),
        **fields: Any,
    ) -> str:
        """Ask for an answer and return the request's name.

        Args:
            tokens: of the prompt.
            most: tokens of the answer, which has so many.
            hint: as `retention.hint.pack` writes it, carried as this vLLM can.
            stop: texts that end the answer, which vLLM's API process looks for.
            fields: more of vLLM's Request, such as its priority.
        """
        name = f"r{len(self.asks)}"
        params = SamplingParams(
            max_tokens=most, ignore_eos=True, temperature=0, stop=[*stop], detokenize=bool(stop)
        )
        request = Request(
            name,
            list(tokens),
            params,
            None,
            arrival_time=self.now_s,
            block_hasher=self._hasher,
            **carried(hint) | fields,
        )
        self.asks[name] = Ask(request, self.now_s)
        self.scheduler.add_request(request)
        return name

    def tell(self, **news: Any) -> None:
        """Bring news of `turns` and `ended` sessions; a scheduler that takes none has none."""
        if self.ours is not None:
            self.ours.told(json.dumps(news))

    def abort(self, name: str) -> None:
        """End a request as when its client hangs up."""
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> int:
        """Schedule, compute and update once; return how many tokens were scheduled."""
        plan = self.scheduler.schedule()
        tokens = plan.total_num_scheduled_tokens
        self.now_s += STEP_S + tokens / PREFILL_TOKENS_PER_S
        for new in plan.scheduled_new_reqs:
            ask = self.asks[new.req_id]
            if ask.cached is None:
                ask.cached = new.num_computed_tokens
        self._pending.append((plan, self._run(plan)))
        while len(self._pending) > (1 if self._late and tokens else 0):
            self._update()
        return tokens

    def drain(self) -> None:
        """Deliver every output that is under way."""
        while self._pending:
            self._update()

    def _run(self, plan: Any) -> ModelRunnerOutput:
        names = list(plan.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[self._sample(self.asks[name]) for name in names],
        )

    def _sample(self, ask: Ask) -> list[int]:
        if ask.request.is_prefill_chunk:
            return []
        prompt = ask.request.prompt_token_ids
        token = (sum(prompt[-7:]) * 31 + len(ask.sampled) * 7 + len(prompt)) % 500 + 3
        ask.sampled.append(token)
        return [token]

    def _update(self) -> None:
        plan, ran = self._pending.popleft()
        for outputs in self.scheduler.update_from_output(plan, ran).values():
            for output in outputs.outputs:
                ask = self.asks[output.request_id]
                if output.new_token_ids:
                    ask.first_s = self.now_s if ask.first_s is None else ask.first_s
                    ask.out += output.new_token_ids
                if output.finish_reason is not None:
                    ask.done_s = self.now_s
