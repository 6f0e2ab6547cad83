"""One session in several processes: each program here runs by itself.

python -m examples.processes.pool         # ProcessPoolExecutor, started by spawn
python -m examples.processes.child        # a child process, by its environment
python -m examples.processes.durable      # a workflow that crashes and is replayed
python -m examples.processes.celery_task  # a Celery task, by its headers (pip install celery)

They start the embedded engine; OPENAI_BASE_URL and OPENAI_MODEL name another server.
"""
