/* Fuzzes the whole hub from one thread: calls in any order, masters that send any bytes, allocations that fail, a
 * clock that jumps, forks. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"

#include "../src/hub_internal.h"

#define MASTERS 3
#define MOST_MASTERS 4 /* after hub_grow */
/* Seconds: longer than a case takes, and much shorter than the jump at its end. */
#define LONG 1e6
/* Maximum number of bytes searched or moved, per byte sent or received and per call. */
#define WORK_PER_BYTE 3
#define WORK_PER_CALL (4u << 10)
#define TICKETS 16
#define VERBS 5 /* the last two watch */

typedef struct {
    hub_waiter waiter;
    hub_op *ops[4];
    size_t count;
    char used, waiting;
} ticket;

/* A transport that moves few bytes or none; sometimes a signal handler raises in it. */
typedef struct {
    hub_transport transport;
    struct world *world;
    int fd;
    chance c;
} wire;

typedef struct world {
    hub *h;
    char forked;
    uint64_t traffic; /* bytes of all requests and replies */
    uint64_t spoken[MOST_MASTERS];
    size_t calls;
    wire wires[MOST_MASTERS];
    int peers[MOST_MASTERS]; /* the masters' ends, -1 without a connection */
    char attached[MOST_MASTERS];
    ticket tickets[TICKETS];
} world;

/* In a child: a signal handler forked while a transport moved bytes. The child leaks the leader's buffers. */
static void fork_inside(world *w) {
    char *leaked[2 * MOST_MASTERS];
    for (int i = 0; i < MOST_MASTERS; i++) {
        leaked[2 * i] = w->h->lead.taken ? w->h->links[i].sending.data : NULL;
        leaked[2 * i + 1] = w->h->lead.taken ? w->h->links[i].in.data : NULL;
    }
    hub_after_fork_in_child(w->h);
    for (int i = 0; i < 2 * MOST_MASTERS; i++) free(leaked[i]);
    w->forked = 1;
}

static ssize_t wired(wire *w, ssize_t moved) {
    if (below(&w->c, 100) == 0) return -EINTR;
    if (below(&w->c, 200) == 0) fork_inside(w->world);
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
    if (!t || !hub_template_text(t, 0, "*2\r\n$3\r\nFOO\r\n", 13) || (fallback && !(t->fallback = command(slots, 0)))) {
        hub_template_free(t);
        return NULL;
    }
    for (int i = 0; i < slots; i++) t->part[i + 1].slot = i;
    t->args = slots;
    return t;
}

static hub_template *watching(int watch, chance *c) {
    hub_template *t = command(1, 0);
    if (!t) return NULL;
    t->part[1].slot = below(c, 2) ? 0 : ~0;
    t->leading_replies = (int)below(c, 3);
    t->watch = watch;
    return t;
}

/* NULL without memory. */
static hub_template **dialect_of(chance *c) {
    hub_template **dialect = calloc(VERBS, sizeof *dialect);
    int made = 0;
    for (; dialect && made < VERBS; made++)
        if (!(dialect[made] = made < 3 ? command(made + 1, made == 1) : watching(made - 2, c))) break;
    if (made < VERBS) {
        while (made--) hub_template_free(dialect[made]);
        free(dialect);
        return NULL;
    }
    dialect[2]->rollback_verb = 1;
    if (below(c, 4) == 0) dialect[below(c, VERBS)]->reply = 1 + (int)below(c, 2);
    return dialect;
}

static void attach(world *w, chance *c, int master) {
    int ends[2];
    hub_connection_state state;
    hub_get_connection_state(w->h, master, &state);
    if (state.attached || state.broken[0]) return;
    hub_template **dialect = dialect_of(c);
    if (!dialect) return;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    for (int i = 0; i < 2; i++) fcntl(ends[i], F_SETFL, O_NONBLOCK);
    w->peers[master] = ends[1];
    if (below(c, 4)) {
        hub_attach(w->h, master, ends[0], NULL, dialect, VERBS, 0);
        return;
    }
    w->wires[master] = (wire){{wire_send, wire_receive, &w->wires[master]}, w, ends[0], {.state = draw(c)}};
    hub_attach(w->h, master, ends[0], &w->wires[master].transport, dialect, VERBS, 0);
}

