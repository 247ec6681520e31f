/* What the hub's files share: its state, and what they do for each other. */
#ifndef REDLOCK_INSIDE_H
#define REDLOCK_INSIDE_H

#include <poll.h>
#include <time.h>

#include "hub.h"
#include "link.h"

#define US INT64_C(1000)
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define FOREVER INT64_MAX

/* No wait is longer than this without a look at signals. */
#define SLICE (50 * MS)

/* On the lookout, so long after somebody led: where many are busy, they see what comes by themselves. */
#define PAUSE (500 * US)

/* So many threads that were told something are on their way back at a time: one has the GIL, and meanwhile the
 * next wakes up, which takes longer than that where a core has to be woken for it. */
#define TOGETHER 2

#define BIT(i) (UINT64_C(1) << (i))

/* A thread that leads where many wait. */
typedef struct {
    pthread_t thread;
    pthread_cond_t called;
    pthread_cond_t gone;
    char running, leading, ending;
    int transports; /* links that need Python to move bytes; then it must not lead */
} hub_helper;

/* What an event loop is told, and how. */
typedef struct {
    int watch;                  /* an fd for all of this, -1 without a loop */
    int notify[2];              /* to read from, to write to */
    char notified, collecting;
    hub_waiters told;           /* decided, not yet collected */
    int waiting;                /* how many tickets are not decided */
} hub_loop;

struct hub {
    /* The same in a child of fork: */
    int references;
    int masters;
    size_t max_owed, max_buffer, max_replay;
    int64_t lag_after;
    char parallel;
    struct pollfd *fds;         /* leader */
    hub_link *links;
    uint64_t breaks;
    unsigned forks;             /* from its first process to this one */
    hub *next, **listing;       /* fork.c: among all hubs */
    char held;                  /* fork.c: by the thread that forks */
    /* New in a child of fork: */
    pthread_mutex_t mutex;
    char leading, expecting, kicked, reflush;
    int seizing;
    pthread_cond_t seizable;
    hub_waiters waiting;        /* undecided, in the order of arrival */
    int threads;                /* how many of them are threads */
    hub_waiters watching;       /* the same, of those that only watch */
    int watchers;               /* how many of them are threads */
    hub_waiter *lookout;        /* which of them waits for what comes */
    char looking;               /* it is at it, not in bell_wait */
    unsigned leads;             /* how often somebody has led */
    hub_vigil *vigils;          /* all of them */
    hub_waiters finished;       /* threads that are decided, not yet woken */
    int unwoken;                /* how many those are */
    int awake;                  /* threads that were told, and are not back */
    unsigned counting;          /* of those; with another number they are not counted any more */
    int64_t relayed;            /* when the last was told, or came back */
    int stalls;                 /* how often in a row none was back in time */
    unsigned unsent;            /* requests since the last flush */
    hub_helper helper;
    hub_loop loop;
    int64_t next_deadline;      /* no waiter's deadline is before it */
    int64_t polled;             /* when the last poll ended */
    uint64_t up, lagging;       /* masks of links */
    int kick[2];                /* to read from, to write to */
};

static inline int64_t hub_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* `seconds` from now; far enough stands for ever. */
static inline int64_t hub_later(int64_t now, double seconds) {
    if (!(seconds > 0)) return now;
    return seconds < 1e9 ? now + (int64_t)(seconds * 1e9) : FOREVER;
}

/* request.c: votes; each master's first one counts. */
static inline int hub_voted(const hub_op *op, int master) { return op->values[master] != HUB_SILENT; }
void hub_count(hub_op *op, int master, int64_t value);
void hub_fault(hub_op *op, int master, enum hub_reason reason, const char *text, size_t size);
int hub_determined(const hub *h, const hub_op *op);

/* waiter.c: who waits, and who leads. All with the mutex held. */
void hub_enlist(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall);
void hub_renew(hub_waiter *w, int64_t now);
void hub_join(hub_waiters *queue, hub_waiter *w);
void hub_disown(hub *h, hub_waiter *w); /* it was enlisted before a fork: its requests are the parent's */
void hub_drop(hub *h, hub_waiter *w); /* not waiting any more; its requests are nobody's */
void hub_conclude(hub *h, hub_op *op);
void hub_decide(hub *h, hub_op *op);
int hub_wake_next(hub *h); /* 0 if there is none */
void hub_wake_finished(hub *h);
void hub_count_anew(hub *h); /* those that are awake may never be back */
void hub_expire(hub *h, int64_t now);
void hub_hasten(hub *h, hub_waiter *w, int64_t due);
void hub_kick(hub *h);
void hub_take_lead(hub *h);
void hub_hand_on(hub *h);

/* vigil.c: who watches, and what changes their votes. */
int hub_begin_vigil(hub *h, hub_op *op, int master, int watch); /* 0 without memory */
void hub_end_vigil(hub *h, hub_op *op);
int hub_watched(hub *h, hub_op *op, int master, int64_t pttl, int64_t asked); /* a reply; 0 if it is none */
int hub_pushed(hub *h, int master, const char *data, size_t size); /* 0: all keys are gone */
void hub_fail_open(hub *h, int master, const char *why);
void hub_end_vigils(hub *h);
void hub_forget_names(link_names *names); /* without a look at the votes */

/* lookout.c: see there. */
enum hub_state hub_lead_once(hub *h, hub_waiter *w);
enum hub_state hub_look_out(hub *h, hub_waiter *w, int64_t look); /* until then without a look at signals */

/* helper.c. */
int hub_held(const hub *h); /* whether more is about to go out with what there is */
int hub_call_helper(hub *h); /* 0 if it is not needed, or there is none */

/* loop.c. */
void hub_tell(hub *h, hub_waiter *w);
void hub_watch_link(hub *h, hub_link *l, int on); /* on: as long as it is up */
void hub_watch_output(hub *h);
void hub_notify(hub *h); /* there is something to do for it, such as to ask for hub_due again */

/* hub.c: a pair of fds (or one twice) to wake who polls. */
int hub_open_bell(int bell[2]);
void hub_close_bell(int bell[2]);
void hub_ring(const int bell[2]);
void hub_silence(const int bell[2]);
/* In a child of fork. `whole`: no thread was halfway through a change. */
void hub_inherit(hub *h, int whole);

/* fork.c: the list of all hubs. */
int hub_list(hub *h); /* 0 without memory */
void hub_unlist(hub *h);

/* round.c: what the leader does; with the mutex held, which it lets go meanwhile. */
/* Where a request stands encoded already, at the end of what goes out to another master. */
typedef struct {
    const hub_link *from;
    size_t size;
} hub_copy;
enum hub_reason hub_append(hub *h, hub_link *l, hub_op *op, int64_t now, hub_copy *copy);
/* So many of the kept are sent again, the oldest first, as far as there is room. */
void hub_replay(hub *h, hub_link *l, int64_t now, size_t most);
void hub_fail_owed(hub *h, int master, const char *why);
int hub_round(hub *h, int64_t longest); /* 0 if a signal wants attention */
void hub_flush_now(hub *h);
int hub_poll(struct pollfd *fds, int used, int64_t timeout);

#endif
