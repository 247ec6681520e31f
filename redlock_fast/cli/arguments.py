"""The arguments of the command line, and their help."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..wire.text import clean, without_logins
from . import exit_codes

EXEC_USAGE = "redlock-fast exec NAME [options] -- COMMAND [ARGUMENT ...]"

CODES = """\
  64        wrong usage or settings
  69        too few masters answered
  70        an error of redlock-fast, with a traceback
"""

EXEC_EPILOG = f"""\
examples:
  redlock-fast exec nightly-report -E 0 -- /usr/local/bin/report --all
  redlock-fast exec importer --timeout -1 --grace 5 -- /usr/local/bin/importer

exit codes: the one of COMMAND, or
  1         another client holds the lock (see --conflict-exit-code)
{CODES}\
  75        the lock was lost, and COMMAND was ended
  126, 127  COMMAND cannot be executed; there is no such command
  128 + N   signal N ended COMMAND, or the wait for the lock
"""


def _epilog(example: str, good: str, failed: str) -> str:
    codes = f"  0         {good}\n  1         {failed}\n{CODES}  130       Ctrl-C\n"
    return f"example:\n  redlock-fast {example}\n\nexit codes:\n{codes}"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options in ``argv``. Exits with 0 after --help and --version, with 64 after a wrong argument."""
    own, command = _split(list(argv))
    parser, execute = _parser()
    options = parser.parse_args(own)
    if options.command == "exec":
        if not command:
            execute.error("no command: put it after --, as in: exec NAME -- COMMAND")
        options.argv = command
    return options


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """The arguments of ``exec``, and after the first ``--`` those of the command, unchanged."""
    if argv[:1] != ["exec"] or "--" not in argv:
        return argv, []
    end = argv.index("--")
    return argv[:end], argv[end + 1 :]


class Parser(argparse.ArgumentParser):
    """Errors exit with ``USAGE``, and repeat no password."""

    def error(self, message: str) -> NoReturn:
        self.print_usage()
        self.exit(exit_codes.USAGE, f"{self.prog}: error: {clean(without_logins(message), 500)}\n")

    def print_usage(self, file: object = None) -> None:
        self._print_message(self.format_usage(), None)  # stderr: stdout has only results


def _parser() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = Parser(
        prog="redlock-fast",
        description="A distributed lock over N Redis or Valkey masters.",
        epilog="redlock-fast COMMAND --help: options, examples and exit codes of a command",
    )
    parser.add_argument("--version", action="version", version=f"redlock-fast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, epilog: str, usage: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=epilog,
            usage=usage,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    execute = add("exec", "run a command while holding a lock, as flock(1) does", EXEC_EPILOG, EXEC_USAGE)
    _masters(execute)
    _exec(execute)
    status = add(
        "status",
        "show each master, and whether a quorum grants a lock",
        _epilog("status --json", "a quorum granted a lock", "no quorum did"),
    )
    _masters(status)
    _json(status)
    locks = add(
        "locks",
        "list the held locks, with the time left on each master",
        "example:\n  redlock-fast locks 'orders:*'\n\nexit codes:\n"
        f"  0         a quorum of masters answered\n{CODES}  130       Ctrl-C\n",
    )
    _masters(locks)
    _json(locks)
    _locks(locks)
    bench = add(
        "bench",
        "measure how fast locks are with your masters",
        _epilog("bench --threads 64", "all locks were granted", "a lock was not granted"),
    )
    _masters(bench)
    _json(bench)
    _bench(bench)
    demo = add(
        "demo",
        "start masters on this machine, contend for a lock, kill a master, check all promises",
        _epilog("demo --seconds 10", "all checks passed", "a check failed"),
    )
    _json(demo)
    _demo(demo)
    return parser, execute


def _masters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("masters", "flags override the environment, which overrides the file")
    group.add_argument(
        "--masters",
        metavar="URL,URL",
        help="URLs of the masters (default: $REDLOCK_FAST_MASTERS, which is not in the list of processes)",
    )
    group.add_argument(
        "--config",
        metavar="FILE",
        help="TOML file, [redlock-fast] with masters, ttl, key_prefix, ... (default: $REDLOCK_FAST_CONFIG)",
    )
    group.add_argument("--key-prefix", metavar="TEXT", help="prefix of each lock name")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _exec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    parser.add_argument(
        "--ttl", type=_seconds, metavar="SECONDS", help="lease, renewed while COMMAND runs (default: 30)"
    )
    parser.add_argument(
        "--timeout",
        type=_timeout,
        default=0.0,
        metavar="SECONDS",
        help="time to wait for the lock; 0: one attempt, -1: no limit (default: 0)",
    )
    parser.add_argument(
        "--grace",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="time from SIGTERM to SIGKILL when the lock is lost (default: 10)",
    )
    parser.add_argument(
        "--fencing", action="store_true", help="give COMMAND a fencing token as $REDLOCK_FAST_TOKEN"
    )
    parser.add_argument(
        "-E",
        "--conflict-exit-code",
        type=_code,
        default=exit_codes.TAKEN,
        metavar="N",
        help="exit code if another client holds the lock (default: 1)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="log connections and faults to stderr")


def _locks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        metavar="PATTERN",
        help="names to show, such as 'orders:*' (default: *)",
    )
    parser.add_argument(
        "--limit", type=_count, default=1000, metavar="N", help="maximum number of names (default: 1000)"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=10.0, metavar="SECONDS", help="time for the scan (default: 10)"
    )


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=_short,
        default=2.0,
        metavar="SECONDS",
        help="time for each of three parts (default: 2)",
    )
    parser.add_argument(
        "--threads", type=_count, default=16, metavar="N", help="number of threads (default: 16)"
    )
    parser.add_argument(
        "--tasks", type=_count, default=64, metavar="N", help="number of asyncio tasks (default: 64)"
    )


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--masters", type=_count, default=5, metavar="N", help="number of servers to start (default: 5)"
    )
    parser.add_argument(
        "--workers", type=_count, default=4, metavar="N", help="number of processes that contend (default: 4)"
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=5.0, metavar="SECONDS", help="time of contention (default: 5)"
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "native", "python"),
        default="auto",
        help="engine of the workers (default: auto)",
    )
    parser.add_argument(
        "--server",
        default="auto",
        metavar="SERVER",
        help="auto, valkey, redis, or the path of a server binary (default: auto)",
    )


# --- values --------------------------------------------------------------------------------------


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _seconds(text: str, highest: float = 86_400) -> float:
    number = float(text)
    if not 0.1 <= number <= highest:
        raise argparse.ArgumentTypeError(f"must be from 0.1 to {highest:g}")
    return number


def _short(text: str) -> float:
    return _seconds(text, 60)


def _timeout(text: str) -> float:
    number = float(text)
    if number == -1:
        return math.inf
    if not number >= 0:
        raise argparse.ArgumentTypeError("must be 0 or more, or -1 for no limit")
    return number


def _code(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 255:
        raise argparse.ArgumentTypeError("must be from 0 to 255")
    return number