static void hang_up(world *w, int master, int fd) {
    if (fd >= 0) close(fd);
    if (w->wires[master].fd >= 0) close(w->wires[master].fd);
    w->wires[master].fd = -1;
    if (w->peers[master] >= 0) close(w->peers[master]);
    w->peers[master] = -1;
}

/* Adds the last master, and attaches it. */
static void grow(world *w, chance *c) {
    hub_grow(w->h, MOST_MASTERS);
    hub_grow(w->h, MASTERS);
    CHECK(hub_masters(w->h) == MOST_MASTERS);
    attach(w, c, MOST_MASTERS - 1);
}

/* One byte of an input, whether the hub has grown or not. */
static int any_master(world *w, chance *c) {
    size_t drawn = below(c, 256);
    return hub_masters(w->h) > MASTERS && drawn >= 192 ? MASTERS : (int)(drawn % MASTERS);
}

static void detach(world *w, int master) { hang_up(w, master, hub_detach(w->h, master)); }

static void check_op(const hub_op *op) {
    int granted = 0, refused = 0, faulty = 0;
    for (int i = 0; i < op->master_count; i++) {
        granted += op->values[i] > 0;
        faulty += op->values[i] == HUB_FAULT;
        refused += op->values[i] <= 0 && op->values[i] > HUB_FAULT;
        CHECK(op->sent & BIT(i) || op->values[i] == HUB_FAULT);
    }
    CHECK(op->granted == granted && op->refused == refused && op->faulty == faulty);
    int enough = op->quorum.lists || granted >= op->quorum.need;
    for (int list = 0; list < op->quorum.lists; list++) {
        int of_list = 0;
        for (int i = 0; i < op->master_count; i++) of_list += op->values[i] > 0 && op->quorum.list[list].masters & BIT(i);
        enough &= of_list >= op->quorum.list[list].need;
    }
    CHECK(hub_has_quorum(op) == enough);
    CHECK(!(op->sent & ~op->masters));
    for (hub_detail *d = op->details; d; d = d->next) CHECK(op->values[d->master] == HUB_FAULT);
}

/* Checks and frees the requests of a ticket for which no caller waits. */
static void drop(ticket *t) {
    for (size_t i = 0; i < t->count; i++) {
        check_op(t->ops[i]);
        hub_op_release(t->ops[i]);
    }
    t->used = 0;
}

/* 0 without memory. */
static int make_ops(world *w, chance *c, ticket *t, const hub_quorum *quorum) {
    static const char text[256];
    size_t count = 1 + below(c, 4);
    for (t->count = 0; t->count < count; t->count++) {
        const char *data[4] = {text, text, text, text};
        size_t sizes[4] = {below(c, 256), below(c, 64), below(c, 8), 1};
        int verb = (int)below(c, VERBS + 1) - (below(c, 50) == 0), args = (int)below(c, 4) + 1;
        double resend_for = below(c, 3) ? 0 : below(c, 2) ? 1 : 1e9;
        uint64_t masters = below(c, 1 << MOST_MASTERS);
        hub_op *op = hub_op_new(w->h, verb, quorum, (int)below(c, 3), masters, resend_for, args, data, sizes);
        if (!op) {
            while (t->count) hub_op_release(t->ops[--t->count]);
            return 0;
        }
        t->ops[t->count] = op;
        w->traffic += 512 * MOST_MASTERS;
    }
    return 1;
}

/* A number of masters, or one or two lists; a list may have masters that the hub does not have. */
static hub_quorum any_quorum(chance *c) {
    hub_quorum quorum = {0};
    size_t kind = below(c, 256), lists = kind < 192 ? 0 : 1 + kind % HUB_MAX_LISTS;
    if (!lists) quorum.need = (int)(kind % (MASTERS + 1));
    while (lists--) {
        uint64_t masters = 1 + below(c, (1 << (MOST_MASTERS + 1)) - 1);
        hub_quorum_add(&quorum, masters, 1 + (int)below(c, (size_t)__builtin_popcountll(masters)));
    }
    return quorum;
}

