/* Waiters: leadership, wake-ups, deadlines, and the watch poller. docs/internals/hub.md has the states as tables. */
#include "hub_internal.h"

#include <sched.h>

/* While other threads lead, the watch poller only checks at this interval whether they still do. */
#define WATCH_POLL_INTERVAL (500 * US)

/* A waiter whose time ends so much later than it should was not looked at: see go_on_if_late. */
#define LATE MS

/* The numbers that are posted to waiter.wake. */
enum { WAKE_TO_LEAD = 1, WAKE_DECIDED };

/* The first thread that is inside the hub: one that runs a signal handler may stay outside for long. */
static hub_waiter *first_inside(hub_waiter *w) {
    while (w && !w->waiting) w = w->next;
    return w;
}

/* Whether there is output that no waiting thread will flush. */
static int lacks_flush(const hub *h) REQUIRES(h) {
    return h->output_pending && !(h->waiting_threads && first_inside(h->waiting.first));
}

static void wake_first(hub_waiter *w) {
    w = first_inside(w);
    if (w) waitword_post(&w->wake, WAKE_TO_LEAD);
}

/* Invariant: if no thread leads, a thread that can lead has been woken, or is about to look. If only subscriptions
 * are left, one of their threads is the watch poller. */
static void wake_successor(hub *h) REQUIRES(h) {
    if (h->lead.taken) return;
    if (h->lead.exclusive_waiters) pthread_cond_signal(&h->lead.leader_gone);
    else if (h->waiting_threads) wake_first(h->waiting.first);
    else if (h->subs.waiting_threads && !h->subs.poller) wake_first(h->subs.waiting.first);
}

void hub_queue_append(hub_waiters *queue, hub_waiter *w) {
    w->queue = queue;
    w->next = NULL;
    w->previous = queue->last;
    if (queue->last) queue->last->next = w;
    else queue->first = w;
    queue->last = w;
}

/* Returns the count that includes w. */
static int *count_of(hub *h, const hub_waiter *w) REQUIRES(h) {
    if (w->owner) return &h->loop.undecided;
    return w->queue == &h->subs.waiting ? &h->subs.waiting_threads : &h->waiting_threads;
}

static void queue_remove(hub *h, hub_waiter *w) REQUIRES(h) {
    hub_waiters *queue = w->queue;
    if (!queue) return;
    if (w->previous) w->previous->next = w->next;
    else queue->first = w->next;
    if (w->next) w->next->previous = w->previous;
    else queue->last = w->previous;
    if (queue == &h->waiting || queue == &h->subs.waiting) (*count_of(h, w))--;
    else if (queue == &h->throttle.decided) h->throttle.pending--;
    w->queue = NULL;
}

/* Lists an undecided waiter: with the subscribers if all of its undecided requests are subscriptions. */
static void enqueue_waiter(hub *h, hub_waiter *w) REQUIRES(h) {
    hub_queue_append(w->subscribed == w->undecided ? &h->subs.waiting : &h->waiting, w);
    (*count_of(h, w))++;
}

/* Detaches the requests from their waiter: later replies are dropped. */
static void detach_ops(hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++) w->ops[i]->waiter = NULL;
}

void hub_decide(hub *h, hub_op *op) {
    hub_waiter *w = op->waiter;
    op->decided = 1;
    if (op->sub) hub_unsubscribe(h, op);
    if (!w) return;
    w->undecided--;
    if (!w->queue) return;
    if (w->undecided) {
        if (w->queue == &h->waiting && w->subscribed == w->undecided) {
            queue_remove(h, w);
            enqueue_waiter(h, w);
        }
        return;
    }
    detach_ops(w);
    queue_remove(h, w);
    if (w->owner) {
        hub_hand_to_loop(h, w);
        return;
    }
    hub_queue_append(&h->throttle.decided, w);
    h->throttle.pending++;
}

/* The hub that woke this thread last, and the throttle's epoch of that wake-up. */
static _Thread_local struct {
    const hub *by;
    unsigned epoch;
} woken;

static hub_waiter *pick_next_to_wake(hub *h) REQUIRES(h) {
    hub_waiter *w = h->throttle.decided.first;
    if (!w) return NULL;
    h->throttle.awake++;
    w->wake_epoch = h->throttle.epoch;
    queue_remove(h, w);
    if (w == h->subs.poller && h->subs.poller_blocked) hub_kick(h);
    return w;
}

