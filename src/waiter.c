/* Threads that submit requests and wait: who is woken, who leads. */
#include "inside.h"

#include <errno.h>

/* What a waiter's bell says. */
enum { LEAD = 1, TOLD };

static void call_first(hub_waiter *w) {
    while (w && !w->present) w = w->next;
    if (w) bell_ring(&w->bell, LEAD);
}

/* Whenever nobody leads, somebody who can must know; and of those that only watch, one is on the lookout. */
static void pass_lead(hub *h) {
    if (h->leading) return;
    if (h->seizing) pthread_cond_signal(&h->seizable);
    else if (h->threads) call_first(h->waiting.first);
    else if (h->watchers && !h->lookout) call_first(h->watching.first);
}

void hub_join(hub_waiters *queue, hub_waiter *w) {
    w->queue = queue;
    w->next = NULL;
    w->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = w;
    queue->last = w;
}

/* Of those that wait as w does. */
static int *number_of(hub *h, const hub_waiter *w) {
    if (w->owner) return &h->loop.waiting;
    return w->queue == &h->watching ? &h->watchers : &h->threads;
}

static void leave_queue(hub *h, hub_waiter *w) {
    hub_waiters *queue = w->queue;
    if (!queue) return;
    *(w->previous ? &w->previous->next : &queue->first) = w->next;
    *(w->next ? &w->next->previous : &queue->last) = w->previous;
    if (queue == &h->waiting || queue == &h->watching) --*number_of(h, w);
    else if (queue == &h->finished) h->unwoken--;
    w->queue = NULL;
}

/* Undecided: with those that only watch, or with the others. */
static void await(hub *h, hub_waiter *w) {
    hub_join(w->watching == w->undecided ? &h->watching : &h->waiting, w);
    ++*number_of(h, w);
}

/* What still comes for its requests is nobody's. */
static void part(hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++) w->ops[i]->waiter = NULL;
}

void hub_decide(hub *h, hub_op *op) {
    hub_waiter *w = op->waiter;
    op->decided = 1;
    if (op->vigil) hub_end_vigil(h, op);
    if (!w) return;
    w->undecided--;
    if (!w->queue) return;
    if (w->undecided) {
        if (w->queue == &h->waiting && w->watching == w->undecided) {
            leave_queue(h, w);
            await(h, w);
        }
        return;
    }
    part(w);
    leave_queue(h, w);
    if (w->owner) {
        hub_tell(h, w);
        return;
    }
    hub_join(&h->finished, w);
    h->unwoken++;
}

/* Who told this thread last, and with which count of theirs. */
static _Thread_local struct {
    const hub *by;
    unsigned counting;
} told;

static hub_waiter *pick_next(hub *h) {
    hub_waiter *w = h->finished.first;
    if (!w) return NULL;
    h->awake++;
    w->counting = h->counting;
    leave_queue(h, w);
    if (w == h->lookout && h->looking) hub_kick(h);
    return w;
}

int hub_wake_next(hub *h) {
    hub_waiter *w = pick_next(h);
    if (w) bell_ring(&w->bell, TOLD);
    return w != NULL;
}

void hub_count_anew(hub *h) {
    h->awake = 0;
    h->counting++;
}

/* A thread is back. The next is to be told in its place, by ring_called, when this one is done with the mutex.
 * One that nobody counts on any more must not be taken for one of those that are awake: there would be one
 * more of them from then on, and soon many, that only wait for the GIL, and are woken twice. */
static hub_waiter *call_next(hub *h) {
    int counted = told.by == h && told.counting == h->counting && h->awake;
    told.by = NULL;
    if (counted) {
        h->awake--;
        h->stalls = 0;
    }
    int more = h->awake < TOGETHER;
    if (counted || more) h->relayed = hub_now();
    hub_waiter *w = more ? pick_next(h) : NULL;
    if (w && !w->present) bell_ring(&w->bell, TOLD); /* it looks after signals, and may leave */
    else if (w) w->called = 1;
    return w && w->called ? w : NULL;
}

static void ring_called(hub_waiter **w) {
    if (*w) bell_ring(&(*w)->bell, TOLD);
    *w = NULL;
}

void hub_wake_finished(hub *h) {
    while (hub_wake_next(h)) {
    }
    hub_count_anew(h); /* nobody counts on their coming back */
}

