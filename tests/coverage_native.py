"""Line coverage of src/_native.pyx: builds it traced in a copy of this tree and runs tests there.

The verdict is the coverage. Whether the tests pass is judged without a tracer, which makes them several
times slower: a failure here is printed, and counts only by the lines that it leaves out.

    python tests/coverage_native.py [FEWEST PERCENT]
"""

from __future__ import annotations

import os
import subprocess
import sys

from uncompiled import copied

TESTS = "tests/contract"
#: Coverage's own Python code runs inside ours here: an interrupt may be raised in that, and is lost. Crowds
#: of threads only wait for it, and a child of fork may wait for ever: see the Makefile.
SKIP_REASONS = (
    "test_rule_14_signals",
    "test_rule_14_pure_interrupts",
    "test_helper_thread",
    "test_rule_10_loop_mixed",
)
IGNORED = (f"--ignore=tests/contract/{name}.py" for name in SKIP_REASONS)
WITHOUT = (*IGNORED, "-k", "not (interrupt or fork or child)")
SETTINGS = "[run]\nplugins = Cython.Coverage\nsource = src\nparallel = true\n"


def main(fewest: str = "80") -> int:
    with copied() as tree:
        (tree / "coverage.cfg").write_text(SETTINGS)
        env = {
            **os.environ,
            "REDLOCK_FAST_TRACE": "1",
            "REDLOCK_FAST_CFLAGS": "-O1",  # compiles in less time than tests gain by more
            "REDLOCK_FAST_BUILD_NATIVE": "yes",
            "REDLOCK_FAST_TEST_ENGINES": "native",
            "PYTHONPATH": str(tree),
        }

        def run(*words: str) -> int:
            return subprocess.run([sys.executable, *words], cwd=tree, env=env, check=False).returncode

        if run("setup.py", "-q", "build_ext", "--inplace"):
            return 1
        pytest = ("-m", "pytest", "-n", "6", *WITHOUT)
        if run(*pytest, "--cov", "--cov-config=coverage.cfg", "--cov-report=", TESTS) > 1:
            return 1  # interrupted, or nothing ran: not one of pytest's verdicts about tests
        report = ("-m", "coverage", "report", "--rcfile=coverage.cfg", "--show-missing")
        return run(*report, f"--fail-under={fewest}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
