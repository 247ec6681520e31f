/* The hub and its connections: made, attached, detached, looked after. */
#include "inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif

/* Between two looks whether a master can do what it could not. */
#define RETRY_AFTER (100 * MS)
/* Seconds; multiples of it still are numbers. */
#define MOST_LAG 1e8

/* Lead although nobody's request is mine: while I do, no other thread touches a socket. */
static void seize(hub *h) {
    pthread_mutex_lock(&h->mutex);
    h->seizing++;
    while (h->leading) {
        hub_kick(h);
        pthread_cond_wait(&h->seizable, &h->mutex);
    }
    h->seizing--;
    hub_take_lead(h);
}

static void unseize(hub *h) {
    hub_hand_on(h);
    pthread_mutex_unlock(&h->mutex);
}

void hub_attach(hub *h, int master, int fd, const hub_transport *transport, hub_template **dialect,
                int verbs, int kind) {
    hub_link *l = &h->links[master];
    seize(h);
    l->state = LINK_UP;
    l->transport = transport; /* before the fd: a child of fork closes that only if it is the hub's */
    l->fd = fd;
#ifdef SO_NOSIGPIPE /* macOS, which has no MSG_NOSIGNAL */
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
#endif
    l->dialect = dialect;
    l->verbs = verbs;
    l->kind = kind;
    l->unasked = HUB_UNASKED;
    h->up |= BIT(master);
    h->helper.transports += transport != NULL;
    hub_watch_link(h, l, 1);
    hub_replay(h, l, hub_now(), SIZE_MAX);
    hub_end_vigils(h);
    if (h->looking) hub_kick(h); /* to look at this one, too */
    unseize(h);
}

/* Whether a request got too few grants, and can get no more. */
static int has_failed(const hub_op *op) { return op->decided && op->granted < op->need; }

/* Behind the requests that are owed a reply goes their undo. `closing`: of all requests; else only of those
 * that have failed. Another connection may have a granted request's vote counted before this one delivers. */
static void undo_owed(hub_link *l, int closing) {
    for (size_t i = 0; i < l->ring_size; i++) {
        link_slot *slot = &l->ring[(l->ring_head + i) & (l->ring_capacity - 1)];
        hub_op *op = slot->op;
        int undo = l->dialect[op->verb]->undo;
        if (slot->turn == SKIPPED || undo < 0 || undo >= l->verbs) continue;
        if (closing || has_failed(op)) link_encode(l, l->dialect[undo], op);
    }
}

/* Whatever the socket takes now. */
static void send_rest(hub_link *l) {
    link_send(l);
    if (buffer_size(&l->flight) || !buffer_size(&l->out)) return;
    buffer emptied = l->flight;
    l->flight = l->out;
    l->out = emptied;
    link_send(l);
}

/* Seized. What comes of hub_detach, and of hub_close. */
static int end_link(hub *h, int master, int closing) {
    hub_link *l = &h->links[master];
    int fd = -1;
    if (l->state != LINK_NONE) {
        int whole = l->state == LINK_UP;
        if (whole) {
            undo_owed(l, closing);
            h->up &= ~BIT(master); /* from here on nobody appends */
            pthread_mutex_unlock(&h->mutex);
            send_rest(l);
            pthread_mutex_lock(&h->mutex);
            hub_fail_owed(h, master, "connection closed by the client");
        }
        h->helper.transports -= l->transport != NULL;
        fd = link_close(l, whole);
        if (!whole && fd >= 0) {
            close(fd);
            fd = -1;
        }
    }
    return fd;
}

int hub_detach(hub *h, int master) {
    seize(h);
    int fd = end_link(h, master, 0);
    unseize(h);
    return fd;
}

/* What is under way will fail, now that no more replies are read: its undo goes to those that granted it,
 * as it does to those that owe a reply. */
