/* The event loop's part: it submits requests without waiting, and collects the decisions in hub_on_ready. */
#include "hub_internal.h"

#include "loop_fd.h"

/* Makes the loop's fd readable, unless the loop is in hub_on_ready. */
void hub_notify_loop(hub *h) {
    hub_loop *loop = &h->loop;
    if (loop->fd < 0 || loop->notified || loop->collecting) return;
    loop->notified = 1;
    wakefd_signal(&loop->wakefd);
}

void hub_hand_to_loop(hub *h, hub_waiter *w) {
    hub_queue_append(&h->loop.decided, w);
    hub_notify_loop(h);
}

/* --- the loop's fd -------------------------------------------------------------------------- */

void hub_loop_set_input(hub *h, hub_link *l, int on) {
    if (h->loop.fd < 0 || l->in_loop == on) return;
    l->in_loop = (char)on;
    l->in_loop_output = 0;
    if (on) loop_fd_add(h->loop.fd, l->fd);
    else loop_fd_remove(h->loop.fd, l->fd);
}

void hub_loop_update_output(hub *h) {
    if (h->loop.fd < 0) return;
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        char output = buffer_size(&l->sending) || buffer_size(&l->out);
        if (!l->in_loop || l->in_loop_output == output) continue;
        l->in_loop_output = output;
        loop_fd_set_output(h->loop.fd, l->fd, output);
    }
}

int hub_loop_fd(hub *h) {
    hub_loop *loop = &h->loop;
    hub_lock(h);
    if (loop->fd < 0 && !wakefd_open(&loop->wakefd)) {
        loop->fd = loop_fd_new();
        loop->file = file_of(loop->fd);
        if (loop->fd < 0) {
            wakefd_close(&loop->wakefd);
        } else {
            loop_fd_add(loop->fd, loop->wakefd.fd[0]);
            for (int i = 0, n = hub_masters(h); i < n; i++)
                if (h->links[i].state == LINK_UP) hub_loop_set_input(h, &h->links[i], 1);
            if (!h->lead.taken) hub_loop_update_output(h); /* otherwise the leader will do so */
            if (loop->decided.first) hub_notify_loop(h);
        }
    }
    int fd = loop->fd;
    hub_unlock(h);
    return fd;
}

static void abandon_loop_waiters(hub *h, hub_waiter *w) REQUIRES(h) {
    for (hub_waiter *next; w; w = next) {
        next = w->next;
        if (w->owner) hub_abandon_waiter(h, w);
    }
}

void hub_close_loop_fd(hub *h) {
    hub_loop *loop = &h->loop;
    hub_lock(h);
    for (int i = 0, n = hub_masters(h); h->links && i < n; i++) h->links[i].in_loop = 0;
    if (is_file(loop->fd, loop->file)) close(loop->fd);
    wakefd_close(&loop->wakefd);
    loop->fd = -1;
    loop->notified = 0;
    while (loop->decided.first) hub_abandon_waiter(h, loop->decided.first);
    abandon_loop_waiters(h, h->waiting.first);
    abandon_loop_waiters(h, h->subs.waiting.first);
    hub_unlock(h);
}

/* --- requests ------------------------------------------------------------------------------- */

void hub_submit(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout, void *owner) {
    w->owner = owner;
    hub_lock(h);
    hub_enqueue(h, w, ops, count, timeout, idle_timeout);
    if (!w->undecided && owner) hub_hand_to_loop(h, w);
    hub_unlock(h);
}

void hub_flush(hub *h) {
    hub_lock(h);
    if (hub_can_lead(h)) hub_lead_flush_unlocks(h);
    else if (h->lead.taken && !h->lead.expects_replies) hub_kick(h);
    hub_unlock(h);
}

hub_waiter *hub_on_ready(hub *h) {
    hub_loop *loop = &h->loop;
    hub_lock(h);
    if (loop->notified) wakefd_drain(&loop->wakefd);
    loop->notified = 0;
    loop->collecting = 1;
    if (hub_can_lead(h)) {
        hub_lead_one_round_unlocks(h);
    } else {
        hub_expire(h, hub_now());
        hub_wake_decided(h);
    }
    hub_waiter *decided = loop->decided.first;
    for (hub_waiter *w = decided; w; w = w->next) w->queue = NULL;
    loop->decided = (hub_waiters){NULL, NULL};
    loop->collecting = 0;
    hub_unlock(h);
    return decided;
}

int64_t hub_next_timeout(hub *h) {
    hub_lock(h);
    int64_t next = h->next_deadline, now = hub_now();
    int waiting = h->loop.undecided;
    hub_unlock(h);
    if (!waiting || next == FOREVER) return -1;
    return next > now ? next - now : 0;
}
