/* The leader's round: flush everybody's bytes, poll, receive, match replies to requests. */
#include "inside.h"

#include <stdio.h>

#include "reply.h"

/* While replies are expected within a round trip, newcomers need not interrupt the leader. */
#define EXPECT_WITHIN MS
#define LAG_ROUND_TRIPS 10

enum hub_reason hub_append(hub *h, hub_link *l, hub_op *op, int64_t now, hub_copy *copy) {
    if (op->verb < 0 || op->verb >= l->verbs || op->args < l->dialect[op->verb]->args) return REASON_NO_COMMAND;
    const hub_template *t = l->dialect[op->verb];
    if (l->ring_size + (size_t)t->skip >= h->max_owed) return REASON_OWED;
    size_t before = buffer_size(&l->out);
    int same = copy->from && copy->from->kind == l->kind;
    if (!(same ? link_copy(l, copy->from, copy->size) : link_encode(l, t, op))) return REASON_BUFFER;
    int watch = op->decided ? WATCH_NOTHING : t->watch;
    if (buffer_size(&l->out) > h->max_buffer ||
        (watch && !hub_begin_vigil(h, op, (int)(l - h->links), watch)) || !link_owe(l, t, op, now, FIRST)) {
        l->out.tail = l->out.head + before;
        return REASON_BUFFER;
    }
    *copy = (hub_copy){l, buffer_size(&l->out) - before};
    if (t->watch) l->unasked += HUB_UNASKED_PER_BYTE * (int64_t)copy->size;
    op->owed += !hub_voted(op, (int)(l - h->links));
    h->reflush = 1;
    return REASON_NONE;
}

void hub_replay(hub *h, hub_link *l, int64_t now, size_t most) {
    size_t done = 0;
    for (; done < l->kept_size && most; done++) {
        hub_op *op = l->kept[done];
        if (op->until > now) {
            hub_copy none = {NULL, 0};
            enum hub_reason reason = hub_append(h, l, op, now, &none);
            if (reason == REASON_OWED || reason == REASON_BUFFER) break;
            l->replayed += reason == REASON_NONE;
            most--;
        }
        hub_op_release(op);
    }
    l->kept_size -= done;
    if (done) memmove(l->kept, l->kept + done, l->kept_size * sizeof *l->kept);
}

void hub_fail_owed(hub *h, int master, const char *why) {
    hub_link *l = &h->links[master];
    l->state = LINK_BROKEN;
    snprintf(l->broken, sizeof l->broken, "%s", why);
    h->up &= ~BIT(master);
    h->lagging &= ~BIT(master);
    l->lagging_since = 0;
    hub_watch_link(h, l, 0);
    int64_t now = hub_now();
    for (link_slot *slot; (slot = link_oldest(l)); link_pop(l)) {
        hub_op *op = slot->op;
        op->owed -= !hub_voted(op, master);
        hub_fault(op, master, REASON_BROKEN, l->broken, strlen(l->broken));
        hub_conclude(h, op);
        if (op->keep && slot->turn != SKIPPED) link_keep(l, op, now, h->max_replay);
        hub_op_release(op);
    }
    hub_fail_open(h, master, l->broken);
    if (h->looking) hub_kick(h); /* else it would look at what is gone */
}

static void break_link(hub *h, int master, const char *why) {
    hub_fail_owed(h, master, why);
    __atomic_add_fetch(&h->breaks, 1, __ATOMIC_RELEASE);
}