static void call_off(hub *h, hub_waiter *w) {
    for (; w; w = w->next) {
        for (size_t i = 0; i < w->count; i++) {
            hub_op *op = w->ops[i];
            for (int m = 0; m < h->masters && !op->decided && op->granted < op->need; m++) {
                hub_link *l = &h->links[m];
                if (l->state != LINK_UP || op->values[m] <= 0) continue;
                int undo = l->dialect[op->verb]->undo;
                if (undo >= 0 && undo < l->verbs) link_encode(l, l->dialect[undo], op);
            }
        }
    }
}

void hub_close(hub *h, int *fds) {
    seize(h);
    call_off(h, h->waiting.first);
    call_off(h, h->watching.first);
    for (int i = 0; i < h->masters; i++) fds[i] = end_link(h, i, 1);
    unseize(h);
}

/* One of what a master could not do, to see whether it can now: the others follow its answer. */
static void retry(hub *h) {
    int64_t now = hub_now();
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        if (l->state != LINK_UP || !l->kept_size || now < l->retry_at) continue;
        l->retry_at = now + RETRY_AFTER;
        hub_replay(h, l, now, 1);
        if (h->leading) hub_kick(h);
    }
}

void hub_tend(hub *h) {
    pthread_mutex_lock(&h->mutex);
    retry(h);
    if (!h->leading && !h->seizing) {
        hub_take_lead(h);
        hub_round(h, 0);
        hub_hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
}

static int drained(hub *h) {
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        if (l->state == LINK_UP && !l->lagging_since &&
            (l->ring_size || buffer_size(&l->out) || buffer_size(&l->flight)))
            return 0;
    }
    return 1;
}

int hub_drain(hub *h, double timeout) {
    int64_t deadline = hub_later(hub_now(), timeout);
    int done;
    seize(h);
    while (!(done = drained(h)) && hub_now() < deadline && !h->seizing) {
        int64_t left = deadline - hub_now();
        hub_round(h, left > SLICE ? SLICE : left > 0 ? left : 0);
        hub_wake_finished(h);
    }
    unseize(h);
    return done;
}

void hub_describe(hub *h, int master, hub_link_state *state) {
    hub_link *l = &h->links[master];
    pthread_mutex_lock(&h->mutex);
    *state = (hub_link_state){
        .attached = l->state == LINK_UP,
        .owed = l->ring_size,
        .lag = l->lagging_since ? hub_now() - l->lagging_since : 0,
        .round_trip = l->round_trip,
        .late = l->late,
        .replayed = l->replayed,
        .dropped = l->dropped,
        .pushes = l->pushes,
        .scanned = l->scan.looked,
    };
    snprintf(state->broken, sizeof state->broken, "%s", l->broken);
    pthread_mutex_unlock(&h->mutex);
}

uint64_t hub_breaks(hub *h) { return __atomic_load_n(&h->breaks, __ATOMIC_ACQUIRE); }

/* --- the hub itself ------------------------------------------------------------------------ */

int hub_open_bell(int bell[2]) {
#ifdef __linux__
    bell[0] = bell[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return bell[0] < 0 ? -1 : 0;
#else
    if (pipe(bell)) return bell[0] = bell[1] = -1;
    for (int i = 0; i < 2; i++) {
        fcntl(bell[i], F_SETFL, O_NONBLOCK);
        fcntl(bell[i], F_SETFD, FD_CLOEXEC);
    }
    return 0;
#endif
}

void hub_close_bell(int bell[2]) {
    if (bell[0] >= 0) close(bell[0]);
    if (bell[1] >= 0 && bell[1] != bell[0]) close(bell[1]);
    bell[0] = bell[1] = -1;
}

void hub_ring(const int bell[2]) {
    uint64_t one = 1;
    ssize_t written = write(bell[1], &one, sizeof one);
    (void)written; /* full: it rings already */
}

void hub_silence(const int bell[2]) {
    uint64_t counts[8];
    ssize_t got = read(bell[0], counts, sizeof counts);
    (void)got;
}

/* Everything but what stays the same in a child of fork. */
static void clear(hub *h) {
    *h = (hub){
        .references = h->references,
        .masters = h->masters,
        .max_owed = h->max_owed,
        .max_buffer = h->max_buffer,
        .max_replay = h->max_replay,
        .lag_after = h->lag_after,
        .parallel = h->parallel,
        .fds = h->fds,
        .links = h->links,
        .breaks = h->breaks,
        .forks = h->forks,
        .next = h->next,
        .listing = h->listing,
        .next_deadline = FOREVER,
        .loop = {.watch = -1, .notify = {-1, -1}},
        .kick = {-1, -1},
    };
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->seizable, NULL);
    pthread_cond_init(&h->helper.called, NULL);
    pthread_cond_init(&h->helper.gone, NULL);
}

