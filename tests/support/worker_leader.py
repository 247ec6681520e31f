"""A candidate for a leadership as a process, which writes down when it leads; see ``support.candidates``.

``python -m support.worker_leader '<settings as JSON>'``. For each line on stdin it looks whether it leads,
then writes to the store, and prints both results. It ends at the end of stdin.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
from typing import Any

import redis

from redlock_fast import AsyncFastRedlock, FastRedlock

#: Writes ``ARGV[1]``, a fencing token, unless the store has seen a higher one.
WRITE = """
if tonumber(ARGV[1]) < tonumber(redis.call('get', KEYS[1]) or '0') then return 0 end
redis.call('set', KEYS[1], ARGV[1])
return 1
"""
#: Seconds between two looks.
OFTEN = 0.002


class Diary:
    """Events of this process in a file that all candidates append to. Times are those of the lease clock."""

    def __init__(self, setting: dict[str, Any]) -> None:
        self._file = os.open(setting["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._identity = setting["identity"]

    def note(self, what: str, at: float | None = None, **more: Any) -> None:
        entry = {"candidate": self._identity, "what": what, "at": now() if at is None else at, **more}
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def elected(self, leader: Any) -> None:
        self.note("elected", fence=leader.fencing_token)

    def lost(self, leader: Any, reason: str) -> None:
        self.note("lost", reason=reason, leads=leader.is_leader)

    def watch(self, leader: Any) -> None:
        """Write down the first and the last moment of each time in which ``is_leader`` is True."""
        led, last = False, 0.0
        while True:
            before = now()
            leads = leader.is_leader
            if leads and not led:
                self.note("leads")
            if led and not leads:
                self.note("led", at=last)
            led, last = leads, before
            time.sleep(OFTEN)


def now() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def look(leader: Any, store: redis.Redis) -> None:
    leads = leader.is_leader
    written = store.eval(WRITE, 1, "store", leader.fencing_token)
    print(json.dumps({"leads": leads, "written": bool(written)}), flush=True)


def candidate(client: Any, setting: dict[str, Any], diary: Diary) -> Any:
    return client.leader(
        "chair",
        setting["ttl"],
        identity=setting["identity"],
        on_elected=diary.elected,
        on_lost=diary.lost,
    )


def with_threads(setting: dict[str, Any], options: dict[str, Any], diary: Diary, store: redis.Redis) -> None:
    with (
        FastRedlock(setting["urls"], **options, check_masters="off") as client,
        candidate(client, setting, diary) as leader,
    ):
        threading.Thread(target=diary.watch, args=(leader,), daemon=True).start()
        for _ in sys.stdin:
            look(leader, store)


async def with_asyncio(
    setting: dict[str, Any], options: dict[str, Any], diary: Diary, store: redis.Redis
) -> None:
    async with (
        AsyncFastRedlock(setting["urls"], **options, check_masters="off") as client,
        candidate(client, setting, diary) as leader,
    ):
        threading.Thread(target=diary.watch, args=(leader,), daemon=True).start()
        while await asyncio.to_thread(sys.stdin.readline):
            look(leader, store)


def main() -> None:
    setting = json.loads(sys.argv[1])
    logging.getLogger("redlock_fast").addHandler(logging.NullHandler())
    options = {"engine": setting["engine"], "node_timeout": 0.5, "connect_timeout": 20.0}
    diary = Diary(setting)
    with redis.Redis(port=setting["store"]) as store:
        if setting["client_mode"] == "threads":
            with_threads(setting, options, diary, store)
        else:
            asyncio.run(with_asyncio(setting, options, diary, store))


if __name__ == "__main__":
    main()
