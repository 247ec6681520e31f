"""What may be said on the command line."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..wire.text import clean, without_logins
from . import exit_codes

EXEC_USAGE = "redlock-fast exec NAME [options] -- COMMAND [ARGUMENT ...]"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Exits with 0 for --help and --version, with 64 for what it does not understand."""
    own, command = _split(list(argv))
    parser, execute = _parser()
    options = parser.parse_args(own)
    if options.command == "exec":
        if not command:
            execute.error("which command? put it behind --, as in: exec NAME -- COMMAND")
        options.argv = command
    return options


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Of ``exec``: what is ours, and behind the first ``--`` what is the command's, untouched."""
    if argv[:1] != ["exec"] or "--" not in argv:
        return argv, []
    end = argv.index("--")
    return argv[:end], argv[end + 1 :]


class Parser(argparse.ArgumentParser):
    """Its errors have the exit code of a bad usage, and repeat no password."""

    def error(self, message: str) -> NoReturn:
        self.print_usage()
        self.exit(exit_codes.USAGE, f"{self.prog}: error: {clean(without_logins(message), 500)}\n")

    def print_usage(self, file: object = None) -> None:
        self._print_message(self.format_usage(), None)  # on stderr, as everything that is no result


def _parser() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = Parser(prog="redlock-fast", description="A distributed lock over N masters.")
    parser.add_argument("--version", action="version", version=f"redlock-fast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    execute = commands.add_parser(
        "exec", help="run a command while holding a lock, as flock(1) does", usage=EXEC_USAGE
    )
    _masters(execute)
    _exec(execute)
    status = commands.add_parser("status", help="the masters: can they be reached, is a quorum usable?")
    _masters(status)
    _json(status)
    locks = commands.add_parser("locks", help="who holds what, and for how long, on each master")
    _masters(locks)
    _json(locks)
    _locks(locks)
    bench = commands.add_parser("bench", help="how fast locks are with your masters")
    _masters(bench)
    _json(bench)
    _bench(bench)
    demo = commands.add_parser(
        "demo",
        help="start masters on this machine, fight over a lock, kill a master, check that all is well",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _json(demo)
    _demo(demo)
    return parser, execute


def _masters(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which masters", "flags win over the environment, that over the file")
    group.add_argument(
        "--masters",
        metavar="URL,URL",
        help="or $REDLOCK_FAST_MASTERS, which does not show up in the list of processes",
    )
    group.add_argument(
        "--config",
        metavar="FILE",
        help="TOML, [redlock-fast] with masters, ttl, key_prefix and so on; or $REDLOCK_FAST_CONFIG",
    )
    group.add_argument("--key-prefix", metavar="TEXT", help="put before each name")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


def _exec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="of the lock")
    parser.add_argument(
        "--ttl", type=_seconds, metavar="S", help="the lease, extended for as long as the command runs (30)"
    )
    parser.add_argument(
        "--timeout",
        type=_timeout,
        default=0.0,
        metavar="S",
        help="wait so long for the lock (0); -1: for ever",
    )
    parser.add_argument(
        "--grace", type=_seconds, default=10.0, metavar="S", help="from SIGTERM to SIGKILL on a loss (10)"
    )
    parser.add_argument("--fencing", action="store_true", help="REDLOCK_FAST_TOKEN in its environment")
    parser.add_argument(
        "-E",
        "--conflict-exit-code",
        type=_code,
        default=exit_codes.TAKEN,
        metavar="N",
        help="the exit code when others hold the lock (1)",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="say what happens with the masters")


def _locks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="as in 'orders:*' (all)")
    parser.add_argument(
        "--limit", type=_count, default=1000, metavar="N", help="so many names at most (1000)"
    )
    parser.add_argument("--timeout", type=_seconds, default=10.0, metavar="S", help="look for so long (10)")


def _bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=_short, default=2.0, metavar="S", help="for each of three (2)")
    parser.add_argument(
        "--threads", type=_count, default=16, metavar="N", help="that contend for nothing (16)"
    )
    parser.add_argument("--tasks", type=_count, default=64, metavar="N", help="of asyncio (64)")


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--masters", type=_count, default=5, metavar="N", help="servers to start")
    parser.add_argument("--workers", type=_count, default=4, metavar="N", help="processes that contend")
    parser.add_argument("--seconds", type=_seconds, default=5.0, metavar="S", help="how long they contend")
    parser.add_argument("--engine", choices=("auto", "native", "python"), default="auto")
    parser.add_argument("--server", default="auto", help="auto, valkey, redis or the path of a server")


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
        raise argparse.ArgumentTypeError("must be 0 or more, or -1 for no end")
    return number


def _code(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 255:
        raise argparse.ArgumentTypeError("must be from 0 to 255")
    return number