int hub_wake_next(hub *h) {
    hub_waiter *w = pick_next_to_wake(h);
    if (w) waitword_post(&w->wake, WAKE_DECIDED);
    return w != NULL;
}

void hub_reset_wake_epoch(hub *h) {
    h->throttle.awake = 0;
    h->throttle.epoch++;
}

/* A woken thread has re-entered the hub. If its wake-up belongs to the present epoch it frees its slot. Returns
 * the thread to wake next, or NULL; the caller posts that wake-up when it has released the mutex. A wake-up of an
 * older epoch frees no slot: otherwise more than MAX_AWAKE threads would contend for the GIL. */
static hub_waiter *pick_next_on_return(hub *h) REQUIRES(h) {
    int in_epoch = woken.by == h && woken.epoch == h->throttle.epoch && h->throttle.awake;
    woken.by = NULL;
    if (in_epoch) {
        h->throttle.awake--;
        h->throttle.timeouts = 0;
    }
    int more = h->throttle.awake < MAX_AWAKE;
    if (in_epoch || more) h->throttle.last_wake = hub_now();
    hub_waiter *w = more ? pick_next_to_wake(h) : NULL;
    if (!w) return NULL;
    if (w->waiting) {
        w->wake_pending = 1;
        return w;
    }
    waitword_post(&w->wake, WAKE_DECIDED); /* its thread runs signal handlers, and may leave once the mutex is free */
    return NULL;
}

static void post_wake_up(hub_waiter **w) {
    if (*w) waitword_post(&(*w)->wake, WAKE_DECIDED);
    *w = NULL;
}

/* The same, and yields until the woken thread runs. */
static void hand_over(hub *h, hub_waiter **w) {
    if (!*w) return;
    unsigned before = __atomic_load_n(&h->throttle.started, __ATOMIC_ACQUIRE);
    int64_t end = hub_now() + YIELD_FOR_SUCCESSOR;
    post_wake_up(w);
    do sched_yield();
    while (__atomic_load_n(&h->throttle.started, __ATOMIC_ACQUIRE) == before && hub_now() < end);
}

void hub_wake_decided(hub *h) {
    while (hub_wake_next(h)) {
    }
    hub_reset_wake_epoch(h); /* nothing waits for these threads to re-enter */
}

/* When the time of this request ends. */
static int64_t deadline_of(const hub_waiter *w, const hub_op *op) {
    if (!op->sub) return w->deadline;
    return op->sub->deadline < w->limit ? op->sub->deadline : w->limit;
}

/* Whether an undecided request has no quorum. Those that have one wait for further replies only. */
static int lacks_quorum(const hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++)
        if (!w->ops[i]->decided && !w->ops[i]->sub && !hub_has_quorum(w->ops[i])) return 1;
    return 0;
}

/* A time ends late if the process was stopped or throttled, or if the event loop was blocked. Requests may not have
 * been sent then, or replies not read. So the wait goes on once, for as long as it was late, and at most for as long
 * as it could take at first. */
static void go_on_if_late(hub_waiter *w, int64_t now) {
    int64_t late = now - w->deadline;
    if (w->late || late < LATE || !lacks_quorum(w)) return;
    w->late = 1;
    w->deadline = now + (late < w->longest_wait ? late : w->longest_wait);
    if (w->limit < w->deadline) w->limit = w->deadline;
}

/* Decides the requests whose time is over. Returns when the time of the next one ends. */
static int64_t expire_waiter(hub *h, hub_waiter *w, int64_t now) REQUIRES(h) {
    go_on_if_late(w, now);
    if (!w->subscribed && w->deadline > now) return w->deadline;
    int64_t next = FOREVER;
    for (size_t i = 0; i < w->count; i++) {
        hub_op *op = w->ops[i];
        int64_t end = deadline_of(w, op);
        if (op->decided) continue;
        if (end <= now) {
            if (op->held && !hub_has_quorum(op)) hub_give_up_held(op);
            hub_decide(h, op);
        } else if (end < next) next = end;
    }
    return next;
}

