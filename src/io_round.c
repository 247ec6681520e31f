/* A round of the leader: send the output of all threads, poll, receive, match replies to requests. */
#include "hub_internal.h"

#include <sched.h>
#include <stdio.h>

#include "reply.h"

/* While replies are expected within this time, new requests need not kick the leader. */
#define EXPECT_REPLY_WITHIN MS
#define LAG_ROUND_TRIPS 10
#define LAG_AFTER_WAIT (2 * SECOND) /* of the contract */

enum hub_reason hub_append(hub *h, hub_link *l, hub_op *op, int64_t now, hub_copy *copy) {
    if (op->verb < 0 || op->verb >= l->verbs || op->args < l->dialect[op->verb]->args) return REASON_NO_COMMAND;
    const hub_template *t = l->dialect[op->verb];
    if (l->pending_size + (size_t)t->leading_replies >= h->max_pending) return REASON_OWED;
    size_t before = buffer_size(&l->out);
    int same = copy->from && copy->from->kind == l->kind;
    if (!(same ? link_copy(l, copy->from, copy->size) : link_encode(l, t, op))) return REASON_BUFFER;
    int watch = op->decided ? WATCH_NOTHING : t->watch;
    if (buffer_size(&l->out) > h->max_buffer ||
        (watch && !hub_subscribe(h, op, (int)(l - h->links), watch)) ||
        !link_add_pending(l, t, op, now, SLOT_REPLY)) {
        l->out.tail = l->out.head + before;
        return REASON_BUFFER;
    }
    *copy = (hub_copy){l, buffer_size(&l->out) - before};
    if (t->watch) l->push_credit += HUB_UNSOLICITED_PER_BYTE * (int64_t)copy->size;
    op->pending += !hub_has_voted(op, (int)(l - h->links));
    hub_note_wait(l, t, op);
    h->output_pending = 1;
    return REASON_NONE;
}

void hub_resend(hub *h, hub_link *l, int64_t now, size_t most) {
    size_t done = 0;
    for (; done < l->resend_size && most; done++) {
        hub_op *op = l->resend_queue[done];
        if (op->resend_until > now) {
            hub_copy none = {NULL, 0};
            enum hub_reason reason = hub_append(h, l, op, now, &none);
            if (reason == REASON_OWED || reason == REASON_BUFFER) break;
            l->resent += reason == REASON_NONE;
            most--;
        }
        hub_op_release(op);
    }
    l->resend_size -= done;
    if (done) memmove(l->resend_queue, l->resend_queue + done, l->resend_size * sizeof *l->resend_queue);
}

void hub_fail_link(hub *h, int master, const char *why) {
    hub_link *l = &h->links[master];
    l->state = LINK_BROKEN;
    snprintf(l->broken, sizeof l->broken, "%s", why);
    h->up &= ~BIT(master);
    h->lagging &= ~BIT(master);
    l->lagging_since = 0;
    hub_loop_set_input(h, l, 0);
    int64_t now = hub_now();
    for (link_slot *slot; (slot = link_oldest_pending(l)); link_pop_pending(l)) {
        hub_op *op = slot->op;
        op->pending -= !hub_has_voted(op, master);
        hub_count_fault(op, master, REASON_BROKEN, l->broken, strlen(l->broken));
        hub_decide_if_determined(h, op);
        if (op->resend_for && slot->kind != SLOT_LEADING) link_defer(l, op, now, h->max_resend);
        hub_op_release(op);
    }
    hub_fail_held(h, master, l->broken);
    hub_fail_subscriptions(h, master, l->broken);
    if (h->subs.poller_blocked) hub_kick(h); /* otherwise it would poll a connection that is closed */
}

static void break_link(hub *h, int master, const char *why) REQUIRES(h) {
    hub_fail_link(h, master, why);
    __atomic_add_fetch(&h->breaks, 1, __ATOMIC_RELEASE);
}

/* After this time without a round, descriptors may be those of other files. */
#define IDLE MS

void hub_check_descriptors(hub *h) {
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        if (l->state == LINK_UP && !link_is_ours(l)) break_link(h, i, l->failure);
    }
    if (wakefd_is_ours(&h->kick)) return;
    wakefd_close(&h->kick);
    wakefd_open(&h->kick);
    h->kicked = 0;
}

