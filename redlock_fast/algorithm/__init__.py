"""Redlock without I/O: numbers, leases, generators. Clock and randomness are arguments."""
