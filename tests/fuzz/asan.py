"""The native engine's tests with AddressSanitizer and UndefinedBehaviorSanitizer, and its leaks.

    python tests/fuzz/asan.py [PYTEST ARGUMENTS]

Builds the engine in a copy of this tree and runs the tests there. Python itself is not instrumented, and
leaks: so leaks fail this only where what leaked was allocated by our code, in any process of the tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FLAGS = (
    "-fno-wrapv -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
)
#: What they measure, memory and time, is not what it was.
SKIP_REASONS = ("real/test_leaks.py", "real/test_hostile.py", "unit/test_bench.py", "real/test_demo.py")
BUT = "not memory_is_given_back"
#: Only Python loads what is instrumented: servers and shells go without.
ONLY_PYTHON = """
import os, subprocess, sys
begin = subprocess.Popen.__init__

def without(self, args, *more, **options):
    program = args if isinstance(args, str) else args[0]
    if program != sys.executable:
        env = dict(options.get("env") or os.environ)
        env.pop("LD_PRELOAD", None)
        options["env"] = env
    begin(self, args, *more, **options)

subprocess.Popen.__init__ = without
"""
#: Frames: ours wherever they are, for C calls no Python; and of Cython's those that allocate themselves.
OURS = re.compile(r"#\d+ .*\bsrc/(?!_native)\w+\.[ch]:")
CYTHON = re.compile(r"#[0-6] .*(?:_native|redlock_fast/(?:\w+/)+\w+\.c)")


def libraries() -> str:
    """Of the sanitizers; they have to be there before anything else is."""
    names = ("libasan.so", "libubsan.so")
    found = [subprocess.check_output(["cc", f"-print-file-name={name}"], text=True).strip() for name in names]
    if any("/" not in path for path in found):
        sys.exit("this compiler has no sanitizers")
    return " ".join(found)


def environment(tree: Path, reports: Path) -> dict[str, str]:
    return {
        **os.environ,
        "LD_PRELOAD": libraries(),
        # Leaks are judged here, by their stacks.
        "ASAN_OPTIONS": f"detect_leaks=1:log_path={reports}/report:allocator_may_return_null=1",
        "LSAN_OPTIONS": "exitcode=0:max_leaks=0:print_suppressions=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",  # it ends the process, with the report on stderr
        "PYTHONMALLOC": "malloc",  # or what lies in Python's own arenas would be unknown
        "PYTHONPATH": str(tree),
        "REDLOCK_FAST_TEST_ENGINES": "native",
    }


def build(tree: Path) -> None:
    skip = shutil.ignore_patterns(".*", "*.so", "_*.c", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, tree, ignore=skip)
    (tree / "sitecustomize.py").write_text(ONLY_PYTHON)
    env = {**os.environ, "REDLOCK_FAST_CFLAGS": FLAGS, "REDLOCK_FAST_BUILD_NATIVE": "yes"}
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=tree, env=env, check=True
    )


def judge(reports: Path) -> tuple[list[str], int, int]:
    """What is our fault, from all reports; how many processes were leak-checked, and leaks not ours."""
    faults, others = [], 0
    files = sorted(reports.iterdir())
    for file in files:
        text = file.read_text(errors="replace")
        if "LeakSanitizer" not in text:
            faults.append(text)
            continue
        for leak in re.findall(r"(?:Direct|Indirect) leak of .*?(?:\n\n|\Z)", text, re.S):
            if OURS.search(leak) or CYTHON.search(leak):
                faults.append(leak)
            else:
                others += 1
    return faults, len(files), others


def main(*arguments: str) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        tree, reports = Path(scratch) / "tree", Path(scratch) / "reports"
        reports.mkdir()
        build(tree)
        left_out = [f"--ignore=tests/{name}" for name in SKIP_REASONS]
        words = [
            "-m",
            "pytest",
            "-p",
            "no:cov",
            "--timeout=300",
            "--capture=sys",
            "-rfE",
            "-k",
            BUT,
            *left_out,
            *arguments,
        ]
        env = environment(tree, reports)
        failed = subprocess.run([sys.executable, *words], cwd=tree, env=env, check=False).returncode
        faults, processes, others = judge(reports)
        for fault in faults[:10]:
            print(fault)
        print(f"sanitizers: {len(faults)} faults of ours; {others} leaks of others in {processes} reports")
        return 1 if failed or faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
