/* Threads that submit requests and wait: who is woken, who leads. */
#include "inside.h"

#include <errno.h>

/* What a waiter's bell says. */
enum { LEAD = 1, TOLD };

/* Whenever nobody leads, somebody who can must know. */
static void pass_lead(hub *h) {
    if (h->leading) return;
    if (h->seizing) {
        pthread_cond_signal(&h->seizable);
        return;
    }
    for (hub_waiter *w = h->threads ? h->waiting.first : NULL; w; w = w->next) {
        if (w->present) {
            bell_ring(&w->bell, LEAD);
            return;
        }
    }
}

void hub_join(hub_waiters *queue, hub_waiter *w) {
    w->queue = queue;
    w->next = NULL;
    w->previous = queue->last;
    *(queue->last ? &queue->last->next : &queue->first) = w;
    queue->last = w;
}

/* Of those that wait as w does. */
static int *number_of(hub *h, const hub_waiter *w) { return w->owner ? &h->loop.waiting : &h->threads; }

static void leave_queue(hub *h, hub_waiter *w) {
    hub_waiters *queue = w->queue;
    if (!queue) return;
    *(w->previous ? &w->previous->next : &queue->first) = w->next;
    *(w->next ? &w->next->previous : &queue->last) = w->previous;
    w->queue = NULL;
    if (queue == &h->waiting) --*number_of(h, w);
    else if (queue == &h->finished) h->unwoken--;
}

/* What still comes for its requests is nobody's. */
static void part(hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++) w->ops[i]->waiter = NULL;
}

void hub_decide(hub *h, hub_op *op) {
    hub_waiter *w = op->waiter;
    op->decided = 1;
    if (!w || --w->undecided || !w->queue) return;
    part(w);
    leave_queue(h, w);
    if (w->owner) {
        hub_tell(h, w);
        return;
    }
    hub_join(&h->finished, w);
    h->unwoken++;
}

int hub_wake_next(hub *h) {
    hub_waiter *w = h->finished.first;
    if (!w) return 0;
    leave_queue(h, w);
    bell_ring(&w->bell, TOLD);
    return 1;
}

void hub_wake_finished(hub *h) {
    while (hub_wake_next(h)) {
    }
}

void hub_expire(hub *h, int64_t now) {
    if (now < h->next_deadline) return;
    h->next_deadline = FOREVER;
    for (hub_waiter *w = h->waiting.first, *next; w; w = next) {
        next = w->next;
        if (w->deadline > now) {
            if (w->deadline < h->next_deadline) h->next_deadline = w->deadline;
            continue;
        }
        for (size_t i = 0; i < w->count; i++)
            if (!w->ops[i]->decided) hub_decide(h, w->ops[i]);
    }
}

void hub_conclude(hub *h, hub_op *op) {
    if (!op->decided && hub_determined(h, op)) hub_decide(h, op);
}

void hub_renew(hub_waiter *w, int64_t now) {
    if (w && w->stall) w->deadline = w->limit - now > w->stall ? now + w->stall : w->limit;
}

/* --- the lead ------------------------------------------------------------------------------ */

void hub_take_lead(hub *h) { h->leading = 1; }

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
    while (calm && w->undecided && !h->seizing) {
        calm = hub_round(h, SLICE) && (h->polled < look || !w->undecided);
        if (w->undecided) hub_wake_finished(h);
    }
    if (!calm && w->undecided) w->present = 0;
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

/* With the mutex held, which it lets go. */
static enum hub_state wait_decided(hub *h, hub_waiter *w) {
    enum hub_state state = HUB_DONE;
    w->present = 1;
    while (w->undecided && state == HUB_DONE) {
        if (!h->leading && !h->seizing) {
            state = lead(h, w);
            continue;
        }
        bell_init(&w->bell);
        pthread_mutex_unlock(&h->mutex);
        int rung = bell_wait(&w->bell, SLICE);
        if (rung == TOLD) return HUB_DONE; /* by a leader, who will see to the next one */
        pthread_mutex_lock(&h->mutex);
        if (!rung && w->undecided) state = HUB_SIGNALS;
    }
    w->present = 0;
    if (!w->undecided) leave_queue(h, w); /* no need to wake me */
    pass_lead(h); /* I may be the one who was called to lead */
    pthread_mutex_unlock(&h->mutex);
    return state;
}

/* Everything of w but its owner and its bell. */
void hub_enlist(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall) {
    int64_t now = hub_now();
    w->queue = NULL;
    w->present = 0;
    w->ops = ops;
    w->count = w->undecided = count;
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
    hub_join(&h->waiting, w);
    ++*number_of(h, w);
    if (w->deadline < h->next_deadline) h->next_deadline = w->deadline;
}

enum hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall) {
    w->owner = NULL;
    bell_init(&w->bell);
    pthread_mutex_lock(&h->mutex);
    if (h->helper.leading && !h->parallel) h->relayed += (unsigned)hub_wake_next(h);
    hub_enlist(h, w, ops, count, timeout, stall);
    if (h->leading && !h->expecting) hub_kick(h);
    if (w->undecided) return wait_decided(h, w);
    if (!h->leading && !h->seizing) {
        hub_take_lead(h);
        hub_flush_now(h);
        hub_hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
    return HUB_DONE;
}

enum hub_state hub_wait(hub *h, hub_waiter *w) {
    pthread_mutex_lock(&h->mutex);
    return wait_decided(h, w);
}

void hub_drop(hub *h, hub_waiter *w) {
    for (size_t i = 0; i < w->count; i++) w->ops[i]->decided = 1;
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
