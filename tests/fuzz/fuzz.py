"""Random and damaged streams for as long as one likes.

    python tests/fuzz/fuzz.py SECONDS [SEED]    all three fuzzers, a third of the time each
    python tests/fuzz/fuzz.py reply|hub CASE    one case of a C fuzzer again
    python tests/fuzz/fuzz.py twins FILE        one input of the comparison again, from its file
    python tests/fuzz/fuzz.py stress SECONDS    threads on one hub under the thread sanitizer; forks without

``reply``: src/reply.h alone. ``hub``: all of src/, by one thread. Both are in fuzz/ and begin with its seeds.
They have the address and undefined behaviour sanitizers where the compiler has them. ``twins``: whether both
engines make the same of it.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = {"reply": ROOT / "fuzz", "hub": ROOT / "fuzz", "stress": ROOT / "tests" / "fuzz"}
#: What the fuzzers put in the place of the system.
SYSTEM = ["-include", str(ROOT / "fuzz" / "system.h")]
SAVED = ROOT / "build" / "fuzz"
CC = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-pthread"]
MEMORY = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
THREADS = ["-fsanitize=thread"]

sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

Course = tuple[list[bytes], int]


def compiled(name: str, into: Path, sanitizers: list[str]) -> Path:
    """The fuzzer; without sanitizers where this compiler has none."""
    program = into / name
    parts = [] if name == "reply" else map(str, sorted((ROOT / "src").glob("*.c")))
    sources = [str(SOURCES[name] / f"{name}.c"), *(part for part in parts if not part.endswith("_native.c"))]
    around = [] if name == "stress" else SYSTEM
    for options in (sanitizers, []):
        words = [*CC, *options, *around, "-o", str(program), *sources]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            return program
        print(f"{name}: does not compile with {' '.join(options) or 'no options'}:\n{done.stderr}")
    sys.exit(1)


def run_c(name: str, *words: str, sanitizers: list[str] = MEMORY) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        program = compiled(name, Path(scratch), sanitizers)
        if name != "stress":
            print(f"{name}: the seeds of fuzz/corpus: ", end="", flush=True)
            seeds = map(str, sorted((ROOT / "fuzz" / "corpus" / name).iterdir()))
            if subprocess.run([str(program), "input", *seeds], check=False).returncode:
                return False
        print(f"{name}: {' '.join(words)}: ", end="", flush=True)
        return subprocess.run([str(program), *words], check=False).returncode == 0


# --- both engines --------------------------------------------------------------------------------


def course(seed: int) -> Course:
    """One input: the pieces that a master says, and how many requests wait for them."""
    from support.resp_streams import pieces, stream

    chance = Random(seed)
    return pieces(chance, stream(chance)), chance.randrange(1, 6)


def differ(pieces: list[bytes], requests: int) -> str:
    """What the engines do not agree on, or nothing."""
    from support.engine_trace import observe

    from redlock_fast.engine import load

    ours, theirs = (observe(load(name), pieces, requests) for name in ("python", "native"))
    for number, (first, second) in enumerate(zip(ours, theirs, strict=True)):
        if first != second:
            return f"after piece {number}:\n  python {first}\n  native {second}"
    return ""


def run_comparison(seed: int, seconds: float) -> bool:
    print(f"twins: seed {seed}: ", end="", flush=True)
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        pieces, requests = course((seed << 32) + number)
        if trouble := differ(pieces, requests):
            SAVED.mkdir(parents=True, exist_ok=True)
            file = SAVED / f"twins-{seed}-{number}.json"
            file.write_text(json.dumps({"pieces": [piece.hex() for piece in pieces], "requests": requests}))
            print(f"differ {trouble}\nsaved; again: {sys.executable} {__file__} twins {file}")
            return False
        number += 1
    print(f"{number} cases")
    return True


def replay(file: str) -> bool:
    saved = json.loads(Path(file).read_text())
    trouble = differ([bytes.fromhex(piece) for piece in saved["pieces"]], saved["requests"])
    print(trouble or "both engines agree")
    return not trouble


def everything(seconds: float, seed: int) -> bool:
    print(f"seed {seed}")
    share = f"{seconds / 3:.1f}"
    results = [
        run_c("reply", str(seed), share),
        run_c("hub", str(seed), share),
        run_comparison(seed, seconds / 3),
    ]
    return all(results)


def main(first: str = "60", second: str = "") -> int:
    if first in ("reply", "hub"):
        good = run_c(first, "case", second)
    elif first == "twins":
        good = replay(second)
    elif first == "stress":
        words = (str(secrets.randbits(20)), f"{float(second or 30) / 2:.1f}")
        results = [run_c("stress", *words, sanitizers=sanitizers) for sanitizers in (THREADS, [])]
        good = all(results)
    else:
        good = everything(float(first), int(second) if second else secrets.randbits(24))
    return not good


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
