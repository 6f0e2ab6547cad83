"""Public reports of runs that mix, nest or split, each as a test of its kind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tenuto
from tenuto.context import current_session
from tests.asking import aask, aclient, ask, client, runs, sessions
from tests.loopback import Recorder, serving


@pytest.mark.anyio
async def test_fifty_gathered_runs_with_one_client_each_keep_their_own() -> None:
    """https://github.com/deepset-ai/haystack-core-integrations/pull/2188
    https://github.com/langfuse/langfuse/issues/3491

    What belongs to a run is kept on an object that concurrent runs share: a tracer's stack of
    spans, a callback handler, a client.
    """

    async def pipeline(index: int) -> None:
        async with tenuto.run(f"run-{index}") as run, run.agent("first"):
            await aask(llm, f"{index} first")
            async with run.agent("second"):
                await asyncio.gather(*(aask(llm, f"{index} second {i}") for i in range(2)))
            await aask(llm, f"{index} first again")

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            await asyncio.gather(*(pipeline(index) for index in range(50)))
    said = sessions(recorder)
    assert len(said) == 200
    for words, session in said.items():
        index, name, *_ = words.split()
        run = tenuto.run(f"run-{index}")
        with run.agent("first") as first, run.agent("second") as second:
            assert session == (first if name == "first" else second).session_id


@pytest.mark.anyio
async def test_runs_in_a_row_are_siblings_and_leave_the_context_as_it_was() -> None:
    """https://github.com/braintrustdata/braintrust-sdk-python/issues/621

    A callback sets the current span in the caller's context and never takes it off, so that each
    run in a row becomes the child of the one before.
    """

    async def on_start(scope: Any) -> None:
        await scope.__aenter__()

    async def on_end(scope: Any) -> None:
        await scope.__aexit__(None, None, None)

    async def invoke(name: str) -> None:
        scopes = [tenuto.run(name), tenuto.run(name).agent("a")]
        for scope in scopes:
            await on_start(scope)
        await aask(llm, name)
        for scope in scopes:
            # In the order in which callbacks come, which is not the reverse.
            await on_end(scope)

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            for name in ("first", "second", "third"):
                await invoke(name)
                assert current_session() is None
                await aask(llm, f"after {name}")
    for one in recorder.arrived:
        words = one.body["messages"][-1]["content"]
        if words.startswith("after"):
            assert one.markers == {}
        else:
            run = tenuto.run(words)
            assert one.headers["x-parent-session-id"] == run.session_id
            assert one.headers["x-session-id"] == run.agent("a").session_id


@pytest.mark.anyio
async def test_a_callback_that_never_ends_its_scope_leaks_nothing_into_other_tasks() -> None:
    """https://github.com/braintrustdata/braintrust-sdk-python/issues/621

    The start of a run is told in one task and its end in another, or never.
    """

    async def run_and_forget(name: str) -> None:
        tenuto.run(name).__enter__()
        await aask(llm, name)

    recorder = Recorder()
    with serving(recorder) as url:
        async with aclient(url) as llm:
            for name in ("first", "second"):
                await asyncio.create_task(run_and_forget(name))
                await aask(llm, f"after {name}")
    assert runs(recorder) == {
        "first": tenuto.run("first").run_id,
        "after first": None,
        "second": tenuto.run("second").run_id,
        "after second": None,
    }


GLOBAL: dict[str, Any] = {}


@pytest.mark.anyio
async def test_two_runs_through_one_global_client_send_different_headers() -> None:
    """https://github.com/openai/openai-agents-js/issues/566

    Headers of a run are set on the default client, so that the last run to start names them all.
    """

    async def work(name: str) -> None:
        async with tenuto.run(name):
            for turn in range(3):
                await met.wait()
                await aask(GLOBAL["client"], f"{name} {turn}")

    recorder = Recorder()
    met = asyncio.Barrier(2)
    with serving(recorder) as url:
        async with aclient(url) as GLOBAL["client"]:
            await asyncio.gather(work("left"), work("right"))
    assert runs(recorder) == {
        f"{name} {turn}": tenuto.run(name).run_id for name in ("left", "right") for turn in range(3)
    }


@pytest.mark.anyio
async def test_agents_hand_over_and_take_turns_without_a_trace_on_the_users_objects() -> None:
    """https://github.com/getsentry/sentry-python/pull/5291

    The span of a turn is kept on the agent object; a hand-over or the next turn closes the wrong
    one. Planner and verifier here are shared by concurrent runs of three turns.
    """

    class Role:
        def __init__(self, name: str, then: Role | None = None) -> None:
            self.name = name
            self.then = then

        async def act(self, run: tenuto.Run, words: str) -> None:
            async with run.agent(self.name):
                await aask(llm, f"{words} {self.name}")
            if self.then is not None:
                await self.then.act(run, words)

    async def conversation(name: str) -> None:
        async with tenuto.run(name) as run:
            for turn in range(3):
                await planner.act(run, f"{name} {turn}")

    recorder = Recorder()
    planner = Role("planner", Role("verifier"))
    with serving(recorder) as url:
        async with aclient(url) as llm:
            await conversation("user-0")
            before = [dict(vars(one)) for one in (llm, planner)]
            await asyncio.gather(*(conversation(f"user-{i}") for i in range(1, 5)))
            assert [vars(one) for one in (llm, planner)] == before
    for one in recorder.arrived:
        name, turn, role = one.body["messages"][-1]["content"].split()
        assert one.headers["x-session-id"] == tenuto.run(name).agent(role).session_id
        assert one.turn["n"] == turn


def test_agents_made_after_the_runs_scope_was_left_are_the_runs_all_the_same() -> None:
    """https://github.com/NousResearch/hermes-agent/issues/81730

    The scope that names a run is only around the creation of its root; hooks create the children
    later, outside of it. A run is an object, and its agents need no open scope around them.
    """
    recorder = Recorder()
    with serving(recorder) as url, client(url) as llm:
        with tenuto.run("task") as run:
            ask(llm, "root")

        def on_tool_call(instance: int) -> None:
            with run.agent("tool", instance=instance):
                ask(llm, f"tool {instance}")

        on_tool_call(0)
        with tenuto.run("another"):
            on_tool_call(1)
    assert set(runs(recorder).values()) == {run.run_id}
    parents = [one.headers.get("x-parent-session-id") for one in recorder.arrived]
    assert parents == [None, run.session_id, run.session_id]


@pytest.mark.anyio
async def test_a_call_in_a_nested_chain_belongs_to_the_innermost_agent() -> None:
    """https://github.com/Arize-ai/openinference/issues/147

    In an async chain the model's span hung below its grandparent: the one between was set in a
    callback's own task.
    """

    async def chain(*names: str) -> None:
        async with run.agent(names[0]):
            await aask(llm, "/".join((*path, names[0])))
            path.append(names[0])
            if names[1:]:
                await asyncio.create_task(chain(*names[1:]))

    recorder = Recorder()
    path: list[str] = []
    with serving(recorder) as url:
        async with aclient(url) as llm, tenuto.run() as run:
            await chain("a", "b", "c")
    above = run.session_id
    for one, name in zip(recorder.arrived, ("a", "a/b", "a/b/c"), strict=True):
        assert one.body["messages"][-1]["content"] == name
        assert one.headers["x-parent-session-id"] == above
        above = one.headers["x-session-id"]


def test_calls_of_one_session_are_told_apart_by_a_request_id_each() -> None:
    """https://github.com/BerriAI/litellm/pull/40177

    A session id that is used as trace id makes one trace of all calls of the session.
    """
    recorder = Recorder(script=[500], answer_headers={"retry-after-ms": "1"})
    with serving(recorder) as url, client(url) as llm, tenuto.run():
        for words in ("first", "second", "third"):
            ask(llm, words)
    assert len({one.headers["x-session-id"] for one in recorder.arrived}) == 1
    ids = [one.headers["x-request-id"] for one in recorder.arrived]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_one_client_serves_one_event_loop_after_another() -> None:
    """https://github.com/langchain-ai/langchain/issues/35783

    A cached client that holds on to the loop it was first used in fails in the next
    `asyncio.run`. Nothing of ours is bound to a loop.
    """
    recorder = Recorder()
    run = tenuto.run()
    agent = run.agent("long-lived")

    async def main(name: str) -> None:
        async with run, agent:
            await asyncio.gather(*(aask(llm, f"{name} {i}") for i in range(3)))

    with serving(recorder) as url:
        llm = aclient(url)
        for name in ("first", "second", "third"):
            asyncio.run(main(name))
        asyncio.run(llm.close())
    assert set(sessions(recorder).values()) == {agent.session_id}
    assert sorted(int(one.turn["n"]) for one in recorder.arrived) == list(range(9))