static void request(world *w, chance *c) {
    static const double times[] = {0, 0.001, 1, LONG};
    ticket *t = NULL;
    for (int i = 0; i < TICKETS && !t; i++)
        if (!w->tickets[i].used) t = &w->tickets[i];
    hub_quorum quorum = any_quorum(c);
    int blocking = below(c, 3) == 0;
    if (!t || !make_ops(w, c, t, &quorum)) return;
    t->used = 1;
    double timeout = times[below(c, 4)], stall = times[below(c, 4)];
    if (blocking) {
        enum hub_state state = hub_exchange(w->h, &t->waiter, t->ops, t->count, timeout, stall);
        while (state == HUB_SIGNALS && below(c, 8)) state = hub_wait(w->h, &t->waiter);
        if (state == HUB_SIGNALS) hub_leave(w->h, &t->waiter);
        else CHECK(!t->waiter.undecided);
        drop(t);
        return;
    }
    t->waiting = quorum.need != 0;
    hub_submit(w->h, &t->waiter, t->ops, t->count, timeout, stall, t->waiting ? t : NULL);
    if (!t->waiting) drop(t);
}

/* Collects decided tickets. Afterwards no ticket is left with a deadline that had passed before. */
static void on_ready(world *w) {
    int64_t now = system_state.now;
    for (hub_waiter *decided = hub_on_ready(w->h), *next; decided; decided = next) {
        next = decided->next;
        ticket *t = decided->owner;
        CHECK(t->used && t->waiting && !decided->undecided);
        drop(t);
    }
    for (int i = 0; i < TICKETS && !w->forked; i++) {
        const hub_waiter *left = &w->tickets[i].waiter;
        CHECK(!w->tickets[i].used || (left->subscribed ? left->limit : left->deadline) > now);
    }
}

static void forget(world *w, ticket *t) {
    if (!t->used) return;
    hub_leave(w->h, &t->waiter);
    drop(t);
}

static const char *OTHER[] = {
    "-NOSCRIPT\r\n", "-NOSCRIPT x\r\n", "-OOM x\r\n", "-READONLY\r\n", "-ERR Error running script (f): -LOADING x\r\n",
    ">1\r\n+x\r\n", ":-2\r\n", ":-1\r\n", ":9999\r\n",
    ">2\r\n$10\r\ninvalidate\r\n_\r\n", ">2\r\n$10\r\ninvalidate\r\n*1\r\n$0\r\n\r\n",
    ">2\r\n$10\r\ninvalidate\r\n*3\r\n:1\r\n|1\r\n+a\r\n+b\r\n$1\r\nx\r\n$0\r\n\r\n",
};

static void say(world *w, int master, const char *data, size_t size) {
    ssize_t sent = send(w->peers[master], data, size, MSG_NOSIGNAL);
    if (sent < 0) return;
    w->spoken[master] += (size_t)sent;
    w->traffic += (size_t)sent;
}

/* Any bytes that a master can send. */
static void put_speech(stream *s, chance *c) {
    uint64_t work = system_state.work; /* this is the fuzzer's own */
    size_t kind = below(c, 4);
    s->size = 0;
    if (kind == 0) {
        put_stream(s, c);
    } else if (kind == 1) {
        for (size_t size = below(c, 256); size; size--) put(s, &(char){(char)below(c, 256)}, 1);
    } else {
        for (size_t replies = 1 + below(c, 6); replies; replies--)
            put_text(s, below(c, 4) ? FIXED[below(c, 6)] : OTHER[below(c, sizeof OTHER / sizeof *OTHER)]);
    }
    system_state.work = work;
}

/* A master sends bytes, in one piece or in two. */
static void speak(world *w, chance *c) {
    static stream s;
    int master = any_master(w, c);
    if (w->peers[master] < 0) return;
    put_speech(&s, c);
    size_t cut = below(c, s.size + 1);
    say(w, master, s.data, cut);
    if (below(c, 2)) on_ready(w);
    if (w->peers[master] >= 0) say(w, master, s.data + cut, s.size - cut);
    fuzz_inputs++;
}

static void listen_to(world *w, int master) {
    char bytes[4096];
    while (w->peers[master] >= 0 && recv(w->peers[master], bytes, sizeof bytes, 0) > 0) {
    }
}

/* In a child of fork: all tickets and connections belonged to the parent. */
static void start_anew(world *w) {
    for (int i = 0; i < TICKETS; i++) forget(w, &w->tickets[i]);
    for (int i = 0; i < hub_masters(w->h); i++) detach(w, i);
    w->forked = 0;
}

