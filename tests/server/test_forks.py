"""A forked child is in no scope of its parent's, and no lock of its parent's stops it."""

from __future__ import annotations

from pathlib import Path

import pytest

import tenuto
from tests.asking import sessions
from tests.loopback import Recorder, serving
from tests.programs import environ, python

FORKED = """
def forked(work, *args):
    pid = os.fork()
    if not pid:
        try:
            work(*args)
        except BaseException as error:
            print(error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("inherited", [False, True])
def test_a_forked_child_is_not_in_the_scope_of_the_moment_of_the_fork(inherited: bool) -> None:
    code = """
def child(carrier):
    call("forked")
    with tenuto.extract(carrier):
        call("extracted")
    with run.agent("own"):
        call("own")
    call("after")

with tenuto.run("forking") as run, run.agent("parent"):
    forked(child, tenuto.inject())
    call("parent")
"""
    recorder = Recorder()
    with serving(recorder) as url:
        env = environ(url)
        if inherited:
            with tenuto.run("of the process"):
                env = tenuto.environment(env)
        assert python(FORKED + code, env) == ""
    run = tenuto.run("forking")
    parent = run.agent("parent").session_id
    assert sessions(recorder) == {
        "forked": None,
        "extracted": parent,
        "own": run.agent("own").session_id,
        "after": None,
        "parent": parent,
    }


def test_a_forked_pools_workers_never_show_the_run_that_they_were_forked_in() -> None:
    code = """
def work(carrier, text):
    call(f"plain {text}")
    with tenuto.extract(carrier):
        call(text)

fork = multiprocessing.get_context("fork")
with tenuto.run("first"):
    pool = fork.Pool(1)
    pool.apply(work, (tenuto.inject(), "first"))
with tenuto.run("second"):
    pool.apply(work, (tenuto.inject(), "second"))
pool.close()
pool.join()
os._exit(0)
"""
    # The pool's own thread makes the fork one of a process with threads.
    code = "import warnings; warnings.simplefilter('ignore', DeprecationWarning)\n" + code
    recorder = Recorder()
    with serving(recorder) as url:
        python(code, environ(url))
    assert sessions(recorder) == {
        "plain first": None,
        "plain second": None,
        "first": tenuto.run("first").session_id,
        "second": tenuto.run("second").session_id,
    }


def test_a_lock_that_is_held_at_the_fork_stops_no_child(tmp_path: Path) -> None:
    code = """
import signal, threading, types
from tenuto import install_key, process

def child():
    # One that waits for a lock is to end all the same.
    signal.alarm(20)
    with run, run.agent("a"):
        call("in the same agent")
    with run:
        call("in the same run")
    with tenuto.run("forking"):
        call("in the run made again")

run = tenuto.run("forking")
with run, run.agent("a"):
    call()
held = [process.SESSIONS, run._session.state, *vars(install_key).values()]
held += [value for one in held if isinstance(one, type) for value in vars(one).values()]
locks = [getattr(one, "_lock", one) for one in held if not isinstance(one, types.ModuleType)]
locks = [lock for lock in locks if isinstance(lock, type(threading.RLock()))]
assert len(locks) == 3
held, done = threading.Event(), threading.Event()

def hold():
    for lock in locks:
        lock.acquire()
    held.set()
    done.wait(20)
    for lock in locks:
        lock.release()

holder = threading.Thread(target=hold)
holder.start()
held.wait(20)
forked(child)
done.set()
holder.join()
call("parent")
"""
    recorder = Recorder()
    with serving(recorder) as url:
        env = environ(url, TENUTO_KEY_FILE=str(tmp_path / "key"))
        del env["TENUTO_KEY"]
        assert python(FORKED + code, env) == ""
    ids = sessions(recorder)
    assert ids["in the same run"] == ids["in the run made again"] is not None
    assert len(recorder.arrived) == 5
