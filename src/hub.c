#define _GNU_SOURCE /* ppoll */
#include "hub.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif

#include "link.h"
#include "reply.h"

#define US INT64_C(1000)
#define MS (1000 * US)
#define SECOND (1000 * MS)
#define FOREVER INT64_MAX

/* While replies are expected within a round trip, newcomers need not interrupt the leader. */
#define EXPECT_WITHIN MS
/* No wait is longer than this without a look at signals. */
#define SLICE (50 * MS)
#define LAG_AFTER (50 * MS)
#define LAG_ROUND_TRIPS 10

struct hub {
    pthread_mutex_t mutex;
    int masters;
    size_t max_owed, max_buffer, max_replay;
    char leading, expecting, kicked, reflush;
    int seizing;
    pthread_cond_t seizable;
    hub_waiter *first, *last;   /* undecided, in the order of arrival */
    hub_waiter *finished;       /* decided, not yet woken */
    int64_t next_deadline;      /* no waiter's deadline is before it */
    int64_t polled;             /* when the last poll ended */
    uint64_t up, lagging;       /* masks of links */
    uint64_t breaks;
    int kick[2];                /* to read from, to write to */
    struct pollfd *fds;         /* leader */
    hub_link *links;
};

static int64_t clock_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

/* `seconds` from now; far enough stands for ever. */
static int64_t later(int64_t now, double seconds) {
    if (!(seconds > 0)) return now;
    return seconds < 1e9 ? now + (int64_t)(seconds * 1e9) : FOREVER;
}

#define BIT(i) (UINT64_C(1) << (i))

/* --- templates and requests ---------------------------------------------------------------- */

hub_template *hub_template_new(int parts) {
    hub_template *t = calloc(1, sizeof *t + (size_t)parts * sizeof t->part[0]);
    if (t) t->parts = parts;
    return t;
}

int hub_template_text(hub_template *t, int part, const char *text, size_t size) {
    t->part[part].text = malloc(size ? size : 1);
    if (!t->part[part].text) return 0;
    memcpy(t->part[part].text, text, size);
    t->part[part].size = size;
    return 1;
}

void hub_template_free(hub_template *t) {
    if (!t) return;
    hub_template_free(t->fallback);
    for (int i = 0; i < t->parts; i++) free(t->part[i].text);
    free(t);
}

hub_op *hub_op_new(hub *h, int verb, int need, int wait, uint64_t masters, double keep, int args,
                   const char **data, const size_t *sizes) {
    size_t n = (size_t)h->masters, size = sizeof(hub_op) + n * (sizeof(int64_t) + 1);
    for (int i = 0; i < args; i++) size += sizes[i];
    hub_op *op = malloc(size);
    if (!op) return NULL;
    memset(op, 0, sizeof *op);
    op->references = 1;
    op->verb = verb;
    op->need = need;
    op->wait = (char)wait;
    op->masters = masters;
    op->keep = later(0, keep);
    for (size_t i = 0; i < n; i++) op->values[i] = HUB_SILENT;
    op->reasons = (unsigned char *)(op->values + n);
    memset(op->reasons, 0, n);
    char *text = (char *)op->reasons + n;
    op->args = args;
    for (int i = 0; i < args; i++) {
        memcpy(text, data[i], sizes[i]);
        op->arg[i].data = text;
        op->arg[i].size = sizes[i];
        text += sizes[i];
    }
    return op;
}

void hub_op_release(hub_op *op) {
    if (__atomic_sub_fetch(&op->references, 1, __ATOMIC_ACQ_REL)) return;
    while (op->details) {
        hub_detail *detail = op->details;
        op->details = detail->next;
        free(detail);
    }
    free(op);
}

/* --- waiters ------------------------------------------------------------------------------- */

static void wake(hub_waiter *w) { pthread_cond_signal(&w->woken); }

/* Whenever nobody leads, somebody who can must know. */
static void pass_lead(hub *h) {
    if (h->leading) return;
    if (h->seizing) {
        pthread_cond_signal(&h->seizable);
        return;
    }
    for (hub_waiter *w = h->first; w; w = w->next) {
        if (w->present) {
            wake(w);
            return;
        }
    }
}

static void enqueue(hub *h, hub_waiter *w) {
    w->queued = 1;
    w->next = NULL;
    w->previous = h->last;
    *(h->last ? &h->last->next : &h->first) = w;
    h->last = w;
    if (w->deadline < h->next_deadline) h->next_deadline = w->deadline;
}

