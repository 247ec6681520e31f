"""Executes the Lua scripts of a memory master, by lupa: the same texts that real servers execute."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError
from .database import ErrorReply, Status, number_text

#: What scripts find besides the standard library. A script that fails raises ErrorReply through Lua.
PRELUDE = """
local call, pcall, sha1hex = ...
redis = {
  call = call, pcall = pcall, sha1hex = sha1hex,
  error_reply = function(text) return {err = text} end,
  status_reply = function(text) return {ok = text} end,
}
"""


def find_lua() -> Any:
    """The Lua of the servers, as a module of lupa. Raises ConfigError."""
    try:
        return importlib.import_module("lupa.lua51")
    except ImportError:
        raise ConfigError(
            "masters in memory execute Lua scripts with lupa: pip install 'redlock-fast[testing]'"
        ) from None


class Scripts:
    """The scripts that a master has loaded. ``execute``: returns the reply to a command."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self._lupa = find_lua()
        self._execute = execute
        self._lua: Any = self._lupa.LuaRuntime(
            encoding=None, unpack_returned_tuples=True, register_eval=False, register_builtins=False
        )
        self._functions: dict[bytes, Any] = {}
        prepare = self._lua.compile(PRELUDE.encode())
        prepare(self._call, self._pcall, lambda text: sha1(_word(text)))

    def load(self, text: bytes) -> bytes:
        """Compile a script; returns its SHA1. Raises ErrorReply."""
        digest = sha1(text)
        if digest not in self._functions:
            try:
                self._functions[digest] = self._lua.compile(text)
            except self._lupa.LuaError as error:
                raise ErrorReply(f"ERR Error compiling script: {error}") from None
        return digest

    def run(self, digest: bytes, count: bytes, *words: bytes) -> Any:
        """The reply of a script. ``words``: ``count`` keys, then its other arguments. Raises ErrorReply."""
        function = self._functions.get(digest.lower())
        if function is None:
            raise ErrorReply("NOSCRIPT No matching script. Please use EVAL.")
        names = self._lua.globals()
        names[b"KEYS"] = self._lua.table_from(words[: int(count)])
        names[b"ARGV"] = self._lua.table_from(words[int(count) :])
        try:
            return self._reply(function())
        except self._lupa.LuaError as error:
            raise ErrorReply(f"ERR {error}") from None

    def _call(self, *words: Any) -> Any:
        return self._value(self._execute(*map(_word, words)))

    def _pcall(self, *words: Any) -> Any:
        try:
            return self._call(*words)
        except ErrorReply as error:
            return self._lua.table_from({b"err": str(error).encode()})

    def _value(self, reply: Any) -> Any:
        """A reply as scripts see it."""
        if isinstance(reply, Status):
            return self._lua.table_from({b"ok": bytes(reply)})
        if isinstance(reply, list):
            return self._lua.table_from([self._value(one) for one in reply])
        return False if reply is None else reply

    def _reply(self, value: Any) -> Any:
        """What a script returned, as a reply."""
        if value is None or isinstance(value, bool):
            return 1 if value else None
        if isinstance(value, (int, float)):
            return int(value)
        if self._lupa.lua_type(value) != "table":
            return value
        if value[b"err"] is not None:
            raise ErrorReply(value[b"err"].decode(errors="backslashreplace"))
        if value[b"ok"] is not None:
            return Status(value[b"ok"])
        return [self._reply(value[place]) for place in range(1, len(value) + 1)]


def sha1(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _word(word: Any) -> bytes:
    """A value of Lua as a word of a command."""
    return word if isinstance(word, bytes) else number_text(word)
