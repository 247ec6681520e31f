"""What redis-py raises while it connects, as the errors of masters: with a code, and without secrets."""

from __future__ import annotations

from ..wire.resp import without_arguments
from ..wire.text import clean
from .probe import ConnectError, Loading, Refused

#: Parts of the texts of servers that refuse a login, and the codes of these replies.
REFUSALS = {"authentica": "NOAUTH", "username-password": "WRONGPASS", "username or password": "WRONGPASS"}
#: Characters of an error.
MAX_TEXT = 500


def connect_error(error: Exception, where: str = "") -> ConnectError:
    """A failure of a connection, as redis-py raised it. ``where``: the end of its text."""
    from redis.exceptions import AuthenticationError, BusyLoadingError, NoPermissionError

    refused = isinstance(error, (AuthenticationError, NoPermissionError))
    kind = Refused if refused else Loading if isinstance(error, BusyLoadingError) else ConnectError
    return kind(error_text(error) + where)


def error_text(error: BaseException) -> str:
    """The text of an exception of redis-py, without secrets. A refusal of this user begins with its code."""
    text = clean(without_arguments(str(error)), MAX_TEXT) or type(error).__name__
    code = _refusal_code(error, text)
    return text if text.startswith(code) else f"{code} {text}"


def _refusal_code(error: BaseException, text: str) -> str:
    """The code that redis-py cuts off the text of a refusal; "" for other errors."""
    from redis.exceptions import AuthenticationError, NoPermissionError

    if isinstance(error, NoPermissionError):
        return "NOPERM"
    if not isinstance(error, AuthenticationError):
        return ""
    # Only newer versions of redis-py keep the code. The texts are those of Redis and Valkey.
    return next((code for part, code in REFUSALS.items() if part in text.lower()), "")
