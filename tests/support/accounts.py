"""A table of accounts with a column for fencing tokens, for SQLAlchemy."""

from __future__ import annotations

from sqlalchemy import BigInteger
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Of all tables."""


class Account(Base):
    __tablename__ = "account"

    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int]
    fence: Mapped[int | None] = mapped_column(BigInteger)
