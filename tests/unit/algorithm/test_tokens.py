"""Tokens are drawn ahead, and never used twice: not by a clone of the process either."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redlock_fast.algorithm.tokens import DRAWN_AT_ONCE, TOKEN_SIZE, new_token, new_tokens

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
