/* The hub's own thread: it leads where so many wait that handing the lead on would cost more. */
#include "inside.h"

#include <signal.h>

/* It is called from so many waiting threads on, and gives the lead back below so many. */
#define MANY 8
#define FEW 4
#define RELAY (80 * US)

/* Who is woken has to wait for the GIL, so one at a time is enough: it wakes the next when it is back here
 * (hub_exchange), and has let go of the GIL. Where none is back for RELAY, the next is woken all the same. */
static void lead(hub *h) {
    int left = h->finished.first != NULL;
    unsigned relayed = h->relayed;
    hub_round(h, left ? RELAY : SLICE);
    if (h->parallel) hub_wake_finished(h);
    else if (!left || h->relayed == relayed) hub_wake_next(h);
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