/* When the time of this request ends. */
static int64_t end_of(const hub_waiter *w, const hub_op *op) {
    if (!op->vigil) return w->deadline;
    return op->vigil->due < w->limit ? op->vigil->due : w->limit;
}

/* Decide what is over; when the next may be. */
static int64_t expire(hub *h, hub_waiter *w, int64_t now) {
    if (!w->watching && w->deadline > now) return w->deadline;
    int64_t next = FOREVER;
    for (size_t i = 0; i < w->count; i++) {
        hub_op *op = w->ops[i];
        int64_t end = end_of(w, op);
        if (op->decided) continue;
        if (end <= now) hub_decide(h, op);
        else if (end < next) next = end;
    }
    return next;
}

void hub_expire(hub *h, int64_t now) {
    if (now < h->next_deadline) return;
    hub_waiters *queues[] = {&h->waiting, &h->watching}; /* in this order: the first may move to the second */
    h->next_deadline = FOREVER;
    for (int i = 0; i < 2; i++) {
        for (hub_waiter *w = queues[i]->first, *next; w; w = next) {
            next = w->next;
            int64_t end = expire(h, w, now);
            if (end < h->next_deadline) h->next_deadline = end;
        }
    }
}

void hub_hasten(hub *h, hub_waiter *w, int64_t due) {
    if (due >= h->next_deadline) return;
    h->next_deadline = due;
    if (w->owner) hub_notify(h);
    if (h->looking) hub_kick(h);
}

void hub_conclude(hub *h, hub_op *op) {
    if (!op->decided && hub_determined(h, op)) hub_decide(h, op);
}

void hub_renew(hub_waiter *w, int64_t now) {
    if (w && w->stall) w->deadline = w->limit - now > w->stall ? now + w->stall : w->limit;
}

/* --- the lead ------------------------------------------------------------------------------ */

void hub_take_lead(hub *h) {
    h->leading = 1;
    h->leads++;
}

void hub_hand_on(hub *h) {
    if (h->reflush && !h->threads) { /* bytes that no other caller will flush */
        hub_wake_finished(h);
        hub_flush_now(h);
    }
    if (!hub_call_helper(h)) {
        h->leading = 0;
        pass_lead(h);
    }
    hub_wake_finished(h);
}

static enum hub_state lead(hub *h, hub_waiter *w) {
    int calm = 1;
    hub_take_lead(h);
    int64_t look = hub_now() + SLICE;
    while (calm && w->undecided && w->queue != &h->watching && !h->seizing) {
        calm = hub_round(h, SLICE) && (h->polled < look || !w->undecided);
        if (w->undecided) hub_wake_finished(h);
    }
    if (!calm && w->undecided) w->present = 0;
    if (!w->undecided) leave_queue(h, w); /* nobody has to wake me */
    hub_hand_on(h);
    return calm || !w->undecided ? HUB_DONE : HUB_SIGNALS;
}

/* --- submitting ---------------------------------------------------------------------------- */

static uint64_t targets(hub *h, const hub_op *op) {
    uint64_t all = op->masters & h->up, healthy = all & ~h->lagging;
    return !op->keep && __builtin_popcountll(healthy) >= op->need ? healthy : all;
}

static void submit(hub *h, hub_op *op, int64_t now) {
    uint64_t to = targets(h, op);
    hub_copy copy = {NULL, 0};
    op->until = op->keep < FOREVER - now ? now + op->keep : FOREVER;
    for (int i = 0; i < h->masters; i++) {
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
        if (op->keep && reason != REASON_NOT_ASKED) link_keep(l, op, now, h->max_replay);
        int broken = reason == REASON_NOT_CONNECTED && l->state == LINK_BROKEN;
        hub_fault(op, i, broken ? REASON_BROKEN : reason, broken ? l->broken : NULL, strlen(l->broken));
    }
    if (op->need) hub_conclude(h, op);
    else hub_decide(h, op);
}

void hub_kick(hub *h) {
    if (h->kicked) return;
    h->kicked = 1;
    hub_ring(h->kick);
}

/* --- waiting ------------------------------------------------------------------------------- */

