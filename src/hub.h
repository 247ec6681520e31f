/* The hub: one ordered connection per master, shared by all threads. Plain C, no Python.
 *
 * Threads submit requests and wait. One of them leads: it flushes everybody's bytes, polls,
 * receives, matches replies to requests and wakes those whose request is decided; then it hands
 * the lead on. Where many wait, a thread of the hub's own leads. An event loop submits without
 * waiting, and leads for one round whenever it is told that there is something to do. Who only watches
 * (see vigil.c) does not keep the lead: one of those is on the lookout, and leads when something came.
 * The mutex guards all fields but those marked "leader", which belong to whoever
 * leads; it is never held across a call that can block. redlock_fast/engine/contract.py states the contract.
 */
#ifndef REDLOCK_HUB_H
#define REDLOCK_HUB_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bell.h"

#define HUB_SILENT INT64_MIN
#define HUB_FAULT (INT64_MIN + 1)
#define HUB_MAX_ARGS 8
#define HUB_MAX_DETAIL 1024 /* of a reply that is kept: MAX_DETAIL of the contract */
/* Of what is no reply: UNASKED, UNASKED_LEAST and UNASKED_PER_BYTE of the contract. */
#define HUB_UNASKED (16 << 10)
#define HUB_UNASKED_LEAST 128
#define HUB_UNASKED_PER_BYTE 16
#define HUB_FLUSHED "its keys were flushed" /* FLUSHED of the contract */

/* What decides a request: the enum Wait of the contract. */
enum hub_wait_for { WAIT_EARLY, WAIT_CERTAIN, WAIT_ALL };

/* Why a vote is FAULT. The last three carry a text, and that of the last one is the reply. */
enum hub_reason {
    REASON_NONE, REASON_NOT_ASKED, REASON_NOT_CONNECTED, REASON_LAGGING, REASON_OWED, REASON_BUFFER,
    REASON_NO_COMMAND, REASON_BROKEN, REASON_LONG, REASON_REPLY
};

/* What a command watches: the values of Command.watch. */
enum { WATCH_NOTHING, WATCH_KEY, WATCH_PREFIX };

/* What a command can be answered besides an error: the enum Reply of wire/commands.py. */
enum { ANSWER_ANY, ANSWER_STATUS, ANSWER_INTEGER };

enum hub_state { HUB_DONE, HUB_SIGNALS };

typedef struct hub hub;
typedef struct hub_waiter hub_waiter;
typedef struct { hub_waiter *first, *last; } hub_waiters;

/* One request, owned by its waiter, its owed replies and its place among the kept together. */
typedef struct hub_op {
    int references;
    int verb, need;
    int granted, refused, faulty;
    int owed;
    char decided, wait;
    uint64_t masters, sent;
    int64_t keep;  /* ns that it is worth sending again */
    int64_t until; /* when that ends */
    hub_waiter *waiter;
    struct hub_vigil *vigil; /* if it watches */
    struct hub_detail *details;
    int args;
    struct { const char *data; size_t size; } arg[HUB_MAX_ARGS];
    unsigned char *reasons;
    int64_t values[];
} hub_op;

typedef struct hub_detail {
    struct hub_detail *next;
    int master;
    size_t size;
    char text[];
} hub_detail;

/* The vote of one master for a request that watches. It is listed among that master's until a push names
 * it, or the request is decided. */
typedef struct hub_open {
    struct hub_open *next;  /* of a first: the first of another name in the same place */
    struct hub_open *same;  /* the next of the same name */
    struct hub_open **link; /* what points here; NULL: is not listed */
    struct hub_vigil *vigil;
    int64_t expires; /* when there will be nothing left to watch */
    char first;      /* of its name */
} hub_open;

/* What a request that watches has besides. */
typedef struct hub_vigil {
    struct hub_vigil *next, **link; /* among all; NULL: is not listed */
    hub_op *op;
    int watch;
    uint64_t hash;    /* of what it watches */
    uint64_t masters; /* that watch for it */
    int64_t due;      /* when its time is over, before that of its waiter */
    hub_open open[];  /* by master */
} hub_vigil;

