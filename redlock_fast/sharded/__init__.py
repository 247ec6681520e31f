"""Clients over several groups of masters, each resource in one group."""

from .clients import AsyncShardedRedlock, ShardedRedlock

__all__ = ["AsyncShardedRedlock", "ShardedRedlock"]