/* Chooses the output and the connections of this round. Returns how many entries of fds are in use. */
static int begin_round(hub *h) REQUIRES(h) {
    int used = 1, flushed = 0, owing = 0, deferred = hub_defers_flush(h);
    if (h->kick.fd[0] >= 0 && hub_now() - h->last_poll > IDLE) hub_check_descriptors(h);
    h->fds[0] = (struct pollfd){h->kick.fd[0], POLLIN, 0};
    if (!deferred) h->output_pending = 0, h->unflushed_requests = 0;
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        l->in_round = 0;
        if (l->state != LINK_UP) continue;
        if (!deferred && l->wait_due) hub_append_wait(h, i);
        if (!deferred && buffer_size(&l->out) && !buffer_size(&l->sending)) {
            buffer emptied = l->sending;
            l->sending = l->out;
            l->out = emptied;
            l->flushed = l->pending_size;
            flushed |= !l->lagging_since;
        }
        owing |= l->pending_size && !l->lagging_since;
        l->in_round = 1;
        l->received = 0;
        h->fds[used++] = (struct pollfd){l->fd, POLLIN, 0};
    }
    if (flushed) h->lead.expects_replies = 1;
    else if (!owing) h->lead.expects_replies = 0;
    return used;
}

/* Sends, and sets the events to poll for. Returns 0 if a signal came. */
static int send_all(hub *h) {
    int at = 1, no_signal = 1;
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        if (!l->in_round) continue;
        if (buffer_size(&l->sending) && !l->failure[0]) no_signal &= link_send(l);
        h->fds[at++].events = buffer_size(&l->sending) ? POLLIN | POLLOUT : POLLIN;
    }
    return no_signal;
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

static int poll_yielding(hub *h, int used, int64_t longest) {
    int events = 0;
    for (int64_t end = hub_now() + longest; !events && hub_now() < end;) {
        events = hub_poll(h->fds, used, 0);
        if (!events) sched_yield();
    }
    return events;
}

static int wait_for_events(hub *h, int used, int64_t timeout, int64_t yield) {
    for (int i = 0, n = hub_masters(h); i < n; i++)
        if (h->links[i].in_round && h->links[i].failure[0]) timeout = 0;
    int events = yield ? poll_yielding(h, used, yield < timeout ? yield : timeout) : 0;
    return events ? events : hub_poll(h->fds, used, timeout);
}

/* Receives from each connection that is readable. `late`: the poll was long. Returns 0 if a signal came. */
static int receive_all(hub *h, int late) {
    int at = 1, no_signal = 1;
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        if (!l->in_round) continue;
        /* also after a failed send: the report of a flush may be there */
        if (h->fds[at++].revents & ~POLLOUT && (!late || link_is_ours(l))) no_signal &= link_receive(l);
    }
    return no_signal;
}

static void drain_kick(hub *h) REQUIRES(h) {
    if (!h->fds[0].revents) return;
    wakefd_drain(&h->kick);
    h->kicked = 0;
}

static void measure_round_trip(hub *h, hub_link *l, const link_slot *slot, int64_t now) {
    /* If the request was decided earlier, no thread may have polled when its reply came. The arrival time is
     * unknown then; the previous poll is a lower bound. */
    if (l->dialect[slot->op->verb]->replicas) return; /* the master waited for replicas */
    int64_t sample = (slot->op->decided ? h->last_poll : now) - slot->sent;
    if (sample <= 0) return;
    /* A single long stall, such as a stopped server, must not be taken for the round trip. */
    int64_t most = 4 * (l->round_trip > h->lag_after ? l->round_trip : h->lag_after);
    if (sample > most) sample = most;
    l->round_trip = l->round_trip ? l->round_trip + (sample - l->round_trip) / 8 : sample;
}

static int is_noscript(reply_bytes reply) { return reply.size > 9 && !memcmp(reply.data, "-NOSCRIPT", 9); }