void hub_expire(hub *h, int64_t now) {
    if (now < h->next_deadline) return;
    /* In this order: a waiter may move from the first queue to the second. */
    hub_waiters *queues[] = {&h->waiting, &h->subs.waiting};
    h->next_deadline = FOREVER;
    for (int i = 0; i < 2; i++) {
        for (hub_waiter *w = queues[i]->first, *next; w; w = next) {
            next = w->next;
            int64_t end = expire_waiter(h, w, now);
            if (end < h->next_deadline) h->next_deadline = end;
        }
    }
}

void hub_move_deadline_earlier(hub *h, hub_waiter *w, int64_t deadline) {
    if (w->owner && deadline < w->limit) hub_notify_loop(h); /* also if a thread's is earlier */
    if (deadline >= h->next_deadline) return;
    h->next_deadline = deadline;
    if (h->subs.poller_blocked) hub_kick(h);
}

void hub_decide_if_determined(hub *h, hub_op *op) {
    if (!op->decided && hub_is_determined(op)) hub_decide(h, op);
}

void hub_restart_idle_timeout(hub_waiter *w, int64_t now) {
    if (w && w->idle_timeout) w->deadline = w->limit - now > w->idle_timeout ? now + w->idle_timeout : w->limit;
}

/* --- leadership ----------------------------------------------------------------------------- */

void hub_take_leadership(hub *h) {
    h->lead.taken = 1;
    h->lead.epoch++;
}

void hub_release_leadership_unlocks(hub *h) {
    if (lacks_flush(h)) {
        hub_wake_decided(h);
        hub_flush_now_unlocks(h);
    }
    if (!hub_hand_to_helper(h)) {
        h->lead.taken = 0;
        wake_successor(h);
    }
    hub_wake_decided(h);
}

void hub_lead_flush_unlocks(hub *h) {
    hub_take_leadership(h);
    hub_flush_now_unlocks(h);
    hub_release_leadership_unlocks(h);
}

int hub_lead_one_round_unlocks(hub *h) {
    hub_take_leadership(h);
    int no_signal = hub_round_unlocks(h, 0, 0);
    hub_release_leadership_unlocks(h);
    return no_signal;
}

/* Leads until w is decided, is left with subscriptions only, or must check for signals; or until a thread wants
 * exclusive leadership. */
static enum hub_state lead_unlocks(hub *h, hub_waiter *w) REQUIRES(h) {
    int no_signal = 1;
    hub_take_leadership(h);
    int64_t signal_check = hub_now() + SIGNAL_CHECK_INTERVAL;
    while (no_signal && w->undecided && w->queue != &h->subs.waiting && !h->lead.exclusive_waiters) {
        no_signal = hub_round_unlocks(h, SIGNAL_CHECK_INTERVAL, 0) && (h->last_poll < signal_check || !w->undecided);
        if (w->undecided) hub_wake_decided(h);
    }
    if (!no_signal && w->undecided) w->waiting = 0;
    if (!w->undecided) queue_remove(h, w); /* no thread has to wake this one */
    hub_release_leadership_unlocks(h);
    return no_signal || !w->undecided ? HUB_DONE : HUB_SIGNALS;
}

/* --- the watch poller ------------------------------------------------------------------------- */

static enum hub_state lead_as_subscriber_unlocks(hub *h, hub_waiter *w) REQUIRES(h) {
    int no_signal = hub_lead_one_round_unlocks(h);
    w->seen_epoch = h->lead.epoch;
    return no_signal ? HUB_DONE : HUB_SIGNALS;
}

/* The connections to poll. The caller holds the mutex while no thread leads: so it may read what the leader owns. */
static int build_pollfds(hub *h, struct pollfd *fds) REQUIRES(h) {
    int used = 1;
    fds[0] = (struct pollfd){h->kick.fd[0], POLLIN, 0};
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        short events = buffer_size(&l->sending) ? POLLIN | POLLOUT : POLLIN;
        if (l->state == LINK_UP) fds[used++] = (struct pollfd){l->fd, events, 0};
    }
    return used;
}

/* Polls all connections without leadership, so that any thread can take leadership without waking this one. If
 * another thread has led since the last call, the threads that lead receive every event, and this one sleeps. */
