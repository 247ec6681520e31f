/* The helper thread of the hub: it leads where so many threads wait that passing leadership on would cost more. */
#include "hub_internal.h"

#include <signal.h>

/* With so many waiting threads the helper takes leadership; with fewer than the second number it releases it. */
#define HELPER_MIN_WAITING 8
#define HELPER_MIN_TO_STAY 4
/* See hub_wake_throttle. */
#define WAKE_TIMEOUT (80 * US)
#define MAX_WAKE_TIMEOUTS 5
/* The helper yields before it blocks only if its last round took less time. */
#define BUSY_ROUND (2 * YIELD_FOR_EVENT)
/* A flush with so many requests is worth a write. */
#define FLUSH_AT_REQUESTS 8

/* Every write costs the master the same, whatever its size. So a few requests wait for the requests that woken
 * threads are about to submit. */
int hub_defers_flush(const hub *h) {
    const hub_wake_throttle *throttle = &h->throttle;
    return h->helper.leading && throttle->awake && throttle->timeouts < 2 && h->unflushed_requests < FLUSH_AT_REQUESTS;
}

/* One round, and the wake-ups after it. The throttle is described in hub_internal.h. */
static void helper_round_unlocks(hub *h) REQUIRES(h) {
    hub_wake_throttle *throttle = &h->throttle;
    int64_t longest = throttle->awake ? WAKE_TIMEOUT : SIGNAL_CHECK_INTERVAL, last_poll = h->last_poll;
    hub_round_unlocks(h, longest, h->helper.busy ? YIELD_FOR_EVENT : 0);
    h->helper.busy = h->last_poll - last_poll < BUSY_ROUND;
    if (h->parallel) {
        hub_wake_decided(h);
        return;
    }
    int more = throttle->pending ? MAX_AWAKE - throttle->awake : 0;
    if (throttle->awake && h->last_poll - throttle->last_wake >= WAKE_TIMEOUT) {
        hub_reset_wake_epoch(h);
        if (throttle->timeouts < MAX_WAKE_TIMEOUTS) throttle->timeouts++;
        more = 1 << throttle->timeouts;
    }
    if (more) throttle->last_wake = h->last_poll;
    while (more-- > 0 && hub_wake_next(h)) {
    }
}

static int must_lead(const hub *h) REQUIRES(h) {
    int busy = h->waiting_threads + h->throttle.pending >= HELPER_MIN_TO_STAY;
    return busy && !h->lead.exclusive_waiters && !h->helper.ending;
}

static void *helper_main(void *argument) {
    hub *h = argument;
    hub_helper *me = &h->helper;
    hub_lock(h);
    while (!me->ending) {
        if (!me->leading) {
            pthread_cond_wait(&me->wake, &h->mutex);
            continue;
        }
        while (must_lead(h)) helper_round_unlocks(h);
        me->leading = 0;
        hub_release_leadership_unlocks(h);
    }
    if (me->leading) { /* it got leadership, and must end, before it ran */
        me->leading = 0;
        hub_release_leadership_unlocks(h);
    }
    hub_unlock(h);
    return NULL;
}

/* The helper blocks all signals: Python's threads handle them. */
static int start_helper(hub *h) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->helper.running = !pthread_create(&h->helper.thread, NULL, helper_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return h->helper.running;
}

int hub_hand_to_helper(hub *h) {
    hub_helper *helper = &h->helper;
    if (h->waiting_threads < HELPER_MIN_WAITING || h->lead.exclusive_waiters) return 0;
    if (helper->ending || helper->transports) return 0;
    if (!helper->running && !start_helper(h)) return 0;
    helper->leading = 1;
    pthread_cond_signal(&helper->wake);
    return 1;
}

void hub_stop_helper(hub *h) {
    hub_helper *helper = &h->helper;
    hub_lock(h);
    while (helper->ending) pthread_cond_wait(&helper->stopped, &h->mutex); /* another thread is ending it */
    if (helper->running) {
        helper->ending = 1;
        pthread_cond_signal(&helper->wake);
        hub_kick(h);
        hub_unlock(h);
        pthread_join(helper->thread, NULL);
        hub_lock(h);
        helper->running = helper->ending = 0;
        pthread_cond_broadcast(&helper->stopped);
    }
    hub_unlock(h);
}
