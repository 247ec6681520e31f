/* The connection of one master (the link): its buffers, its pending replies, and the requests to resend. */
#ifndef REDLOCK_LINK_H
#define REDLOCK_LINK_H

#include "buffer.h"
#include "descriptor.h"
#include "hub.h"
#include "reply.h"

enum link_state { LINK_NONE, LINK_UP, LINK_BROKEN };

/* A reply that is due. SLOT_FALLBACK: the reply to the fallback of the command. SLOT_LEADING: it precedes the reply
 * that counts. */
typedef struct { /* mutex */
    hub_op *op;
    int64_t sent;
    enum slot_kind { SLOT_REPLY, SLOT_FALLBACK, SLOT_LEADING } kind;
} link_slot;

/* A grant that replicas have not confirmed yet. See replicas.c. */
typedef struct { /* mutex */
    hub_op *op;
    int64_t vote;
} link_grant;

/* A hash table of the names that a master watches: keys and prefixes. */
typedef struct { /* mutex */
    hub_sub_vote **buckets; /* mutex: the first vote of the bucket's first name */
    size_t bucket_count;    /* mutex: a power of two */
    size_t names, votes;
    size_t prefixes[64];    /* mutex: number of votes that watch a prefix of that length, modulo 64 */
} sub_table;

typedef struct {
    enum link_state state;              /* mutex */
    hub_template **dialect;             /* mutex */
    int verbs, kind;                    /* mutex: links of the same kind have equal dialects */
    buffer out;                         /* mutex: encoded requests of all threads */
    link_slot *pending;                 /* mutex: ring of pending replies, the oldest at pending_head */
    size_t pending_head, pending_size;  /* mutex */
    size_t pending_capacity;            /* mutex: a power of two */
    size_t flushed;                     /* mutex: pending replies to requests that the leader has begun to send */
    link_grant *held;                   /* mutex: grants that replicas have not confirmed yet */
    size_t held_size, held_capacity;    /* mutex */
    int wait_verb;                      /* mutex: the verb that confirms requests submitted since its last use, */
    char wait_due;                      /* mutex: if there are any */
    char wait_pending;                  /* mutex: the reply to that verb is pending */
    hub_op **resend_queue;              /* mutex: requests to resend later, or on the next connection */
    size_t resend_size, resend_capacity; /* mutex */
    int64_t retry_at;                   /* mutex: no retry of a transient error before */
    int64_t purge_at;                   /* mutex: no entry of resend_queue expires before */
    int64_t lagging_since;              /* mutex: 0: is not lagging */
    int64_t round_trip;                 /* mutex: smoothed, in ns; 0: not known */
    uint64_t late_replies, resent, resend_dropped, pushes; /* mutex: counters */
    int64_t push_credit;                /* mutex: bytes of pushes and attributes that the master may still send */
    char broken[128];                   /* mutex: why the connection broke */
    sub_table subs;                     /* mutex */
    reply_scan scan;                    /* mutex: of the first reply in `in` */
    char in_loop, in_loop_output;       /* mutex: the loop's fd watches this connection for input, for output */
    int fd;                             /* leader and mutex */
    file_id file;                       /* leader and mutex: of fd, see descriptor.h */
    const hub_transport *transport;     /* leader and mutex: NULL for a plain socket */
    buffer sending, in;                 /* leader: `sending` was `out` when the leader began to send it */
    char in_round;                      /* leader: this round sends to it and polls it */
    char received;                      /* leader: bytes came in this round */
    char transport_busy;                /* atomic: the transport moves bytes, */
    pthread_t transport_thread;         /* leader: in this thread */
    char failure[128];                  /* leader: what went wrong in this round; it breaks the connection */
} hub_link;

/* All but link_send and link_receive: with the hub's mutex held. */
link_slot *link_oldest_pending(hub_link *l);
void link_pop_pending(hub_link *l);
/* Appends op's arguments, encoded by `t`, to the output. Returns 0 without memory. */
int link_encode(hub_link *l, const hub_template *t, const hub_op *op);
/* Appends the last `size` bytes of another link's output. */
int link_copy(hub_link *l, const hub_link *from, size_t size);
/* Adds the replies of this command to the pending ones; each has a reference to op. Returns 0 without memory. */
int link_add_pending(hub_link *l, const hub_template *t, hub_op *op, int64_t sent, enum slot_kind kind);
/* Adds op to the resend queue, unless its time is over or `bound` is reached. */
void link_defer(hub_link *l, hub_op *op, int64_t now, size_t bound);

/* For the leader, without the mutex: move bytes. Errors go to `failure`. Return 0 if a signal came. */
int link_send(hub_link *l);
int link_receive(hub_link *l);

/* Whether its descriptor is still that of the connection; otherwise `failure` says that it is not. */
int link_is_ours(hub_link *l);
/* Closes the connection. Returns the half-closed fd of a plain socket, or -1; also if that is a stranger's by now. */
int link_close(hub_link *l, int half);
/* Forgets the pending replies and the resend queue. */
void link_clear(hub_link *l);

#endif
