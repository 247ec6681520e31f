"""Fenced updates in SQLAlchemy: a statement that a holder with a later token has made useless is refused.

    from redlock_fast.integrations.sqlalchemy import fenced_update, written

    with client.lock("account:7", fencing=True) as lock, Session(engine) as session, session.begin():
        change = fenced_update(Account.fence, lock.fencing_token).where(Account.id == 7)
        written(session.execute(change.values(balance=120)))

See docs/fencing.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..errors import ConfigError, StaleToken, needs

with needs("sqlalchemy", "sqlalchemy>=2"):
    from sqlalchemy import Column, Result, Update, and_, bindparam, or_
    from sqlalchemy.orm import QueryableAttribute
    from sqlalchemy.sql.elements import Grouping


class _FencedUpdate(Update):
    """Puts each ``where()`` in brackets. An OR in its text would let rows through that the fence refuses.

    Refuses values for the column of the tokens: an earlier token there would let later writes of its holder
    through. ``_fence``: the names of that column.
    """

    inherit_cache = True
    _fence: frozenset[str] = frozenset()

    def where(self, *criteria: Any) -> Self:
        return super().where(Grouping(and_(*criteria))) if criteria else self

    def values(self, *args: Any, **kwargs: Any) -> Self:
        for values in args:
            self._refuse(values if isinstance(values, Mapping) else self.table.columns.keys())
        self._refuse(kwargs)
        return super().values(*args, **kwargs)

    def ordered_values(self, *args: tuple[Any, Any]) -> Self:
        self._refuse(column for column, _ in args)
        return super().ordered_values(*args)

    def _refuse(self, columns: Iterable[Any]) -> None:
        """Raise ConfigError if the column of the tokens is one of these."""
        for column in columns:
            name = getattr(column, "key", column)
            if name in self._fence:
                raise ConfigError(f"a fenced update sets {name} by itself: leave it out of its values")


def fenced_update(column: QueryableAttribute[Any] | Column[Any], token: int | None) -> Update:
    """``update()`` of the table of ``column``, which holds the largest token that has written to a row.

    The statement compares and sets ``column``: a row with a larger token does not change. It still needs a
    ``where()`` for the rows, and ``values()`` of other columns. Without ``values()`` it only sets the token:
    as the first statement of a transaction it refuses earlier holders before the holder reads. Works with
    Core and ORM, for sessions and connections, also of asyncio. ``column``: 64 bits (``BigInteger``); NULL is
    a row that no token has written to. ``token``: ``lock.fencing_token``.

    Examples:
        >>> change = fenced_update(Account.fence, lock.fencing_token).where(Account.id == 7)
        >>> written(session.execute(change.values(balance=120)))

    Raises:
        ConfigError: No column of a table, or no token: the lock is not held, or not with ``fencing=True``.
    """
    if isinstance(token, bool) or not isinstance(token, int):
        raise ConfigError(
            f"token must be the fencing_token of a held lock with fencing=True, not {type(token).__name__}"
        )
    if not isinstance(column, (QueryableAttribute, Column)):
        raise ConfigError(f"column must be a column of a table, not {type(column).__name__}")
    table = column.class_ if isinstance(column, QueryableAttribute) else column.table
    # In brackets it does not get the name of the column: a parameter of execute() would replace it.
    value = Grouping(bindparam("redlock_fast_token", token, column.type, unique=True))
    update = _FencedUpdate(table).where(or_(column.is_(None), column <= value)).values({column: value})
    update._fence = frozenset(filter(None, (column.key, *(one.key for one in column.base_columns))))
    return update


def written(result: Result[Any]) -> int:
    """The number of rows that a fenced update changed, at least 1.

    Examples:
        >>> written(await connection.execute(change.values(balance=120)))

    Raises:
        StaleToken: No row was changed. Roll back, stop, and forget what was read under the lock.
        ConfigError: No result of an update, or one of an update with ``returning()``: drivers do not count
            the rows that it changed.
    """
    if _returns(result):
        raise ConfigError(
            "written() needs the result of a fenced update without returning(), because drivers do not count "
            "the rows that such an update changed; read them with a select() after written()"
        )
    rows: int = getattr(result, "rowcount", -1)
    if rows < 1:
        raise StaleToken(
            f"the fenced update changed no row (rowcount {rows}): "
            "a holder with a later token has written, or the row does not exist"
        )
    return rows


def _returns(result: Any) -> bool:
    """Whether the statement of ``result`` has a ``returning()``.

    ``returns_rows`` does not say so: the ORM adds a clause of its own, to refresh the objects of a session.
    """
    statement = getattr(getattr(result, "context", None), "invoked_statement", None)
    return statement is None or len(getattr(statement, "exported_columns", ())) > 0


__all__ = ["fenced_update", "written"]
