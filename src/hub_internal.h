/* The state of the hub, and the functions that its files share. By idea: requests, subscriptions, waiters and
 * leadership, the helper, the event loop, fork, a round. */
#ifndef REDLOCK_HUB_INTERNAL_H
#define REDLOCK_HUB_INTERNAL_H

#include <poll.h>
#include <time.h>

#include "hub.h"
#include "link.h"
#include "wakefd.h"

#define US INT64_C(1000)
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define FOREVER INT64_MAX

/* The longest wait of a thread between two checks for signals. */
#define SIGNAL_CHECK_INTERVAL (50 * MS)

/* The maximum number of woken threads that have not re-entered the hub. Two, so that the wake-up latency of one
 * thread overlaps the other thread's time with the GIL. */
#define MAX_AWAKE 2

/* A processor that goes idle takes long to run the next thread, above all in a virtual machine. So while the helper
 * leads, a thread yields before it blocks, for at most these times: the helper until an event comes, a thread that has
 * woken its successor until that one runs. sched_yield() leaves the processor to any other thread. */
#define YIELD_FOR_EVENT (100 * US)
#define YIELD_FOR_SUCCESSOR (50 * US)

#define BIT(i) (UINT64_C(1) << (i))

/* Clang checks these (make thread-safety); other compilers ignore them. The capability `h` is the hub's mutex.
 * A function whose name ends with _unlocks releases the mutex and takes it again before it returns. */
#ifdef __clang__
#define THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define THREAD_SAFETY(attribute)
#endif
#define REQUIRES(h) THREAD_SAFETY(requires_capability(h))
#define ACQUIRE(h) THREAD_SAFETY(acquire_capability(h))
#define RELEASE(h) THREAD_SAFETY(release_capability(h))
#define UNCHECKED THREAD_SAFETY(no_thread_safety_analysis)

/* At most one thread leads at a time. A thread leads a round when it takes the leadership; the rounds follow. */
typedef struct {
    char taken;                 /* mutex: a thread leads */
    char expects_replies;       /* mutex: replies are due within a round trip, so the leader wakes up soon */
    int exclusive_waiters;      /* mutex: threads in lock_exclusive; the leader makes way for them */
    pthread_cond_t leader_gone; /* constant: signalled for exclusive_waiters */
    unsigned epoch;             /* mutex: how often leadership was taken */
} hub_leadership;

/* Threads whose requests are decided, and how many of them are woken at a time (waiter.c, helper.c).
 * Woken threads queue for the GIL, so at most MAX_AWAKE are woken; each wakes a successor when it re-enters the
 * hub. If none re-enters within WAKE_TIMEOUT, the hub starts a new epoch and wakes more, doubling each time. */
typedef struct {
    hub_waiters decided; /* mutex: threads that are decided and not woken */
    int pending;         /* mutex: length of `decided` */
    int awake;           /* mutex: threads that were woken in this epoch and have not re-entered the hub */
    unsigned epoch;      /* mutex: a thread that was woken in an older epoch frees no slot of this one */
    int64_t last_wake;   /* mutex: when a thread was last woken, or re-entered the hub */
    int timeouts;        /* mutex: epochs in a row that ended by WAKE_TIMEOUT */
    unsigned started;    /* atomic: how many woken threads have run */
} hub_wake_throttle;

/* Subscriptions, and the threads that wait for nothing else. One of those threads is the watch poller: it polls
 * all connections without leadership. */
typedef struct {
    hub_sub *first;       /* mutex: all subscriptions that are undecided */
    hub_waiters waiting;  /* mutex: waiters whose undecided requests are all subscriptions */
    int waiting_threads;  /* mutex: how many of them are threads */
    hub_waiter *poller;   /* mutex: the watch poller */
    char poller_blocked;  /* mutex: it is in poll(), where only hub_kick wakes it */
} hub_subscriptions;

/* The thread that leads where many threads wait. */
typedef struct {
    pthread_t thread;             /* mutex */
    pthread_cond_t wake;          /* constant: leadership was handed to it, or it must end */
    pthread_cond_t stopped;       /* constant: it has ended */
    char running;                 /* mutex */
    char leading;                 /* mutex: leadership is with it */
    char ending;                  /* mutex */
    char busy;                    /* mutex: its last round was short, so it yields before it blocks */
    int transports;               /* mutex: connections with a transport: these need the GIL, so it must not lead */
} hub_helper;

/* The part of an event loop. */
typedef struct {
    file_id file;        /* mutex: of fd */
    int fd;              /* mutex: epoll or kqueue over `wakefd` and all connections; -1 without a loop */
    wakefd wakefd;       /* mutex */
    char notified;       /* mutex: wakefd is readable */
    char collecting;     /* mutex: hub_on_ready runs, so no notification is needed */
    hub_waiters decided; /* mutex: not yet returned by hub_on_ready */
    int undecided;       /* mutex: number of its waiters that are not decided */
} hub_loop;

