#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: hub_attach sets SO_NOSIGPIPE */
#endif

/* Room for a whole TLS record: then the TLS layer keeps none of it, and poll shows what else there is. */
#define RECEIVE_SIZE (16u << 10)
/* A master that sends without end must not keep the leader, nor fill the memory. */
#define RECEIVE_MOST (256u << 10)

/* --- owed replies ------------------------------------------------------------------------ */

link_slot *link_oldest(hub_link *l) { return l->ring_size ? &l->ring[l->ring_head] : NULL; }

void link_pop(hub_link *l) {
    l->ring_head = (l->ring_head + 1) & (l->ring_capacity - 1);
    l->ring_size--;
    l->asked -= l->asked > 0;
}

static int grow_ring(hub_link *l) {
    size_t capacity = l->ring_capacity ? l->ring_capacity * 2 : 64;
    link_slot *ring = malloc(capacity * sizeof *ring);
    if (!ring) return 0;
    for (size_t i = 0; i < l->ring_size; i++)
        ring[i] = l->ring[(l->ring_head + i) & (l->ring_capacity - 1)];
    free(l->ring);
    l->ring = ring;
    l->ring_head = 0;
    l->ring_capacity = capacity;
    return 1;
}

int link_owe(hub_link *l, const hub_template *t, hub_op *op, int64_t sent, enum link_turn turn) {
    size_t replies = (size_t)t->skip + 1;
    while (l->ring_capacity - l->ring_size < replies)
        if (!grow_ring(l)) return 0;
    for (size_t i = 1; i <= replies; i++) {
        size_t at = (l->ring_head + l->ring_size++) & (l->ring_capacity - 1);
        l->ring[at] = (link_slot){op, sent, i < replies ? SKIPPED : turn};
    }
    __atomic_add_fetch(&op->references, (int)replies, __ATOMIC_RELAXED);
    return 1;
}

/* --- encoding ---------------------------------------------------------------------------- */

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

/* --- kept requests ----------------------------------------------------------------------- */

static void forget_expired(hub_link *l, int64_t now) {
    if (now < l->purge_at) return; /* or a full queue would be looked through for each that is refused */
    size_t stay = 0;
    l->purge_at = INT64_MAX;
    for (size_t i = 0; i < l->kept_size; i++) {
        hub_op *op = l->kept[i];
        if (op->until > now) {
            l->kept[stay++] = op;
            if (op->until < l->purge_at) l->purge_at = op->until;
        } else {
            hub_op_release(op);
        }
    }
    l->kept_size = stay;
}

void link_keep(hub_link *l, hub_op *op, int64_t now, size_t bound) {
    if (op->until <= now) return;
    if (l->kept_size == l->kept_capacity || l->kept_size >= bound) forget_expired(l, now);
    if (l->kept_size == l->kept_capacity && l->kept_size < bound) {
        size_t capacity = l->kept_capacity ? l->kept_capacity * 2 : 16;
        hub_op **kept = realloc(l->kept, capacity * sizeof *kept);
        if (kept) {
            l->kept = kept;
            l->kept_capacity = capacity;
        }
    }
    if (l->kept_size >= bound || l->kept_size == l->kept_capacity) {
        l->dropped++;
        return;
    }
    __atomic_add_fetch(&op->references, 1, __ATOMIC_RELAXED);
    l->kept[l->kept_size++] = op;
    if (op->until < l->purge_at) l->purge_at = op->until;
}

/* --- bytes ------------------------------------------------------------------------------- */

static ssize_t move(hub_link *l, int sending, char *data, size_t size) {
    ssize_t moved;
    if (l->transport) {
        const hub_transport *t = l->transport;
        l->mover = pthread_self();
        __atomic_store_n(&l->moving, 1, __ATOMIC_RELEASE);
        moved = sending ? t->send(t->context, data, size) : t->receive(t->context, data, size);
        l->moving = 0;
        return moved;
    }
    do moved = sending ? send(l->fd, data, size, MSG_NOSIGNAL) : recv(l->fd, data, size, 0);
    while (moved < 0 && errno == EINTR);
    return moved < 0 ? -errno : moved;
}

/* While a transport moved bytes, a signal handler forked, and this is the child. */
static int abandoned(const hub_link *l) { return l->fd < 0; }
/* strerror() has one text for all threads. strerror_r() gives its text back in glibc, a number elsewhere. */
static void say_error(char *text, size_t size, int error) {
#ifdef __GLIBC__
    char room[128];
    snprintf(text, size, "%s", strerror_r(error, room, sizeof room));
#else
    if (strerror_r(error, text, size)) snprintf(text, size, "error %d", error);
#endif
}

static int failed(hub_link *l, ssize_t error) {
    if (error == -EINTR) {
        snprintf(l->failure, sizeof l->failure, "interrupted by a signal handler");
        return 0;
    }
    if (error == -EAGAIN || error == -EWOULDBLOCK) return 1;
    say_error(l->failure, sizeof l->failure, (int)-error);
    return 1;
}

int link_send(hub_link *l) {
    l->blocked = 0;
    while (buffer_size(&l->flight)) {
        ssize_t sent = move(l, 1, buffer_front(&l->flight), buffer_size(&l->flight));
        if (abandoned(l)) return 0;
        if (sent < 0) {
            l->blocked = 1;
            return failed(l, sent);
        }
        buffer_take(&l->flight, (size_t)sent);
    }
    return 1;
}

int link_receive(hub_link *l) {
    for (size_t all = 0; all < RECEIVE_MOST;) {
        char *room = buffer_room(&l->in, RECEIVE_SIZE);
        size_t size = room ? l->in.capacity - l->in.tail : 0;
        ssize_t received = room ? move(l, 0, room, size) : -ENOMEM;
        if (abandoned(l)) return 0;
        if (received < 0) return failed(l, received);
        if (!received) {
            snprintf(l->failure, sizeof l->failure, "connection closed by the master");
            return 1;
        }
        l->in.tail += (size_t)received;
        l->received = 1;
        all += (size_t)received;
        /* A TLS record may be short of more that is there: ask until there is none. */
        if ((size_t)received < size && !l->transport) return 1;
    }
    return 1;
}

/* --- the end ----------------------------------------------------------------------------- */

int link_close(hub_link *l, int half) {
    int fd = l->transport ? -1 : l->fd;
    l->fd = -1;
    l->transport = NULL;
    l->state = LINK_NONE;
    if (fd >= 0 && half) shutdown(fd, SHUT_WR);
    buffer_free(&l->out);
    buffer_free(&l->flight);
    buffer_free(&l->in);
    reply_renew(&l->scan);
    l->lagging_since = l->round_trip = 0;
    l->broken[0] = l->failure[0] = 0;
    for (int i = 0; i < l->verbs; i++) hub_template_free(l->dialect[i]);
    free(l->dialect);
    l->dialect = NULL;
    l->verbs = 0;
    return fd;
}

void link_clear(hub_link *l) {
    for (; l->ring_size; link_pop(l)) hub_op_release(link_oldest(l)->op);
    for (size_t i = 0; i < l->kept_size; i++) hub_op_release(l->kept[i]);
    l->kept_size = 0;
    free(l->ring);
    free(l->kept);
    l->ring = NULL;
    l->kept = NULL;
    l->ring_capacity = l->kept_capacity = l->ring_head = 0;
}
