/* The whole hub, by one thread: random calls in random order, masters that say whatever they like. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/inside.h"
#include "fuzz.h"

#define MASTERS 3
#define TICKETS 16
#define VERBS 5 /* the last two watch */

typedef struct {
    hub_waiter waiter;
    hub_op *ops[4];
    size_t count;
    char used, waiting;
} ticket;

/* A connection that C cannot read by itself: moves few bytes, sometimes none, sometimes a handler raised. */
typedef struct {
    hub_transport transport;
    int fd;
    chance c;
} wire;

typedef struct {
    hub *h;
    wire wires[MASTERS];
    int peers[MASTERS]; /* the masters' ends, -1 without a connection */
    char attached[MASTERS];
    ticket tickets[TICKETS];
} world;

static ssize_t wired(wire *w, ssize_t moved) {
    if (below(&w->c, 100) == 0) return -EINTR;
    return moved < 0 ? -errno : moved;
}

static ssize_t wire_send(void *context, const char *data, size_t size) {
    wire *w = context;
    if (below(&w->c, 10) == 0) return -EAGAIN;
    return wired(w, send(w->fd, data, 1 + below(&w->c, size), MSG_NOSIGNAL));
}

static ssize_t wire_receive(void *context, char *data, size_t size) {
    wire *w = context;
    if (below(&w->c, 10) == 0) return -EAGAIN;
    return wired(w, recv(w->fd, data, 1 + below(&w->c, size), 0));
}

static hub_template *command(int slots, int fallback) {
    hub_template *t = hub_template_new(slots + 1);
    CHECK(t && hub_template_text(t, 0, "*2\r\n$3\r\nFOO\r\n", 13));
    for (int i = 0; i < slots; i++) t->part[i + 1].slot = i;
    t->args = slots;
    if (fallback) t->fallback = command(slots, 0);
    return t;
}

static hub_template *watching(int watch, chance *c) {
    hub_template *t = command(1, 0);
    t->part[1].slot = below(c, 2) ? 0 : ~0;
    t->skip = (int)below(c, 3);
    t->watch = watch;
    return t;
}

static void attach(world *w, chance *c, int master) {
    int ends[2];
    hub_link_state state;
    hub_describe(w->h, master, &state);
    if (state.attached || state.broken[0]) return;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFL, O_NONBLOCK);
    hub_template **dialect = malloc(VERBS * sizeof *dialect);
    for (int i = 0; i < VERBS; i++) dialect[i] = i < 3 ? command(i + 1, i == 1) : watching(i - 2, c);
    dialect[2]->undo = 1;
    if (below(c, 4) == 0) dialect[below(c, VERBS)]->reply = 1 + (int)below(c, 2);
    w->peers[master] = ends[1];
    if (below(c, 4)) {
        hub_attach(w->h, master, ends[0], NULL, dialect, VERBS, 0);
        return;
    }
    w->wires[master] = (wire){{wire_send, wire_receive, &w->wires[master]}, ends[0], {draw(c)}};
    hub_attach(w->h, master, ends[0], &w->wires[master].transport, dialect, VERBS, 0);
}

static void detach(world *w, int master) {
    int fd = hub_detach(w->h, master);
    if (fd >= 0) close(fd);
    if (w->wires[master].fd >= 0) close(w->wires[master].fd);
    w->wires[master].fd = -1;
    if (w->peers[master] >= 0) close(w->peers[master]);
    w->peers[master] = -1;
}

static void check_op(const hub_op *op) {
    int granted = 0, refused = 0, faulty = 0;
    for (int i = 0; i < MASTERS; i++) {
        granted += op->values[i] > 0;
        faulty += op->values[i] == HUB_FAULT;
        refused += op->values[i] <= 0 && op->values[i] > HUB_FAULT;
        CHECK(op->sent & BIT(i) || op->values[i] == HUB_FAULT);
    }
    CHECK(op->granted == granted && op->refused == refused && op->faulty == faulty);
    CHECK(!(op->sent & ~op->masters));
    for (hub_detail *d = op->details; d; d = d->next) CHECK(op->values[d->master] == HUB_FAULT);
}

/* Nobody waits for these requests any more. */
static void drop(ticket *t) {
    for (size_t i = 0; i < t->count; i++) {
        check_op(t->ops[i]);
        hub_op_release(t->ops[i]);
    }
    t->used = 0;
}

