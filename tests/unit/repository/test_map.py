"""Tests are where a reader looks for them: directories mirror packages, files mirror modules and rules."""

from __future__ import annotations

import re
from pathlib import Path

from support.cases import cases

ROOT = Path(__file__).parents[3]
PACKAGE, TESTS = ROOT / "redlock_fast", ROOT / "tests"
MODULES = sorted(
    path.relative_to(PACKAGE).with_suffix("") for path in PACKAGE.rglob("*.py") if path.stem[:2] != "__"
)
#: Directories of tests that are no packages, and why.
OTHERS = {"repository": "about the repository itself", "deploy": "about deploy/"}
#: Modules and packages without a file of their name. They have no behaviour of their own, or share it.
ELSEWHERE = {
    # both engines, by the rules of the contract
    "contract": ("engine", "wire/push"),
    # one step of an acquire or release, run without masters
    "unit/algorithm/test_procedures.py": (
        "algorithm/effects",
        "algorithm/lease",
        "algorithm/operation",
        "algorithm/operations",
        "algorithm/policy",
    ),
    "unit/wire/test_commands.py": ("wire/dialect",),
    # the parts of a connector, which one look of its thread and one attempt to connect go through
    "unit/masters/test_connector.py": (
        "masters/connections",
        "masters/dialler",
        "masters/electorate",
        "masters/monitor",
        "masters/settings",
    ),
    "unit/masters/test_list_check.py": (
        "masters/client_lists",
        "masters/list_texts",
        "masters/record_writes",
        "masters/verdict",
    ),
    "unit/masters/test_restart_guard.py": ("masters/master",),
    "unit/masters/test_records.py": ("masters/known_record", "masters/no_vote"),
    "real/masters/test_sentinel.py": ("masters/sentinel_watch",),
    "real/masters/test_cluster.py": ("masters/slot_engine", "masters/topology_watch"),
    "unit/masters/test_connect.py": ("masters/connect_errors",),
    "unit/locks/test_config.py": ("locks/client_base", "locks/client_core", "locks/failures"),
    "real/locks/test_single_run.py": ("algorithm/refusals",),
    "real/locks/test_many.py": ("locks/batch_state",),
    "real/locks/test_hints.py": ("locks/dev_mode",),
    "real/integrations/django/test_project.py": ("aio/unbroken",),
    # what each kind asks of masters
    "unit/locks/test_kinds.py": ("algorithm/lock_kind",),
    # a lock object and its drivers, through both clients
    "real/locks/test_lock.py": (
        "locks/factory",
        "locks/lock_state",
        "locks/operations",
        "locks/procedures",
        "aio/lock",
        "threads/client",
        "threads/core",
        "threads/lock",
    ),
    "unit/aio/test_loop.py": ("aio/core", "aio/future"),
    "real/threads/test_renewal.py": ("locks/auto_extend",),
    "real/threads/test_leader.py": ("threads/stoppable",),
    "unit/locks/test_rlock.py": ("locks/owner_queue", "locks/owners"),
    # metrics, traces and logs have their tests together: each event is in all of them
    "real/exporters/test_telemetry.py": ("exporters/instrument", "otel", "prometheus"),
    # jobs in worker processes
    "real/integrations/test_task_queues.py": ("integrations/arq",),
    # drop-ins, by the behaviour that their originals publish
    "real/compat": ("compat",),
    # each script on a real server and in memory
    "real/testing/test_database.py": ("testing/lua",),
    # in one project
    "real/integrations/django": ("integrations/django",),
    # commands, as users run them
    "real/cli/demo/test_run.py": ("cli/demo",),
    "real/cli/test_status.py": ("cli",),
}


def own(module: Path) -> list[Path]:
    name = f"test_{module.name.lstrip('_')}.py"
    places = [TESTS / layer / module.parent / name for layer in ("unit", "real")]
    return [path for path in places if path.exists()]


@cases("module", MODULES, ids=str)
def test_a_module_has_its_test_file(module: Path) -> None:
    named = {str(module), str(module.parent), str(module).split("/")[0]}
    assert own(module) or any(named & {*names} for names in ELSEWHERE.values()), (
        f"write tests/unit/{module.parent}/test_{module.name}.py, or say in ELSEWHERE what tests it"
    )


@cases("place", ELSEWHERE)
def test_what_is_tested_elsewhere_is_there(place: str) -> None:
    assert (TESTS / place).exists()
    for name in ELSEWHERE[place]:
        assert (PACKAGE / name).is_dir() or Path(name) in MODULES, f"{name} is no module any more"
        assert not own(Path(name)), f"{name} has a test file of its own"


@cases("layer", ["unit", "real"])
def test_directories_of_tests_mirror_packages(layer: str) -> None:
    for folder in (TESTS / layer).rglob("*"):
        if folder.is_dir() and folder.name != "__pycache__":
            name = folder.relative_to(TESTS / layer)
            assert (PACKAGE / name).is_dir() or str(name) in OTHERS, f"no package is called {name}"


def test_each_rule_of_the_contract_has_a_file() -> None:
    text = (PACKAGE / "engine" / "contract.py").read_text()
    rules = {int(number) for number in re.findall(r"^(\d+)\. ", text, re.MULTILINE)}
    assert {int(path.name[10:12]) for path in TESTS.glob("contract/test_rule_??_*.py")} == rules
