"""``redlock-fast break`` asks on a terminal only."""

from __future__ import annotations

import pytest

from redlock_fast import cli


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_without_a_terminal_it_needs_yes(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    masters = ["--masters", "redis://nowhere.invalid"]
    assert cli.main(["break", "orders:42", *masters, *arguments]) == 64
    assert "give --yes" in capsys.readouterr().err
