/* Threads that share one hub: callers, an event loop, a connector, and masters that answer with delays. For the thread
 * sanitizer, which sees only C: it does not know the order that Python's GIL imposes. A build without the sanitizer
 * also forks children, one after the other, which use their copy of the hub. With the sanitizer such a child may wait
 * for ever for one of the sanitizer's own mutexes, which another thread held at the fork. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../src/hub_internal.h"

#define MASTERS 3 /* after hub_grow; one less at first */
#define CALLERS 12
#ifdef __SANITIZE_THREAD__
#define OTHERS 2
#else
#define OTHERS 3
#endif
#define VERBS 4 /* the last two watch: a key, a prefix */
#define CHECK(condition) \
    do if (!(condition)) { fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); abort(); } while (0)

static hub *h;
static int ending;
static unsigned long long exchanges, collected, attached, forks;

static int done(void) { return __atomic_load_n(&ending, __ATOMIC_RELAXED); }

static hub_template *command(int watch) {
    hub_template *t = hub_template_new(2);
    static const char *heads[] = {"*1\r\n", "*3\r\n", "*2\r\n"}; /* WATCH_KEY has a reply to skip */
    CHECK(t && hub_template_text(t, 0, heads[watch], 4));
    t->part[1].slot = watch == WATCH_PREFIX ? ~0 : 0;
    t->args = 1;
    t->watch = watch;
    t->leading_replies = watch == WATCH_KEY;
    return t;
}

/* Returns the reply to a command that begins with a star and this digit. */
static const char *reply_to(char digit, unsigned *seed) {
    static const char *pttl[] = {":-1\r\n", ":-2\r\n", ":1\r\n", ":9000\r\n"};
    static const char *pushes[] = {">2\r\n$10\r\ninvalidate\r\n_\r\n",
                                   ">2\r\n$10\r\ninvalidate\r\n*2\r\n$1\r\nx\r\n$8\r\nsome key\r\n"};
    static _Thread_local char text[128];
    const char *push = rand_r(seed) % 8 ? "" : pushes[rand_r(seed) % 2];
    if (digit == '1') return "+OK\r\n";
    const char *skipped = digit == '3' ? "-ERR\r\n" : "", *before = rand_r(seed) % 2 ? push : "";
    snprintf(text, sizeof text, "%s%s%s%s", skipped, before, pttl[rand_r(seed) % 4], push);
    return text;
}

/* The master of one connection: it replies to each request, sometimes late; sometimes it closes the connection. */
static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument;
    unsigned seed = (unsigned)fd;
    char in[4096], out[64 * sizeof in], star = 0;
    for (ssize_t got; (got = recv(fd, in, sizeof in, 0)) > 0;) {
        size_t size = 0;
        if (rand_r(&seed) % 50 == 0) usleep(2000);
        if (rand_r(&seed) % 500 == 0) break;
        for (ssize_t i = 0; i < got; i++) {
            if (star) {
                const char *reply = reply_to(in[i], &seed);
                memcpy(out + size, reply, strlen(reply));
                size += strlen(reply);
            }
            star = in[i] == '*';
        }
        if (send(fd, out, size, MSG_NOSIGNAL) < 0) break;
    }
    close(fd);
    return NULL;
}

static hub_template **dialect(void) {
    hub_template **templates = malloc(VERBS * sizeof *templates);
    CHECK(templates);
    for (int i = 0; i < VERBS; i++) templates[i] = command(i < 2 ? 0 : i - 1);
    templates[0]->rollback_verb = 1;
    return templates;
}

/* Attaches a new connection. Returns the master's end of it. */
static int connected(int master) {
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    hub_attach(h, master, ends[0], NULL, dialect(), VERBS, 0);
    return ends[1];
}

static void attach(int master) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, serve, (void *)(intptr_t)connected(master)));
    pthread_detach(thread);
    attached++;
}

static hub_op *request(unsigned *seed, int verb, int need, double resend_for) {
    const char *data[] = {"some key"};
    size_t sizes[] = {8};
    hub_quorum quorum = {.need = need};
    if (need == 2 && rand_r(seed) % 2) { /* of two lists */
        quorum.need = 0;
        hub_quorum_add(&quorum, BIT(MASTERS) - 2, 2);
        hub_quorum_add(&quorum, BIT(MASTERS) - 1, 2);
    }
    hub_op *op = hub_op_new(h, verb, &quorum, (int)(rand_r(seed) % 3), BIT(MASTERS) - 1, resend_for, 1, data, sizes);
    CHECK(op);
    return op;
}

static void *call(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    unsigned long long count = 0;
    unsigned watches = seed % 3; /* never, now and then, always */
    while (!done()) {
        hub_waiter w;
        hub_op *ops[3];
        size_t n = 1 + rand_r(&seed) % 3;
        int need = rand_r(&seed) % 5 ? 2 : 0, kinds = watches ? VERBS : 2;
        for (size_t i = 0; i < n; i++) {
            int verb = (int)(rand_r(&seed) % (unsigned)kinds);
            ops[i] = request(&seed, watches == 2 ? 2 + verb % 2 : verb, need, rand_r(&seed) % 2 ? 1.0 : 0.0);
        }
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
        collected++;
    }
}

static void *loop(void *argument) {
    ticket tickets[16] = {0};
    unsigned seed = (unsigned)(intptr_t)argument;
    struct pollfd fd = {hub_loop_fd(h), POLLIN, 0};
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
            t->op = request(&seed, (int)(rand_r(&seed) % VERBS), 2, 0);
            hub_submit(h, &t->waiter, &t->op, 1, 0.02, 0, t);
        }
        hub_flush(h);
        int64_t due = hub_next_timeout(h);
        poll(&fd, 1, due < 0 ? 5 : (int)(due / MS) + 1);
        collect();
    }
    hub_close_loop_fd(h);
    for (int i = 0; i < 16; i++)
        if (tickets[i].used) hub_op_release(tickets[i].op);
    return NULL;
}

