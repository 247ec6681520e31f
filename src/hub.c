/* The hub itself; attaching, detaching and maintaining its connections. */
#include "hub_internal.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* Minimum time between two retries of transient errors on one connection: RETRY_AFTER of the contract. */
#define RETRY_AFTER (100 * MS)
/* Seconds. Multiples of it still fit into 64 bits of nanoseconds. */
#define MAX_LAG_AFTER 1e8

/* Takes the mutex, and leadership as soon as the present leader has left: then no other thread uses a socket. */
static void lock_exclusive(hub *h) ACQUIRE(h) {
    hub_lock(h);
    h->lead.exclusive_waiters++;
    while (h->lead.taken) {
        hub_kick(h);
        pthread_cond_wait(&h->lead.leader_gone, &h->mutex);
    }
    h->lead.exclusive_waiters--;
    hub_take_leadership(h);
}

static void unlock_exclusive(hub *h) RELEASE(h) {
    hub_release_leadership_unlocks(h);
    hub_unlock(h);
}

int hub_open_kick(hub *h) {
    hub_lock(h);
    int failed = h->kick.fd[0] < 0 && wakefd_open(&h->kick);
    hub_unlock(h);
    return !failed;
}

void hub_attach(hub *h, int master, int fd, const hub_transport *transport, hub_template **dialect,
                int verbs, int kind) {
    hub_link *l = &h->links[master];
    lock_exclusive(h);
    l->state = LINK_UP;
    l->transport = transport; /* before the fd: a child of fork closes only the fd of a plain socket */
    l->fd = fd;
    l->file = file_of(fd);
#ifdef SO_NOSIGPIPE /* macOS, which has no MSG_NOSIGNAL */
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &(int){1}, sizeof(int));
#endif
    l->dialect = dialect;
    l->verbs = verbs;
    l->kind = kind;
    l->push_credit = HUB_UNSOLICITED;
    h->up |= BIT(master);
    h->helper.transports += transport != NULL;
    hub_loop_set_input(h, l, 1);
    hub_resend(h, l, hub_now(), SIZE_MAX);
    hub_end_subscriptions(h);
    if (h->subs.poller_blocked) hub_kick(h); /* so that it polls this connection as well */
    unlock_exclusive(h);
}

/* Whether the request has no quorum and gets no more grants: it is decided, or the hub is closing. */
static int has_failed(const hub_op *op, int closing) { return (closing || op->decided) && !hub_has_quorum(op); }

/* Appends the rollbacks of requests that failed and whose replies are pending. A request that was granted must not be
 * rolled back: the next connection, or another process that has the token, may have a vote of it counted before this
 * one delivers. */
static void append_rollbacks(hub_link *l, int closing) {
    for (size_t i = 0; i < l->pending_size; i++) {
        link_slot *slot = &l->pending[(l->pending_head + i) & (l->pending_capacity - 1)];
        hub_op *op = slot->op;
        int verb = l->dialect[op->verb]->rollback_verb;
        if (slot->kind == SLOT_LEADING || verb < 0 || verb >= l->verbs) continue;
        if (has_failed(op, closing)) link_encode(l, l->dialect[verb], op);
    }
    for (size_t i = 0; i < l->held_size; i++) {
        hub_op *op = l->held[i].op;
        int verb = l->dialect[op->verb]->rollback_verb;
        if (verb >= 0 && verb < l->verbs && has_failed(op, closing)) link_encode(l, l->dialect[verb], op);
    }
}

/* Sends as many bytes as the socket takes now. */
static void send_remaining(hub_link *l) {
    link_send(l);
    if (buffer_size(&l->sending) || !buffer_size(&l->out)) return;
    buffer emptied = l->sending;
    l->sending = l->out;
    l->out = emptied;
    link_send(l);
}

