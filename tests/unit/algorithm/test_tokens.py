"""Tokens are drawn ahead, and never used twice: not by a clone of the process either."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterable

import pytest

from redlock_fast.algorithm import tokens as tokens_module
from redlock_fast.algorithm.tokens import (
    DRAWN_AT_ONCE,
    TOKEN_SIZE,
    new_token,
    new_tokens,
    owner_of,
    owner_part,
    tokens_of,
)

RANDOM = bytes(TOKEN_SIZE)

#: Both processes have the same random bits in memory. With the fork of C no hook of Python runs: as after a
#: restored snapshot.
CLONE = """
import ctypes, os, sys
from redlock_fast.algorithm.tokens import new_token
new_token()
there, here = os.pipe()
child = os.fork() if sys.argv[1] == "Python" else ctypes.PyDLL(None).fork()
tokens = b"".join(new_token() for _ in range(10))
if not child:
    os.write(here, tokens)
    os._exit(0)
os.waitpid(child, 0)
print(tokens.hex(), os.read(there, 1000).hex())
"""


def test_tokens_differ() -> None:
    tokens = [new_token() for _ in range(3 * DRAWN_AT_ONCE)] + new_tokens(100)
    assert {len(token) for token in tokens} == {TOKEN_SIZE}
    assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize(("fork", "differs"), [("C", TOKEN_SIZE), ("Python", 12)])
def test_a_cloned_process_draws_other_tokens(fork: str, differs: int) -> None:
    """After a fork of Python also the part that is random only: the other one has the time in it."""
    python = [sys.executable, "-c", CLONE, fork]
    done = subprocess.run(python, capture_output=True, text=True, timeout=60, check=True)
    one, other = map(bytes.fromhex, done.stdout.split())
    assert len(one) == len(other) == 10 * TOKEN_SIZE
    drawn = one + other
    assert len({drawn[at : at + differs] for at in range(0, len(drawn), TOKEN_SIZE)}) == 20


@pytest.mark.parametrize("owner", ["web-1:4711:MainThread", "ä" * 32, "x", "="])
def test_a_token_names_its_owner(owner: str) -> None:
    token, tokens = tokens_of(lambda: owner_part(owner))
    both = [token(), *tokens(2)]
    assert [owner_of(one) for one in both] == [owner] * 3
    assert len({one[:TOKEN_SIZE] for one in both}) == 3
    assert owner_of(both[0] + b"12") == owner, "a read-write lock writes its round behind the token"
    assert owner_of(both[0] + b"x") == owner_of(both[0][:-1]) == owner_of(both[0][1:]) == ""


def test_foreign_tokens_name_none() -> None:
    texts = ["", "x", "z" * 22, str(uuid.uuid4()), uuid.uuid4().hex * 3, "owner=ä by=me" * 5]
    foreign = [new_token(), uuid.uuid4().bytes, b"\xff" * 90, *(text.encode() for text in texts)]
    foreign += [os.urandom(size) for size in range(20, 120) for _ in range(50)]
    assert {owner_of(token) for token in foreign} == {""}


def test_a_hostile_owner_is_shown_without_control_characters() -> None:
    hostile = RANDOM + b"\xffby=\x1b[2J\n\xe2\x80\xaeevil\xff"
    assert owner_of(hostile) == "\\x1b[2J\\n\\u202eevil"
    assert owner_of(RANDOM + b"\xffby=\xc3\x28\xff") == "", "no UTF-8"
    assert owner_of(RANDOM + b"\xffby=" + b"x" * 65 + b"\xff") == ""
    assert owner_of(RANDOM + b"\xffby=\xff") == ""


def test_other_threads_use_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the draw and the use other threads may run, and take all of it."""

    class Emptied(list[tuple[bytes, int]]):
        draws = 0

        def extend(self, drawn: Iterable[tuple[bytes, int]]) -> None:
            self.draws += 1
            if self.draws > 2:
                super().extend(drawn)

    drawn = Emptied()
    monkeypatch.setattr(tokens_module, "_drawn", drawn)
    assert len(new_token()) == TOKEN_SIZE
    assert (drawn.draws, len(drawn)) == (3, DRAWN_AT_ONCE - 1)