hub *hub_new(int masters, size_t max_owed, size_t max_buffer, size_t max_replay, double lag_after,
             int parallel) {
    hub *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->references = 1;
    h->links = calloc((size_t)masters, sizeof *h->links);
    h->fds = calloc((size_t)masters + 1, sizeof *h->fds);
    h->masters = masters;
    h->max_owed = max_owed;
    h->max_buffer = max_buffer;
    h->max_replay = max_replay;
    h->lag_after = hub_later(0, lag_after < MOST_LAG ? lag_after : MOST_LAG);
    h->parallel = (char)parallel;
    clear(h);
    for (int i = 0; h->links && i < masters; i++) h->links[i].fd = -1;
    if (h->links && h->fds && !hub_open_bell(h->kick) && hub_list(h)) return h;
    hub_free(h);
    return NULL;
}

void hub_free(hub *h) {
    hub_dismiss(h);
    hub_unwatch(h);
    pthread_mutex_lock(&h->mutex);
    for (int i = 0; h->links && i < h->masters; i++) {
        int fd = link_close(&h->links[i], 0);
        if (fd >= 0) close(fd);
        link_clear(&h->links[i]);
    }
    hub_close_bell(h->kick);
    pthread_mutex_unlock(&h->mutex);
    hub_release(h);
}

void hub_retain(hub *h) { __atomic_add_fetch(&h->references, 1, __ATOMIC_RELAXED); }

void hub_release(hub *h) {
    if (__atomic_sub_fetch(&h->references, 1, __ATOMIC_ACQ_REL)) return;
    hub_unlist(h);
    for (int i = 0; h->links && i < h->masters; i++) hub_forget_names(&h->links[i].names);
    free(h->links);
    free(h->fds);
    free(h);
}

/* What may be halfway through a change is not freed: what the leader uses without the mutex, if there is a
 * leader, and everything if the hub is not whole. The threads that wait do not exist; but one of the waiters
 * may be of this thread, interrupted by the signal handler that forked: see hub_disown. */
void hub_inherit(hub *h, int whole) {
    int mine = 0;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        char moving = __atomic_load_n(&l->moving, __ATOMIC_ACQUIRE) && pthread_equal(l->mover, pthread_self());
        mine |= moving;
        if (h->leading) l->flight = l->in = (buffer){0};
        int fd = whole ? link_close(l, 0) : l->transport ? -1 : l->fd;
        if (fd >= 0) close(fd);
        if (whole) {
            link_clear(l);
            hub_forget_names(&l->names);
        }
        *l = (hub_link){.fd = -1, .moving = moving, .mover = l->mover};
    }
    if (h->loop.watch >= 0) close(h->loop.watch);
    hub_close_bell(h->loop.notify);
    hub_close_bell(h->kick);
    clear(h);
    hub_open_bell(h->kick);
    h->forks++;
    h->leading = (char)mine; /* until it is back from the transport, which a signal handler interrupted */
}

void hub_abandon(hub *h) { hub_inherit(h, 1); }
