"""Lua for locks that need more than one SET: the parts of the scripts of ``wire/dialect.py``.

Each script returns one number: a positive number grants, any other number refuses. A script must refuse a
request that conflicts with the locks on its master; the quorum does the rest.
"""

from __future__ import annotations

# Acquire with more than SET: parts that several scripts share. --------------------------------

#: The fencing counter is a number. A missing counter starts at the master's clock in microseconds. Later it
#: is never behind that clock, rounded down to whole steps. So at the latest one step after a counter was
#: lost, or went back to an earlier number, it is above every earlier token. Lua counts exactly up to 2^53.
#: The counter is never kept for less time than before: the retention of another client may be longer.
NEXT_FENCE = b"""local n=redis.pcall('incr',counter)
if type(n)~='number' or math.abs(n)>=2^53 then
  redis.call('del',key)
  return type(n)=='number' and redis.error_reply('ERR the counter of fencing tokens is too large') or n
end
local kept=math.max(retention,redis.call('pttl',counter))
local t=redis.call('time')
local clock=t[1]*1000000+t[2]
if n>1 then clock=clock-clock%(step*1000) end
if n>=clock then
  redis.call('pexpire',counter,kept)
  return n
end
redis.call('set',counter,string.format('%.0f',clock),'px',kept)
return clock"""

#: Raises an existing counter while the key is held. A refusal with the key is the counter, as a negative
#: number. No counter is raised above the master's clock by more than a step, because a counter that is lost
#: begins at the clock again. So a master whose counter or clock is far ahead decides no token. A counter that
#: is itself ahead by more than a step, because the clock was set back, is raised by 0.1 s at most.
RAISE_FENCE = b"""if redis.call('get',key)~=token then return 0 end
local n=tonumber(redis.call('get',counter))
if not n or n<1 or n>=2^53 then return 0 end
local target=tonumber(number)
local t=redis.call('time')
local highest=t[1]*1000000+t[2]+step*1000
if n>highest then highest=n+100000 end
if n>=target or target>highest then return -n end
redis.call('set',counter,number,'px',math.max(retention,redis.call('pttl',counter)))
return 1"""

ACQUIRE_KEY = b"if not redis.call('set',key,token,'nx','px',ttl) then return 0 end"

#: The marker is "process since": a server process, and the server time in milliseconds at which a client saw
#: first that the master is this process. That is a fact, which all clients of a prefix may believe; for how
#: long such a master casts no vote (``wait``, in milliseconds) each client decides for itself. A time in the
#: future shows that the clock was set back since: the process counts as seen now, so that the rest is never
#: longer than ``wait``. A client that may not ask for the process only checks that the marker exists.
CHECK_MARKER = b"""local t=redis.call('time')
local now=t[1]*1000+math.floor(t[2]/1000)
local owner,since=string.match(redis.call('get',marker) or '','^(%S*) (%d+)$')
since=tonumber(since)
if not since or since>now or (process~='' and owner~=process) then
  since=now
  redis.call('set',marker,process..string.format(' %.0f',since))
end
local left=since+wait-now"""

REJECT_GUARDED = b"""if left>0 then
  return redis.error_reply('GUARDED no vote for '..left..' ms more: it may have forgotten locks')
end"""

#: The server's time in milliseconds. The entries of a set expire by it, as keys do.
SERVER_TIME = b"""local t=redis.call('time')
local now=t[1]*1000+math.floor(t[2]/1000)"""

#: Never shortens the life of a key: a request may be executed after a longer one that a quorum has confirmed.
#: A set lives at least as long as its entries.
EXTEND_EXPIRY = b"""local function outlive(key,ms)
  if redis.call('pttl',key)<tonumber(ms) then redis.call('pexpire',key,ms) end
end"""

#: A hash of the token in a key, and what follows the random bytes of the token, bounded; never these bytes,
#: and "" for anything else.
OWNER = b"""local token=redis.pcall('get',KEYS[1])
return type(token)=='string' and redis.sha1hex(token)..string.sub(token,21,128) or ''"""

