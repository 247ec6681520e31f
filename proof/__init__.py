"""Explicit-state models of the protocols. ``python -m proof`` checks them all; see README.md here."""
