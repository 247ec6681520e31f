"""A rehearsal: three of five masters are restarted, and everything that an operator reads names the outage.

The masters are connected again at once. The service that runs keeps them out of votes for ``max_ttl``, so no
lock is granted. Each part of this was silent once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command
from support.waiting import PATIENT, PROCESS_DEADLINE, eventually

from redlock_fast.embedded import Masters

httpx = pytest.importorskip("httpx")
pytest.importorskip("flask")

TESTS = Path(__file__).parents[2]
RULES = TESTS.parent / "deploy" / "prometheus" / "rules.yaml"
#: No guard ends while this test runs. A lease is renewed after a third of its ttl.
MAX_TTL, TTL = 3600.0, 3.0


class Service:
    """The process of ``support/outage_service.py``."""

    def __init__(self, masters: Masters, log: Path) -> None:
        settings = {"masters": masters.urls, "ttl": TTL, "max_ttl": MAX_TTL, **PATIENT}
        self._log = log
        with open(log, "w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "support.outage_service"],
                cwd=TESTS,
                env={**os.environ, "SETTINGS": json.dumps(settings)},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert self.process.stdout
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}"

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=PROCESS_DEADLINE)

    def records(self, event: str) -> list[dict[str, Any]]:
        """The records of an event so far. The last line may be half written."""
        lines = self._log.read_text().split("\n")[:-1]
        return [one for one in map(json.loads, lines) if one["event"] == event]

    def votes(self) -> int:
        """How many masters vote for it, as it exports that."""
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) == 1.0 for line in lines if "_master_votes{" in line)


@pytest.fixture
def service(valkey: Masters, tmp_path: Path) -> Iterator[Service]:
    started = Service(valkey, tmp_path / "log")
    try:
        yield started
    finally:
        started.process.terminate()
        started.process.wait(PROCESS_DEADLINE)
        assert started.process.stdout
        started.process.stdout.close()


def firing(pages: list[str], folder: Path) -> set[str]:
    """The alerts of the rules that fire after these scrapes, one each 15 s, by promtool."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: .ci/tools FOLDER downloads it")
    values: dict[str, list[str]] = {}
    for number, page in enumerate(pages):
        for line in page.splitlines():
            if line.startswith(("redlock_fast_master_votes{", "redlock_fast_quorum{")):
                name, _, value = line.rpartition(" ")
                name = name.replace("{", '{job="shop",instance="a",', 1)
                values.setdefault(name, ["_"] * number).append(value)
    alert = 'count by (alertname) (ALERTS{alertstate="firing"})'
    expected = {"expr": alert, "eval_time": f"{15 * (len(pages) - 1)}s", "exp_samples": []}
    series = [{"series": name, "values": " ".join(each)} for name, each in values.items()]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [expected]}
    file = folder / "rules-test.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    assert values
    said = done.stdout + done.stderr
    names = {name for name in ("RedlockNoQuorum", "RedlockNoSpareMaster") if name in said}
    assert (done.returncode == 0) == (not names), said
    return names


def test_three_masters_are_restarted(valkey: Masters, service: Service, tmp_path: Path) -> None:
    command = Command(valkey).with_options(tmp_path, assume_fresh=False, max_ttl=MAX_TTL, **PATIENT)
    assert service.get("/hold").text == "8"
    assert service.get("/orders/1").status_code == 200
    eventually(lambda: service.votes() == 5, "all masters vote")
    before = service.get("/metrics").text
    assert firing([before] * 3, tmp_path) == set()

    for master in list(valkey)[:3]:
        master.restart()
    eventually(lambda: len(service.records("master-guarded")) == 3, "the service is connected again")

    # status: what a new process says of the clients that run.
    code, out, err = command.run("status")
    assert (code, err) == (75, "")
    assert "clients that ran before give it no vote for" in out
    assert out.splitlines()[-1].startswith("NOT usable: 0 of 5 masters"), "all are young in this test"

    # The alert.
    assert service.votes() == 2
    during = service.get("/metrics").text
    assert during.count("redlock_fast_master_up{") == 5
    assert all(line.endswith(" 1.0") for line in during.splitlines() if "_master_up{" in line)
    assert firing([before] * 3 + [during], tmp_path) == {"RedlockNoQuorum"}

    # The log: each lock that is lost, and why; each refused request.
    eventually(lambda: len(service.records("lock-lost")) == 8, "each loss has a line")
    lost = service.records("lock-lost")
    assert Counter(one["resource"] for one in lost) == Counter(f"held:{n}" for n in range(8))
    assert {one["reason"].partition(":")[0] for one in lost} <= {"gone", "unconfirmed", "late"}
    assert all(str(service.process.pid) in one["owner"] for one in lost)
    assert {one["master"] for one in service.records("master-guarded")} == {
        f"127.0.0.1:{master.port}/0" for master in list(valkey)[:3]
    }

    # HTTP: come back when the guard has ended.
    answer = service.get("/orders/1")
    assert answer.status_code == 503
    assert 3000 < int(answer.headers["Retry-After"]) <= MAX_TTL
    refused = service.records("request-refused")
    assert [(one["resource"], one["reason"], one["level"]) for one in refused] == [
        ("orders:1", "guarded", "WARNING")
    ]


def test_a_job_that_is_skipped_is_logged(service: Service) -> None:
    assert service.get("/job").text == "once"
    assert [(one["resource"], one["level"]) for one in service.records("run-skipped")] == [
        ("nightly", "INFO")
    ]