/* The code of an error reply. redlock_fast/wire/resp.py has the same function, error_code. */
static reply_bytes error_code(reply_bytes reply) {
    static const char failed[] = "-ERR Error running script ", inner[] = ": -";
    const char *code = reply.data + 1, *end = reply.data + reply.size - 2; /* the end of the line */
    if (reply.size > sizeof failed && !memcmp(reply.data, failed, sizeof failed - 1)) {
        const char *found = memmem(reply.data, reply.size - 2, inner, sizeof inner - 1);
        if (found) code = found + sizeof inner - 1;
    }
    const char *space = code < end ? memchr(code, ' ', (size_t)(end - code)) : end;
    return (reply_bytes){code, (size_t)((space ? space : end) - code)};
}

/* Returns the code of an error reply if it is one of these, otherwise NULL. */
static const char *match_error(reply_bytes reply, const char *const *codes, size_t count) {
    if (reply.data[0] != '-') return NULL;
    reply_bytes code = error_code(reply);
    for (size_t i = 0; i < count; i++)
        if (code.size == strlen(codes[i]) && !memcmp(code.data, codes[i], code.size)) return codes[i];
    return NULL;
}

/* TRANSIENT_ERRORS of the contract. The first four are its NOT_MASTER_ERRORS. */
static const char *const transient_errors[] = {
    "GUARDED", "LOADING", "MASTERDOWN", "READONLY", "BUSY", "MISCONF", "NOREPLICAS", "OOM", "TRYAGAIN",
};
enum { NOT_MASTER = 4, TRANSIENT = sizeof transient_errors / sizeof *transient_errors };

/* A request with `resend_for` was answered: the resend queue may go on, or the request joins it. */
static void on_resendable_reply(hub *h, hub_link *l, hub_op *op, enum reply_kind kind, reply_bytes reply,
                                int64_t now) REQUIRES(h) {
    if (kind == REPLY_NUMBER) {
        if (l->resend_size) hub_resend(h, l, now, SIZE_MAX);
    } else if (l->dialect[op->verb]->rollback_verb < 0 && match_error(reply, transient_errors, TRANSIENT)) {
        link_defer(l, op, now, h->max_resend);
    }
}

/* Counts a reply that is no vote as a fault. Of a long reply only the size is stored, for every request may get
 * one. */
static void count_error_reply(hub_op *op, int master, reply_bytes reply) {
    char text[64];
    if (reply.size <= HUB_MAX_DETAIL) {
        hub_count_fault(op, master, REASON_REPLY, reply.data, reply.size);
        return;
    }
    snprintf(text, sizeof text, "unexpected reply of %zu bytes", reply.size);
    hub_count_fault(op, master, REASON_LONG, text, strlen(text));
}

/* Whether a command with this `reply` can have this reply. */
static int reply_fits(int expected, enum reply_kind kind, reply_bytes reply) {
    char first = reply.data[0];
    if (expected == ANSWER_ANY) return 1;
    if (kind == REPLY_NUMBER) return (first == ':') == (expected == ANSWER_INTEGER);
    return first == '-' || first == '!';
}

/* Returns 0 without memory: then no byte of it is left in the output, for its reply would go to the next request. */
static int append_fallback(hub_link *l, const hub_template *fallback, hub_op *op, int64_t sent) {
    size_t before = buffer_size(&l->out);
    if (!link_encode(l, fallback, op)) return 0;
    if (!link_add_pending(l, fallback, op, sent, SLOT_FALLBACK)) {
        l->out.tail = l->out.head + before;
        return 0;
    }
    hub_note_wait(l, fallback, op);
    return 1;
}

void hub_count_reply(hub *h, int master, const link_slot *slot, enum reply_kind kind, reply_bytes reply,
                     int64_t number, int64_t now) {
    hub_op *op = slot->op;
    op->pending -= !hub_has_voted(op, master);
    if (op->wait != WAIT_ALL || !hub_has_quorum(op)) hub_restart_idle_timeout(op->waiter, now);
    if (op->decided) h->links[master].late_replies++;
    else if (op->sub && op->sub->masters & BIT(master)) {
        if (kind != REPLY_NUMBER || reply.data[0] != ':' || !hub_subscription_reply(h, op, master, number, slot->sent))
            count_error_reply(op, master, reply);
    } else if (kind == REPLY_NUMBER) hub_count_vote(op, master, number);
    else count_error_reply(op, master, reply);
    hub_decide_if_determined(h, op);
}

