"""Drop-ins: the classes of other lock libraries, over this one. See docs/migration.md.

Each module has the names, signatures and units of the library that it is called after, and the same keys
on the masters: so both exclude each other while a fleet is on its way. Whatever a constructor does not know
is an option of FastRedlock. Locks with the same masters and options share one client.
"""

from ._clients import aclose_all, close_all

__all__ = ["aclose_all", "close_all"]
