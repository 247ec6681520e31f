"""``python -m redlock_fast``: the same as ``redlock-fast``."""

import sys

from .cli import main

sys.exit(main())
