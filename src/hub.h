/* The hub: one ordered connection per master, shared by all threads. Plain C, no Python.
 *
 * Threads submit requests and wait. One of them is the leader: it sends the output of all threads, polls,
 * receives, matches replies to requests, and wakes the threads whose requests are decided. Then it releases
 * leadership. Where many threads wait, the hub's helper thread leads. An event loop submits without waiting,
 * and leads for one round when its file descriptor is readable. A thread whose requests are all subscriptions
 * (subscriptions.c) does not keep leadership: one such thread polls, and leads when an event came.
 *
 * redlock_fast/engine/contract.py states the contract; docs/internals/hub.md states the states,
 * the wake-ups and the lock order.
 *
 * The comment of each field begins with its guard, which says which thread may write it; a guard behind the
 * brace that opens a struct holds for all of its fields:
 *   constant          written before the object is shared, and in a child of fork
 *   mutex             written and read with the hub's mutex held
 *   leader            written by the leader; read by another thread only with the mutex, while no thread leads
 *   leader and mutex  written by the leader with the mutex held; read by the leader, or with the mutex
 *   atomic            written and read by atomic operations
 *   list mutex        written with the mutex of fork.c held
 *   local             belongs to one thread
 * The hub's mutex is never held across a call that can block.
 */
#ifndef REDLOCK_HUB_H
#define REDLOCK_HUB_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "waitword.h"

/* Votes that are no number: no reply yet, and a fault. NO_REPLY and FAULT of the contract. */
#define HUB_NO_REPLY INT64_MIN
#define HUB_FAULT (INT64_MIN + 1)
#define HUB_MAX_MASTERS 63 /* MAX_MASTERS of engine/messages.py */
#define HUB_MAX_ARGS 8
#define HUB_MAX_LISTS 2 /* MAX_LISTS of engine/messages.py */
#define HUB_MAX_DETAIL 1024 /* bytes of a reply that is stored as a detail: MAX_DETAIL of the contract */
/* Bytes of pushes and attributes: UNSOLICITED, UNSOLICITED_LEAST and UNSOLICITED_PER_BYTE of the contract. */
#define HUB_UNSOLICITED (16 << 10)
#define HUB_UNSOLICITED_LEAST 128
#define HUB_UNSOLICITED_PER_BYTE 16
#define HUB_FLUSHED "its keys were flushed" /* FLUSHED of the contract */

/* What decides a request: the enum Wait of the contract. */
enum hub_wait_for { WAIT_EARLY, WAIT_CERTAIN, WAIT_ALL };

/* Why a vote is FAULT. The last three carry a text; the text of the last one is the reply. */
enum hub_reason {
    REASON_NONE, REASON_NOT_ASKED, REASON_NOT_CONNECTED, REASON_LAGGING, REASON_OWED, REASON_BUFFER,
    REASON_NO_COMMAND, REASON_BROKEN, REASON_LONG, REASON_REPLY
};

/* What a command watches: the values of Command.watch. */
enum { WATCH_NOTHING, WATCH_KEY, WATCH_PREFIX };

/* The replies that a command can have besides an error: the enum Reply of wire/commands.py. */
enum { ANSWER_ANY, ANSWER_STATUS, ANSWER_INTEGER };

/* HUB_SIGNALS: the wait is not over; the thread must run its signal handlers now. */
enum hub_state { HUB_DONE, HUB_SIGNALS };

typedef struct hub hub;
typedef struct hub_waiter hub_waiter;
typedef struct { /* mutex */
    hub_waiter *first, *last;
} hub_waiters;

/* What decides a request: any `need` masters that grant; or of each list so many of its masters. */
typedef struct { /* constant */
    int need;         /* constant: fewer grants are no quorum */
    int most_against; /* constant: so many votes against, or fewer, prevent no quorum; hub_op_new sets it */
    int lists;        /* constant: 0: any `need` masters are a quorum */
    struct { uint64_t masters; int need; } list[HUB_MAX_LISTS];
} hub_quorum;

/* Adds a list. A quorum without lists begins with zeros. */
void hub_quorum_add(hub_quorum *quorum, uint64_t masters, int need);

/* One request. Its waiter, each of its pending replies and each resend queue hold a reference.
 * Invariant: once it is decided its votes do not change, so its owner reads them without the mutex. */
