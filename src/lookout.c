/* One of the threads that only watch waits for what comes, for all of them. With the mutex held. */
#include "inside.h"

enum hub_state hub_lead_once(hub *h, hub_waiter *w) {
    hub_take_lead(h);
    int calm = hub_round(h, 0);
    hub_hand_on(h);
    w->seen = h->leads;
    return calm ? HUB_DONE : HUB_SIGNALS;
}

/* What the lookout waits for, while nobody leads. */
static int sights(hub *h, struct pollfd *fds) {
    int used = 1;
    fds[0] = (struct pollfd){h->kick[0], POLLIN, 0};
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        short events = buffer_size(&l->flight) ? POLLIN | POLLOUT : POLLIN;
        if (l->state == LINK_UP) fds[used++] = (struct pollfd){l->fd, events, 0};
    }
    return used;
}

/* Wait for what comes, without the lead: whoever has more haste takes it at any time, and neither waits for
 * me nor wakes me. As long as others lead again and again they see what comes; then I only look now and
 * then whether they still do. */
enum hub_state hub_look_out(hub *h, hub_waiter *w, int64_t look) {
    struct pollfd fds[64];
    int64_t now = hub_now();
    int busy = h->leading || h->seizing;
    if (!busy && (h->reflush || h->next_deadline <= now)) return hub_lead_once(h, w);
    busy |= w->seen != h->leads;
    w->seen = h->leads;
    int64_t end = h->next_deadline < look ? h->next_deadline : look;
    int used = busy ? 0 : sights(h, fds);
    h->looking = !busy;
    bell_init(&w->bell);
    pthread_mutex_unlock(&h->mutex);
    int events = 0;
    if (busy) bell_wait(&w->bell, PAUSE);
    else events = hub_poll(fds, used, end - now);
    pthread_mutex_lock(&h->mutex);
    h->looking = 0;
    int mine = w->undecided && !busy && !h->leading && !h->seizing;
    enum hub_state state = mine ? hub_lead_once(h, w) : HUB_DONE;
    return events < 0 || hub_now() >= look ? HUB_SIGNALS : state;
}
