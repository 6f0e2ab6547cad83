"""Celery tasks that call a model; the queue is a folder, named by `CELERY_QUEUE`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import celery

import tenuto
from examples.processes.celery_task import SessionTask
from tests.asking import ask, client

folder = Path(os.environ["CELERY_QUEUE"])
for name in ("queue", "control"):
    (folder / name).mkdir(exist_ok=True)
app = celery.Celery(
    "agents", task_cls=SessionTask, broker="filesystem://", backend=f"file://{folder}"
)
app.conf.broker_transport_options = {
    "data_folder_in": str(folder / "queue"),
    "data_folder_out": str(folder / "queue"),
    "control_folder": str(folder / "control"),
}


def call(url: str, words: str) -> int:
    """Make one call and return the id of the process that made it."""
    with client(url) as llm:
        ask(llm, words)
    return os.getpid()


@app.task
def think(url: str, words: str) -> int:
    return call(url, words)


@app.task(base=celery.Task)
def plain(url: str, words: str) -> int:
    return call(url, words)


@app.task(bind=True, max_retries=1)
def fails_once(self: Any, url: str, words: str) -> int:
    process = call(url, words)
    if not self.request.retries:
        raise self.retry(countdown=0)
    return process


@app.task
def child(url: str, instance: int) -> int:
    with tenuto.extract(tenuto.inject()) as scope, scope.agent("child", instance=instance):
        return call(url, f"child {instance}")
