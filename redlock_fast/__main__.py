"""Runs the command ``redlock-fast`` as ``python -m redlock_fast``."""

import sys

from .cli import main

sys.exit(main())