/* The number of bytes read and moved is linear in the traffic. */
static void check_work(world *w) {
    hub_connection_state state;
    for (int i = 0; i < hub_masters(w->h); i++) {
        hub_get_connection_state(w->h, i, &state);
        CHECK(w->forked || state.scanned <= 2 * w->spoken[i]);
    }
    CHECK(system_state.work <= WORK_PER_BYTE * w->traffic + WORK_PER_CALL * w->calls);
}

static void step(world *w, chance *c) {
    int master = any_master(w, c);
    size_t drawn = below(c, 256);
    if (drawn >= 240 && below(c, 2)) grow(w, c);
    switch (drawn % 24) {
    case 0: attach(w, c, master); break;
    case 1: if (below(c, 4) == 0) detach(w, master); break;
    case 2: case 3: case 4: case 5: case 6: request(w, c); break;
    case 7: case 8: case 9: case 10: case 11: speak(w, c); break;
    case 12: case 13: on_ready(w); break;
    case 14: hub_maintain(w->h); break;
    case 15: hub_flush(w->h); break;
    case 16: listen_to(w, master); break;
    case 17: forget(w, &w->tickets[below(c, TICKETS)]); break;
    case 18:
        if (below(c, 8) == 0 && w->peers[master] >= 0) shutdown(w->peers[master], below(c, 2) ? SHUT_WR : SHUT_RDWR);
        break;
    case 19:
        hub_loop_fd(w->h);
        hub_next_timeout(w->h);
        hub_drain(w->h, below(c, 2));
        break;
    case 20: case 21: system_state.now += (int64_t)below(c, 256) << below(c, 30); break;
    case 22:
        system_state.allocations = below(c, 16);
        system_state.failures = 1 + below(c, 4);
        break;
    case 23:
        if (below(c, 8)) break;
        hub_after_fork_in_child(w->h);
        w->forked = 1;
    }
    w->calls++;
    check_work(w);
    if (w->forked) start_anew(w);
}

/* Without connections, or after their time, all requests are decided. A time that ends late goes on once. */
static void end_all(world *w, chance *c) {
    size_t way = below(c, 3);
    int fds[HUB_MAX_MASTERS];
    if (way == 0) {
        system_state.now += (int64_t)(2 * LONG) * SECOND;
        on_ready(w);
        system_state.now += (int64_t)(2 * LONG) * SECOND;
    } else if (way == 1) {
        for (int i = 0; i < hub_masters(w->h); i++) detach(w, i);
    } else {
        int closed = hub_close(w->h, fds);
        for (int i = 0; i < closed; i++) hang_up(w, i, fds[i]);
    }
    on_ready(w);
    for (int i = 0; i < TICKETS && !w->forked; i++) CHECK(!w->tickets[i].used);
}

static int lowest_free_fd(void) {
    int fd = open("/dev/null", O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
    return fd;
}

static void one(chance *c) {
    int fd = lowest_free_fd();
    system_state = (fuzz_system){.now = SECOND};
    if (below(c, 8) == 0) system_state.failures = 1, system_state.allocations = below(c, 8);
    world w = {.h = hub_new(MASTERS, 1 + below(c, 80), 256 + below(c, 4096), below(c, 20), below(c, 2) ? 0 : 1e9, 0)};
    if (!w.h) return;
    for (int i = 0; i < MOST_MASTERS; i++) w.peers[i] = w.wires[i].fd = -1;
    for (int i = 0; i < MASTERS; i++)
        if (below(c, 5)) attach(&w, c, i);
    for (size_t steps = c->input ? 500 : 20 + below(c, 200); steps && (!c->input || c->left); steps--) step(&w, c);
    if (below(c, 4)) end_all(&w, c);
    for (int i = 0; i < TICKETS; i++) forget(&w, &w.tickets[i]);
    if (below(c, 4) == 0) hub_after_fork_in_child(w.h);
    for (int i = 0; i < hub_masters(w.h); i++) detach(&w, i);
    hub_free(w.h);
    CHECK(lowest_free_fd() == fd);
}

static void one_input(const char *data, size_t size) {
    one(&(chance){.input = (const unsigned char *)data, .left = size});
}
