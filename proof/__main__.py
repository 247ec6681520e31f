"""Check every model and compare its verdict with the expected one; exit 1 when any differs.

Each model of which all cases ran, with all verdicts as expected, is recorded in proof/proved.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from .proved import digest, record
from .suite import MODELS, cases, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof", description=__doc__)
    parser.add_argument("models", nargs="*", help=f"of {', '.join(MODELS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="only the quick cases")
    parser.add_argument("--traces", action="store_true", help="print the counterexamples")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    models = arguments.models or MODELS
    digests = {model: digest(model) for model in models}  # of what runs: it may be edited during the run
    todo = [
        (model, index, case)
        for model in models
        for index, case in enumerate(cases(model))
        if case.quick or not arguments.quick
    ]
    todo.sort(key=lambda item: item[2].quick)  # the long ones first
    wrong: Counter[str] = Counter()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        futures = {pool.submit(run, model, index): (model, case) for model, index, case in todo}
        for future in as_completed(futures):
            model, case = futures[future]
            verdict, seconds, memory = future.result()
            right = verdict.expected_by(case)
            wrong[model] += not right
            outcome = f"violated in {len(verdict.trace)} steps" if verdict.violation else "holds"
            print(
                f"{'ok   ' if right else 'WRONG'} {model:11} {case.title:62} {outcome:22} "
                f"{verdict.states:>9} states {seconds:6.1f} s {memory:5} MiB",
                flush=True,
            )
            if not right or (arguments.traces and verdict.violation):
                for number, label in enumerate(verdict.trace, 1):
                    print(f"      {number:3}. {label}")
                print(f"      => {verdict.violation}", flush=True)
    print(f"{len(todo) - wrong.total()} of {len(todo)} verdicts as expected")
    if not arguments.quick:
        record({model: len(cases(model)) for model in models if not wrong[model]}, digests)
    return 1 if wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main())