#define NOT_HELD "-NOREPLICAS too many grants wait for replicas\r\n"

/* Gives one whole reply to the oldest pending request. Returns what is wrong with the reply, or NULL. */
static const char *process_reply(hub *h, int master, enum reply_kind kind, reply_bytes reply, int64_t number,
                                 int64_t now) REQUIRES(h) {
    hub_link *l = &h->links[master];
    if (!l->flushed) return "a reply that no request is owed";
    link_slot slot = *link_oldest_pending(l);
    hub_op *op = slot.op;
    if (slot.kind != SLOT_LEADING && !reply_fits(l->dialect[op->verb]->reply, kind, reply))
        return "a reply that its request cannot have";
    link_pop_pending(l);
    if (slot.kind == SLOT_LEADING) {
        if (l->dialect[op->verb]->replicas && (kind != REPLY_NUMBER || number < 1)) /* WAIT would wait for too little */
            hub_end_wait(h, master, l->dialect[op->verb]->replicas, kind, reply, number, now);
        hub_op_release(op);
        return NULL;
    }
    const hub_template *fallback = l->dialect[op->verb]->fallback;
    /* No fallback for a request that is decided and need not arrive: its rollback may be on the way, and the
     * fallback would follow it. */
    int wanted = !op->decided || op->resend_for || !op->quorum.need;
    if (kind == REPLY_OTHER && fallback && wanted && slot.kind == SLOT_REPLY && is_noscript(reply) &&
        append_fallback(l, fallback, op, slot.sent)) {
        h->output_pending = 1;
        hub_op_release(op);
        return NULL;
    }
    const hub_template *t = l->dialect[op->verb];
    if (t->replicas) {
        hub_end_wait(h, master, t->replicas, kind, reply, number, now);
        hub_op_release(op);
        return NULL;
    }
    if (t->confirm_verb >= 0 && kind == REPLY_NUMBER && number > 0 && !op->decided) {
        if (hub_hold(h, l, op, number)) return NULL; /* with the reference of the slot */
        reply = (reply_bytes){NOT_HELD, sizeof NOT_HELD - 1};
        kind = REPLY_OTHER;
    }
    hub_count_reply(h, master, &slot, kind, reply, number, now);
    if (op->resend_for) on_resendable_reply(h, l, op, kind, reply, now);
    hub_op_release(op);
    return NULL;
}

#define UNASKED_FOR "more than was asked for"

/* Pays for a push or an attribute of this size. Returns what is wrong with it, or NULL. */
static const char *spend_push_credit(hub_link *l, size_t size) {
    l->push_credit -= size > HUB_UNSOLICITED_LEAST ? (int64_t)size : HUB_UNSOLICITED_LEAST;
    return l->push_credit < 0 ? UNASKED_FOR : NULL;
}

/* Gives every whole reply to its request. Returns 0 if no reply came: pushes and incomplete replies do not count.
 * `failure` is set if the connection must end. */
