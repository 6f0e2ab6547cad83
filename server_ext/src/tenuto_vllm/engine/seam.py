"""The one place that touches vLLM's engine client on a request's way; imports nothing of vLLM.

vLLM chooses the data-parallel rank of a request in one method of the engine
client, `DPLBAsyncMPClient.get_core_engine_for_request`, after the last of its
HTTP endpoints has let go of the request. Of those endpoints `/v1/responses`
drops the rank header (vLLM 0.32), and none tells afterwards which rank served.
Wrapped here, that method takes a wish and leaves the answer, in the box of the
HTTP request it runs for.

Before that, `InputProcessor.process_inputs` makes the engine's request. Since 0.31 it has
a field for hints that no HTTP endpoint fills; wrapped here, it takes those of the box.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

_HOOK = "get_core_engine_for_request"
_INPUTS = "process_inputs"
# Made of the former before it is wrapped, and run in a thread, where no box is seen.
_INPUTS_ASYNC = "process_inputs_async"
_HINTS = "kv_hints"
_MARK = "_tenuto_seam"
SCOPE_KEY = "tenuto.rank_box"


@dataclass(slots=True, eq=False)
class RankBox:
    """What one HTTP request wants from the choice of an engine, and what it got.

    Mutable on purpose: the choice happens in another task, whose context is a
    copy, so only a shared object brings the answer back.

    Attributes:
        wanted: rank to use, or None to leave the choice to vLLM. Ignored when
            out of range or when the request already carries a rank.
        choose: where there is no `wanted`, asked for one with the ids of a prompt's tokens;
            None where it is given as something else.
        measured: told `prompt_tokens` as soon as it is known.
        served: rank that vLLM chose, None before. The first one when an HTTP
            request makes several engine requests (`n`, a list of prompts).
        spread: the request's engine requests went to more than one rank.
        ready: set as soon as `served` is known.
        prompt_tokens: of the longest prompt of the request's engine requests; 0 before.
        kv_hints: vLLM's envelope that all its engine requests carry; None for none.
        known: asked, once they have ended, for attributes of their spans; None for none.
    """

    wanted: int | None = None
    served: int | None = None
    spread: bool = False
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    prompt_tokens: int = 0
    choose: Callable[[Sequence[int] | None], int | None] | None = None
    measured: Callable[[int], None] | None = None
    kv_hints: object | None = None
    known: Callable[[], Mapping[str, Any]] | None = None

    def measure(self, tokens: int) -> None:
        """Take the length of a prompt."""
        if tokens > self.prompt_tokens:
            self.prompt_tokens = tokens
            if self.measured is not None:
                self.measured(tokens)


_current: ContextVar[RankBox | None] = ContextVar("tenuto_rank_box", default=None)


@contextmanager
def request_box(scope: MutableMapping[str, Any]) -> Generator[RankBox]:
    """Make the box of one HTTP request visible to the engine client.

    Nested middleware of one request share one box. It hangs on the ASGI scope
    and not on the ContextVar, because uvicorn starts a pipelined request in
    the context of the one before it.

    Args:
        scope: the ASGI scope of an HTTP request.

    Yields:
        The box, which outlives the block in the tasks that the request started.
    """
    box: RankBox = scope.setdefault(SCOPE_KEY, RankBox())
    token = _current.set(box)
    try:
        yield box
    finally:
        _current.reset(token)


def current_box() -> RankBox | None:
    """Return the box of the HTTP request that this runs for."""
    return _current.get()


@contextmanager
def own_box(scope: MutableMapping[str, Any]) -> Generator[None]:
    """Let an HTTP request see its own box, if a middleware before gave it one, or none.

    A request that is not placed needs this as well: on a connection kept alive it may
    start in the context of the request before it, and would find that one's box.

    Args:
        scope: the ASGI scope of an HTTP request; it is not changed.
    """
    token = _current.set(scope.get(SCOPE_KEY))
    try:
        yield
    finally:
        _current.reset(token)


def rank_count(engine_client: object) -> int | None:
    """Return how many ranks this API process can address, or None when unknown."""
    try:
        return len(_core(engine_client).core_engines) or None
    except Exception:
        return None


def install(engine_client: object) -> bool:
    """Wrap the rank choice of one engine client, once.

    The wrapper never adds an error of its own: whatever it does not understand,
    it leaves to vLLM's method, called as vLLM called it.

    Args:
        engine_client: vLLM's `AsyncLLM`, `app.state.engine_client` in its server.

    Returns:
        True when the hook is in place, now or from before. False when there is
        none: a single rank, or a vLLM that chooses elsewhere.
    """
    try:
        core = _core(engine_client)
        original: Callable[..., Any] = getattr(core, _HOOK)
        if getattr(original, _MARK, False):
            return True
        if not callable(original) or len(core.core_engines) < 2:
            return False
        setattr(core, _HOOK, _wrapped(core, original))
    except Exception:
        return False
    return True


def install_hints(engine_client: object) -> bool:
    """Let the requests of one engine client carry the hints of their boxes, once.

    Args:
        engine_client: as in `install`.

    Returns:
        True when the hook is in place, now or from before. False for a vLLM without the field.
    """
    try:
        client: Any = engine_client
        inputs = client.input_processor
        original: Callable[..., Any] = getattr(inputs, _INPUTS)
        if getattr(original, _MARK, False):
            return True
        names = list(inspect.signature(original).parameters)
        if _HINTS not in names:
            return False
        place = names.index(_HINTS)
        later: Callable[..., Any] | None = getattr(inputs, _INPUTS_ASYNC, None)
        if later is not None:
            setattr(inputs, _INPUTS_ASYNC, _hinted(later, place))
        setattr(inputs, _INPUTS, _hinted(original, place))
    except Exception:
        return False
    return True


def _hinted(original: Callable[..., Any], place: int) -> Callable[..., Any]:
    def process_inputs(*args: Any, **kwargs: Any) -> Any:
        box = _current.get()
        hints = None if box is None else box.kv_hints
        # vLLM 0.31 to 0.33 gives all by name. What another has given already is not ours to set.
        if hints is not None and kwargs.get(_HINTS) is None and len(args) <= place:
            kwargs[_HINTS] = hints
        return original(*args, **kwargs)

    setattr(process_inputs, _MARK, True)
    return process_inputs


def _core(engine_client: object) -> Any:
    client: Any = engine_client
    return client.engine_core


def _wrapped(core: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def get_core_engine_for_request(*args: Any, **kwargs: Any) -> Any:
        box = _current.get()
        if box is None:
            return original(*args, **kwargs)
        request = args[0] if args else kwargs.get("request")
        _ask(core, box, request)
        chosen = original(*args, **kwargs)
        _note(core, box, chosen)
        _measure(box, request)
        return chosen

    setattr(get_core_engine_for_request, _MARK, True)
    return get_core_engine_for_request


def _ask(core: Any, box: RankBox, request: Any) -> None:
    """Write the wanted rank into an engine request that has none."""
    try:
        if request.data_parallel_rank is not None:
            return
        wanted = box.wanted
        if wanted is None and box.choose is not None:
            wanted = box.choose(request.prompt_token_ids)
        # Checked against the engines of this moment: elastic scaling may have
        # taken ranks away since the wish was made, and vLLM indexes unchecked.
        if wanted is not None and 0 <= wanted < len(core.core_engines):
            request.data_parallel_rank = wanted
    except Exception:
        return


def _note(core: Any, box: RankBox, chosen: Any) -> None:
    """Write the index of the chosen engine into the box."""
    try:
        rank = int(core.core_engines.index(chosen))
        if box.served is None:
            box.served = rank
        elif box.served != rank:
            box.spread = True
        box.ready.set()
    except Exception:
        return


def _measure(box: RankBox, request: Any) -> None:
    """Write the length of the prompt into the box; it has been cut into tokens by then."""
    try:
        box.measure(len(request.prompt_token_ids))
    except Exception:
        return