# Read-write lock: ``w`` has the writer, ``r`` the readers with the end of each lease, ``i`` the waiting
# writers (intents), with the time until which new readers are refused in their favour.
#
# A server whose memory is full (``maxmemory``) refuses ZADD, because it may need memory. What is held must be
# extended and given back there, too. All servers refuse such a command in a script only while the script has
# written nothing: they do not stop between two writes. So each script of a held lock first deletes something,
# which is never refused; ZREMRANGEBYSCORE counts also where it finds nothing to delete.
# ------------------------

RW_READ = b"""redis.call('zremrangebyscore',r,'-inf',now)
redis.call('zremrangebyscore',i,'-inf',now)
if redis.call('exists',w)==1 then return 0 end
if redis.call('zcard',i)>0 and not redis.call('zscore',r,mine) then return 0 end
redis.call('zadd',r,'gt',now+ttl,mine)
outlive(r,ttl)
return 1"""

#: An existing vote is extended: it must last as long as the lease that the client computes.
RW_WRITE = b"""redis.call('zremrangebyscore',r,'-inf',now)
local writer=redis.call('get',w)
if writer==mine then
  outlive(w,ttl)
  return 1
end
if writer or redis.call('zcard',r)>0 then return 0 end
redis.call('set',w,mine,'px',ttl)
return 1"""

#: After a failed round: give the vote back and keep the place. A grant never removes the intent, because the
#: next round may need it.
RW_ROLLBACK = b"""redis.call('zremrangebyscore',i,'-inf',now)
if redis.call('get',w)==mine then redis.call('del',w) end
redis.call('zadd',i,now+intent,place)
outlive(i,intent)
return 1"""

RW_RELEASE = b"""local found=0
if redis.call('get',w)==mine then found=redis.call('del',w) end
local ends=redis.call('zscore',r,mine)
if ends then
  redis.call('zrem',r,mine)
  if tonumber(ends)>now then found=1 end
end
redis.call('zrem',i,place)
return found"""

_EXTEND_READER = b"""redis.call('zremrangebyscore',r,'-inf',now)
if not redis.call('zscore',r,mine) then return 0 end
redis.call('zadd',r,'gt',now+ttl,mine)
outlive(r,ttl)
return 1"""

RW_EXTEND = (
    b"""if redis.call('get',w)==mine then
  outlive(w,ttl)
  return 1
end
"""
    + _EXTEND_READER
)

#: In one step, so that no writer gets in between. The reader keeps the rest of the writer's lease if it is
#: longer.
RW_DOWNGRADE = (
    b"""if redis.call('get',w)==mine then
  local left=math.max(redis.call('pttl',w),tonumber(ttl))
  redis.call('zremrangebyscore',r,'-inf',now)
  redis.call('zadd',r,'gt',now+left,mine)
  outlive(r,left)
  redis.call('del',w)
  redis.call('zrem',i,place)
  return 1
end
"""
    + _EXTEND_READER
)

#: When the lock can be acquired: -2 now, -1 unknown, else the milliseconds until then at most. ``others``:
#: the set that must be empty besides the writer. The script only reads, so that its keys can be watched.
RW_TIME_TO_ENTER = b"""local ends=redis.call('pttl',w)
if ends~=-2 then return ends end
local last=redis.call('zrange',others,-1,-1,'withscores')[2]
if last and tonumber(last)>now then return last-now end
return -2"""

# Semaphore: which of ``count`` slots from ``name..first`` on are free, as bits. The script builds the names
# of the slots, which have the hash tag of ``name``.
# ---------------------------------------------------------------------

#: A grant has the map of free slots, too: it may be one of too few grants.
ACQUIRE_SLOT = b"""local free,bit=0,1
for n=first,first+count-1 do
  if redis.call('exists',name..n)==0 then free=free+bit end
  bit=bit*2
end
if redis.call('set',key,token,'nx','px',ttl) then return free+1 end
return -free"""

#: When one of the KEYS is free; results as for ``RW_TIME_TO_ENTER``. A server watches only keys that are
#: passed as KEYS.
EARLIEST_EXPIRY = b"""local least=-1
for n=1,#KEYS do
  local ends=redis.call('pttl',KEYS[n])
  if ends==-2 then return -2 end
  if ends>=0 and (least<0 or ends<least) then least=ends end
end
return least"""

# Several resources at once. KEYS are the resources, of which there are ``count``. ---------------------

