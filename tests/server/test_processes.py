"""One session in several processes, seen by a real server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from typing import Any

import tenuto
from tests.asking import ask, client, sessions
from tests.loopback import Arrived, Recorder, serving
from tests.programs import CALL, ROOT, environ, python


def call(url: str, words: str) -> None:
    with client(url) as llm:
        ask(llm, words)


def example(name: str, url: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.processes.{name}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=environ(url, PATH=""),
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def said(one: Arrived) -> str:
    return str(one.body["messages"][-1]["content"])


def test_spawned_pool_workers_are_agents_of_the_run() -> None:
    """https://github.com/langfuse/langfuse/issues/11589

    Workers of a `ProcessPoolExecutor` start with an empty context, so what they did was lost to
    the trace. The carrier is an argument of the work.
    """
    recorder = Recorder()
    with serving(recorder) as url:
        shown = example("pool", url)
    assert len(set(re.findall(r"process (\d+)", shown))) >= 2
    ids = sessions(recorder)
    with tenuto.run("ticket-4711") as run, run.agent("planner") as planner:
        assert {one.headers["x-agent-run-id"] for one in recorder.arrived} == {run.run_id}
        assert ids["plan"] == ids["conclude"] == planner.session_id
        for index in range(3):
            child = run.agent("search", instance=index)
            assert ids[f"search {index}"] == child.session_id
    searches = [one for one in recorder.arrived if said(one).startswith("search")]
    assert {one.headers["x-parent-session-id"] for one in searches} == {planner.session_id}


def test_a_child_process_goes_on_in_the_session_that_its_environment_names() -> None:
    recorder = Recorder()
    with serving(recorder) as url:
        example("child", url)
    ids = sessions(recorder)
    run = tenuto.run("ticket-4711")
    assert ids["use a tool"] == run.agent("tool").session_id
    assert ids["its own"] == tenuto.run("a task of the tool's own").session_id


def test_a_grandchild_that_nobody_handed_the_session_to_is_unmarked() -> None:
    grandchild = CALL + "call('grandchild')"
    code = "import subprocess; call('child')\n"
    code += f"subprocess.run([sys.executable, '-c', {grandchild!r}], check=True)"
    recorder = Recorder()
    with serving(recorder) as url:
        with tenuto.run() as run:
            env = tenuto.environment(environ(url))
        python(code, env)
    assert sessions(recorder) == {"child": run.session_id, "grandchild": None}


def test_a_malformed_environment_leaves_the_child_unmarked_and_warned_once() -> None:
    recorder = Recorder()
    with serving(recorder) as url:
        done = subprocess.run(
            [sys.executable, "-c", f"{CALL}\ncall()\ncall()"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=environ(url, TENUTO_CONTEXT="run=x&session=\x7f&turn=-1"),
        )
    assert done.stderr.count("TENUTO_CONTEXT") == 1
    assert [one.markers for one in recorder.arrived] == [{}, {}]


def test_calls_in_the_scope_of_an_empty_carrier_are_unmarked() -> None:
    recorder = Recorder()
    with serving(recorder) as url, tenuto.run() as run:
        with tenuto.extract({}) as sender:
            call(url, "sender was in no run")
            with sender.agent("worker"):
                call(url, "its agent")
        call(url, "own")
    assert sessions(recorder) == {
        "sender was in no run": None,
        "its agent": None,
        "own": run.session_id,
    }


def test_the_session_goes_on_elsewhere_at_its_turn_and_its_home() -> None:
    recorder = Recorder(answer_headers={"X-Agent-Affinity": "abcd1234.1"})
    other = Recorder()
    code = """
import json
carrier = json.loads(sys.stdin.read())
with tenuto.extract(carrier):
    call("second")
    os.environ["OPENAI_BASE_URL"] = sys.argv[1]
    call("third")
    os.environ["OPENAI_BASE_URL"] = sys.argv[2]
    call("fourth")
    print(json.dumps(tenuto.inject()))