/* With the mutex held, which it lets go. `called`: who is to be told, by me. */
static enum hub_state wait_decided(hub *h, hub_waiter *w, hub_waiter *called) {
    enum hub_state state = HUB_DONE;
    int64_t look = hub_now() + SLICE;
    w->present = 1;
    while (w->called || (w->undecided && state == HUB_DONE)) {
        if (w->called && h->lookout == w) { /* I shall be told without the mutex: others look out from now on */
            h->lookout = NULL;
            pass_lead(h);
        }
        int watching = w->queue == &h->watching;
        if (watching && !h->lookout) h->lookout = w;
        if (h->lookout == w) {
            ring_called(&called);
            state = hub_look_out(h, w, look);
            continue;
        }
        if (!h->leading && !h->seizing && (!watching || h->reflush) && !w->called) {
            ring_called(&called);
            state = watching ? hub_lead_once(h, w) : lead(h, w);
            continue;
        }
        bell_hush(&w->bell, LEAD);
        pthread_mutex_unlock(&h->mutex);
        ring_called(&called);
        int rung = bell_wait(&w->bell, SLICE);
        if (rung == TOLD) { /* by somebody who has forgotten me */
            told.by = h;
            told.counting = w->counting;
            return HUB_DONE;
        }
        pthread_mutex_lock(&h->mutex);
        if (!rung && w->undecided) state = HUB_SIGNALS;
    }
    w->present = 0;
    if (h->lookout == w) h->lookout = NULL;
    if (!w->undecided) leave_queue(h, w); /* no need to wake me */
    pass_lead(h); /* I may be the one who was called to lead */
    pthread_mutex_unlock(&h->mutex);
    ring_called(&called);
    return state;
}

void hub_disown(hub *h, hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++) {
        hub_op *op = w->ops[i];
        for (int master = 0; master < h->masters; master++)
            hub_fault(op, master, REASON_NOT_CONNECTED, NULL, 0);
        op->decided = 1;
        op->waiter = NULL;
        if (op->vigil) op->vigil->link = NULL;
    }
    w->undecided = w->watching = 0;
    w->queue = NULL;
    w->present = w->called = 0;
    w->forks = h->forks;
}

/* Everything of w but its owner and its bell. */
void hub_enlist(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall) {
    int64_t now = hub_now();
    w->queue = NULL;
    w->present = w->called = 0;
    w->ops = ops;
    w->count = w->undecided = count;
    w->watching = 0;
    w->seen = h->leads;
    w->forks = h->forks;
    w->deadline = w->limit = hub_later(now, timeout);
    w->stall = hub_later(0, stall);
    hub_renew(w, now);
    for (size_t i = 0; i < count; i++) {
        ops[i]->waiter = w;
        submit(h, ops[i], now);
    }
    if (!w->undecided) {
        part(w);
        return;
    }
    await(h, w);
    int64_t end = w->watching == w->undecided ? w->limit : w->deadline;
    if (end >= h->next_deadline) return;
    h->next_deadline = end;
    if (h->looking && w->queue == &h->watching) hub_kick(h);
}

enum hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall) {
    hub_waiter *next = NULL;
    w->owner = NULL;
    bell_init(&w->bell);
    pthread_mutex_lock(&h->mutex);
    if (h->helper.leading && !h->parallel) next = call_next(h);
    hub_enlist(h, w, ops, count, timeout, stall);
    h->unsent += (unsigned)count;
    if (h->leading && !h->expecting && !hub_held(h)) hub_kick(h);
    if (w->undecided) return wait_decided(h, w, next);
    if (!h->leading && !h->seizing) {
        hub_take_lead(h);
        hub_flush_now(h);
        hub_hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
    ring_called(&next);
    return HUB_DONE;
}

enum hub_state hub_wait(hub *h, hub_waiter *w) {
    pthread_mutex_lock(&h->mutex);
    if (w->forks != h->forks) hub_disown(h, w);
    return wait_decided(h, w, NULL);
}

void hub_drop(hub *h, hub_waiter *w) {
    if (w->forks != h->forks) hub_disown(h, w);
    for (size_t i = 0; i < w->count; i++) {
        w->ops[i]->decided = 1;
        hub_end_vigil(h, w->ops[i]);
    }
    part(w);
    leave_queue(h, w);
}

void hub_leave(hub *h, hub_waiter *w) {
    pthread_mutex_lock(&h->mutex);
    hub_drop(h, w);
    if (!w->owner && !h->leading && !h->seizing) {
        hub_take_lead(h);
        hub_flush_now(h);
        hub_hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
}