/* What goes out now. Returns how many entries of fds are in use. */
static int begin(hub *h) {
    int used = 1, flushed = 0, owing = 0, held = hub_held(h);
    h->fds[0] = (struct pollfd){h->kick[0], POLLIN, 0};
    if (!held) h->reflush = 0, h->unsent = 0;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        l->polled = 0;
        if (l->state != LINK_UP) continue;
        if (!held && buffer_size(&l->out) && !buffer_size(&l->flight)) {
            buffer emptied = l->flight;
            l->flight = l->out;
            l->out = emptied;
            l->asked = l->ring_size;
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

int hub_poll(struct pollfd *fds, int used, int64_t timeout) {
    if (timeout < 0) timeout = 0;
#ifdef __linux__
    struct timespec t = {timeout / SECOND, timeout % SECOND};
    return ppoll(fds, (nfds_t)used, &t, NULL);
#else
    return poll(fds, (nfds_t)used, (int)((timeout + MS - 1) / MS));
#endif
}

static int wait_for_events(hub *h, int used, int64_t timeout) {
    for (int i = 0; i < h->masters; i++)
        if (h->links[i].polled && h->links[i].failure[0]) timeout = 0;
    return hub_poll(h->fds, used, timeout);
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
    hub_silence(h->kick);
    h->kicked = 0;
}

static void measure(hub *h, hub_link *l, const link_slot *slot, int64_t now) {
    /* A reply that nobody waited for may have lain there: it took at least until the poll before. */
    int64_t sample = (slot->op->decided ? h->polled : now) - slot->sent;
    if (sample <= 0) return;
    /* One long stall, such as a stopped server, must not pass for the way there. */
    int64_t most = 4 * (l->round_trip > h->lag_after ? l->round_trip : h->lag_after);
    if (sample > most) sample = most;
    l->round_trip = l->round_trip ? l->round_trip + (sample - l->round_trip) / 8 : sample;
}

static int is_noscript(reply_bytes reply) { return reply.size > 9 && !memcmp(reply.data, "-NOSCRIPT", 9); }

/* The code of an error reply: the twin of error_code in redlock_fast/wire/resp.py. */
static reply_bytes error_code(reply_bytes reply) {
    static const char failed[] = "-ERR Error running script ", inner[] = ": -";
    const char *code = reply.data + 1, *end = reply.data + reply.size - 2; /* of the line */
    if (reply.size > sizeof failed && !memcmp(reply.data, failed, sizeof failed - 1)) {
        const char *found = memmem(reply.data, reply.size - 2, inner, sizeof inner - 1);
        if (found) code = found + sizeof inner - 1;
    }
    const char *space = code < end ? memchr(code, ' ', (size_t)(end - code)) : end;
    return (reply_bytes){code, (size_t)((space ? space : end) - code)};
}

/* Which of these errors it is, or NULL. */
static const char *one_of(reply_bytes reply, const char *const *codes, size_t count) {
    if (reply.data[0] != '-') return NULL;
    reply_bytes code = error_code(reply);
    for (size_t i = 0; i < count; i++)
        if (code.size == strlen(codes[i]) && !memcmp(code.data, codes[i], code.size)) return codes[i];
    return NULL;
}

/* The errors of NOT_NOW in the contract; first those of NO_MASTER. */
static const char *const not_now[] = {"LOADING",    "MASTERDOWN", "READONLY", "BUSY",
                                      "MISCONF", "NOREPLICAS", "OOM",      "TRYAGAIN"};
enum { NO_MASTER = 3, NOT_NOW = sizeof not_now / sizeof *not_now };

/* A request that must arrive was answered: done, or to be done later. */
static void done(hub *h, hub_link *l, hub_op *op, enum reply_kind kind, reply_bytes reply, int64_t now) {
    if (kind == REPLY_NUMBER) {
        if (l->kept_size) hub_replay(h, l, now, SIZE_MAX);
    } else if (l->dialect[op->verb]->undo < 0 && one_of(reply, not_now, NOT_NOW)) {
        link_keep(l, op, now, h->max_replay);
    }
}

/* Of a reply that is no vote, for people; not all of a long one, as there may be one for every request. */
static void fault_reply(hub_op *op, int master, reply_bytes reply) {
    char text[64];
    if (reply.size <= HUB_MAX_DETAIL) {
        hub_fault(op, master, REASON_REPLY, reply.data, reply.size);
        return;
    }
    snprintf(text, sizeof text, "unexpected reply of %zu bytes", reply.size);
    hub_fault(op, master, REASON_LONG, text, strlen(text));
}

/* Whether a command of this kind can be answered that. */
static int fits(int expected, enum reply_kind kind, reply_bytes reply) {
    char first = reply.data[0];
    if (expected == ANSWER_ANY) return 1;
    if (kind == REPLY_NUMBER) return (first == ':') == (expected == ANSWER_INTEGER);
    return first == '-' || first == '!';
}

/* One whole reply for the oldest request; what is wrong with it, or NULL. */
static const char *answer(hub *h, int master, enum reply_kind kind, reply_bytes reply, int64_t number, int64_t now) {
    hub_link *l = &h->links[master];
    if (!l->asked) return "a reply that nobody is owed";
    link_slot slot = *link_oldest(l);
    hub_op *op = slot.op;
    if (slot.turn != SKIPPED && !fits(l->dialect[op->verb]->reply, kind, reply))
        return "a reply that its request cannot have";
    link_pop(l);
    if (slot.turn == SKIPPED) {
        hub_op_release(op);
        return NULL;
    }
    const hub_template *fallback = l->dialect[op->verb]->fallback;
    /* Not for what is over and need not arrive: its undo may be on the way, and this would be behind it. */
    int wanted = !op->decided || op->keep || !op->need;
    if (kind == REPLY_OTHER && fallback && wanted && slot.turn == FIRST && is_noscript(reply) &&
        link_encode(l, fallback, op) && link_owe(l, fallback, op, slot.sent, AGAIN)) {
        h->reflush = 1;
        hub_op_release(op);
        return NULL;
    }
    op->owed -= !hub_voted(op, master);
    hub_renew(op->waiter, now);
    if (op->decided) l->late++;
    else if (op->vigil && op->vigil->masters & BIT(master)) {
        if (kind != REPLY_NUMBER || reply.data[0] != ':' || !hub_watched(h, op, master, number, slot.sent))
            fault_reply(op, master, reply);
    } else if (kind == REPLY_NUMBER) hub_count(op, master, number);
    else fault_reply(op, master, reply);
    hub_conclude(h, op);
    if (op->keep) done(h, l, op, kind, reply, now);
    hub_op_release(op);
    return NULL;
}

/* A push or an attribute of that size; what is wrong with it, or NULL. */
static const char *unasked(hub_link *l, size_t size) {
    l->unasked -= size > HUB_UNASKED_LEAST ? (int64_t)size : HUB_UNASKED_LEAST;
    return l->unasked < 0 ? "more than was asked for" : NULL;
}

/* Every whole reply to its request; 0 if there was none: pushes, and pieces of a reply, are no answer. The
 * connection may have ended behind them. */
static int match(hub *h, int master, int64_t now) {
    hub_link *l = &h->links[master];
    const char *flushed = NULL, *wrong = NULL, *code = NULL;
    int answers = 0;
    while (!flushed && !wrong && !code && buffer_size(&l->in)) {
        reply_bytes in = {buffer_front(&l->in), buffer_size(&l->in)};
        int64_t number = 0;
        size_t most_pushed = l->unasked < REPLY_MAX_PUSH ? (size_t)l->unasked : REPLY_MAX_PUSH;
        enum reply_kind kind = reply_next(in, most_pushed, &l->scan, &in.size, &number);
        if (kind == REPLY_PARTIAL) break;
        if (kind == REPLY_PUSH || kind == REPLY_ATTRIBUTE) wrong = unasked(l, in.size);
        if (kind == REPLY_PUSH) {
            l->pushes++;
            if (!hub_pushed(h, master, in.data, in.size)) flushed = HUB_FLUSHED;
        } else if (kind == REPLY_MALFORMED) wrong = "malformed reply";
        else if (kind != REPLY_ATTRIBUTE) {
            if (!answers++ && l->asked) measure(h, l, link_oldest(l), now);
            wrong = answer(h, master, kind, in, number, now);
            code = kind == REPLY_OTHER ? one_of(in, not_now, NO_MASTER) : NULL;
        }
        buffer_take(&l->in, in.size);
    }
    if (flushed) snprintf(l->failure, sizeof l->failure, "%s", flushed);
    else if (wrong) snprintf(l->failure, sizeof l->failure, "protocol error: %s", wrong);
    else if (code) snprintf(l->failure, sizeof l->failure, "%s: it may be no master any more", code);
    if (!answers) return 0;
    l->lagging_since = 0;
    h->lagging &= ~BIT(master);
    return 1;
}

static void flag_lagging(hub *h, int master, int64_t now) {
    hub_link *l = &h->links[master];
    link_slot *oldest = link_oldest(l);
    if (!oldest || l->lagging_since) return;
    int64_t patience = l->round_trip * LAG_ROUND_TRIPS;
    if (patience < h->lag_after) patience = h->lag_after;
    if (now - oldest->sent <= patience && l->ring_size < h->max_owed) return;
    l->lagging_since = oldest->sent;
    h->lagging |= BIT(master);
}

/* What came in: votes, decisions, broken and lagging masters, ended deadlines. */
static void settle(hub *h, int events) {
    int64_t now = hub_now();
    if (events > 0) read_kick(h);
    if (!events) h->expecting = 0;
    for (int i = 0; i < h->masters; i++) {
        hub_link *l = &h->links[i];
        if (!l->polled) continue;
        int answered = l->received && match(h, i, now);
        if (!answered && events >= 0) flag_lagging(h, i, now);
        if (l->failure[0]) break_link(h, i, l->failure);
    }
    h->polled = now;
    hub_expire(h, now);
    hub_watch_output(h);
}

/* Send once, without waiting. */
void hub_flush_now(hub *h) {
    begin(h);
    pthread_mutex_unlock(&h->mutex);
    flush(h);
    pthread_mutex_lock(&h->mutex);
    for (int i = 0; i < h->masters; i++)
        if (h->links[i].polled && h->links[i].failure[0]) break_link(h, i, h->links[i].failure);
    hub_watch_output(h);
}

/* One round with the mutex held on entry and exit. 0 if a signal wants attention. */
int hub_round(hub *h, int64_t longest) {
    unsigned forks = h->forks;
    int used = begin(h);
    int64_t timeout = h->expecting && longest > EXPECT_WITHIN ? EXPECT_WITHIN : longest;
    int64_t deadline = h->next_deadline;
    pthread_mutex_unlock(&h->mutex);
    int calm = flush(h);
    if (deadline != FOREVER) {
        int64_t left = deadline - hub_now();
        if (left < timeout) timeout = left > 0 ? left : 0;
    }
    int events = wait_for_events(h, used, calm ? timeout : 0);
    if (events < 0) calm = 0;
    if (events > 0) calm &= receive(h);
    pthread_mutex_lock(&h->mutex);
    if (h->forks != forks) return 0; /* by a signal handler that a transport ran: this is the child */
    settle(h, events);
    return calm;
}
