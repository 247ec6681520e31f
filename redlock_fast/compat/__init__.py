"""Drop-in replacements for the classes of other lock libraries. See docs/migration.md.

Each module has the names, signatures and units of the library that it is named after, and uses the same keys
on the masters. So both libraries exclude each other while a fleet migrates. Other keyword arguments of a
constructor are options of FastRedlock. Locks with the same masters and options share one client.
"""

from ._clients import aclose_all, close_all

__all__ = ["aclose_all", "close_all"]