static enum hub_state poll_for_subscribers_unlocks(hub *h, hub_waiter *w, int64_t signal_check) REQUIRES(h) {
    struct pollfd fds[64];
    int64_t now = hub_now();
    int busy = !hub_can_lead(h);
    if (!busy && (h->output_pending || h->next_deadline <= now)) return lead_as_subscriber_unlocks(h, w);
    busy |= w->seen_epoch != h->lead.epoch;
    w->seen_epoch = h->lead.epoch;
    int64_t end = h->next_deadline < signal_check ? h->next_deadline : signal_check;
    int used = busy ? 0 : build_pollfds(h, fds);
    h->subs.poller_blocked = !busy;
    waitword_init(&w->wake);
    hub_unlock(h);
    int events = 0;
    if (busy) waitword_wait(&w->wake, WATCH_POLL_INTERVAL);
    else events = hub_poll(fds, used, end - now);
    hub_lock(h);
    h->subs.poller_blocked = 0;
    int mine = w->undecided && !busy && hub_can_lead(h);
    enum hub_state state = mine ? lead_as_subscriber_unlocks(h, w) : HUB_DONE;
    return events < 0 || hub_now() >= signal_check ? HUB_SIGNALS : state;
}

/* --- submitting ----------------------------------------------------------------------------- */

static uint64_t target_masters(hub *h, const hub_op *op) REQUIRES(h) {
    uint64_t all = op->masters & h->up, healthy = all & ~h->lagging;
    return !op->resend_for && hub_is_quorum(op, healthy) ? healthy : all;
}

static void submit_op(hub *h, hub_op *op, int64_t now) REQUIRES(h) {
    uint64_t to = target_masters(h, op);
    hub_copy copy = {NULL, 0};
    op->resend_until = op->resend_for < FOREVER - now ? now + op->resend_for : FOREVER;
    for (int i = 0; i < op->master_count; i++) {
        hub_link *l = &h->links[i];
        enum hub_reason reason;
        if (to & BIT(i)) reason = hub_append(h, l, op, now, &copy);
        else if (!(op->masters & BIT(i))) reason = REASON_NOT_ASKED;
        else if (h->up & BIT(i)) reason = REASON_LAGGING;
        else reason = REASON_NOT_CONNECTED;
        if (reason == REASON_NONE) {
            op->sent |= BIT(i);
            continue;
        }
        if (op->resend_for && reason != REASON_NOT_ASKED) link_defer(l, op, now, h->max_resend);
        int broken = reason == REASON_NOT_CONNECTED && l->state == LINK_BROKEN;
        hub_count_fault(op, i, broken ? REASON_BROKEN : reason, broken ? l->broken : NULL, strlen(l->broken));
    }
    if (op->quorum.need) hub_decide_if_determined(h, op);
    else hub_decide(h, op);
}

void hub_kick(hub *h) {
    if (h->kicked) return;
    h->kicked = 1;
    wakefd_signal(&h->kick);
}

/* --- waiting -------------------------------------------------------------------------------- */

/* Waits until w is decided or must check for signals. `to_wake`: the thread that this one wakes as soon as it has
 * released the mutex, or NULL. */