/* Requests handed over together, and who waits for them: a thread, or an event loop's `owner`. */
struct hub_waiter {
    hub_waiter *previous, *next;
    hub_op **ops;
    size_t count, undecided;
    size_t watching; /* how many of the undecided watch */
    unsigned seen;   /* on the lookout: how often somebody had led */
    unsigned forks;  /* of the hub, when it was enlisted */
    int64_t deadline;
    int64_t limit, stall; /* the deadline moves with every reply, by `stall`, up to the limit; 0: it does not */
    void *owner;
    hub_waiters *queue; /* that it stands in */
    char present; /* inside hub_wait, so it can be woken to lead */
    char called;  /* decided, and its bell is about to ring: it may not be gone before */
    unsigned counting; /* when it was told */
    bell bell;
};

/* Commands as constant texts and argument numbers. */
typedef struct hub_template {
    int parts;
    int args; /* how many its slots need */
    int undo; /* the verb that takes it back, with the same arguments; -1: none */
    int skip; /* replies that come before the one that counts */
    int watch;
    int reply; /* ANSWER_...; that of the fallback is the same */
    struct hub_template *fallback;
    struct { char *text; size_t size; int slot; } part[]; /* slot ~n: argument n as it is */
} hub_template;

hub_template *hub_template_new(int parts);
int hub_template_text(hub_template *t, int part, const char *text, size_t size);
void hub_template_free(hub_template *t);

/* How a connection that C cannot read by itself (TLS) moves bytes: a count, 0 at the end of the
 * stream (receive only), or -errno; -EINTR when a signal handler raised and nobody knows what moved. */
typedef struct {
    ssize_t (*send)(void *context, const char *data, size_t size);
    ssize_t (*receive)(void *context, char *data, size_t size);
    void *context;
} hub_transport;

typedef struct {
    char attached;
    char broken[128];
    size_t owed;
    int64_t lag, round_trip;
    uint64_t late, replayed, dropped, pushes, scanned;
} hub_link_state;

/* `parallel`: threads that wake need not wait for each other, as they do where Python has a GIL. */
hub *hub_new(int masters, size_t max_owed, size_t max_buffer, size_t max_replay, double lag_after,
             int parallel);
/* Ends all connections. Its memory goes with the last that retained it. */
void hub_free(hub *h);
void hub_retain(hub *h);
void hub_release(hub *h);

hub_op *hub_op_new(hub *h, int verb, int need, int wait, uint64_t masters, double keep, int args,
                   const char **data, const size_t *sizes);
void hub_op_release(hub_op *op);

/* Submit and wait. HUB_SIGNALS: look after signals, then call hub_wait, or hub_leave to give up. */
enum hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall);
enum hub_state hub_wait(hub *h, hub_waiter *w);
void hub_leave(hub *h, hub_waiter *w);

/* For an event loop; nothing here waits. The fd that it watches, -1 if there can be none. */
int hub_watch(hub *h);
void hub_unwatch(hub *h);
/* Hand over for `owner`, or for nobody if that is NULL. */
void hub_submit(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall, void *owner);
void hub_flush(hub *h);
/* One round; whose requests are decided, first to last by `next`. */
hub_waiter *hub_on_ready(hub *h);
/* ns until a deadline may end; -1 if there is none. */
int64_t hub_due(hub *h);

/* Takes the templates; and fd, unless a transport moves its bytes. `kind` is a number for the dialect. */
void hub_attach(hub *h, int master, int fd, const hub_transport *transport, hub_template **dialect,
                int verbs, int kind);
/* Half-closes the connection and gives its fd back to be closed; -1 if it was broken (it is closed) or
 * never the hub's. */
int hub_detach(hub *h, int master);
/* The same for all, into fds; what was under way is taken back where it had been granted. */
void hub_close(hub *h, int *fds);
void hub_tend(hub *h);
int hub_drain(hub *h, double timeout);
void hub_describe(hub *h, int master, hub_link_state *state);
/* How many connections have broken so far. */
uint64_t hub_breaks(hub *h);
/* End the hub's own thread, if it has one. */
void hub_dismiss(hub *h);
/* Ends all connections and forgets all requests, in a child of fork. The fork has done it already (fork.c). */
void hub_abandon(hub *h);

#endif
