"""All cases of all models, and how one of them is run."""

from __future__ import annotations

import importlib
import resource
import time

from .checker import Case, TooManyStates, Verdict, check

MODELS = (
    "waiting",
    "rwlock",
    "semaphore",
    "fair",
    "places",
    "reentrant",
    "multilock",
    "refill",
    "fencing",
    "skew",
    "fencing_change",
    "connections",
    "guard",
    "sentinel",
    "membership",
    "phases",
    "reconfigure",
    "records",
    "restore",
    "rivals",
)


def cases(model: str) -> list[Case]:
    return list(importlib.import_module(f"proof.{model}").CASES)


def run(model: str, index: int) -> tuple[Verdict, float, int]:
    """One case: its verdict, CPU seconds, and the largest memory of this process so far in MiB."""
    case = cases(model)[index]
    start = time.process_time()
    try:
        verdict = check(case.build(), traced=case.traced or bool(case.violated))
    except TooManyStates as error:
        verdict = Verdict(0, str(error))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return verdict, time.process_time() - start, memory
