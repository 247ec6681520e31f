"""Fenced updates on real databases: an earlier holder changes no row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.postgres import postgres
from support.thorough import MORE

from redlock_fast import ConfigError, FastRedlock, StaleToken
from redlock_fast.embedded import Masters

WAYS = ["Core", "ORM", "Core, asyncio", "ORM, asyncio"]
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
def rows() -> Any:
    pytest.importorskip("sqlalchemy", reason="no SQLAlchemy: pip install 'redlock-fast[integrations-test]'")
    from support import fenced_rows

    return fenced_rows


@pytest.fixture
def urls(rows: Any, database: str) -> tuple[str, str]:
    """The URLs for blocking and for asyncio, of a database with one account."""
    kind, _, rest = database.partition(":")
    blocking, loop = DRIVERS[kind]
    rows.create_account(f"{blocking}:{rest}")
    return f"{blocking}:{rest}", f"{loop}:{rest}"


@pytest.mark.parametrize("way", WAYS)
def test_a_later_token_wins(rows: Any, urls: tuple[str, str], way: str) -> None:
    if "asyncio" in way and urls[1].startswith("sqlite"):
        pytest.importorskip("aiosqlite", reason="no aiosqlite: pip install 'redlock-fast[integrations-test]'")
    column, run = rows.WAYS[way]
    old, new = 1_800_000_000_000_000, 1_800_000_000_000_001  # 64 bits

    def write(token: int, **values: int) -> int:
        change = rows.fenced_update(column, token).where(rows.Account.__table__.c.id == 7)
        return run(urls, change.values(**values) if values else change)

    assert write(old, balance=110) == 1, "the first token of a row"
    assert write(old, balance=120) == 1, "a holder writes again"
    assert write(new) == 1, "the token alone"
    with pytest.raises(StaleToken, match="later token"):
        write(old, balance=0)
    with rows.opened(urls[0]) as engine, engine.connect() as connection:
        assert connection.execute(rows.select(rows.Account.balance, rows.Account.fence)).one() == (120, new)
    with pytest.raises(StaleToken, match="does not exist"):
        run(urls, rows.fenced_update(column, new + 1).where(rows.Account.__table__.c.id == 8))


@pytest.mark.parametrize("way", WAYS)
def test_text_of_where_does_not_open_the_fence(rows: Any, urls: tuple[str, str], way: str) -> None:
    """Catches: an OR in a text, which binds less than the AND behind the fence."""
    if "asyncio" in way and urls[1].startswith("sqlite"):
        pytest.importorskip("aiosqlite", reason="no aiosqlite: pip install 'redlock-fast[integrations-test]'")
    column, run = rows.WAYS[way]
    change = rows.fenced_update(column, 5).where(rows.text("id = 8 OR id = 7"))
    assert run(urls, change) == 1
    change = rows.fenced_update(column, 4).where(rows.text("id = 8 OR id = 7"), rows.true())
    with pytest.raises(StaleToken):
        run(urls, change.values(balance=0))
    with pytest.raises(StaleToken):
        run(urls, change.filter(rows.and_(rows.text("id = 8 OR id = 7"), True)).values(balance=0))
    assert str(change.where()) == str(change)


@pytest.mark.parametrize("way", WAYS)
def test_no_value_of_the_caller_replaces_the_token(rows: Any, urls: tuple[str, str], way: str) -> None:
    """Catches: all values of a row that was read before set an earlier token, and so open the fence."""
    if "asyncio" in way and urls[1].startswith("sqlite"):
        pytest.importorskip("aiosqlite", reason="no aiosqlite: pip install 'redlock-fast[integrations-test]'")
    column, run = rows.WAYS[way]
    change = rows.fenced_update(column, 9).where(rows.Account.__table__.c.id == 7)
    for row in ({"balance": 1, "fence": 3}, {column: 3}, {rows.Account.__table__.c.fence: None}, (7, 1, 3)):
        with pytest.raises(ConfigError, match="sets fence by itself"):
            change.values(row)
    with pytest.raises(ConfigError, match="sets fence by itself"):
        change.values(balance=1, fence=3)
    with pytest.raises(ConfigError, match="sets fence by itself"):
        change.ordered_values((column, 3))
    assert run(urls, change.values({column.table.c.balance: 1})) == 1


@pytest.mark.parametrize("column", ["Core", "ORM"])
def test_no_parameter_of_the_caller_replaces_the_token(rows: Any, urls: tuple[str, str], column: str) -> None:
    """Catches: a parameter with the name of the column, or with the name that SQLAlchemy gives the token."""
    fence, _ = rows.WAYS[column]
    with rows.opened(urls[0]) as engine, engine.begin() as connection:

        def write(token: int) -> int:
            row = {"balance": token, "fence": 1, "fence_1": 99}
            change = rows.fenced_update(fence, token).where(rows.Account.__table__.c.id == 7)
            return int(rows.written(connection.execute(change, row)))

        assert write(9) == 1
        assert connection.execute(rows.select(rows.Account.balance, rows.Account.fence)).one() == (9, 9)
        with pytest.raises(StaleToken):
            write(8)


@pytest.mark.parametrize("way", WAYS)
def test_a_result_with_rows_is_refused(rows: Any, urls: tuple[str, str], way: str) -> None:
    """The number of its rows is unknown. Catches: StaleToken although the row was written."""
    if "asyncio" in way and urls[1].startswith("sqlite"):
        pytest.importorskip("aiosqlite", reason="no aiosqlite: pip install 'redlock-fast[integrations-test]'")
    column, run = rows.WAYS[way]
    change = rows.fenced_update(column, 5).where(rows.Account.__table__.c.id == 7).values(balance=120)
    with pytest.raises(ConfigError, match="without returning"):
        run(urls, change.returning(rows.Account.__table__.c.balance))
    assert run(urls, change) == 1


def test_rows_for_the_session_are_no_rows_of_the_result(rows: Any, urls: tuple[str, str]) -> None:
    """The ORM adds a clause of its own, to refresh its objects."""
    column, run = rows.WAYS["ORM"]

    def change(token: int) -> Any:
        update = rows.fenced_update(column, token).where(rows.Account.__table__.c.id == 7)
        return update.execution_options(synchronize_session="fetch")

    assert run(urls, change(5)) == 1
    with pytest.raises(StaleToken):
        run(urls, change(4))


@pytest.mark.parametrize("database", DRIVERS if MORE else ["sqlite"], indirect=True)
def test_a_process_that_wakes_up_late_changes_no_row(
    rows: Any, urls: tuple[str, str], valkey: Masters
) -> None:
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
    with rows.opened(urls[0]) as engine, engine.connect() as connection:
        assert connection.execute(rows.select(rows.Account.balance)).scalar() == 1100


def test_bad_arguments(rows: Any) -> None:
    with FastRedlock(["redis://a"]) as client:
        for token in (client.lock("r", fencing=True).fencing_token, True, "1"):
            with pytest.raises(ConfigError, match="token must be the fencing_token of a held lock"):
                rows.fenced_update(rows.Account.fence, token)
    with pytest.raises(ConfigError, match="column must be a column of a table, not str"):
        rows.fenced_update("fence", 1)