static void dequeue(hub *h, hub_waiter *w) {
    if (!w->queued) return;
    *(w->previous ? &w->previous->next : &h->first) = w->next;
    *(w->next ? &w->next->previous : &h->last) = w->previous;
    w->queued = 0;
}

static void decide(hub *h, hub_op *op) {
    hub_waiter *w = op->waiter;
    op->decided = 1;
    op->waiter = NULL;
    if (!w || --w->undecided || !w->queued) return;
    dequeue(h, w);
    w->next = h->finished;
    h->finished = w;
}

static void wake_finished(hub *h) {
    while (h->finished) {
        hub_waiter *w = h->finished;
        h->finished = w->next;
        wake(w);
    }
}

static void expire(hub *h, int64_t now) {
    if (now < h->next_deadline) return;
    h->next_deadline = FOREVER;
    for (hub_waiter *w = h->first, *next; w; w = next) {
        next = w->next;
        if (w->deadline > now) {
            if (w->deadline < h->next_deadline) h->next_deadline = w->deadline;
            continue;
        }
        for (size_t i = 0; i < w->count; i++)
            if (!w->ops[i]->decided) decide(h, w->ops[i]);
    }
}

/* --- votes --------------------------------------------------------------------------------- */

static void count(hub_op *op, int master, int64_t value) {
    op->values[master] = value;
    if (value == HUB_FAULT) op->faulty++;
    else if (value > 0) op->granted++;
    else op->refused++;
}

static int determined(const hub *h, const hub_op *op) {
    int against = op->refused + (op->wait == WAIT_EARLY ? op->faulty : 0);
    if (!op->owed) return 1;
    return op->wait != WAIT_ALL && (op->granted >= op->need || against > h->masters - op->need);
}

static void conclude(hub *h, hub_op *op) {
    if (!op->decided && determined(h, op)) decide(h, op);
}

static void fault(hub_op *op, int master, enum hub_reason reason, const char *text, size_t size) {
    if (op->decided) return;
    op->reasons[master] = (unsigned char)reason;
    hub_detail *detail = text ? malloc(sizeof *detail + size) : NULL;
    if (detail) {
        detail->next = op->details;
        detail->master = master;
        detail->size = size;
        memcpy(detail->text, text, size);
        op->details = detail;
    }
    count(op, master, HUB_FAULT);
}

/* --- submitting ---------------------------------------------------------------------------- */

static enum hub_reason append(hub *h, hub_link *l, hub_op *op, int64_t now) {
    if (l->ring_size >= h->max_owed) return REASON_OWED;
    size_t before = buffer_size(&l->out);
    if (!link_encode(l, l->dialect[op->verb], op)) return REASON_BUFFER;
    if (buffer_size(&l->out) > h->max_buffer || !link_owe(l, op, now, 0)) {
        l->out.tail = l->out.head + before;
        return REASON_BUFFER;
    }
    __atomic_add_fetch(&op->references, 1, __ATOMIC_RELAXED);
    op->owed++;
    return REASON_NONE;
}

static uint64_t targets(hub *h, const hub_op *op) {
    uint64_t all = op->masters & h->up, healthy = all & ~h->lagging;
    return !op->keep && __builtin_popcountll(healthy) >= op->need ? healthy : all;
}

static void submit(hub *h, hub_op *op, int64_t now) {
    uint64_t to = targets(h, op);
    op->until = op->keep < FOREVER - now ? now + op->keep : FOREVER;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        enum hub_reason reason = REASON_NOT_ASKED;
        if (to & BIT(i)) reason = append(h, l, op, now);
        else if (!(op->masters & BIT(i))) reason = REASON_NOT_ASKED;
        else if (h->up & BIT(i)) reason = REASON_LAGGING;
        else reason = REASON_NOT_CONNECTED;
        if (reason == REASON_NONE) {
            op->sent |= BIT(i);
            continue;
        }
        if (op->keep && reason != REASON_NOT_ASKED) link_keep(l, op, now, h->max_replay);
        int broken = reason == REASON_NOT_CONNECTED && l->state == LINK_BROKEN;
        fault(op, i, broken ? REASON_BROKEN : reason, broken ? l->broken : NULL, strlen(l->broken));
    }
    if (op->need) conclude(h, op);
    else decide(h, op);
}

