"""The ``redlock-fast`` command. Everything heavy is imported by the subcommand that needs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from . import __version__
from .errors import RedlockError

#: Exit codes; a check that failed is 1, as in the subcommands.
UNABLE = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 good, 1 a check failed, 2 unable, 130 interrupted."""
    options = _parser().parse_args(argv)
    try:
        return _demo(options)
    except RedlockError as error:
        print(f"redlock-fast: {error}", file=sys.stderr)
        return UNABLE
    except KeyboardInterrupt:
        print("\nredlock-fast: interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="redlock-fast", description="A distributed lock over N masters.")
    parser.add_argument("--version", action="version", version=f"redlock-fast {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="start masters on this machine, fight over a lock, kill a master, check that all is well",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument("--masters", type=_count, default=5, metavar="N", help="servers to start")
    demo.add_argument("--workers", type=_count, default=4, metavar="N", help="processes that contend")
    demo.add_argument("--seconds", type=_seconds, default=5.0, metavar="S", help="how long they contend")
    demo.add_argument("--engine", choices=("auto", "native", "python"), default="auto")
    demo.add_argument("--server", default="auto", help="auto, valkey, redis or the path of a server")
    demo.add_argument("--json", action="store_true", help="print the result as one JSON object")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 86_400:
        raise argparse.ArgumentTypeError("must be from 0.1 to 86400")
    return number


def _demo(options: argparse.Namespace) -> int:
    from . import _demo

    setting = _demo.Setting(options.masters, options.workers, options.seconds, options.engine, options.server)
    return _demo.run(setting, as_json=options.json)
