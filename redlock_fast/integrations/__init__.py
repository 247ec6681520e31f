"""Locks in frameworks: each module imports its framework, and ``redlock_fast`` imports no module of these."""
