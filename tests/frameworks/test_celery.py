"""A Celery task goes on in the session that sent it, by its headers."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tenuto
from tests.asking import ask, client, sessions
from tests.loopback import Recorder, serving

celery = pytest.importorskip("celery")

ROOT = Path(__file__).parents[2]
AGENTS = "tests.frameworks.celery_agents"


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Any:
    os.environ["CELERY_QUEUE"] = str(tmp_path_factory.mktemp("celery"))
    return importlib.import_module(AGENTS)


@pytest.fixture(params=["solo", "prefork", "threads"])
def tasks(request: Any, agents: Any) -> Iterator[Any]:
    """Return the tasks, with a worker in a process of its own."""
    command = [sys.executable, "-m", "celery", "-A", AGENTS, "worker", "-l", "ERROR"]
    command += ["--pool", request.param, "-c", "2", "--without-gossip", "--without-mingle"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    worker = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield agents
    finally:
        # Asked politely, it takes seconds to go.
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(30)


@pytest.mark.stamps("Celery", "delay, {tasks} worker", "session")
@pytest.mark.stamps("Celery", "retry and chain, {tasks} worker", "session")
def test_a_task_in_a_worker_goes_on_in_the_session_that_sent_it(tasks: Any) -> None:
    """https://github.com/langfuse/langfuse-python/pull/1385
    https://github.com/open-telemetry/opentelemetry-python-contrib/issues/1002

    A worker starts a trace of its own for what a task does, since the sender's context stays in
    the sender's process. Celery's headers carry it.
    """
    recorder = Recorder()
    with serving(recorder) as url:
        with tenuto.run() as first, client(url) as llm:
            with first.agent("sender") as sender:
                ask(llm, "sender")
                sent = [tasks.think.delay(url, "task"), tasks.fails_once.delay(url, "twice")]
                sent += [tasks.child.delay(url, i) for i in range(2)]
                sent.append(tasks.plain.delay(url, "by another class"))
                children = [first.agent("child", instance=i).session_id for i in range(2)]
        with tenuto.run() as second:
            sent.append(tasks.think.delay(url, "of the second"))
            headers = tenuto.inject()
            steps = [tasks.think.si(url, f"step {i}").set(headers=headers) for i in range(2)]
            sent.append(celery.chain(*steps)())
        sent.append(tasks.think.delay(url, "outside"))
        processes = {one.get(timeout=60) for one in sent}
    assert os.getpid() not in processes
    assert sessions(recorder) == {
        **dict.fromkeys(("sender", "task", "twice"), sender.session_id),
        **{f"child {i}": session for i, session in enumerate(children)},
        **dict.fromkeys(("of the second", "step 0", "step 1"), second.session_id),
        **dict.fromkeys(("by another class", "outside")),
    }
    tried = [one for one in recorder.arrived if "twice" in str(one.body)]
    assert [one.headers["x-session-id"] for one in tried] == [sender.session_id] * 2


@pytest.mark.stamps("Celery", "examples/processes/celery_task.py", "session")
def test_the_example_runs_its_task_in_the_senders_session() -> None:
    recorder = Recorder()
    with serving(recorder) as url:
        done = subprocess.run(
            [sys.executable, "-m", "examples.processes.celery_task"],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "OPENAI_BASE_URL": f"{url}/v1"},
            cwd=ROOT,
        )
    assert done.returncode == 0, done.stderr
    run = tenuto.run("ticket-4711")
    worker = run.agent("worker").session_id
    assert sessions(recorder) == {
        "plan": run.agent("planner").session_id,
        "work": worker,
        "work on": worker,
    }


def test_a_task_that_is_called_as_a_function_stays_where_it_is() -> None:
    example = importlib.import_module("examples.processes.celery_task")
    app = celery.Celery("eager", task_cls=example.SessionTask)
    app.conf.task_always_eager = True

    @app.task
    def where() -> dict[str, str]:
        return tenuto.inject()

    with tenuto.run():
        assert where() == where.delay().get() == tenuto.inject()
        assert where.apply().get() == {}
    assert where() == {}
