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

#: The server's time in milliseconds.
NOW = b"""local t=redis.call('time')
local now=t[1]*1000+math.floor(t[2]/1000)"""

# Fair lock. queue: who waits, by ticket; entries: until when each is there without a word of it. -------

#: Who has no ticket is told the largest, as -1-ticket; who has one its rank, as -1-rank.
FAIR = b"""local dead=redis.call('zrangebyscore',entries,'-inf',now,'limit',0,100)
for i=1,#dead do
  redis.call('zrem',queue,dead[i])
  redis.call('zrem',entries,dead[i])
end
if ticket~='' then
  redis.call('zadd',queue,ticket,place)
  redis.call('zadd',entries,now+stay,place)
  redis.call('pexpire',queue,stay*4)
  redis.call('pexpire',entries,stay*4)
end
local head=redis.call('zrange',queue,0,0)[1]
while head and not redis.call('zscore',entries,head) do
  redis.call('zrem',queue,head)
  head=redis.call('zrange',queue,0,0)[1]
end
local free=redis.call('exists',key)==0
if free and (not head or head==place) then
  redis.call('set',key,token,'px',ttl)
  return 1
end
if ticket=='' then return -1-(redis.call('zrange',queue,-1,-1,'withscores')[2] or 0) end
local rank=redis.call('zrank',queue,place)
if rank>0 and not free then rank=rank-1 end
return -1-rank"""

#: For how long, in milliseconds, there is nothing to try; -2: the lock is free, and it is our turn. The
#: head of the queue may leave without a trace on the lock's key: not for long where that is free.
FAIR_LOOK = b"""local left=redis.call('pttl',key)
if left~=-2 then return left end
local head=redis.call('zrange',queue,0,0)[1]
if not head or head==place then return -2 end
return math.max(1,math.min(25,(redis.call('zscore',entries,head) or 0)-now))"""

LEAVE = b"""local n=0
if redis.call('get',key)==token then n=redis.call('del',key) end
redis.call('zrem',queue,place)
redis.call('zrem',entries,place)
return n"""