static void request(world *w, chance *c) {
    static const char text[256];
    ticket *t = NULL;
    for (int i = 0; i < TICKETS && !t; i++)
        if (!w->tickets[i].used) t = &w->tickets[i];
    if (!t) return;
    t->used = 1;
    t->count = 1 + below(c, 4);
    int need = (int)below(c, MASTERS + 1), blocking = below(c, 3) == 0;
    for (size_t i = 0; i < t->count; i++) {
        const char *data[4] = {text, text, text, text};
        size_t sizes[4] = {below(c, 256), below(c, 64), below(c, 8), 1};
        int verb = (int)below(c, VERBS + 1) - (below(c, 50) == 0), args = (int)below(c, 4) + 1;
        double keep = below(c, 3) ? 0 : 1e9;
        t->ops[i] = hub_op_new(w->h, verb, need, (int)below(c, 3), draw(c) & (BIT(MASTERS) - 1), keep, args, data, sizes);
        CHECK(t->ops[i]);
    }
    double timeout = blocking ? 0 : below(c, 4) ? 1e9 : 0, stall = below(c, 2) ? 0 : 1e9;
    if (blocking) {
        if (hub_exchange(w->h, &t->waiter, t->ops, t->count, timeout, 0) == HUB_SIGNALS) hub_leave(w->h, &t->waiter);
        drop(t);
        return;
    }
    t->waiting = need != 0;
    hub_submit(w->h, &t->waiter, t->ops, t->count, timeout, stall, need ? t : NULL);
    if (!need) drop(t);
}

static void on_ready(world *w) {
    for (hub_waiter *told = hub_on_ready(w->h), *next; told; told = next) {
        next = told->next;
        ticket *t = told->owner;
        CHECK(t->used && t->waiting && !told->undecided);
        drop(t);
    }
}

static void forget(world *w, ticket *t) {
    if (!t->used) return;
    hub_leave(w->h, &t->waiter);
    drop(t);
}

static const char *OTHER[] = {
    "-NOSCRIPT\r\n", ">1\r\n+x\r\n", ":-2\r\n", ":-1\r\n", ":9999\r\n",
    ">2\r\n$10\r\ninvalidate\r\n_\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$0\r\n\r\n",
    ">2\r\n$10\r\ninvalidate\r\n*3\r\n:1\r\n|1\r\n+a\r\n+b\r\n$1\r\nx\r\n$0\r\n\r\n",
};

/* A master speaks, in one piece or in two. */
static void speak(world *w, chance *c) {
    static stream s;
    int peer = w->peers[below(c, MASTERS)];
    if (peer < 0) return;
    if (below(c, 2)) {
        put_stream(&s, c);
    } else {
        s.size = 0;
        for (size_t replies = 1 + below(c, 6); replies; replies--)
            put_text(&s, below(c, 4) ? FIXED[below(c, 6)] : OTHER[below(c, 8)]);
    }
    size_t cut = below(c, s.size + 1);
    ssize_t sent = send(peer, s.data, cut, MSG_NOSIGNAL);
    if (below(c, 2)) on_ready(w);
    if (sent == (ssize_t)cut) sent = send(peer, s.data + cut, s.size - cut, MSG_NOSIGNAL);
    fuzz_inputs++;
}

static void listen_to(world *w, int master) {
    char bytes[4096];
    while (w->peers[master] >= 0 && recv(w->peers[master], bytes, sizeof bytes, 0) > 0) {
    }
}

static void step(world *w, chance *c) {
    int master = (int)below(c, MASTERS);
    switch (below(c, 20)) {
    case 0: attach(w, c, master); break;
    case 1: if (below(c, 4) == 0) detach(w, master); break;
    case 2: case 3: case 4: case 5: case 6: request(w, c); break;
    case 7: case 8: case 9: case 10: case 11: speak(w, c); break;
    case 12: case 13: on_ready(w); break;
    case 14: hub_tend(w->h); break;
    case 15: hub_flush(w->h); break;
    case 16: listen_to(w, master); break;
    case 17: forget(w, &w->tickets[below(c, TICKETS)]); break;
    case 18:
        if (below(c, 8) == 0 && w->peers[master] >= 0) shutdown(w->peers[master], below(c, 2) ? SHUT_WR : SHUT_RDWR);
        break;
    case 19:
        CHECK(hub_watch(w->h) >= 0);
        hub_due(w->h);
        hub_drain(w->h, 0);
        break;
    }
}

static void one(chance *c) {
    world w = {.h = hub_new(MASTERS, 1 + below(c, 80), 256 + below(c, 4096), below(c, 20), below(c, 2) ? 0 : 1e9, 0)};
    CHECK(w.h);
    for (int i = 0; i < MASTERS; i++) {
        w.peers[i] = w.wires[i].fd = -1;
        if (below(c, 5)) attach(&w, c, i);
    }
    for (size_t steps = 20 + below(c, 200); steps; steps--) step(&w, c);
    for (int i = 0; i < TICKETS; i++) forget(&w, &w.tickets[i]);
    if (below(c, 4) == 0) hub_abandon(w.h);
    for (int i = 0; i < MASTERS; i++) detach(&w, i);
    hub_free(w.h);
}

int main(int count, char **words) { return fuzz(count, words, one); }
