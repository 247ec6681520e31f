/* The hub's own thread: it leads where so many wait that handing the lead on would cost more. */
#include "inside.h"

#include <signal.h>

/* It is called from so many waiting threads on, and gives the lead back below so many. */
#define MANY 8
#define FEW 4
#define RELAY (80 * US)
#define MOST_STALLS 5
/* So many requests are worth a write. */
#define ENOUGH 8

/* Masters pay for every write, whatever is in it. So a few requests wait for those that are about to come:
 * of threads that were told something, and that wake one another. */
int hub_held(const hub *h) {
    return h->helper.leading && h->awake && h->stalls < 2 && h->unsent < ENOUGH;
}

/* Who is woken has to wait for the GIL, so two at a time are enough: each wakes the next when it is back here
 * (hub_exchange), and has let go of the GIL. Those that work on something else meanwhile are not back for
 * RELAY: then the next are woken all the same, more each time. */
static void lead(hub *h) {
    hub_round(h, h->awake ? RELAY : SLICE);
    if (h->parallel) {
        hub_wake_finished(h);
        return;
    }
    int more = h->unwoken ? TOGETHER - h->awake : 0;
    if (h->awake && h->polled - h->relayed >= RELAY) {
        hub_count_anew(h);
        if (h->stalls < MOST_STALLS) h->stalls++;
        more = 1 << h->stalls;
    }
    if (more) h->relayed = h->polled;
    while (more-- > 0 && hub_wake_next(h)) {
    }
}

static void *help(void *argument) {
    hub *h = argument;
    hub_helper *me = &h->helper;
    pthread_mutex_lock(&h->mutex);
    while (!me->ending) {
        if (!me->leading) {
            pthread_cond_wait(&me->called, &h->mutex);
            continue;
        }
        while (h->threads + h->unwoken >= FEW && !h->seizing && !me->ending) lead(h);
        me->leading = 0;
        hub_hand_on(h);
    }
    if (me->leading) { /* called, and ended before it came to that */
        me->leading = 0;
        hub_hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

/* All signals are for Python's threads. */
static int start(hub *h) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    h->helper.running = !pthread_create(&h->helper.thread, NULL, help, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return h->helper.running;
}

int hub_call_helper(hub *h) {
    hub_helper *helper = &h->helper;
    if (h->threads < MANY || h->seizing || helper->ending || helper->transports) return 0;
    if (!helper->running && !start(h)) return 0;
    helper->leading = 1;
    pthread_cond_signal(&helper->called);
    return 1;
}

void hub_dismiss(hub *h) {
    hub_helper *helper = &h->helper;
    pthread_mutex_lock(&h->mutex);
    while (helper->ending) pthread_cond_wait(&helper->gone, &h->mutex); /* another thread is at it */
    if (helper->running) {
        helper->ending = 1;
        pthread_cond_signal(&helper->called);
        hub_kick(h);
        pthread_mutex_unlock(&h->mutex);
        pthread_join(helper->thread, NULL);
        pthread_mutex_lock(&h->mutex);
        helper->running = helper->ending = 0;
        pthread_cond_broadcast(&helper->gone);
    }
    pthread_mutex_unlock(&h->mutex);
}
