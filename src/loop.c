/* For an event loop: requests are submitted without waiting, decisions are told when it asks. */
#include "inside.h"

#include "watch.h"

/* Make the watched fd readable, whoever decided; not while the loop itself is about to look. */
void hub_notify(hub *h) {
    hub_loop *loop = &h->loop;
    if (loop->watch < 0 || loop->notified || loop->collecting) return;
    loop->notified = 1;
    hub_ring(loop->notify);
}

void hub_tell(hub *h, hub_waiter *w) {
    hub_join(&h->loop.told, w);
    hub_notify(h);
}

/* --- what is watched ----------------------------------------------------------------------- */

void hub_watch_link(hub *h, hub_link *l, int on) {
    if (h->loop.watch < 0 || l->watched == on) return;
    l->watched = (char)on;
    l->watched_output = 0;
    if (on) watch_add(h->loop.watch, l->fd);
    else watch_remove(h->loop.watch, l->fd);
}

void hub_watch_output(hub *h) {
    if (h->loop.watch < 0) return;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        char output = buffer_size(&l->flight) || buffer_size(&l->out);
        if (!l->watched || l->watched_output == output) continue;
        l->watched_output = output;
        watch_output(h->loop.watch, l->fd, output);
    }
}

int hub_watch(hub *h) {
    hub_loop *loop = &h->loop;
    pthread_mutex_lock(&h->mutex);
    if (loop->watch < 0 && !hub_open_bell(loop->notify)) {
        loop->watch = watch_new();
        if (loop->watch < 0) {
            hub_close_bell(loop->notify);
        } else {
            watch_add(loop->watch, loop->notify[0]);
            for (int i = 0; i < h->masters; i++)
                if (h->links[i].state == LINK_UP) hub_watch_link(h, &h->links[i], 1);
            if (!h->leading) hub_watch_output(h); /* else the leader will */
            if (loop->told.first) hub_notify(h);
        }
    }
    int watch = loop->watch;
    pthread_mutex_unlock(&h->mutex);
    return watch;
}

static void drop_owned(hub *h, hub_waiter *w) {
    for (hub_waiter *next; w; w = next) {
        next = w->next;
        if (w->owner) hub_drop(h, w);
    }
}

void hub_unwatch(hub *h) {
    hub_loop *loop = &h->loop;
    pthread_mutex_lock(&h->mutex);
    for (int i = 0; h->links && i < h->masters; i++) h->links[i].watched = 0;
    if (loop->watch >= 0) close(loop->watch);
    hub_close_bell(loop->notify);
    loop->watch = -1;
    loop->notified = 0;
    while (loop->told.first) hub_drop(h, loop->told.first);
    drop_owned(h, h->waiting.first);
    drop_owned(h, h->watching.first);
    pthread_mutex_unlock(&h->mutex);
}

/* --- requests ------------------------------------------------------------------------------ */

void hub_submit(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double stall, void *owner) {
    w->owner = owner;
    pthread_mutex_lock(&h->mutex);
    hub_enlist(h, w, ops, count, timeout, stall);
    if (!w->undecided && owner) hub_tell(h, w);
    pthread_mutex_unlock(&h->mutex);
}

void hub_flush(hub *h) {
    pthread_mutex_lock(&h->mutex);
    if (!h->leading && !h->seizing) {
        hub_take_lead(h);
        hub_flush_now(h);
        hub_hand_on(h);
    } else if (h->leading && !h->expecting) {
        hub_kick(h);
    }
    pthread_mutex_unlock(&h->mutex);
}

hub_waiter *hub_on_ready(hub *h) {
    hub_loop *loop = &h->loop;
    pthread_mutex_lock(&h->mutex);
    if (loop->notified) hub_silence(loop->notify);
    loop->notified = 0;
    loop->collecting = 1;
    if (!h->leading && !h->seizing) {
        hub_take_lead(h);
        hub_round(h, 0);
        hub_hand_on(h);
    } else {
        hub_expire(h, hub_now());
        hub_wake_finished(h);
    }
    hub_waiter *told = loop->told.first;
    for (hub_waiter *w = told; w; w = w->next) w->queue = NULL;
    loop->told = (hub_waiters){NULL, NULL};
    loop->collecting = 0;
    pthread_mutex_unlock(&h->mutex);
    return told;
}

int64_t hub_due(hub *h) {
    pthread_mutex_lock(&h->mutex);
    int64_t next = h->next_deadline, now = hub_now();
    int waiting = h->loop.waiting;
    pthread_mutex_unlock(&h->mutex);
    if (!waiting || next == FOREVER) return -1;
    return next > now ? next - now : 0;
}