static void kick(hub *h) {
    if (h->kicked) return;
    h->kicked = 1;
    uint64_t one = 1;
    ssize_t written = write(h->kick[1], &one, sizeof one);
    (void)written; /* full: the leader is awake already */
}

/* --- the leader's round -------------------------------------------------------------------- */

static void fail_owed(hub *h, int master, const char *why) {
    hub_link *l = &h->links[master];
    l->state = LINK_BROKEN;
    snprintf(l->broken, sizeof l->broken, "%s", why);
    h->up &= ~BIT(master);
    h->lagging &= ~BIT(master);
    l->lagging_since = 0;
    int64_t now = clock_now();
    for (link_slot *slot; (slot = link_oldest(l)); link_pop(l)) {
        hub_op *op = slot->op;
        op->owed--;
        fault(op, master, REASON_BROKEN, l->broken, strlen(l->broken));
        conclude(h, op);
        if (op->keep) link_keep(l, op, now, h->max_replay);
        hub_op_release(op);
    }
}

static void break_link(hub *h, int master, const char *why) {
    fail_owed(h, master, why);
    __atomic_add_fetch(&h->breaks, 1, __ATOMIC_RELEASE);
}

/* What goes out now. Returns how many entries of fds are in use. */
static int begin(hub *h) {
    int used = 1, flushed = 0, owing = 0;
    h->fds[0] = (struct pollfd){h->kick[0], POLLIN, 0};
    h->reflush = 0;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        l->polled = 0;
        if (l->state != LINK_UP) continue;
        if (buffer_size(&l->out) && !buffer_size(&l->flight)) {
            buffer emptied = l->flight;
            l->flight = l->out;
            l->out = emptied;
            flushed |= !l->lagging_since;
        }
        owing |= l->ring_size && !l->lagging_since;
        l->polled = 1;
        l->received = 0;
        h->fds[used++] = (struct pollfd){l->fd, POLLIN, 0};
    }
    if (flushed) h->expecting = 1;
    else if (!owing) h->expecting = 0;
    return used;
}

/* Send, and say what to poll for. 0 if a signal wants attention. */
static int flush(hub *h) {
    int at = 1, calm = 1;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        if (!l->polled) continue;
        if (buffer_size(&l->flight) && !l->failure[0]) calm &= link_send(l);
        h->fds[at++].events = buffer_size(&l->flight) ? POLLIN | POLLOUT : POLLIN;
    }
    return calm;
}

static int wait_for_events(hub *h, int used, int64_t timeout) {
    for (int i = 0; i < h->masters; i++)
        if (h->links[i].polled && h->links[i].failure[0]) timeout = 0;
#ifdef __linux__
    struct timespec t = {timeout / SECOND, timeout % SECOND};
    return ppoll(h->fds, (nfds_t)used, &t, NULL);
#else
    return poll(h->fds, (nfds_t)used, (int)((timeout + MS - 1) / MS));
#endif
}

/* Receive from whoever has something. 0 if a signal wants attention. */
static int receive(hub *h) {
    int at = 1, calm = 1;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        if (!l->polled) continue;
        if (h->fds[at++].revents & ~POLLOUT && !l->failure[0]) calm &= link_receive(l);
    }
    return calm;
}

static void read_kick(hub *h) {
    if (!h->fds[0].revents) return;
    uint64_t counts[8];
    ssize_t got = read(h->kick[0], counts, sizeof counts);
    (void)got;
    h->kicked = 0;
}

static void measure(hub *h, hub_link *l, const link_slot *slot, int64_t now) {
    /* A reply that nobody waited for may have lain there: it took at least until the poll before. */
    int64_t sample = (slot->op->decided ? h->polled : now) - slot->sent;
    if (sample <= 0) return;
    l->round_trip = l->round_trip ? l->round_trip + (sample - l->round_trip) / 8 : sample;
}

static int is_noscript(reply_bytes reply) { return reply.size > 9 && !memcmp(reply.data, "-NOSCRIPT", 9); }

