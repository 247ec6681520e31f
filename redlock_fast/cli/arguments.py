"""The arguments of the command line, and their help."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
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


def _epilog(example: str, good: str, failed: str = "") -> str:
    codes = f"  0         {good}\n" + (f"  1         {failed}\n" if failed else "") + CODES
    return f"example:\n  redlock-fast {example}\n\nexit codes:\n{codes}  130       Ctrl-C\n"


#: The description of each command, and its examples and exit codes.
COMMANDS = {
    "exec": (
        "run a command while holding a lock, as flock(1) does",
        f"""\
examples:
  redlock-fast exec nightly-report -E 0 -- /usr/local/bin/report --all
  redlock-fast exec importer --timeout -1 --grace 5 -- /usr/local/bin/importer

exit codes: the one of COMMAND, or
  1         another client holds the lock (see --conflict-exit-code)
{CODES}\
  75        the lock was lost, and COMMAND was ended
  126, 127  COMMAND cannot be executed; there is no such command
  128 + N   signal N ended COMMAND, or the wait for the lock
""",
    ),
    "status": (
        "show each master, and whether a quorum grants a lock",
        _epilog("status --json", "a quorum granted a lock", "no quorum did"),
    ),
    "locks": (
        "list the held locks, with the time left on each master",
        _epilog("locks 'orders:*'", "a quorum of masters answered"),
    ),
    "bench": (
        "measure how fast locks are with your masters",
        _epilog("bench --threads 64", "all locks were granted", "a lock was not granted"),
    ),
    "demo": (
        "start masters on this machine, contend for a lock, kill a master, check all promises",
        _epilog("demo --seconds 10", "all checks passed", "a check failed"),
    ),
}


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
    epilog = "redlock-fast COMMAND --help: options, examples and exit codes of a command"
    text = "A distributed lock over N Redis or Valkey masters."
    parser = Parser(prog="redlock-fast", description=text, epilog=epilog)
    parser.add_argument("--version", action="version", version=f"redlock-fast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, *options: Callable[[argparse.ArgumentParser], None]) -> argparse.ArgumentParser:
        text, epilog = COMMANDS[name]
        added = commands.add_parser(
            name,
            help=text,
            description=f"{text.capitalize()}.",
            epilog=epilog,
            usage=EXEC_USAGE if name == "exec" else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for option in options:
            option(added)
        return added

    execute = add("exec", _masters, _exec)
    add("status", _masters, _json)
    add("locks", _masters, _json, _locks)
    add("bench", _masters, _json, _bench)
    add("demo", _json, _demo)
    return parser, execute


def _masters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("masters", "flags override the environment, which overrides the file")
    urls = "URLs of the masters (default: $REDLOCK_FAST_MASTERS, which is not in the list of processes)"
    group.add_argument("--masters", metavar="URL,URL", help=urls)
    file = "TOML file, [redlock-fast] with masters, ttl, key_prefix, ... (default: $REDLOCK_FAST_CONFIG)"
    group.add_argument("--config", metavar="FILE", help=file)
    group.add_argument("--key-prefix", metavar="TEXT", help="prefix of each lock name")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _number(
    parser: argparse.ArgumentParser,
    *flags: str,
    type: Callable[[str], float],
    default: float,
    metavar: str,
    help: str,
) -> None:
    """An option with a number, and its default in the help."""
    text = f"{help} (default: {default:g})"
    parser.add_argument(*flags, type=type, default=default, metavar=metavar, help=text)


def _exec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="name of the lock")
    ttl = "lease, renewed while COMMAND runs (default: 30)"
    parser.add_argument("--ttl", type=_seconds, metavar="SECONDS", help=ttl)
    wait = "time to wait for the lock; 0: one attempt, -1: no limit"
    _number(parser, "--timeout", type=_timeout, default=0.0, metavar="SECONDS", help=wait)
    grace = "time from SIGTERM to SIGKILL when the lock is lost"
    _number(parser, "--grace", type=_seconds, default=10.0, metavar="SECONDS", help=grace)
    fencing = "give COMMAND a fencing token as $REDLOCK_FAST_TOKEN"
    parser.add_argument("--fencing", action="store_true", help=fencing)
    code = "exit code if another client holds the lock"
    flags = "-E", "--conflict-exit-code"
    _number(parser, *flags, type=_code, default=exit_codes.TAKEN, metavar="N", help=code)
    parser.add_argument("-v", "--verbose", action="store_true", help="log connections and faults to stderr")


def _locks(parser: argparse.ArgumentParser) -> None:
    names = "names to show, such as 'orders:*' (default: *)"
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help=names)
    _number(parser, "--limit", type=_count, default=1000, metavar="N", help="maximum number of names")
    _number(parser, "--timeout", type=_seconds, default=10.0, metavar="SECONDS", help="time for the scan")


def _bench(parser: argparse.ArgumentParser) -> None:
    parts = "time for each of three parts"
    _number(parser, "--seconds", type=_short, default=2.0, metavar="SECONDS", help=parts)
    _number(parser, "--threads", type=_count, default=16, metavar="N", help="number of threads")
    _number(parser, "--tasks", type=_count, default=64, metavar="N", help="number of asyncio tasks")


def _demo(parser: argparse.ArgumentParser) -> None:
    workers = "number of processes that contend"
    _number(parser, "--masters", type=_count, default=5, metavar="N", help="number of servers to start")
    _number(parser, "--workers", type=_count, default=4, metavar="N", help=workers)
    _number(parser, "--seconds", type=_seconds, default=5.0, metavar="SECONDS", help="time of contention")
    engines = "auto", "native", "python"
    engine = "engine of the workers (default: auto)"
    parser.add_argument("--engine", choices=engines, default="auto", help=engine)
    server = "auto, valkey, redis, or the path of a server binary (default: auto)"
    parser.add_argument("--server", default="auto", metavar="SERVER", help=server)


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
