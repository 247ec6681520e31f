"""deploy/service: the example under load while a master dies, and what it answers where there is no lock."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import redis
from load import Report
from rehearsal import metric, serving, with_a_failure
from support.waiting import DEADLINE, eventually

from redlock_fast import FastRedlock
from redlock_fast.embedded import Masters

#: Seconds. No request fails because the machine is busy, and one that must be refused does not wait long.
PATIENT, IMPATIENT = "60", "0.2"
PASSWORD = "p@ss/word"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "counters.sqlite"


@pytest.fixture
def masters() -> Iterator[Masters]:
    """Masters of this test: one of them is killed."""
    with Masters(5, options=("--requirepass", PASSWORD)) as masters:
        yield masters


@pytest.fixture
def environment(masters: Masters, database: Path, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    return {
        "REDLOCK_FAST_MASTERS": " ".join(masters.urls),
        "REDLOCK_USER": "default",
        "REDLOCK_PASSWORD_FILE": str(tmp_path / "password"),
        "DATABASE": str(database),
    }


def test_counters_are_exact_while_a_master_dies(
    masters: Masters, environment: dict[str, str], database: Path
) -> None:
    settings = environment | {"LOCK_TIMEOUT": PATIENT}
    with serving(settings) as one, serving(settings) as other:
        urls = [one, other]
        assert [metric(url, "redlock_fast_quorum") for url in urls] == [3, 3], "they are up"
        report = asyncio.run(with_a_failure(masters, urls, 1.0, clients=8, counters=2))
        assert set(report.answers) == {"200"}
        assert report.done.total() == report.answers["200"] > 0
        assert report.wrong(database) == []
        for name, count in (
            ("acquires", report.done.total()),
            ("releases", report.done.total()),
            ("lost", 0),
        ):
            assert sum(metric(url, f"redlock_fast_{name}_total") for url in urls) == count
        health = httpx.get(f"{one}/healthz", trust_env=False, timeout=DEADLINE)
        assert health.status_code == 200
        assert health.json()["votes"] == 4
    assert masters[0].pid is None


def test_what_it_answers_without_a_lock(masters: Masters, environment: dict[str, str]) -> None:
    other_client = FastRedlock(
        [redis.Redis(port=m.port, password=PASSWORD) for m in masters], node_timeout=5.0
    )
    with (
        other_client,
        serving(environment | {"LOCK_TIMEOUT": IMPATIENT}) as url,
        httpx.Client(base_url=url, trust_env=False, timeout=DEADLINE) as client,
    ):
        with other_client.lock("counter:taken", 60):
            answers: list[httpx.Response] = []

            def answered() -> bool:
                """A busy machine may take longer than the service waits."""
                answers.append(client.post("/counters/taken"))
                return answers[-1].status_code != 503

            eventually(answered, "the masters answer in time")
            taken = answers[-1]
            assert (taken.status_code, taken.headers["Retry-After"]) == (409, "10")
        eventually(lambda: client.post("/counters/taken").status_code == 200, "it is free")
        for number in range(3):
            masters[number].kill()
        down = client.post("/counters/free")
        assert (down.status_code, down.headers["Retry-After"]) == (503, "10")
        assert not any(str(master.port) in down.text for master in masters), "it tells no addresses"
        masters[0].restart()
        eventually(lambda: client.get("/healthz").json()["masters"][0]["guard"] > 0, "it is connected again")
        health = client.get("/healthz")
        assert (health.status_code, health.json()["votes"]) == (503, 2), "it may have forgotten locks"


def test_load_notices_a_wrong_counter(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE counter (name, value)")
        connection.execute(
            "INSERT INTO counter VALUES ('exact', 2), ('less', 1), ('more', 4), ('perhaps', 3)"
        )
        connection.commit()
    report = Report(done=Counter(exact=2, less=2, more=3, perhaps=2), unknown=Counter(perhaps=1))
    assert [line.split()[0] for line in report.wrong(database)] == ["less", "more"]
