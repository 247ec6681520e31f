"""Text for people: what a server said, names of locks, addresses; without control characters and secrets.

Text of a server is cleaned where it enters Python. A terminal, a log file and an exception can then show it
as it is.
"""

from __future__ import annotations

import re

#: Characters of one error of a server, and of a lock's name.
MAX_SAID = 200
MAX_NAME = 120


def clean(said: str | bytes, limit: int = MAX_SAID) -> str:
    """``said`` as printable characters, ``limit`` at most.

    Control characters, bidirectional controls, line separators and bytes that are no UTF-8 are escaped.
    """
    text = said.decode(errors="backslashreplace") if isinstance(said, bytes) else said
    shown = "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def quoted(name: str | bytes | tuple[str | bytes, ...]) -> str:
    """The repr of a lock's name or names, of ``MAX_NAME`` characters at most."""
    shown = repr(name[:MAX_NAME])
    return shown if len(name) <= MAX_NAME >= len(shown) else shown[: MAX_NAME - 3] + "..."


_SCHEME = re.compile(r"\w[\w+]*:/+")
_OPTION = re.compile(r"[?&]\w+=")
_HOST = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])"
#: Hosts with ports, a number of a database or the name of a service: an address without a login.
_PUBLIC = re.compile(rf"(?:{_HOST}(?::\d{{1,5}})?(?:,{_HOST}(?::\d{{1,5}})?)*)(?:/[\w.-]*(?:/\d*)?)?")


def redacted(url: str) -> str:
    """What of a URL, even of a broken one, is no secret: as much of its address as is certain."""
    match = _SCHEME.match(url)
    scheme = match.group() if match else ""
    login, at, address = url.removeprefix(scheme).rpartition("@")
    if at and _OPTION.search(login):  # the "@" may be part of an option's value
        return f"{scheme}***"
    address = re.split("[?#]", address, maxsplit=1)[0]
    if not (at or scheme.startswith("unix") or _PUBLIC.fullmatch(address)):
        address = f"{re.match('[a-zA-Z0-9.-]*', address).group()}***"  # type: ignore[union-attr]
    return clean(f"{scheme}{'***@' if at else ''}{address}")


def without_logins(text: str) -> str:
    """``text`` without the users and passwords of the URLs in it."""
    parts = re.split(r"(?=\b\w[\w+]*://)", text)
    shown = [re.sub(r"://.*@", "://***@", part, flags=re.DOTALL) for part in parts]
    return re.sub(r"(password=)[^\s&]*", r"\1***", "".join(shown))
