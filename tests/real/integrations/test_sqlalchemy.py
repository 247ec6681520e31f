"""Fenced updates on real databases: an earlier holder changes no row."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.postgres import postgres
from support.thorough import MORE

from redlock_fast import ConfigError, FastRedlock, StaleToken
from redlock_fast.embedded import Masters

sqlalchemy = pytest.importorskip(
    "sqlalchemy", reason="no SQLAlchemy: pip install 'redlock-fast[integrations-test]'"
)

from sqlalchemy import create_engine, select  # noqa: E402
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine  # noqa: E402
from sqlalchemy.orm import Session  # noqa: E402
from support.accounts import Account, Base  # noqa: E402

from redlock_fast.integrations.sqlalchemy import fenced_update, written  # noqa: E402

WORKER = Path(__file__).parents[2] / "support" / "worker_fenced_update.py"
#: The same database for blocking and for asyncio.
DRIVERS = {
    "postgresql": ("postgresql+psycopg", "postgresql+psycopg"),
    "sqlite": ("sqlite", "sqlite+aiosqlite"),
}


@pytest.fixture(scope="module", params=DRIVERS)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The part of a URL behind the driver."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('accounts') / 'accounts'}"
        return
    pytest.importorskip("psycopg", reason="no psycopg: pip install 'redlock-fast[integrations-test]'")
    with postgres() as folder:
        yield f"postgresql://postgres@/postgres?host={folder}"


@pytest.fixture
def urls(database: str) -> tuple[str, str]:
    """The URLs for blocking and for asyncio, of a database with one account."""
    kind, _, rest = database.partition(":")
    blocking, loop = DRIVERS[kind]
    with opened(f"{blocking}:{rest}") as engine:
        Base.metadata.drop_all(engine)
        Base.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            session.add(Account(id=7, balance=100))
    return f"{blocking}:{rest}", f"{loop}:{rest}"


@contextmanager
def opened(url: str) -> Iterator[Any]:
    engine = create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def core(url: str, change: Any) -> int:
    with opened(url) as engine, engine.begin() as connection:
        return written(connection.execute(change))


def orm(url: str, change: Any) -> int:
    """The session has the row, and sees the new values."""
    with opened(url) as engine, Session(engine) as session, session.begin():
        account = session.get_one(Account, 7)
        rows = written(session.execute(change))
        assert account.fence == session.scalar(select(Account.fence))
        return rows


async def aio_core(url: str, change: Any) -> int:
    engine = create_async_engine(url)
    try:
        async with engine.begin() as connection:
            return written(await connection.execute(change))
    finally:
        await engine.dispose()


async def aio_orm(url: str, change: Any) -> int:
    engine = create_async_engine(url)
    try:
        async with AsyncSession(engine) as session, session.begin():
            await session.get_one(Account, 7)
            return written(await session.execute(change))
    finally:
        await engine.dispose()


WAYS: dict[str, tuple[Any, Callable[[tuple[str, str], Any], int]]] = {
    "Core": (Account.__table__.c.fence, lambda urls, change: core(urls[0], change)),
    "ORM": (Account.fence, lambda urls, change: orm(urls[0], change)),
    "Core, asyncio": (Account.__table__.c.fence, lambda urls, change: asyncio.run(aio_core(urls[1], change))),
    "ORM, asyncio": (Account.fence, lambda urls, change: asyncio.run(aio_orm(urls[1], change))),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_later_token_wins(urls: tuple[str, str], way: str) -> None:
    if "asyncio" in way and urls[1].startswith("sqlite"):
        pytest.importorskip("aiosqlite", reason="no aiosqlite: pip install 'redlock-fast[integrations-test]'")
    column, run = WAYS[way]
    old, new = 1_800_000_000_000_000, 1_800_000_000_000_001  # 64 bits

    def write(token: int, **values: int) -> int:
        change = fenced_update(column, token).where(Account.__table__.c.id == 7)
        return run(urls, change.values(**values) if values else change)

    assert write(old, balance=110) == 1, "the first token of a row"
    assert write(old, balance=120) == 1, "a holder writes again"
    assert write(new) == 1, "the token alone"
    with pytest.raises(StaleToken, match="later token"):
        write(old, balance=0)
    with opened(urls[0]) as engine, engine.connect() as connection:
        assert connection.execute(select(Account.balance, Account.fence)).one() == (120, new)
    with pytest.raises(StaleToken, match="does not exist"):
        run(urls, fenced_update(column, new + 1).where(Account.__table__.c.id == 8))


@pytest.mark.parametrize("database", DRIVERS if MORE else ["sqlite"], indirect=True)
def test_a_process_that_wakes_up_late_changes_no_row(urls: tuple[str, str], valkey: Masters) -> None:
    """It stops under the lock; its lease ends, a master dies, another process writes; then it goes on."""

    def start(amount: int, ttl: float, stops: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(WORKER), urls[0], str(amount), str(ttl), stops, *valkey.urls]
        folder = str(WORKER.parents[1])
        return subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": folder}, stdout=subprocess.PIPE, text=True
        )

    with start(1, 1.0, "stops") as late:
        assert late.stdout is not None
        assert late.stdout.readline() == "stopped\n"
        os.waitid(os.P_PID, late.pid, os.WSTOPPED | os.WNOWAIT)
        valkey[0].kill()
        with start(1000, 20.0, "goes on") as other:
            assert other.communicate()[0] == "1\n"
        late.send_signal(signal.SIGCONT)
        assert late.communicate()[0] == "0\n"
    assert (late.returncode, other.returncode) == (0, 0)
    with opened(urls[0]) as engine, engine.connect() as connection:
        assert connection.execute(select(Account.balance)).scalar() == 1100


def test_bad_arguments() -> None:
    with FastRedlock(["redis://a"]) as client:
        for token in (client.lock("r", fencing=True).fencing_token, True, "1"):
            with pytest.raises(ConfigError, match="token must be the fencing_token of a held lock"):
                fenced_update(Account.fence, token)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="column must be a column of a table, not str"):
        fenced_update("fence", 1)  # type: ignore[arg-type]
