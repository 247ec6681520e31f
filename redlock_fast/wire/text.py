"""Text to show: server errors, names of locks and addresses, without control characters and secrets.

A server's text is cleaned where it enters Python. Terminals, log files and exceptions can then show it
unchanged.
"""

from __future__ import annotations

import re

#: Largest number of characters of a server's error, and of a lock's name.
MAX_SAID = 200
MAX_NAME = 120


def clean(said: str | bytes, limit: int = MAX_SAID) -> str:
    """``said`` as at most ``limit`` printable characters.

    Control characters, bidirectional controls, line separators and bytes that are not UTF-8 are escaped.
    """
    text = said.decode(errors="backslashreplace") if isinstance(said, bytes) else said
    if len(text) <= limit and text.isprintable():
        return text
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


def quoted(name: str | bytes | tuple[str | bytes, ...]) -> str:
    """A lock's name or names in quotes, with at most ``MAX_NAME`` characters. Bytes look like text."""
    shown = f"({', '.join(map(_quoted, name[:MAX_NAME]))})" if isinstance(name, tuple) else _quoted(name)
    return shown if len(shown) <= MAX_NAME else shown[: MAX_NAME - 3] + "..."


def _quoted(name: str | bytes) -> str:
    try:
        return repr(name if isinstance(name, str) else name.decode())
    except UnicodeDecodeError:
        return repr(name)[1:]


def shown(name: str | bytes | tuple[str | bytes, ...]) -> str:
    """A lock's name or names as the field ``resource`` of a log record has them: text without quotes."""
    names = name if isinstance(name, tuple) else (name,)
    return clean(", ".join(one if isinstance(one, str) else clean(one) for one in names))


_SCHEME = re.compile(r"\w[\w+]*:/+")
_OPTION = re.compile(r"[?&]\w+=")
_HOST = r"(?:[\w.-]+|\[[\da-fA-F:.]+\])"
#: An address without a login: hosts with ports, and a database number or service name.
_PUBLIC = re.compile(rf"(?:{_HOST}(?::\d{{1,5}})?(?:,{_HOST}(?::\d{{1,5}})?)*)(?:/[\w.-]*(?:/\d*)?)?")


def redacted(url: str) -> str:
    """``url`` without secrets. Of a malformed URL, only what is certainly a part of the address is kept."""
    match = _SCHEME.match(url)
    scheme = match.group() if match else ""
    login, at, address = url.removeprefix(scheme).rpartition("@")
    if at and _OPTION.search(login):  # the "@" may belong to an option's value
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