/* Ends one connection. The caller has exclusive leadership. */
static int end_link_unlocks(hub *h, int master, int closing) REQUIRES(h) {
    hub_link *l = &h->links[master];
    int fd = -1;
    if (l->state != LINK_NONE) {
        int whole = l->state == LINK_UP;
        if (whole) {
            append_rollbacks(l, closing);
            h->up &= ~BIT(master); /* from here on no thread appends */
            hub_unlock(h);
            send_remaining(l);
            hub_lock(h);
            hub_fail_link(h, master, "connection closed by the client");
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
    lock_exclusive(h);
    hub_check_descriptors(h);
    int fd = end_link_unlocks(h, master, 0);
    unlock_exclusive(h);
    return fd;
}

/* Appends the rollbacks of undecided requests to the masters that granted them. No more replies are read, so these
 * requests fail. */
static void roll_back_undecided(hub *h, hub_waiter *w) REQUIRES(h) {
    for (; w; w = w->next) {
        for (size_t i = 0; i < w->count; i++) {
            hub_op *op = w->ops[i];
            if (op->decided || hub_has_quorum(op)) continue;
            for (int m = 0; m < op->master_count; m++) {
                hub_link *l = &h->links[m];
                if (l->state != LINK_UP || op->values[m] <= 0) continue;
                int verb = l->dialect[op->verb]->rollback_verb;
                if (verb >= 0 && verb < l->verbs) link_encode(l, l->dialect[verb], op);
            }
        }
    }
}

int hub_close(hub *h, int *fds) {
    int closed = 0;
    lock_exclusive(h);
    hub_check_descriptors(h);
    roll_back_undecided(h, h->waiting.first);
    roll_back_undecided(h, h->subs.waiting.first);
    for (; closed < hub_masters(h); closed++) fds[closed] = end_link_unlocks(h, closed, 1);
    unlock_exclusive(h);
    return closed;
}

void hub_grow(hub *h, int masters) {
    hub_lock(h);
    int before = hub_masters(h);
    for (int i = before; i < masters; i++) h->links[i].fd = -1;
    if (masters > before) __atomic_store_n(&h->masters, masters, __ATOMIC_RELEASE);
    hub_unlock(h);
}

/* Resends one request to each master that answered with a transient error. Its reply tells whether the others can
 * follow. */
static void retry_transient(hub *h) REQUIRES(h) {
    int64_t now = hub_now();
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        /* Not by the state: while a connection is detached its output is sent without the mutex. */
        if (!(h->up & BIT(i)) || !l->resend_size || now < l->retry_at) continue;
        l->retry_at = now + RETRY_AFTER;
        hub_resend(h, l, now, 1);
        if (h->lead.taken) hub_kick(h);
    }
}

void hub_maintain(hub *h) {
    hub_lock(h);
    retry_transient(h);
    if (hub_can_lead(h)) hub_lead_one_round_unlocks(h);
    hub_unlock(h);
}

static int is_drained(hub *h) {
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        if (l->state == LINK_UP && !l->lagging_since &&
            (l->pending_size || l->wait_due || buffer_size(&l->out) || buffer_size(&l->sending)))
            return 0;
    }
    return 1;
}

int hub_drain(hub *h, double timeout) {
    int64_t deadline = hub_later(hub_now(), timeout);
    int done;
    lock_exclusive(h);
    while (!(done = is_drained(h)) && hub_now() < deadline && !h->lead.exclusive_waiters) {
        int64_t left = deadline - hub_now();
        hub_round_unlocks(h, left > SIGNAL_CHECK_INTERVAL ? SIGNAL_CHECK_INTERVAL : left > 0 ? left : 0, 0);
        hub_wake_decided(h);
    }
    unlock_exclusive(h);
    return done;
}

void hub_get_connection_state(hub *h, int master, hub_connection_state *state) {
    hub_link *l = &h->links[master];
    hub_lock(h);
    *state = (hub_connection_state){
        .attached = l->state == LINK_UP,
        .pending = l->pending_size,
        .lag = l->lagging_since ? hub_now() - l->lagging_since : 0,
        .round_trip = l->round_trip,
        .late_replies = l->late_replies,
        .resent = l->resent,
        .resend_dropped = l->resend_dropped,
        .pushes = l->pushes,
        .scanned = l->scan.looked,
    };
    snprintf(state->broken, sizeof state->broken, "%s", l->broken);
    hub_unlock(h);
}

uint64_t hub_breaks(hub *h) { return __atomic_load_n(&h->breaks, __ATOMIC_ACQUIRE); }