/* One whole reply for the oldest request. 0 if there is none. */
static int answer(hub *h, int master, enum reply_kind kind, reply_bytes reply, int64_t number) {
    hub_link *l = &h->links[master];
    link_slot *oldest = link_oldest(l);
    if (!oldest) return 0;
    link_slot slot = *oldest;
    hub_op *op = slot.op;
    link_pop(l);
    const hub_template *fallback = l->dialect[op->verb]->fallback;
    if (kind == REPLY_OTHER && fallback && !slot.retried && is_noscript(reply) &&
        link_encode(l, fallback, op) && link_owe(l, op, slot.sent, 1)) {
        h->reflush = 1;
        return 1;
    }
    op->owed--;
    if (op->decided) l->late++;
    else if (kind == REPLY_NUMBER) count(op, master, number);
    else fault(op, master, REASON_REPLY, reply.data, reply.size);
    conclude(h, op);
    hub_op_release(op);
    return 1;
}

static void match(hub *h, int master, int64_t now) {
    hub_link *l = &h->links[master];
    if (link_oldest(l)) measure(h, l, link_oldest(l), now);
    l->lagging_since = 0;
    h->lagging &= ~BIT(master);
    while (buffer_size(&l->in)) {
        reply_bytes in = {buffer_front(&l->in), buffer_size(&l->in)};
        int64_t number = 0;
        enum reply_kind kind = reply_next(in, &in.size, &number);
        if (kind == REPLY_PARTIAL) break;
        if (kind == REPLY_PUSH) l->pushes++;
        else if (kind == REPLY_MALFORMED) snprintf(l->failure, sizeof l->failure, "protocol error: malformed reply");
        else if (kind != REPLY_ATTRIBUTE && !answer(h, master, kind, in, number))
            snprintf(l->failure, sizeof l->failure, "protocol error: a reply that nobody is owed");
        if (l->failure[0]) break;
        buffer_take(&l->in, in.size);
    }
}

static void flag_lagging(hub *h, int master, int64_t now) {
    hub_link *l = &h->links[master];
    link_slot *oldest = link_oldest(l);
    if (!oldest || l->lagging_since) return;
    int64_t patience = l->round_trip * LAG_ROUND_TRIPS;
    if (patience < LAG_AFTER) patience = LAG_AFTER;
    if (now - oldest->sent <= patience && l->ring_size < h->max_owed) return;
    l->lagging_since = oldest->sent;
    h->lagging |= BIT(master);
}

/* What came in: votes, decisions, broken and lagging masters, ended deadlines. */
static void settle(hub *h, int events) {
    int64_t now = clock_now();
    if (events > 0) read_kick(h);
    if (!events) h->expecting = 0;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        if (!l->polled) continue;
        if (l->received) match(h, i, now);
        else if (events >= 0) flag_lagging(h, i, now);
        if (l->failure[0]) break_link(h, i, l->failure);
    }
    h->polled = now;
    expire(h, now);
}

/* Send once, without waiting. */
static void flush_now(hub *h) {
    begin(h);
    pthread_mutex_unlock(&h->mutex);
    flush(h);
    pthread_mutex_lock(&h->mutex);
    for (int i = 0; i < h->masters; i++)
        if (h->links[i].polled && h->links[i].failure[0]) break_link(h, i, h->links[i].failure);
}

/* One round with the mutex held on entry and exit. 0 if a signal wants attention. */
static int lead_round(hub *h, int64_t longest) {
    int used = begin(h);
    int64_t timeout = h->expecting && longest > EXPECT_WITHIN ? EXPECT_WITHIN : longest;
    int64_t deadline = h->next_deadline;
    pthread_mutex_unlock(&h->mutex);
    int calm = flush(h), events = 0;
    if (deadline != FOREVER) {
        int64_t left = deadline - clock_now();
        if (left < timeout) timeout = left > 0 ? left : 0;
    }
    events = wait_for_events(h, used, calm ? timeout : 0);
    if (events < 0) calm = 0;
    if (events > 0) calm &= receive(h);
    pthread_mutex_lock(&h->mutex);
    settle(h, events);
    return calm;
}

static void take_lead(hub *h) { h->leading = 1; }

static void hand_on(hub *h) {
    if (h->reflush) {
        wake_finished(h); /* before the mutex is let go: who is decided may leave its stack */
        flush_now(h);
    }
    h->leading = 0;
    pass_lead(h);
    wake_finished(h);
}

static enum hub_state lead(hub *h, hub_waiter *w) {
    int calm = 1;
    take_lead(h);
    int64_t look = clock_now() + SLICE;
    while (calm && w->undecided && !h->seizing) {
        calm = lead_round(h, SLICE) && (h->polled < look || !w->undecided);
        if (w->undecided) wake_finished(h);
    }
    if (!calm && w->undecided) w->present = 0;
    hand_on(h);
    return calm || !w->undecided ? HUB_DONE : HUB_SIGNALS;
}

