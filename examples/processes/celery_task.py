"""A Celery task that goes on in the session that sent it: the carrier is in its headers.

The worker runs in this process; the same task class serves workers in others.
"""

from __future__ import annotations

from typing import Any

import celery

import tenuto
from examples.processes.calls import ask, server


class SessionTask(celery.Task):
    """Sends the session in scope along, and runs in the one that was sent.

    Later steps of a chain are sent by a worker that is done with the scope:
    give them `headers` yourself, `step.s().set(headers=tenuto.inject())`.
    """

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Send the task; `delay` and `retry` come here too."""
        options["headers"] = tenuto.inject(dict(options.get("headers") or {}))
        return super().apply_async(args, kwargs, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task, for a worker or for who calls it as a function."""
        if self.request.called_directly:
            return self.run(*args, **kwargs)
        with tenuto.extract(self.request.headers):
            return self.run(*args, **kwargs)


app = celery.Celery("agents", task_cls=SessionTask, broker="memory://", backend="cache+memory://")


@app.task
def think(text: str) -> str:
    return ask(text)


def main() -> None:
    from celery.contrib.testing.worker import start_worker

    with server(), start_worker(app, pool="solo", perform_ping_check=False):
        with tenuto.run("ticket-4711") as run, run.agent("planner"):
            ask("plan")
        with run.agent("worker"):
            think.delay("work").get(timeout=30)
            think.delay("work on").get(timeout=30)


if __name__ == "__main__":
    main()
