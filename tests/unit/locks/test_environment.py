"""A client with the masters that the environment names: the rules of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redlock_fast import AsyncFastRedlock, ConfigError, FastRedlock
from redlock_fast.locks.environment import CONFIG, MASTERS

A, B, C = (f"redis://:secret@{host}.invalid" for host in "abc")
FILE = f"""
[redlock-fast]
masters = ["{C}"]
ttl = 20
key_prefix = "app:"
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MASTERS, raising=False)
    monkeypatch.delenv(CONFIG, raising=False)


def hosts(client: Any) -> list[str]:
    return [master.name.partition(".")[0] for master in client.health()]


@pytest.mark.parametrize("client_class", [FastRedlock, AsyncFastRedlock])
def test_variables_go_before_the_file_and_arguments_before_both(
    client_class: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file.toml").write_text(FILE)
    monkeypatch.setenv(CONFIG, str(tmp_path / "file.toml"))
    client = client_class.from_env()
    assert (hosts(client), client._core.policy.ttl, client._core.key_prefix) == (["c"], 20.0, b"app:")
    monkeypatch.setenv(MASTERS, f" {A}, {B}\n")
    client = client_class.from_env(ttl=5.0)
    assert (hosts(client), client._core.policy.ttl, client._core.key_prefix) == (["a", "b"], 5.0, b"app:")


def test_a_subclass_gets_its_own_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(FastRedlock):
        """A client of a program."""

    monkeypatch.setenv(MASTERS, A)
    assert type(Own.from_env()) is Own


def test_what_is_wrong_is_said_without_passwords(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no masters: set REDLOCK_FAST_MASTERS, or name a file"):
        FastRedlock.from_env()
    monkeypatch.setenv(MASTERS, f"{A} {A}")
    with pytest.raises(ConfigError, match="one server") as error:
        FastRedlock.from_env()
    assert "secret" not in str(error.value)
    monkeypatch.setenv(MASTERS, A)
    with pytest.raises(ConfigError, match="has no option 'tttl'"):
        FastRedlock.from_env(tttl=5)  # type: ignore[call-arg]
    monkeypatch.setenv(CONFIG, str(tmp_path / "none.toml"))
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        FastRedlock.from_env()
