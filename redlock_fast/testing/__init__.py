"""Masters in memory, for tests that need neither servers nor a network.

with MemoryMasters(3) as masters, FastRedlock(masters.urls) as client:
    masters[0].stop()
"""

from .masters import MemoryMaster, MemoryMasters

__all__ = ["MemoryMaster", "MemoryMasters"]