struct THREAD_SAFETY(capability("mutex")) hub {
    /* A child of fork keeps these: */
    int references;             /* atomic */
    int masters;                /* atomic: see hub_masters */
    size_t max_pending, max_buffer, max_resend; /* constant */
    int64_t lag_after;          /* constant: ns */
    char parallel;              /* constant */
    struct pollfd *fds;         /* leader: the kick, then the connections of the round; room for HUB_MAX_MASTERS */
    hub_link *links;            /* constant: by master; room for HUB_MAX_MASTERS */
    uint64_t breaks;            /* atomic */
    unsigned generation;        /* constant: number of forks from the first process to this one */
    hub *list_next, **list_pprev; /* list mutex */
    char fork_locked;           /* list mutex: the forking thread holds this hub's mutex */
    /* A child of fork is reset with these: */
    pthread_mutex_t mutex;      /* constant */
    hub_leadership lead;        /* mutex */
    hub_waiters waiting;        /* mutex: undecided waiters in the order of arrival; see also `subs.waiting` */
    int waiting_threads;        /* mutex: how many of them are threads */
    hub_subscriptions subs;     /* mutex */
    hub_wake_throttle throttle; /* mutex */
    hub_helper helper;          /* mutex */
    hub_loop loop;              /* mutex */
    char output_pending;        /* mutex: a connection has output that no flush has taken */
    unsigned unflushed_requests; /* mutex: requests since the last flush */
    int64_t next_deadline;      /* mutex: no waiter's deadline is before it */
    int64_t last_poll;          /* mutex: when the last poll ended */
    uint64_t up, lagging;       /* mutex: masks of masters */
    wakefd kick;                /* mutex: ends the poll() of the leader or the watch poller; open with a connection */
    char kicked;                /* mutex: the kick is readable */
};

static inline void hub_lock(hub *h) ACQUIRE(h) UNCHECKED { pthread_mutex_lock(&h->mutex); }
static inline void hub_unlock(hub *h) RELEASE(h) UNCHECKED { pthread_mutex_unlock(&h->mutex); }

static inline int64_t hub_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* Returns the time `seconds` after `now`; FOREVER for large numbers. */
static inline int64_t hub_later(int64_t now, double seconds) {
    if (!(seconds > 0)) return now;
    return seconds < 1e9 ? now + (int64_t)(seconds * 1e9) : FOREVER;
}

/* The number of masters grows at any time, also while a thread leads a round without the mutex. A new master is in
 * no round and has no connection before it is attached. */
static inline int hub_masters(const hub *h) { return __atomic_load_n(&h->masters, __ATOMIC_ACQUIRE); }

/* request.c: votes. Only the first vote of each master counts. */
static inline int hub_has_voted(const hub_op *op, int master) { return op->values[master] != HUB_NO_REPLY; }
void hub_count_vote(hub_op *op, int master, int64_t value);
void hub_count_fault(hub_op *op, int master, enum hub_reason reason, const char *text, size_t size);
/* In a child of fork: decides the request as if it had not been sent, for its votes are the parent's. */
void hub_forget(hub_op *op);
int hub_is_quorum(const hub_op *op, uint64_t masters); /* of a mask of masters */
int hub_is_determined(const hub_op *op);

/* subscriptions.c: subscriptions, and what changes their votes. */
int hub_subscribe(hub *h, hub_op *op, int master, int watch) REQUIRES(h); /* 0 without memory */
void hub_unsubscribe(hub *h, hub_op *op) REQUIRES(h);
/* Counts the PTTL that a master replied. Returns 0 if `pttl` is none. */
int hub_subscription_reply(hub *h, hub_op *op, int master, int64_t pttl, int64_t asked) REQUIRES(h);
int hub_handle_push(hub *h, int master, const char *data, size_t size) REQUIRES(h); /* 0: all keys are gone */
void hub_fail_subscriptions(hub *h, int master, const char *why) REQUIRES(h);
void hub_end_subscriptions(hub *h) REQUIRES(h);
void hub_free_sub_table(sub_table *table); /* does not touch the votes */

