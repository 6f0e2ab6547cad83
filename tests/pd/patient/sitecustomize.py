"""Loaded by the servers' interpreters: their loops wait asleep.

vLLM's executor waits with `sched_yield`, which on Linux 6.18 keeps other processes of two cores
waiting for seconds: longer than a lease of these tests.
"""

import os
import time

os.sched_yield = lambda: time.sleep(0.0002)