static int process_input(hub *h, int master, int64_t now) REQUIRES(h) {
    hub_link *l = &h->links[master];
    const char *keys_flushed = NULL, *wrong = NULL, *code = NULL;
    int replies = 0;
    while (!keys_flushed && !wrong && !code && buffer_size(&l->in)) {
        reply_bytes in = {buffer_front(&l->in), buffer_size(&l->in)};
        int64_t number = 0;
        size_t most_pushed = l->push_credit < REPLY_MAX_PUSH ? (size_t)l->push_credit : REPLY_MAX_PUSH;
        enum reply_kind kind = reply_next(in, most_pushed, &l->scan, &in.size, &number);
        if (kind == REPLY_PARTIAL) break;
        if (kind == REPLY_PUSH || kind == REPLY_ATTRIBUTE) wrong = spend_push_credit(l, in.size);
        if (kind == REPLY_PUSH) {
            l->pushes++;
            if (!hub_handle_push(h, master, in.data, in.size)) keys_flushed = HUB_FLUSHED;
        } else if (kind == REPLY_MALFORMED) wrong = "malformed reply";
        else if (kind == REPLY_TOO_LONG)
            wrong = *in.data == '>' && most_pushed < REPLY_MAX_PUSH ? UNASKED_FOR : "reply is too long";
        else if (kind != REPLY_ATTRIBUTE) {
            if (!replies++ && l->flushed) measure_round_trip(h, l, link_oldest_pending(l), now);
            const link_slot *slot = link_oldest_pending(l);
            int counts = slot && slot->kind != SLOT_LEADING;
            wrong = process_reply(h, master, kind, in, number, now);
            code = counts && kind == REPLY_OTHER ? match_error(in, transient_errors, NOT_MASTER) : NULL;
        }
        buffer_take(&l->in, in.size);
    }
    if (keys_flushed) snprintf(l->failure, sizeof l->failure, "%s", keys_flushed);
    else if (wrong) snprintf(l->failure, sizeof l->failure, "protocol error: %s", wrong);
    else if (code) snprintf(l->failure, sizeof l->failure, "%s: it may be no master any more", code);
    if (!replies) return 0;
    l->lagging_since = 0;
    h->lagging &= ~BIT(master);
    return 1;
}

static void flag_lagging(hub *h, int master, int64_t now) REQUIRES(h) {
    hub_link *l = &h->links[master];
    link_slot *oldest = link_oldest_pending(l);
    if (!oldest || l->lagging_since) return;
    int64_t patience = l->round_trip * LAG_ROUND_TRIPS;
    if (patience < h->lag_after) patience = h->lag_after;
    if (l->dialect[oldest->op->verb]->replicas && patience < LAG_AFTER_WAIT) patience = LAG_AFTER_WAIT;
    if (now - oldest->sent <= patience && l->pending_size < h->max_pending) return;
    l->lagging_since = oldest->sent;
    h->lagging |= BIT(master);
}

/* Processes what this round received: votes, decisions, broken and lagging masters, deadlines. */
static void process_round(hub *h, int events) REQUIRES(h) {
    int64_t now = hub_now();
    if (events > 0) drain_kick(h);
    if (!events) h->lead.expects_replies = 0;
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        if (!l->in_round) continue;
        int answered = l->received && process_input(h, i, now);
        if (!answered && events >= 0) flag_lagging(h, i, now);
        if (l->failure[0]) break_link(h, i, l->failure);
    }
    h->last_poll = now;
    hub_expire(h, now);
    hub_loop_update_output(h);
}

/* Sends the output once, without polling. A connection that breaks is read first: the report of a flush may be there. */
void hub_flush_now_unlocks(hub *h) {
    begin_round(h);
    hub_unlock(h);
    send_all(h);
    for (int i = 0, n = hub_masters(h); i < n; i++)
        if (h->links[i].in_round && h->links[i].failure[0]) link_receive(&h->links[i]);
    hub_lock(h);
    for (int i = 0, n = hub_masters(h); i < n; i++) {
        hub_link *l = &h->links[i];
        if (!l->in_round || !l->failure[0]) continue;
        if (l->received) process_input(h, i, hub_now());
        break_link(h, i, l->failure);
    }
    hub_loop_update_output(h);
}

int hub_round_unlocks(hub *h, int64_t longest, int64_t yield) {
    unsigned generation = h->generation;
    int used = begin_round(h);
    int64_t timeout = h->lead.expects_replies && longest > EXPECT_REPLY_WITHIN ? EXPECT_REPLY_WITHIN : longest;
    int64_t deadline = h->next_deadline;
    hub_unlock(h);
    int no_signal = send_all(h);
    if (deadline != FOREVER) {
        int64_t left = deadline - hub_now();
        if (left < timeout) timeout = left > 0 ? left : 0;
    }
    int64_t before = hub_now();
    int events = wait_for_events(h, used, no_signal ? timeout : 0, yield);
    if (events < 0) no_signal = 0;
    if (events > 0) no_signal &= receive_all(h, hub_now() - before > IDLE);
    hub_lock(h);
    if (h->generation != generation) return 0; /* a child: a signal handler forked in a transport */
    process_round(h, events);
    return no_signal;
}