/* waiter.c: waiters, leadership, wake-ups. */
void hub_enqueue(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout) REQUIRES(h);
void hub_restart_idle_timeout(hub_waiter *w, int64_t now);
void hub_queue_append(hub_waiters *queue, hub_waiter *w);
/* Faults the requests of a waiter that was enqueued before a fork: its connections were the parent's. */
void hub_fail_inherited(hub *h, hub_waiter *w) REQUIRES(h);
void hub_abandon_waiter(hub *h, hub_waiter *w) REQUIRES(h); /* no thread waits for its requests any more */
void hub_decide_if_determined(hub *h, hub_op *op) REQUIRES(h);
void hub_decide(hub *h, hub_op *op) REQUIRES(h);
int hub_wake_next(hub *h) REQUIRES(h); /* 0 if no thread is decided and not woken */
void hub_wake_decided(hub *h) REQUIRES(h);
void hub_reset_wake_epoch(hub *h) REQUIRES(h); /* the threads that are awake may not re-enter the hub soon */
void hub_expire(hub *h, int64_t now) REQUIRES(h);
void hub_move_deadline_earlier(hub *h, hub_waiter *w, int64_t deadline) REQUIRES(h);
void hub_kick(hub *h) REQUIRES(h);
/* Whether a thread may take leadership now. Exclusive waiters come first. */
static inline int hub_can_lead(const hub *h) { return !h->lead.taken && !h->lead.exclusive_waiters; }
void hub_take_leadership(hub *h) REQUIRES(h);
void hub_release_leadership_unlocks(hub *h) REQUIRES(h);
/* Both require hub_can_lead(). */
void hub_lead_flush_unlocks(hub *h) REQUIRES(h);
int hub_lead_one_round_unlocks(hub *h) REQUIRES(h); /* without waiting; 0 if a signal came */

/* helper.c */
int hub_defers_flush(const hub *h) REQUIRES(h); /* more requests are about to join the next flush */
int hub_hand_to_helper(hub *h) REQUIRES(h);     /* 0 if the helper is not needed, or cannot run */

/* loop.c */
void hub_hand_to_loop(hub *h, hub_waiter *w) REQUIRES(h);
void hub_loop_set_input(hub *h, hub_link *l, int on) REQUIRES(h);
void hub_loop_update_output(hub *h) REQUIRES(h);
void hub_notify_loop(hub *h) REQUIRES(h); /* the loop must call hub_on_ready, or ask for hub_next_timeout again */

/* hub.c: in a child of fork. `whole`: no thread was in the middle of a change of this hub. */
void hub_reset_after_fork(hub *h, int whole);

/* fork.c: the list of all hubs. */
int hub_register(hub *h); /* 0 without memory */
void hub_unregister(hub *h);

/* replicas.c: grants that count when replicas have them. */
/* Notes that op was submitted by `t`, whose grants must be confirmed. */
static inline void hub_note_wait(hub_link *l, const hub_template *t, const hub_op *op) {
    if (t->confirm_verb < 0 || !op->quorum.need) return; /* without a need its grants count for nothing */
    l->wait_verb = t->confirm_verb;
    l->wait_due = 1;
}
/* Appends WAIT, which is due, unless its predecessor is pending. */
void hub_append_wait(hub *h, int master) REQUIRES(h);
/* Holds a grant until it is confirmed, with the caller's reference. Returns 0 without room. */
int hub_hold(hub *h, hub_link *l, hub_op *op, int64_t vote) REQUIRES(h);
/* The time of the request ends: its grants that are held become faults. */
void hub_give_up_held(hub_op *op);
/* The reply to WAIT came, of which `needed` is enough: all grants that are held count now, or become faults. */
void hub_end_wait(hub *h, int master, int needed, enum reply_kind kind, reply_bytes reply, int64_t number,
                  int64_t now) REQUIRES(h);
/* The connection ends: all grants that are held become faults. */
void hub_fail_held(hub *h, int master, const char *why) REQUIRES(h);

/* io_round.c: what the leader does. */
/* Counts a reply. The slot keeps its reference. */
void hub_count_reply(hub *h, int master, const link_slot *slot, enum reply_kind kind, reply_bytes reply,
                     int64_t number, int64_t now) REQUIRES(h);
/* Drops the descriptors that are a stranger's by now: see descriptor.h. */
void hub_check_descriptors(hub *h) REQUIRES(h);
/* The master whose output ends with the encoded request, and the number of those bytes. */
typedef struct { /* local */
    const hub_link *from;
    size_t size;
} hub_copy;
/* Submits op on this connection: appends its bytes and its pending replies. */
enum hub_reason hub_append(hub *h, hub_link *l, hub_op *op, int64_t now, hub_copy *copy) REQUIRES(h);
/* Submits requests of the resend queue again: `most` of them, as far as there is room. */
void hub_resend(hub *h, hub_link *l, int64_t now, size_t most) REQUIRES(h);
void hub_fail_link(hub *h, int master, const char *why) REQUIRES(h);
/* `longest`: how long it polls. `yield`: how long it yields before that. Returns 0 if a signal came. */
int hub_round_unlocks(hub *h, int64_t longest, int64_t yield) REQUIRES(h);
void hub_flush_now_unlocks(hub *h) REQUIRES(h);
int hub_poll(struct pollfd *fds, int used, int64_t timeout);

#endif