typedef struct hub_op {
    int references;          /* atomic */
    int verb;                /* constant */
    int master_count;        /* constant: number of values */
    hub_quorum quorum;       /* constant */
    int granted, refused, faulty; /* mutex: number of votes */
    int pending;             /* mutex: masters that owe the reply that counts */
    char decided;            /* mutex */
    char wait;               /* constant: enum hub_wait_for */
    uint64_t masters;        /* constant: mask of the masters to ask */
    uint64_t sent;           /* mutex: mask of the masters that were asked */
    uint64_t held;           /* mutex: mask of those whose grant is held, see replicas.c */
    int64_t resend_for;      /* constant: ns for which the request is worth resending */
    int64_t resend_until;    /* mutex: when that time ends */
    hub_waiter *waiter;      /* mutex: NULL when no thread or loop waits for it */
    struct hub_sub *sub;     /* mutex: NULL unless it is a subscription */
    struct hub_detail *details; /* mutex */
    int args;                /* constant */
    struct { const char *data; size_t size; } arg[HUB_MAX_ARGS]; /* constant */
    unsigned char *reasons;  /* mutex: enum hub_reason, by master */
    int64_t values[];        /* mutex: votes, by master */
} hub_op;

typedef struct hub_detail { /* mutex */
    struct hub_detail *next;
    int master;
    size_t size;
    char text[];
} hub_detail;

/* The vote of one master for a subscription. The table of that master lists it until a push names its key, or
 * the request is decided. */
typedef struct hub_sub_vote { /* mutex */
    struct hub_sub_vote *next;      /* mutex: of the first vote of a name: the first vote of the bucket's next name */
    struct hub_sub_vote *next_same_name;
    struct hub_sub_vote **pprev;    /* mutex: the pointer to this vote; NULL: not listed */
    struct hub_sub *sub;            /* constant */
    int64_t expires;                /* mutex: when the watched key will have expired */
    char first_of_name;
} hub_sub_vote;

/* The part of a request that only a subscription has. */
typedef struct hub_sub {
    struct hub_sub *next, **pprev; /* mutex: list of all subscriptions; pprev is NULL: not listed */
    hub_op *op;             /* constant */
    int watch;              /* constant: WATCH_KEY or WATCH_PREFIX */
    uint64_t hash;          /* constant: of the watched name */
    uint64_t masters;       /* mutex: mask of the masters that watch */
    int64_t deadline;       /* mutex: when its time ends, if that is before its waiter's */
    hub_sub_vote votes[];   /* mutex: by master */
} hub_sub;

/* Requests that were submitted together, and the thread or event loop that waits for them. */
struct hub_waiter {
    hub_waiter *previous, *next; /* mutex: in `queue`; the caller of hub_on_ready owns the list that it returns */
    hub_op **ops;           /* constant */
    size_t count;           /* constant */
    size_t undecided;       /* mutex */
    size_t subscribed;      /* mutex: number of undecided subscriptions */
    unsigned seen_epoch;    /* mutex: the leadership epoch that the watch poller saw last */
    unsigned generation;    /* mutex: of the hub, when this waiter was enqueued */
    int64_t deadline;       /* mutex: with an idle timeout, each reply moves it, up to `limit` */
    int64_t limit;          /* mutex */
    int64_t longest_wait;   /* constant: ns from the submission to `deadline`, if no reply moves it */
    int64_t idle_timeout;   /* constant: ns; 0: none */
    void *owner;            /* constant: the event loop's object; NULL for a thread */
    hub_waiters *queue;     /* mutex: the queue that lists this waiter, or NULL */
    char late;              /* mutex: its time ended late once, and was extended */
    char waiting;           /* mutex: its thread is inside hub_wait, so a wake-up can make it lead */
    char wake_pending;      /* mutex: decided, and a wake-up is about to be posted; it must not leave before */
    unsigned wake_epoch;    /* mutex: the throttle's epoch of its wake-up; then its thread owns it */
    waitword wake;          /* atomic */
};

