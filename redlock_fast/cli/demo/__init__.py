"""``redlock-fast demo``: processes that contend for locks while masters fail."""
