#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: hub_attach sets SO_NOSIGPIPE */
#endif

#define RECEIVE_SIZE (16u << 10)
/* What a transport returns at most: it keeps no rest, which poll would not show. */
#define TRANSPORT_SIZE (32u << 10)
/* Bytes and reads of one receive, so that an endless sender neither occupies the leader nor fills the memory. */
#define RECEIVE_MOST (256u << 10)
#define MAX_READS 16

/* --- pending replies ------------------------------------------------------------------------ */

link_slot *link_oldest_pending(hub_link *l) { return l->pending_size ? &l->pending[l->pending_head] : NULL; }

void link_pop_pending(hub_link *l) {
    l->pending_head = (l->pending_head + 1) & (l->pending_capacity - 1);
    l->pending_size--;
    if (l->flushed) l->flushed--;
}

static int grow_pending(hub_link *l) {
    size_t capacity = l->pending_capacity ? l->pending_capacity * 2 : 64;
    link_slot *ring = malloc(capacity * sizeof *ring);
    if (!ring) return 0;
    for (size_t i = 0; i < l->pending_size; i++)
        ring[i] = l->pending[(l->pending_head + i) & (l->pending_capacity - 1)];
    free(l->pending);
    l->pending = ring;
    l->pending_head = 0;
    l->pending_capacity = capacity;
    return 1;
}

int link_add_pending(hub_link *l, const hub_template *t, hub_op *op, int64_t sent, enum slot_kind kind) {
    size_t replies = (size_t)t->leading_replies + 1;
    while (l->pending_capacity - l->pending_size < replies)
        if (!grow_pending(l)) return 0;
    for (size_t i = 1; i <= replies; i++) {
        size_t at = (l->pending_head + l->pending_size++) & (l->pending_capacity - 1);
        l->pending[at] = (link_slot){op, sent, i < replies ? SLOT_LEADING : kind};
    }
    __atomic_add_fetch(&op->references, (int)replies, __ATOMIC_RELAXED);
    return 1;
}

/* --- encoding ------------------------------------------------------------------------------- */

static char *put_number(char *to, size_t number) {
    char digits[20];
    int n = 0;
    do digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n) *to++ = digits[--n];
    return to;
}

static char *put_bulk(char *to, const char *data, size_t size) {
    *to++ = '$';
    to = put_number(to, size);
    memcpy(to, "\r\n", 2);
    memcpy(to + 2, data, size);
    memcpy(to + 2 + size, "\r\n", 2);
    return to + size + 4;
}

static int argument(int slot) { return slot < 0 ? ~slot : slot; }

int link_encode(hub_link *l, const hub_template *t, const hub_op *op) {
    size_t size = 0;
    for (int i = 0; i < t->parts; i++)
        size += t->part[i].text ? t->part[i].size : op->arg[argument(t->part[i].slot)].size + 32;
    char *start = buffer_room(&l->out, size), *to = start;
    if (!start) return 0;
    for (int i = 0; i < t->parts; i++) {
        if (t->part[i].text) {
            memcpy(to, t->part[i].text, t->part[i].size);
            to += t->part[i].size;
        } else if (t->part[i].slot < 0) {
            size_t raw = op->arg[~t->part[i].slot].size;
            memcpy(to, op->arg[~t->part[i].slot].data, raw);
            to += raw;
        } else {
            to = put_bulk(to, op->arg[t->part[i].slot].data, op->arg[t->part[i].slot].size);
        }
    }
    l->out.tail += (size_t)(to - start);
    return 1;
}

int link_copy(hub_link *l, const hub_link *from, size_t size) {
    char *to = buffer_room(&l->out, size);
    if (!to) return 0;
    memcpy(to, from->out.data + from->out.tail - size, size);
    l->out.tail += size;
    return 1;
}

/* --- the resend queue ----------------------------------------------------------------------- */

static void drop_expired(hub_link *l, int64_t now) {
    if (now < l->purge_at) return; /* otherwise each rejected request would search the full queue */
    size_t stay = 0;
    l->purge_at = INT64_MAX;
    for (size_t i = 0; i < l->resend_size; i++) {
        hub_op *op = l->resend_queue[i];
        if (op->resend_until > now) {
            l->resend_queue[stay++] = op;
            if (op->resend_until < l->purge_at) l->purge_at = op->resend_until;
        } else {
            hub_op_release(op);
        }
    }
    l->resend_size = stay;
}

void link_defer(hub_link *l, hub_op *op, int64_t now, size_t bound) {
    if (op->resend_until <= now) return;
    if (l->resend_size == l->resend_capacity || l->resend_size >= bound) drop_expired(l, now);
    if (l->resend_size == l->resend_capacity && l->resend_size < bound) {
        size_t capacity = l->resend_capacity ? l->resend_capacity * 2 : 16;
        hub_op **queue = realloc(l->resend_queue, capacity * sizeof *queue);
        if (queue) {
            l->resend_queue = queue;
            l->resend_capacity = capacity;
        }
    }
    if (l->resend_size >= bound || l->resend_size == l->resend_capacity) {
        l->resend_dropped++;
        return;
    }
    __atomic_add_fetch(&op->references, 1, __ATOMIC_RELAXED);
    l->resend_queue[l->resend_size++] = op;
    if (op->resend_until < l->purge_at) l->purge_at = op->resend_until;
}

