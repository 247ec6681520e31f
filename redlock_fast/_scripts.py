"""The Lua of locks that are more than one SET: what the scripts of ``_commands`` are put together from.

Each returns one number, as every command does: more than 0 grants, all else refuses. A script must refuse
whatever conflicts with what its master holds; a quorum does the rest. PROTOCOLS.md has the models.
"""

from __future__ import annotations

#: The server's time in milliseconds. What a set holds expires by it, as keys do.
NOW = b"local t=redis.call('time') local now=t[1]*1000+math.floor(t[2]/1000)"

#: A set lives at least as long as what was put into it.
OUTLIVE = b"""local function outlive(set,ms)
  if redis.call('pttl',set)<tonumber(ms) then redis.call('pexpire',set,ms) end
end"""

# Read-write lock: ``w`` has the writer, ``r`` readers with the time that each ends, ``i`` writers that wait
# (intents), with the time until which readers that come now let them go first. ------------------------

READ = b"""redis.call('zremrangebyscore',r,'-inf',now)
redis.call('zremrangebyscore',i,'-inf',now)
if redis.call('exists',w)==1 then return 0 end
if redis.call('zcard',i)>0 and not redis.call('zscore',r,mine) then return 0 end
redis.call('zadd',r,now+ttl,mine)
outlive(r,ttl)
return 1"""

#: A vote that is there already is set again: it must last as long as the client will think.
WRITE = b"""redis.call('zremrangebyscore',r,'-inf',now)
local writer=redis.call('get',w)
if writer~=mine and (writer or redis.call('zcard',r)>0) then return 0 end
redis.call('set',w,mine,'px',ttl)
return 1"""

#: After a round that failed: give the vote back, and keep the place. A grant never removes the intent: the
#: next round may need it.
YIELD = b"""redis.call('zremrangebyscore',i,'-inf',now)
redis.call('zadd',i,now+intent,place)
outlive(i,intent)
if redis.call('get',w)==mine then redis.call('del',w) end
return 1"""

FREE = b"""local found=0
if redis.call('get',w)==mine then found=redis.call('del',w) end
local ends=redis.call('zscore',r,mine)
if ends then
  redis.call('zrem',r,mine)
  if tonumber(ends)>now then found=1 end
end
redis.call('zrem',i,place)
return found"""

_STAY = b"""local ends=redis.call('zscore',r,mine)
if not ends or tonumber(ends)<=now then return 0 end
redis.call('zadd',r,now+ttl,mine)
outlive(r,ttl)
return 1"""

PROLONG = b"if redis.call('get',w)==mine then return redis.call('pexpire',w,ttl) end\n" + _STAY

#: In one step, so that no writer gets in between.
DOWNGRADE = (
    b"""if redis.call('get',w)==mine then
  redis.call('zadd',r,now+ttl,mine)
  outlive(r,ttl)
  redis.call('del',w)
  redis.call('zrem',i,place)
  return 1
end
"""
    + _STAY
)

#: When one may enter: -2 now, -1 nobody knows, else in so many ms at the latest. ``others``: who must
#: be gone besides the writer. It only reads, so that it can be watched.
ENTRY = b"""local ends=redis.call('pttl',w)
if ends~=-2 then return ends end
local last=redis.call('zrange',others,-1,-1,'withscores')[2]
if last and tonumber(last)>now then return last-now end
return -2"""
