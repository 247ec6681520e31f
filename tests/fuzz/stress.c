/* Threads that share one hub: callers, a loop, who attaches and detaches, masters that answer in their time.
 * For the thread sanitizer: it sees C, where it cannot see what Python's GIL orders. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../src/inside.h"

#define MASTERS 3
#define CALLERS 12
#define CHECK(condition) \
    do if (!(condition)) { fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); abort(); } while (0)

static hub *h;
static int ending;
static unsigned long long exchanges, told, attached;

static int done(void) { return __atomic_load_n(&ending, __ATOMIC_RELAXED); }

static hub_template *command(void) {
    hub_template *t = hub_template_new(2);
    CHECK(t && hub_template_text(t, 0, "*1\r\n", 4));
    t->part[1].slot = 0;
    t->args = 1;
    return t;
}

/* One connection's master: an OK for each request; some it keeps for a moment, some it does not survive. */
static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    unsigned seed = (unsigned)fd, stars;
    char in[4096], out[5 * sizeof in];
    for (ssize_t got; (got = recv(fd, in, sizeof in, 0)) > 0;) {
        stars = 0;
        for (ssize_t i = 0; i < got; i++) stars += in[i] == '*';
        if (rand_r(&seed) % 50 == 0) usleep(2000);
        if (rand_r(&seed) % 500 == 0) break;
        for (unsigned i = 0; i < stars; i++) memcpy(out + 5 * i, "+OK\r\n", 5);
        if (send(fd, out, 5 * stars, MSG_NOSIGNAL) < 0) break;
    }
    close(fd);
    return NULL;
}

static void attach(int master) {
    int ends[2];
    pthread_t thread;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    CHECK(!pthread_create(&thread, NULL, serve, (void *)(intptr_t)ends[1]));
    pthread_detach(thread);
    hub_template **dialect = malloc(2 * sizeof *dialect);
    dialect[0] = command();
    dialect[1] = command();
    dialect[0]->undo = 1;
    hub_attach(h, master, ends[0], NULL, dialect, 2, 0);
    attached++;
}

static hub_op *request(unsigned *seed, int need, double keep) {
    const char *data[] = {"some key"};
    size_t sizes[] = {8};
    hub_op *op = hub_op_new(h, (int)(rand_r(seed) % 2), need, (int)(rand_r(seed) % 3), BIT(MASTERS) - 1, keep, 1, data, sizes);
    CHECK(op);
    return op;
}

static void *call(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    unsigned long long count = 0;
    while (!done()) {
        hub_waiter w;
        hub_op *ops[3];
        size_t n = 1 + rand_r(&seed) % 3;
        int need = rand_r(&seed) % 5 ? 2 : 0;
        for (size_t i = 0; i < n; i++) ops[i] = request(&seed, need, rand_r(&seed) % 2 ? 1.0 : 0.0);
        enum hub_state state = hub_exchange(h, &w, ops, n, 0.02, rand_r(&seed) % 2 ? 0.005 : 0);
        while (state == HUB_SIGNALS) {
            if (rand_r(&seed) % 4 == 0) {
                hub_leave(h, &w);
                break;
            }
            state = hub_wait(h, &w);
        }
        for (size_t i = 0; i < n; i++) {
            CHECK(ops[i]->granted <= MASTERS);
            hub_op_release(ops[i]);
        }
        count++;
    }
    __atomic_add_fetch(&exchanges, count, __ATOMIC_RELAXED);
    return NULL;
}

typedef struct {
    hub_waiter waiter;
    hub_op *op;
    char used;
} ticket;

static void collect(void) {
    for (hub_waiter *w = hub_on_ready(h), *next; w; w = next) {
        next = w->next;
        ticket *t = w->owner;
        hub_op_release(t->op);
        t->used = 0;
        told++;
    }
}

static void *loop(void *argument) {
    ticket tickets[16] = {0};
    unsigned seed = (unsigned)(intptr_t)argument;
    struct pollfd fd = {hub_watch(h), POLLIN, 0};
    CHECK(fd.fd >= 0);
    while (!done()) {
        for (int i = 0; i < 16; i++) {
            ticket *t = &tickets[i];
            if (t->used && rand_r(&seed) % 64 == 0) {
                hub_leave(h, &t->waiter);
                hub_op_release(t->op);
                t->used = 0;
            }
            if (t->used || rand_r(&seed) % 2) continue;
            t->used = 1;
            t->op = request(&seed, 2, 0);
            hub_submit(h, &t->waiter, &t->op, 1, 0.02, 0, t);
        }
        hub_flush(h);
        int64_t due = hub_due(h);
        poll(&fd, 1, due < 0 ? 5 : (int)(due / MS) + 1);
        collect();
    }
    hub_unwatch(h);
    for (int i = 0; i < 16; i++)
        if (tickets[i].used) hub_op_release(tickets[i].op);
    return NULL;
}

/* What the connector does: looks, replaces what broke, and now and then what did not. */
static void *connect_all(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    while (!done()) {
        int master = (int)(rand_r(&seed) % MASTERS);
        hub_link_state state;
        hub_tend(h);
        hub_describe(h, master, &state);
        if (!state.attached || rand_r(&seed) % 100 == 0) {
            int fd = hub_detach(h, master);
            if (fd >= 0) close(fd);
            attach(master);
        }
        hub_breaks(h);
        if (rand_r(&seed) % 20 == 0) hub_drain(h, 0.001);
        if (rand_r(&seed) % 50 == 0) hub_dismiss(h);
        usleep(1000);
    }
    return NULL;
}

static void session(unsigned seed, double seconds, int parallel) {
    pthread_t threads[CALLERS + 2];
    h = hub_new(MASTERS, 1000, 1 << 20, 100, 0.05, parallel);
    CHECK(h);
    ending = 0;
    for (int i = 0; i < MASTERS; i++) attach(i);
    for (int i = 0; i < CALLERS + 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, i < CALLERS ? call : i == CALLERS ? loop : connect_all,
                              (void *)(intptr_t)(seed + (unsigned)i)));
    usleep((useconds_t)(seconds * 1e6));
    __atomic_store_n(&ending, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < CALLERS + 2; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < MASTERS; i++) {
        int fd = hub_detach(h, i);
        if (fd >= 0) close(fd);
    }
    hub_free(h);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    unsigned seed = (unsigned)strtoul(words[1], NULL, 10);
    double seconds = atof(words[2]);
    for (int parallel = 0; parallel < 2; parallel++) session(seed + 1000u * (unsigned)parallel, seconds / 2, parallel);
    printf("%llu exchanges, %llu told to the loop, %llu connections\n", exchanges, told, attached);
    return 0;
}