/* A command as constant texts and numbers of arguments. */
typedef struct hub_template { /* constant */
    int parts;
    int args;          /* constant: number of arguments that its slots need */
    int rollback_verb; /* constant: the verb that takes it back, with the same arguments; -1: none */
    int leading_replies; /* constant: replies that precede the one that counts */
    int watch;
    int reply;         /* constant: ANSWER_...; that of the fallback is the same */
    int confirm_verb;  /* constant: its grants count when that verb has confirmed them; -1: at once */
    int replicas;      /* constant: it is such a verb, WAIT, and confirms from so many replicas on; 0: it is not */
    struct hub_template *fallback;
    struct { char *text; size_t size; int slot; } part[]; /* constant: slot ~n: argument n, without its length */
} hub_template;

hub_template *hub_template_new(int parts);
int hub_template_text(hub_template *t, int part, const char *text, size_t size);
void hub_template_free(hub_template *t);

/* How to move the bytes of a connection that C cannot read by itself (TLS). Both return a count, 0 at the end
 * of the stream (receive only), or -errno. -EINTR: a signal handler raised, and the count is unknown. */
typedef struct { /* constant */
    ssize_t (*send)(void *context, const char *data, size_t size);
    ssize_t (*receive)(void *context, char *data, size_t size);
    void *context;
    char failure[128]; /* leader: the text of an error that is neither -EAGAIN nor -EINTR */
} hub_transport;

typedef struct { /* local */
    char attached;
    char broken[128];
    size_t pending;
    int64_t lag, round_trip;
    uint64_t late_replies, resent, resend_dropped, pushes, scanned;
} hub_connection_state;

/* `parallel`: woken threads do not wait for one another, as they do where Python has a GIL. */
hub *hub_new(int masters, size_t max_pending, size_t max_buffer, size_t max_resend, double lag_after,
             int parallel);
/* Ends all connections. The last reference frees the memory. */
void hub_free(hub *h);
void hub_retain(hub *h);
void hub_release(hub *h);

hub_op *hub_op_new(hub *h, int verb, const hub_quorum *quorum, int wait, uint64_t masters, double resend_for, int args,
                   const char **data, const size_t *sizes);
void hub_op_release(hub_op *op);
/* Whether the masters that granted are a quorum. */
int hub_has_quorum(const hub_op *op);

/* Submit and wait. After HUB_SIGNALS run the signal handlers, then call hub_wait, or hub_leave to give up. */
enum hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout);
enum hub_state hub_wait(hub *h, hub_waiter *w);
/* Returns whether the hub still had the waiter: hub_on_ready has not returned it. */
int hub_leave(hub *h, hub_waiter *w);

/* For an event loop; no call here waits. Returns the fd that the loop watches, -1 if there can be none. */
int hub_loop_fd(hub *h);
void hub_close_loop_fd(hub *h);
/* Submit for `owner`; if `owner` is NULL, hub_on_ready does not return these requests. */
void hub_submit(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout, void *owner);
void hub_flush(hub *h);
/* Run one round. Returns the waiters that are decided, in the order of decision, linked by `next`. */
hub_waiter *hub_on_ready(hub *h);
/* Returns the ns until the next deadline; -1 if there is none. */
int64_t hub_next_timeout(hub *h);

/* Takes ownership of the templates, and of fd unless there is a transport. Equal dialects have equal `kind`. */
/* Before the first connection. Returns 0 without a descriptor. */
int hub_open_kick(hub *h);
void hub_attach(hub *h, int master, int fd, const hub_transport *transport, hub_template **dialect,
                int verbs, int kind);
/* The hub has at least so many masters from now on, at most HUB_MAX_MASTERS. The new ones are not attached;
 * requests keep their number of values. */
void hub_grow(hub *h, int masters);
/* Half-closes the connection and returns its fd for the caller to close. Returns -1 if the connection was
 * broken (its fd is closed), has a transport, or does not exist. */
int hub_detach(hub *h, int master);
/* Detaches all connections, into fds (HUB_MAX_MASTERS). Rolls back the undecided requests on the masters that granted
 * them. Returns the number of masters. */
int hub_close(hub *h, int *fds);
void hub_maintain(hub *h);
int hub_drain(hub *h, double timeout);
void hub_get_connection_state(hub *h, int master, hub_connection_state *state);
/* Returns how many connections have broken so far. */
uint64_t hub_breaks(hub *h);
/* Ends the helper thread, if there is one. */
void hub_stop_helper(hub *h);
/* In a child of fork: ends all connections and forgets all requests. The handler of fork.c does so by itself. */
void hub_after_fork_in_child(hub *h);

#endif
