"""What is on real masters, and masters that stop for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from support.waiting import DEADLINE, eventually

from redlock_fast.embedded import Master, Masters
from redlock_fast.masters.membership import KEY

#: No key of a test expires while a client waits for it.
TTL = 60.0
OTHER_CLIENT = b"another client"
#: The request for pushes of changes; Redis 6.2 does not count subcommands by themselves.
CACHING = ("client|caching", "client")


#: The number of keys, without the record of the masters and the marks of clients.
COUNT = (
    "local n=0 for _,key in ipairs(redis.call('keys','*')) do "
    f"if not key:find('{KEY.decode()}',1,true) then n=n+1 end end return n"
)


def with_keys(masters: Masters) -> list[int]:
    """Which of the masters that run have keys of locks."""
    return [n for n, master in enumerate(masters) if master.pid and master.ask(f'EVAL "{COUNT}" 0') != ":0"]


def with_key(masters: Masters, key: str) -> list[int]:
    """Which of the masters that run have this key."""
    return [n for n, master in enumerate(masters) if master.pid and master.ask(f"EXISTS {key}") == ":1"]


def nothing_left(masters: Masters, deadline: float = DEADLINE) -> None:
    try:
        eventually(lambda: not with_keys(masters), "no key of ours is left", deadline=deadline)
    except AssertionError as error:
        script = "return {ok=table.concat(redis.call('keys','*'),' ')}"
        keys = {n: masters[n].ask(f'EVAL "{script}" 0')[:500] for n in with_keys(masters)}
        raise AssertionError(f"{error}: {keys}") from None


def sizes(masters: Masters) -> list[int]:
    """How many keys each of them has."""
    return [int(master.ask("DBSIZE")[1:]) for master in masters]


def names(count: int, of: str = "batch") -> list[str]:
    """So many keys."""
    return [f"{of}:{number}" for number in range(count)]


def values(nodes: Sequence[redis.Redis], key: str | bytes) -> list[Any]:
    return [node.get(key) for node in nodes]


def occupy(nodes: Sequence[redis.Redis], *keys: str | bytes) -> None:
    """Another client holds these on these masters."""
    for node in nodes:
        pairs: dict[Any, Any] = dict.fromkeys(keys, OTHER_CLIENT)
        assert node.mset(pairs)


def forget_calls(nodes: Sequence[redis.Redis]) -> None:
    """``calls`` begins with 0 again."""
    for node in nodes:
        assert node.config_resetstat()


def calls(nodes: Sequence[redis.Redis], *commands: str) -> list[int]:
    """How often each master has executed any of these, since ``forget_calls``."""
    return [
        sum(
            int(stats["calls"])
            for name, stats in node.info("commandstats").items()
            if name.removeprefix("cmdstat_") in commands
        )
        for node in nodes
    ]


@contextlib.contextmanager
def paused(masters: Masters, *numbers: int) -> Iterator[None]:
    for number in numbers:
        masters[number].pause()
    try:
        yield
    finally:
        for number in numbers:
            masters[number].resume()


def forget(masters: Masters) -> None:
    """End all leases on the masters now."""
    for master in masters:
        wipe(master)


def wipe(server: Master | redis.Redis) -> None:
    """Delete all keys without the push of a FLUSHALL: as if each had been evicted."""
    script = "for _,key in ipairs(redis.call('keys','*')) do redis.call('del',key) end return 1"
    if not isinstance(server, redis.Redis):
        assert server.ask(f'EVAL "{script}" 0') == ":1"
    else:
        assert server.eval(script, 0) == 1