/* --- bytes ---------------------------------------------------------------------------------- */

static ssize_t transfer(hub_link *l, int outgoing, char *data, size_t size) {
    ssize_t moved;
    if (l->transport) {
        const hub_transport *t = l->transport;
        l->transport_thread = pthread_self();
        __atomic_store_n(&l->transport_busy, 1, __ATOMIC_RELEASE);
        moved = outgoing ? t->send(t->context, data, size) : t->receive(t->context, data, size);
        __atomic_store_n(&l->transport_busy, 0, __ATOMIC_RELEASE);
        return moved;
    }
    do moved = outgoing ? send(l->fd, data, size, MSG_NOSIGNAL) : recv(l->fd, data, size, 0);
    while (moved < 0 && errno == EINTR);
    return moved < 0 ? -errno : moved;
}

/* Whether this is a child: a signal handler forked while a transport moved bytes. */
static int closed_after_fork(const hub_link *l) { return l->fd < 0; }

/* strerror() shares one text between threads. strerror_r() returns its text in glibc, a number elsewhere. */
static void format_error(char *text, size_t size, int error) {
#ifdef __GLIBC__
    char room[128];
    snprintf(text, size, "%s", strerror_r(error, room, sizeof room));
#else
    if (strerror_r(error, text, size)) snprintf(text, size, "error %d", error);
#endif
}

/* Returns 0 if a signal handler raised. */
static int record_failure(hub_link *l, ssize_t error) {
    if (error == -EINTR) {
        snprintf(l->failure, sizeof l->failure, "interrupted by a signal handler");
        return 0;
    }
    if (error == -EAGAIN || error == -EWOULDBLOCK) return 1;
    if (l->transport && l->transport->failure[0]) snprintf(l->failure, sizeof l->failure, "%s", l->transport->failure);
    else format_error(l->failure, sizeof l->failure, (int)-error);
    return 1;
}

int link_send(hub_link *l) {
    while (buffer_size(&l->sending)) {
        ssize_t sent = transfer(l, 1, buffer_front(&l->sending), buffer_size(&l->sending));
        if (closed_after_fork(l)) return 0;
        if (sent < 0) return record_failure(l, sent);
        buffer_take(&l->sending, (size_t)sent);
    }
    return 1;
}

int link_receive(hub_link *l) {
    size_t all = 0;
    for (int reads = 0; all < RECEIVE_MOST && reads < MAX_READS; reads++) {
        char *room = buffer_room(&l->in, l->transport ? TRANSPORT_SIZE : RECEIVE_SIZE);
        size_t size = room ? l->in.capacity - l->in.tail : 0;
        ssize_t received = room ? transfer(l, 0, room, size) : -ENOMEM;
        if (closed_after_fork(l)) return 0;
        if (received < 0) return record_failure(l, received);
        if (!received) {
            snprintf(l->failure, sizeof l->failure, "connection closed by the master");
            return 1;
        }
        l->in.tail += (size_t)received;
        l->received = 1;
        all += (size_t)received;
        /* nothing is left, or the next round receives it; but after a failed send this is the last round */
        if ((size_t)received < size && !(l->transport && l->failure[0])) return 1;
    }
    return 1;
}

/* --- closing -------------------------------------------------------------------------------- */

int link_is_ours(hub_link *l) {
    if (is_file(l->fd, l->file)) return 1;
    snprintf(l->failure, sizeof l->failure, "its descriptor was closed by another part of this program");
    return 0;
}

int link_close(hub_link *l, int half) {
    int fd = !l->transport && is_file(l->fd, l->file) ? l->fd : -1;
    l->fd = -1;
    l->transport = NULL;
    l->state = LINK_NONE;
    if (fd >= 0 && half) shutdown(fd, SHUT_WR);
    buffer_free(&l->out);
    buffer_free(&l->sending);
    buffer_free(&l->in);
    reply_restart(&l->scan);
    l->lagging_since = l->round_trip = 0;
    l->broken[0] = l->failure[0] = 0;
    for (int i = 0; i < l->verbs; i++) hub_template_free(l->dialect[i]);
    free(l->dialect);
    l->dialect = NULL;
    l->verbs = 0;
    return fd;
}

void link_clear(hub_link *l) {
    for (; l->pending_size; link_pop_pending(l)) hub_op_release(link_oldest_pending(l)->op);
    for (size_t i = 0; i < l->resend_size; i++) hub_op_release(l->resend_queue[i]);
    for (size_t i = 0; i < l->held_size; i++) hub_op_release(l->held[i].op);
    l->resend_size = l->held_size = 0;
    free(l->pending);
    free(l->resend_queue);
    free(l->held);
    l->pending = NULL;
    l->resend_queue = NULL;
    l->held = NULL;
    l->pending_capacity = l->resend_capacity = l->held_capacity = l->pending_head = 0;
}