static enum hub_state wait_decided_and_unlock(hub *h, hub_waiter *w, hub_waiter *to_wake) RELEASE(h) {
    enum hub_state state = HUB_DONE;
    int64_t signal_check = hub_now() + SIGNAL_CHECK_INTERVAL;
    w->waiting = 1;
    while (w->wake_pending || (w->undecided && state == HUB_DONE)) {
        if (w->wake_pending && h->subs.poller == w) {
            /* The wake-up is posted without the mutex, so another thread must poll from now on. */
            h->subs.poller = NULL;
            wake_successor(h);
        }
        int subscriber = w->queue == &h->subs.waiting;
        if (subscriber && !h->subs.poller) h->subs.poller = w;
        if (h->subs.poller == w) {
            post_wake_up(&to_wake);
            state = poll_for_subscribers_unlocks(h, w, signal_check);
            continue;
        }
        if (hub_can_lead(h) && (!subscriber || h->output_pending) && !w->wake_pending) {
            post_wake_up(&to_wake);
            state = subscriber ? lead_as_subscriber_unlocks(h, w) : lead_unlocks(h, w);
            continue;
        }
        waitword_clear(&w->wake, WAKE_TO_LEAD);
        hub_unlock(h);
        hand_over(h, &to_wake);
        int word = waitword_wait(&w->wake, SIGNAL_CHECK_INTERVAL);
        if (word == WAKE_DECIDED) { /* the waking thread has removed w from all queues */
            woken.by = h;
            woken.epoch = w->wake_epoch;
            __atomic_add_fetch(&h->throttle.started, 1, __ATOMIC_RELEASE);
            return HUB_DONE;
        }
        hub_lock(h);
        if (!word && w->undecided) state = HUB_SIGNALS;
    }
    w->waiting = 0;
    if (h->subs.poller == w) h->subs.poller = NULL;
    if (lacks_flush(h) && hub_can_lead(h)) hub_lead_flush_unlocks(h);
    if (!w->undecided) queue_remove(h, w); /* no thread has to wake this one */
    wake_successor(h); /* this thread may be the one that was woken to lead */
    hub_unlock(h);
    post_wake_up(&to_wake);
    return state;
}

void hub_fail_inherited(hub *h, hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++) {
        hub_op *op = w->ops[i];
        hub_forget(op);
        op->waiter = NULL;
        if (op->sub) op->sub->pprev = NULL;
    }
    w->undecided = w->subscribed = 0;
    w->queue = NULL;
    w->waiting = w->wake_pending = 0;
    w->generation = h->generation;
}

/* Initializes w, except its owner and its wait word, and submits its requests. */
void hub_enqueue(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout) {
    int64_t now = hub_now();
    w->queue = NULL;
    w->late = w->waiting = w->wake_pending = 0;
    w->ops = ops;
    w->count = w->undecided = count;
    w->subscribed = 0;
    w->seen_epoch = h->lead.epoch;
    w->generation = h->generation;
    w->deadline = w->limit = hub_later(now, timeout);
    w->idle_timeout = hub_later(0, idle_timeout);
    hub_restart_idle_timeout(w, now);
    w->longest_wait = w->deadline - now;
    for (size_t i = 0; i < count; i++) {
        ops[i]->waiter = w;
        submit_op(h, ops[i], now);
    }
    if (!w->undecided) {
        detach_ops(w);
        return;
    }
    enqueue_waiter(h, w);
    int64_t end = w->subscribed == w->undecided ? w->limit : w->deadline;
    if (end >= h->next_deadline) return;
    h->next_deadline = end;
    if (h->subs.poller_blocked && w->queue == &h->subs.waiting) hub_kick(h);
}

enum hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout) {
    hub_waiter *next = NULL;
    w->owner = NULL;
    waitword_init(&w->wake);
    hub_lock(h);
    if (h->helper.leading && !h->parallel) next = pick_next_on_return(h);
    hub_enqueue(h, w, ops, count, timeout, idle_timeout);
    h->unflushed_requests += (unsigned)count;
    if (h->lead.taken && !h->lead.expects_replies && !hub_defers_flush(h)) hub_kick(h);
    if (w->undecided) return wait_decided_and_unlock(h, w, next);
    if (hub_can_lead(h)) hub_lead_flush_unlocks(h);
    hub_unlock(h);
    post_wake_up(&next);
    return HUB_DONE;
}

enum hub_state hub_wait(hub *h, hub_waiter *w) {
    hub_lock(h);
    if (w->generation != h->generation) hub_fail_inherited(h, w);
    return wait_decided_and_unlock(h, w, NULL);
}

void hub_abandon_waiter(hub *h, hub_waiter *w) {
    if (w->generation != h->generation) hub_fail_inherited(h, w);
    for (size_t i = 0; i < w->count; i++) {
        w->ops[i]->decided = 1;
        hub_unsubscribe(h, w->ops[i]);
    }
    detach_ops(w);
    queue_remove(h, w);
}

int hub_leave(hub *h, hub_waiter *w) {
    hub_lock(h);
    int had = w->queue != NULL;
    hub_abandon_waiter(h, w);
    if (!w->owner && hub_can_lead(h)) hub_lead_flush_unlocks(h);
    hub_unlock(h);
    return had;
}