"""
    with serving(recorder) as url, serving(other) as other_url, tenuto.run() as run:
        call(url, "first")
        done = subprocess.run(
            [sys.executable, "-c", CALL + code, f"{other_url}/v1", f"{url}/v1"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
            env=environ(url),
            input=json.dumps(tenuto.inject()),
        )
        with tenuto.extract(json.loads(done.stdout)):
            call(url, "fifth")
    assert {one.headers["x-session-id"] for one in recorder.arrived} == {run.session_id}
    turns = {said(one): one.turn["n"] for one in (*recorder.arrived, *other.arrived)}
    assert turns == {"first": "0", "second": "1", "third": "2", "fourth": "3", "fifth": "4"}
    tokens = [one.headers.get("x-agent-affinity") for one in recorder.arrived]
    assert tokens == [None, *["abcd1234.1"] * 3]
    assert "x-agent-affinity" not in other.arrived[0].headers


def test_a_replayed_workflow_keeps_its_ids_its_turns_and_its_home() -> None:
    recorder = Recorder(answer_headers={"X-Agent-Affinity": "abcd1234.1"})
    with serving(recorder) as url:
        shown = example("durable", url)
    assert len(set(re.findall(r"process (\d+)", shown))) == 2
    worker = tenuto.run("order-4711").agent("worker")
    assert [said(one) for one in recorder.arrived] == ["plan", "search", "write", "check"]
    assert {one.headers["x-session-id"] for one in recorder.arrived} == {worker.session_id}
    assert [one.turn["n"] for one in recorder.arrived] == ["0", "1", "2", "3"]
    assert [one.turn["attempt"] for one in recorder.arrived] == ["0"] * 4
    assert "x-agent-affinity" not in recorder.arrived[0].headers
    assert all(one.headers["x-agent-affinity"] == "abcd1234.1" for one in recorder.arrived[1:])


def test_a_step_that_is_tried_again_elsewhere_is_the_same_turn() -> None:
    """https://github.com/langchain-ai/docs/issues/4070

    A scheduler that tries a step again in another worker runs it with the same input. The turn
    is in the carrier, so it does not advance; what was tried there is not known here.
    """
    step = "import json\nwith tenuto.extract(json.loads(os.environ['CARRIER'])):\n    call('step')"
    recorder = Recorder()
    with serving(recorder) as url, tenuto.run():
        call(url, "before")
        env = environ(url, CARRIER=json.dumps(tenuto.inject()))
        python(f"{step}\n    call('step')", env)
        python(step, env)
    tried = [one for one in recorder.arrived if said(one) == "step"]
    assert len({one.headers["x-session-id"] for one in recorder.arrived}) == 1
    assert [one.turn["n"] for one in tried] == ["1"] * 3
    assert [one.turn["attempt"] for one in tried] == ["0", "1", "0"]


def test_a_worker_in_the_senders_process_leaves_the_senders_scope_as_it_was() -> None:
    """https://github.com/temporalio/sdk-python/issues/1852

    With client and worker in one process the caller's span was begun again by the worker and
    stayed current after it, also in callbacks with copies of its context. A session that is
    extracted begins nothing, and is left for every copy at once.
    """

    async def main(url: str) -> None:
        finished = asyncio.get_running_loop().create_future()
        later: list[asyncio.Future[None]] = []

        def call_back(_: Any) -> None:
            later.append(asyncio.ensure_future(asyncio.to_thread(call, url, "callback")))

        async def work(text: str) -> None:
            with tenuto.extract(carrier):
                finished.add_done_callback(call_back)
                await asyncio.to_thread(call, url, text)
            await asyncio.to_thread(call, url, f"after {text}")

        with tenuto.run("the worker's own"):
            await work("awaited")
            await asyncio.create_task(work("task"))
            await asyncio.to_thread(call, url, "own")
        finished.set_result(None)
        await asyncio.sleep(0)
        await asyncio.gather(*later)

    with tenuto.run() as sender, sender.agent("sender") as agent:
        carrier = tenuto.inject()
    own = tenuto.run("the worker's own").session_id
    recorder = Recorder()
    with serving(recorder) as url:
        asyncio.run(main(url))
    assert sessions(recorder) == {
        "awaited": agent.session_id,
        "after awaited": own,
        "task": agent.session_id,
        "after task": own,
        "own": own,
        "callback": None,
    }
