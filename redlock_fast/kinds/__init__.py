"""Locks of other shapes than the plain one: one file for each kind."""