/* The connector: it maintains the hub, and replaces broken connections, sometimes others as well. */
static void *connect_all(void *argument) {
    unsigned seed = (unsigned)(intptr_t)argument;
    while (!done()) {
        hub_connection_state state;
        hub_maintain(h);
        if (rand_r(&seed) % 100 == 0) hub_grow(h, MASTERS);
        int master = (int)(rand_r(&seed) % (unsigned)hub_masters(h));
        hub_get_connection_state(h, master, &state);
        if (!state.attached || rand_r(&seed) % 100 == 0) {
            int fd = hub_detach(h, master);
            if (fd >= 0) close(fd);
            attach(master);
        }
        hub_breaks(h);
        if (rand_r(&seed) % 20 == 0) hub_drain(h, 0.001);
        if (rand_r(&seed) % 50 == 0) hub_stop_helper(h);
        usleep(1000);
    }
    return NULL;
}

/* Uses the hub in a child of fork, which has one thread. */
static void live_on(void) {
    unsigned seed = 1;
    hub_waiter w;
    hub_after_fork_in_child(h);
    for (int master = 0; master < hub_masters(h); master++) {
        hub_connection_state state;
        hub_get_connection_state(h, master, &state);
        CHECK(!state.attached && !state.broken[0] && !state.pending);
    }
    for (int granted = 0; granted < 2; granted++) {
        char in[16];
        int fd = granted ? connected(0) : -1;
        hub_op *op = request(&seed, 0, 1, 0);
        hub_submit(h, &w, &op, 1, 60, 0, &w);
        hub_flush(h);
        if (granted) CHECK(recv(fd, in, sizeof in, 0) > 0 && send(fd, "+OK\r\n", 5, 0) == 5);
        CHECK(hub_on_ready(h) == &w && op->granted == granted && op->faulty == op->master_count - granted);
        hub_op_release(op);
    }
    hub_free(h);
}

static void *fork_on(void *argument) {
    (void)argument;
    while (!done()) {
        pid_t child = fork(), ended;
        int status, patience = 60000;
        CHECK(child >= 0);
        if (!child) {
            live_on();
            _exit(0);
        }
        while (!(ended = waitpid(child, &status, WNOHANG)) && patience--) usleep(1000);
        if (!ended) kill(child, SIGKILL);
        CHECK(ended == child && status == 0);
        forks++;
    }
    return NULL;
}

static ssize_t send_and_maintain(void *context, const char *data, size_t size) {
    hub_maintain(h);
    return send(*(int *)context, data, size, MSG_NOSIGNAL);
}

static ssize_t receive(void *context, char *data, size_t size) {
    ssize_t received = recv(*(int *)context, data, size, 0);
    return received < 0 ? -errno : received;
}

/* While detach sends without the mutex, maintain must not append to the same output. */
static void detach_while_maintained(void) {
    unsigned seed = 1;
    int ends[2];
    hub_waiter w[2];
    hub_connection_state state;
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    h = hub_new(1, 1000, 1 << 20, 100, 0.05, 0);
    CHECK(h);
    hub_transport transport = {send_and_maintain, receive, &ends[0]};
    hub_attach(h, 0, ends[0], &transport, dialect(), VERBS, 0);
    hub_op *deferred = request(&seed, 1, 1, 60), *unsent = request(&seed, 0, 1, 0);
    hub_submit(h, &w[0], &deferred, 1, 60, 0, &w[0]);
    hub_flush(h);
    CHECK(send(ends[1], "-OOM\r\n", 6, 0) == 6 && hub_on_ready(h) == &w[0]);
    hub_submit(h, &w[1], &unsent, 1, 60, 0, &w[1]);
    CHECK(hub_detach(h, 0) == -1);
    hub_get_connection_state(h, 0, &state);
    CHECK(!state.resent);
    hub_leave(h, &w[1]);
    hub_op_release(deferred);
    hub_op_release(unsent);
    hub_free(h);
    for (int i = 0; i < 2; i++) close(ends[i]);
}

static void session(unsigned seed, double seconds, int parallel) {
    static void *(*const others[3])(void *) = {loop, connect_all, fork_on};
    pthread_t threads[CALLERS + OTHERS];
    h = hub_new(MASTERS - 1, 1000, 1 << 20, 100, 0.05, parallel);
    CHECK(h);
    ending = 0;
    for (int i = 0; i < hub_masters(h); i++) attach(i);
    for (int i = 0; i < CALLERS + OTHERS; i++)
        CHECK(!pthread_create(&threads[i], NULL, i < CALLERS ? call : others[i - CALLERS],
                              (void *)(intptr_t)(seed + (unsigned)i)));
    usleep((useconds_t)(seconds * 1e6));
    __atomic_store_n(&ending, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < CALLERS + OTHERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < hub_masters(h); i++) {
        int fd = hub_detach(h, i);
        if (fd >= 0) close(fd);
    }
    hub_free(h);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    unsigned seed = (unsigned)strtoul(words[1], NULL, 10);
    double seconds = atof(words[2]);
    detach_while_maintained();
    for (int parallel = 0; parallel < 2; parallel++) session(seed + 1000u * (unsigned)parallel, seconds / 2, parallel);
    printf("%llu exchanges, %llu collected by the loop, %llu connections, %llu forks\n", exchanges, collected, attached,
           forks);
    return 0;
}
