"""``redlock-fast demo``."""

from __future__ import annotations

import argparse

from ..demo import run as _demo


def run(options: argparse.Namespace) -> int:
    setting = _demo.Setting(options.masters, options.workers, options.seconds, options.engine, options.server)
    return _demo.run(setting, as_json=options.json)
