"""``redlock-fast masters``: a change of the set of masters, in phases."""
