"""Clients over several groups of masters. Each resource belongs to one group."""

from .clients import AsyncShardedRedlock, ShardedRedlock

__all__ = ["AsyncShardedRedlock", "ShardedRedlock"]
