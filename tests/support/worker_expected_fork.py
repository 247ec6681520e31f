"""Forks in C beside threads that run Python all the time, in a process that expects them, as uWSGI's master.

``python worker_expected_fork.py ENGINE LIBRARY URL...``: LIBRARY is CDLL, which forks without the GIL, or
PyDLL. Prints how many children locked, and whether the lock of the parent outlived them.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading

from support.forking import exit_code, fork_child
from support.inside import core_of

from redlock_fast import FastRedlock

ENGINE, LIBRARY, *URLS = sys.argv[1:]
CHILDREN = 20
client = FastRedlock(URLS, engine=ENGINE, node_timeout=5.0, connect_timeout=20.0, restart_guard="off")
held = client.lock("held", 60.0, auto_extend=True)
assert held.acquire()
done = threading.Event()


def busy() -> None:
    while not done.is_set():
        sum(range(1000))


def in_child() -> None:
    assert not held.locked()
    with client.lock("counter", 60.0, timeout=60.0) as lock:
        assert lock.extend() > 0


threads = [threading.Thread(target=busy) for _ in range(3)]
for thread in threads:
    thread.start()
core_of(client).client_state.expect_fork()
fork = getattr(ctypes, LIBRARY)(None).fork
codes = [exit_code(fork_child(in_child, fork)) for _ in range(CHILDREN)]
done.set()
for thread in threads:
    thread.join()
print(json.dumps({"children": codes.count(0), "held": held.extend(confirm=True) > 0 and held.release()}))
client.close()