/* --- the hub itself ------------------------------------------------------------------------- */

/* Resets everything that a child of fork does not keep. */
static void reset_process_state(hub *h) {
    *h = (hub){
        .references = h->references,
        .masters = hub_masters(h),
        .max_pending = h->max_pending,
        .max_buffer = h->max_buffer,
        .max_resend = h->max_resend,
        .lag_after = h->lag_after,
        .parallel = h->parallel,
        .fds = h->fds,
        .links = h->links,
        .breaks = h->breaks,
        .generation = h->generation,
        .list_next = h->list_next,
        .list_pprev = h->list_pprev,
        .next_deadline = FOREVER,
        .loop = {.fd = -1, .wakefd = NO_WAKEFD},
        .kick = NO_WAKEFD,
    };
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->lead.leader_gone, NULL);
    pthread_cond_init(&h->helper.wake, NULL);
    pthread_cond_init(&h->helper.stopped, NULL);
}

hub *hub_new(int masters, size_t max_pending, size_t max_buffer, size_t max_resend, double lag_after,
             int parallel) {
    hub *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->references = 1;
    h->links = calloc(HUB_MAX_MASTERS, sizeof *h->links);
    h->fds = calloc(HUB_MAX_MASTERS + 1, sizeof *h->fds);
    h->max_pending = max_pending;
    h->max_buffer = max_buffer;
    h->max_resend = max_resend;
    h->lag_after = hub_later(0, lag_after < MAX_LAG_AFTER ? lag_after : MAX_LAG_AFTER);
    h->parallel = (char)parallel;
    reset_process_state(h);
    if (!h->links || !h->fds || !hub_register(h)) {
        hub_free(h);
        return NULL;
    }
    hub_grow(h, masters);
    return h;
}

void hub_free(hub *h) {
    hub_stop_helper(h);
    hub_close_loop_fd(h);
    hub_lock(h);
    for (int i = 0, n = hub_masters(h); h->links && i < n; i++) {
        int fd = link_close(&h->links[i], 0);
        if (fd >= 0) close(fd);
        link_clear(&h->links[i]);
    }
    wakefd_close(&h->kick);
    hub_unlock(h);
    hub_release(h);
}

void hub_retain(hub *h) { __atomic_add_fetch(&h->references, 1, __ATOMIC_RELAXED); }

void hub_release(hub *h) {
    if (__atomic_sub_fetch(&h->references, 1, __ATOMIC_ACQ_REL)) return;
    hub_unregister(h);
    for (int i = 0, n = hub_masters(h); h->links && i < n; i++) hub_free_sub_table(&h->links[i].subs);
    free(h->links);
    free(h->fds);
    free(h);
}

/* A child of fork must not free what another thread of the parent was changing. If there was a leader, that is
 * what the leader uses without the mutex; if the hub is not whole, it is everything. The other threads do not
 * exist here. A waiter may belong to this thread, where a signal handler forked: see hub_fail_inherited. */
void hub_reset_after_fork(hub *h, int whole) {
    int mine = 0;
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        char interrupted = __atomic_load_n(&l->transport_busy, __ATOMIC_ACQUIRE) &&
                           pthread_equal(l->transport_thread, pthread_self());
        mine |= interrupted;
        if (h->lead.taken) l->sending = l->in = (buffer){0};
        int fd = whole ? link_close(l, 0) : !l->transport && is_file(l->fd, l->file) ? l->fd : -1;
        if (fd >= 0) close(fd);
        if (whole) {
            link_clear(l);
            hub_free_sub_table(&l->subs);
        }
        *l = (hub_link){.fd = -1, .transport_busy = interrupted, .transport_thread = l->transport_thread};
    }
    if (is_file(h->loop.fd, h->loop.file)) close(h->loop.fd);
    wakefd_close(&h->loop.wakefd);
    wakefd_close(&h->kick);
    reset_process_state(h);
    h->generation++;
    h->lead.taken = (char)mine; /* until the transport returns, which a signal handler interrupted */
}

void hub_after_fork_in_child(hub *h) { hub_reset_after_fork(h, 1); }
