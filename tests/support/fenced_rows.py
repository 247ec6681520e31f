"""Ways to write the account 7 with SQLAlchemy: a test file that had them would load it in each worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import and_, create_engine, select, text, true
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from support.accounts import Account, Base

from redlock_fast.integrations.sqlalchemy import fenced_update, written


def create_account(url: str) -> None:
    """A database with one account."""
    with opened(url) as engine:
        Base.metadata.drop_all(engine)
        Base.metadata.create_all(engine)
        with Session(engine) as session, session.begin():
            session.add(Account(id=7, balance=100))


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

__all__ = ["WAYS", "Account", "and_", "create_account", "fenced_update", "opened", "select", "text", "true"]
