"""One target under a fuzzer that is guided by coverage, on this machine.

    python fuzz/guided.py TARGET SECONDS [OPTION...]    options of libFuzzer; -runs=0: the seeds alone

``reply``, ``hub``: C, with clang's libFuzzer. ``resp``, ``url``, ``toml``: Python, with atheris. A run keeps
useful inputs in build/fuzz/TARGET/ for the next run; failing inputs are in build/fuzz/ and are printed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
C_TARGETS = ("reply", "hub")
PYTHON_TARGETS = ("resp", "url", "toml")
FLAGS = "-O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"


def missing(target: str) -> str:
    """What this machine lacks, or nothing."""
    if target in C_TARGETS:
        if not (shutil.which("clang") and shutil.which("clang++")):
            return "clang"
        return "" if links_fuzzers() else "libFuzzer and the sanitizers of clang (Debian: libclang-rt-dev)"
    return "" if find_spec("atheris") else "atheris (pip install atheris)"


def links_fuzzers() -> bool:
    """Whether clang has its runtime libraries here: Debian has them in a package of their own."""
    empty = b"int LLVMFuzzerTestOneInput(const char *data, unsigned long size) { return 0; }"
    with tempfile.TemporaryDirectory() as folder:
        words = ["clang", "-x", "c", "-fsanitize=fuzzer,address,undefined", "-o", f"{folder}/empty", "-"]
        return subprocess.run(words, input=empty, capture_output=True, check=False).returncode == 0


def build(out: Path, flags: str = FLAGS) -> None:
    """The C targets."""
    out.mkdir(parents=True, exist_ok=True)
    settings = {"CC": "clang", "CXX": "clang++", "CFLAGS": flags, "CXXFLAGS": flags, "OUT": str(out)}
    settings |= {"PROJECT": str(ROOT), "FUZZING_LANGUAGE": "c", "LIB_FUZZING_ENGINE": "-fsanitize=fuzzer"}
    subprocess.run(["bash", str(HERE / "build.sh")], env={**os.environ, **settings}, check=True)


def command(target: str, out: Path) -> list[str]:
    if target in C_TARGETS:
        return [str(out / target)]
    return [sys.executable, str(HERE / f"fuzz_{target}.py")]


def main(target: str = "", seconds: str = "60", *options: str) -> int:
    if target not in C_TARGETS + PYTHON_TARGETS:
        print(f"TARGET is one of {', '.join(C_TARGETS + PYTHON_TARGETS)}, not {target!r}")
        return 2
    if lacking := missing(target):
        print(f"{target} needs {lacking}")
        return 2
    out = ROOT / "build" / "fuzz"
    kept = out / target
    kept.mkdir(parents=True, exist_ok=True)
    if target in C_TARGETS:
        build(out / "bin")
    words = [*command(target, out / "bin"), f"-max_total_time={seconds}", "-timeout=20", "-max_len=4096"]
    words += [f"-artifact_prefix={out}/{target}-", f"-dict={HERE / 'reply.dict'}"]
    words += [*options, str(kept), str(HERE / "corpus" / target)]
    return subprocess.run(words, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
