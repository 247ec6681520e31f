"""The Lua of locks that are more than one SET: what the scripts of ``_commands`` are put together from.

Each returns one number, as every command does: more than 0 grants, all else refuses. A script must refuse
whatever conflicts with what its master holds; a quorum does the rest. PROTOCOLS.md has the models.
"""

from __future__ import annotations

# Several resources at once. KEYS are the resources, of which there are ``count``. ---------------------

#: All or none. Refused: the number of the first that is taken, below zero.
ALL = b"""for i=1,count do
  if redis.call('exists',KEYS[i])==1 then return -i end
end
for i=1,count do redis.call('set',KEYS[i],token,'px',ttl) end
return 1"""

#: Also where something else stands under one of the names by now.
NONE = b"""local n=0
for i=1,#KEYS do
  if redis.pcall('get',KEYS[i])==ARGV[1] then n=n+redis.call('del',KEYS[i]) end
end
return n"""