#: All or none. A refusal is -i, where i is the index of the first key that is taken.
ACQUIRE_ALL = b"""for i=1,count do
  if redis.call('exists',KEYS[i])==1 then return -i end
end
for i=1,count do redis.call('set',KEYS[i],token,'px',ttl) end
return 1"""

#: ``pcall``: a key may have another type by now.
RELEASE_ALL = b"""local n=0
for i=1,#KEYS do
  if redis.pcall('get',KEYS[i])==ARGV[1] then n=n+redis.call('del',KEYS[i]) end
end
return n"""

# Fair lock. queue: the waiting callers by ticket; entries: the time until which each entry is valid. Each
# caller that is not the first has a wait key beside them, which is deleted when it becomes the first: it
# watches that key. So a release wakes the first caller only, which watches the lock itself. --------------

#: Function ``wait_key``: the key that the caller with this place watches, unless it is the first.
WAIT_KEY = b"""local function wait_key(place) return string.sub(queue,1,-2)..'b:'..place end"""

#: Most grants: the key is free, and the caller is the head of the queue by the ticket that it brings. Its
#: entry keeps its time, which ends no later than the lease.
FAIR_TURN = b"""if ticket~='' and stay~='' and tonumber(ttl)>=tonumber(stay) then
  local first=redis.call('zrange',queue,0,0,'withscores')
  if first[1]==place and tonumber(first[2])==tonumber(ticket) and redis.call('exists',key)==0 then
    redis.call('set',key,token,'px',ttl)
    return 1
  end
end"""

#: ``head``: the first caller, if there is one. Callers before it whose entries have ended are removed. The
#: caller may bring a larger ticket than this master gave it, which may change the first caller.
FAIR_HEAD = b"""if ticket~='' then redis.call('zadd',queue,'xx',ticket,place) end
local head=redis.call('zrange',queue,0,0)[1]
local passed=false
while head and tonumber(redis.call('zscore',entries,head) or 0)<=now do
  redis.call('zrem',queue,head)
  redis.call('zrem',entries,head)
  head=redis.call('zrange',queue,0,0)[1]
  passed=true
end
if passed and head then redis.call('del',wait_key(head)) end"""

#: A holder that had a place keeps it. It ends with its lease, or earlier. A refusal of a caller that does not
#: wait (``stay`` is empty) is 0.
FAIR_ACQUIRE = b"""if redis.call('exists',key)==0 and (not head or head==place) then
  redis.call('set',key,token,'px',ttl)
  if head and stay~='' then redis.call('zadd',entries,now+math.min(tonumber(stay),tonumber(ttl)),place) end
  return 1
end
if stay=='' then return 0 end"""

#: Gives the caller a place in the queue. The reply is -1-(64*ticket+rank): its number, and how many callers
#: are in front of it. A caller that brings no ticket takes the next one.
FAIR_JOIN = b"""local given=ticket~=''
if given then
  local dead=redis.call('zrangebyscore',entries,'-inf',now,'limit',0,100)
  for i=1,#dead do
    redis.call('zrem',queue,dead[i])
    redis.call('zrem',entries,dead[i])
  end
else
  ticket=1+(redis.call('zrange',queue,-1,-1,'withscores')[2] or 0)
end
redis.call('zadd',queue,ticket,place)
redis.call('zadd',entries,now+stay,place)
redis.call('pexpire',queue,stay*4)
redis.call('pexpire',entries,stay*4)
local rank=redis.call('zrank',queue,place)
if rank>0 then redis.call('set',wait_key(place),1,'px',stay*4) end
if given then redis.call('del',wait_key(redis.call('zrange',queue,0,0)[1])) end
return -1-(64*math.min(ticket,2^53)+math.min(rank,63))"""

#: Other masters gave the caller a larger ticket than this one.
FAIR_OTHER_TICKET = b"if redis.call('zscore',queue,place)==ticket then return 0 end"

#: The next caller is the first from now on.
FAIR_LEAVE = b"""local n=0
if redis.call('get',key)==token then n=redis.call('del',key) end
redis.call('zrem',queue,place)
redis.call('zrem',entries,place)
redis.call('del',wait_key(place),wait_key(redis.call('zrange',queue,0,0)[1] or place))
return n"""