/* --- waiting ------------------------------------------------------------------------------- */

static void cond_init(pthread_cond_t *cond) {
#ifdef __APPLE__
    pthread_cond_init(cond, NULL);
#else
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
#endif
}

/* 0 if the slice passed. */
static int cond_slice(pthread_cond_t *cond, pthread_mutex_t *mutex) {
#ifdef __APPLE__
    struct timespec t = {0, SLICE};
    return pthread_cond_timedwait_relative_np(cond, mutex, &t) != ETIMEDOUT;
#else
    int64_t until = clock_now() + SLICE;
    struct timespec t = {until / SECOND, until % SECOND};
    return pthread_cond_timedwait(cond, mutex, &t) != ETIMEDOUT;
#endif
}

static enum hub_state wait_decided(hub *h, hub_waiter *w) {
    enum hub_state state = HUB_DONE;
    w->present = 1;
    while (w->undecided && state == HUB_DONE) {
        if (!h->leading && !h->seizing) state = lead(h, w);
        else if (!cond_slice(&w->woken, &h->mutex) && w->undecided) state = HUB_SIGNALS;
    }
    w->present = 0;
    pass_lead(h); /* I may be the one who was woken to lead */
    return state;
}

enum hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout) {
    memset(w, 0, offsetof(hub_waiter, woken));
    cond_init(&w->woken);
    w->ops = ops;
    w->count = w->undecided = count;
    int64_t now = clock_now();
    w->deadline = later(now, timeout);
    pthread_mutex_lock(&h->mutex);
    for (size_t i = 0; i < count; i++) {
        ops[i]->waiter = w;
        submit(h, ops[i], now);
    }
    if (w->undecided) enqueue(h, w);
    if (h->leading && !h->expecting) kick(h);
    enum hub_state state = HUB_DONE;
    if (w->undecided) {
        state = wait_decided(h, w);
    } else if (!h->leading && !h->seizing) {
        take_lead(h);
        flush_now(h);
        hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
    return state;
}

enum hub_state hub_wait(hub *h, hub_waiter *w) {
    pthread_mutex_lock(&h->mutex);
    enum hub_state state = wait_decided(h, w);
    pthread_mutex_unlock(&h->mutex);
    return state;
}

void hub_leave(hub *h, hub_waiter *w) {
    pthread_mutex_lock(&h->mutex);
    for (size_t i = 0; i < w->count; i++) {
        w->ops[i]->decided = 1;
        w->ops[i]->waiter = NULL;
    }
    dequeue(h, w);
    if (!h->leading && !h->seizing) {
        take_lead(h);
        flush_now(h);
        hand_on(h);
    }
    pthread_mutex_unlock(&h->mutex);
}

/* --- connections --------------------------------------------------------------------------- */

/* Lead although nobody's request is mine: while I do, no other thread touches a socket. */
static void seize(hub *h) {
    pthread_mutex_lock(&h->mutex);
    h->seizing++;
    while (h->leading) {
        kick(h);
        pthread_cond_wait(&h->seizable, &h->mutex);
    }
    h->seizing--;
    take_lead(h);
}

static void unseize(hub *h) {
    hand_on(h);
    pthread_mutex_unlock(&h->mutex);
}

void hub_attach(hub *h, int master, int fd, const hub_transport *transport, hub_template **dialect,
                int verbs) {
    hub_link *l = &h->links[master];
    seize(h);
    l->state = LINK_UP;
    l->fd = fd;
    l->transport = transport;
    l->dialect = dialect;
    l->verbs = verbs;
    h->up |= BIT(master);
    int64_t now = clock_now();
    hub_op **kept = l->kept;
    size_t size = l->kept_size;
    l->kept = NULL;
    l->kept_size = l->kept_capacity = 0;
    for (size_t i = 0; i < size; i++) {
        if (kept[i]->until > now && append(h, l, kept[i], now) == REASON_NONE) l->replayed++;
        hub_op_release(kept[i]);
    }
    free(kept);
    unseize(h);
}

/* The undo of everything with the verb `of` that is owed a reply, behind it. */
static void undo_owed(hub_link *l, int of, int undo) {
    for (size_t i = 0; i < l->ring_size; i++) {
        hub_op *op = l->ring[(l->ring_head + i) & (l->ring_capacity - 1)].op;
        if (op->verb == of) link_encode(l, l->dialect[undo], op);
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

int hub_detach(hub *h, int master, int of, int undo) {
    hub_link *l = &h->links[master];
    int fd = -1;
    seize(h);
    if (l->state != LINK_NONE) {
        int whole = l->state == LINK_UP;
        if (whole) {
            undo_owed(l, of, undo);
            h->up &= ~BIT(master); /* from here on nobody appends */
            pthread_mutex_unlock(&h->mutex);
            send_rest(l);
            pthread_mutex_lock(&h->mutex);
            fail_owed(h, master, "connection closed by the client");
        }
        fd = link_close(l, whole);
        if (!whole && fd >= 0) {
            close(fd);
            fd = -1;
        }
    }
    unseize(h);
    return fd;
}

void hub_tend(hub *h) {
    pthread_mutex_lock(&h->mutex);
    if (!h->leading && !h->seizing) {
        take_lead(h);
        lead_round(h, 0);
        hand_on(h);
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
    int64_t deadline = later(clock_now(), timeout);
    int done;
    seize(h);
    while (!(done = drained(h)) && clock_now() < deadline && !h->seizing) {
        int64_t left = deadline - clock_now();
        lead_round(h, left > SLICE ? SLICE : left > 0 ? left : 0);
        wake_finished(h);
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
        .lag = l->lagging_since ? clock_now() - l->lagging_since : 0,
        .round_trip = l->round_trip,
        .late = l->late,
        .replayed = l->replayed,
        .dropped = l->dropped,
        .pushes = l->pushes,
    };
    snprintf(state->broken, sizeof state->broken, "%s", l->broken);
    pthread_mutex_unlock(&h->mutex);
}

uint64_t hub_breaks(hub *h) { return __atomic_load_n(&h->breaks, __ATOMIC_ACQUIRE); }

/* --- the hub itself ------------------------------------------------------------------------ */

static int open_kick(int kick[2]) {
#ifdef __linux__
    kick[0] = kick[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return kick[0] < 0 ? -1 : 0;
#else
    if (pipe(kick)) return -1;
    for (int i = 0; i < 2; i++) {
        fcntl(kick[i], F_SETFL, O_NONBLOCK);
        fcntl(kick[i], F_SETFD, FD_CLOEXEC);
    }
    return 0;
#endif
}

static void close_kick(int kick[2]) {
    if (kick[0] >= 0) close(kick[0]);
    if (kick[1] >= 0 && kick[1] != kick[0]) close(kick[1]);
    kick[0] = kick[1] = -1;
}

hub *hub_new(int masters, size_t max_owed, size_t max_buffer, size_t max_replay) {
    hub *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->kick[0] = h->kick[1] = -1;
    h->links = calloc((size_t)masters, sizeof *h->links);
    h->fds = calloc((size_t)masters + 1, sizeof *h->fds);
    h->masters = masters;
    h->max_owed = max_owed;
    h->max_buffer = max_buffer;
    h->max_replay = max_replay;
    h->next_deadline = FOREVER;
    pthread_mutex_init(&h->mutex, NULL);
    cond_init(&h->seizable);
    if (h->links && h->fds && !open_kick(h->kick)) {
        for (int i = 0; i < masters; i++) h->links[i].fd = -1;
        return h;
    }
    hub_free(h);
    return NULL;
}

void hub_free(hub *h) {
    for (int i = 0; h->links && i < h->masters; i++) {
        int fd = link_close(&h->links[i], 0);
        if (fd >= 0) close(fd);
        link_clear(&h->links[i]);
    }
    close_kick(h->kick);
    free(h->links);
    free(h->fds);
    free(h);
}

void hub_abandon(hub *h) {
    /* The threads that held the mutex, led or waited do not exist in this process. */
    pthread_mutex_init(&h->mutex, NULL);
    cond_init(&h->seizable);
    h->leading = h->expecting = h->kicked = 0;
    h->seizing = 0;
    h->first = h->last = h->finished = NULL;
    h->next_deadline = FOREVER;
    h->up = h->lagging = 0;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        int fd = link_close(l, 0);
        if (fd >= 0) close(fd);
        link_clear(l);
    }
    close_kick(h->kick); /* shared with the parent */
    if (open_kick(h->kick)) h->kick[0] = h->kick[1] = -1;
}
