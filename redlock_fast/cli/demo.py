"""``redlock-fast demo``."""

from __future__ import annotations

import argparse

from .. import _demo


def run(options: argparse.Namespace) -> int:
    setting = _demo.Setting(options.masters, options.workers, options.seconds, options.engine, options.server)
    return _demo.run(setting, as_json=options.json)
