/* The floor: what N masters, their sockets and this machine take for a lock, without any client.
 *
 *     floor WARMUP SECONDS BATCH PATH PORT...        PATH: DELIFEQ, DELEX or EVALSHA:sha1
 *
 * A cycle: B pre-encoded SET NX PX on distinct keys to all masters, poll, read until all have
 * replied; then B pre-encoded compare-and-deletes in the same way. One non-blocking socket per
 * master. Prints {"samples": [nanoseconds of each cycle], "locks": ..., "seconds": the sum of the
 * samples, "info": ...}: to encode is not part of it. Any reply but +OK and :1 ends the program with
 * status 1: a lock that was not taken is not a lock cycle.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_MASTERS = 63, MAX_COMMAND = 256, TTL_MS = 60000, TIMEOUT_MS = 10000 };

static struct pollfd masters[MAX_MASTERS];
static int count;

static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "floor: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int connect_to(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1, sock = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof to) < 0)
        fail("port %d: %s", port, strerror(errno));
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(sock, F_SETFL, O_NONBLOCK);
    return sock;
}

/* One command in RESP; returns its length. Every key and token has the same length. */
static size_t encode(char *out, int words, ...)
{
    size_t size = (size_t)sprintf(out, "*%d\r\n", words);
    va_list args;
    va_start(args, words);
    for (int i = 0; i < words; i++) {
        const char *word = va_arg(args, const char *);
        size += (size_t)sprintf(out + size, "$%zu\r\n%s\r\n", strlen(word), word);
    }
    va_end(args);
    return size;
}

static size_t encode_release(char *out, const char *path, const char *key, const char *token)
{
    if (strcmp(path, "DELIFEQ") == 0)
        return encode(out, 3, "DELIFEQ", key, token);
    if (strcmp(path, "DELEX") == 0)
        return encode(out, 4, "DELEX", key, "IFEQ", token);
    if (strncmp(path, "EVALSHA:", 8) == 0)
        return encode(out, 5, "EVALSHA", path + 8, "1", key, token);
    fail("unknown release path %s", path);
    return 0;
}

static void send_to_all(const char *data, size_t size)
{
    size_t sent[MAX_MASTERS] = {0};
    for (int waiting = count; waiting;) {
        waiting = 0;
        for (int i = 0; i < count; i++) {
            if (sent[i] == size)
                continue;
            ssize_t n = send(masters[i].fd, data + sent[i], size - sent[i], MSG_NOSIGNAL);
            if (n < 0 && errno != EAGAIN)
                fail("send: %s", strerror(errno));
            sent[i] += n > 0 ? (size_t)n : 0;
            waiting += sent[i] < size;
        }
    }
}

/* Wait until each master has sent `reply` (4 or 5 bytes) `batch` times, and nothing else. */
static void await_all(const char *reply, int batch)
{
    static char in[1 << 16];
    size_t length = strlen(reply), whole = length * (size_t)batch, got[MAX_MASTERS] = {0};
    for (int waiting = count; waiting;) {
        if (poll(masters, (nfds_t)count, TIMEOUT_MS) <= 0)
            fail("poll: no reply");
        for (int i = 0; i < count; i++) {
            if (!masters[i].revents)
                continue;
            ssize_t n = recv(masters[i].fd, in, sizeof in, 0);
            if (n < 0 && errno == EAGAIN)
                continue;
            if (n <= 0 || got[i] + (size_t)n > whole)
                fail("recv: lost a master, or too many replies");
            for (ssize_t at = 0; at < n; at++)
                if (in[at] != reply[(got[i] + (size_t)at) % length])
                    fail("expected %.2s, got %.*s", reply, (int)n, in);
            got[i] += (size_t)n;
            waiting -= got[i] == whole;
        }
    }
}

/* The commands of one cycle, the same number of bytes in each. */
struct cycle {
    char *set, *del;
    size_t set_size, del_size;
};

static void prepare(struct cycle *all, int number, int batch, const char *path)
{
    char ttl[16], key[32], token[32];
    sprintf(ttl, "%d", TTL_MS);
    all->set_size = all->del_size = 0;
    for (int i = 0; i < batch; i++) {
        sprintf(key, "floor:%08d:%05d", number, i);
        sprintf(token, "%010d%010d", number, i);
        all->set_size += encode(all->set + all->set_size, 6, "SET", key, token, "NX", "PX", ttl);
        all->del_size += encode_release(all->del + all->del_size, path, key, token);
    }
}

static void print(const long long *samples, size_t cycles, int batch, const char *path)
{
    long long sum = 0;
    printf("{\"samples\": [");
    for (size_t i = 0; i < cycles; i++) {
        printf("%s%lld", i ? ", " : "", samples[i]);
        sum += samples[i];
    }
    printf("], \"locks\": %zu, \"seconds\": %.9f, ", cycles * (size_t)batch, (double)sum / 1e9);
    printf("\"info\": {\"paths\": [\"%.*s\"]}}\n", (int)strcspn(path, ":"), path);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        fail("arguments: WARMUP SECONDS BATCH PATH PORT...");
    const char *path = argv[4];
    int batch = atoi(argv[3]);
    size_t done = 0, room = 1 << 16;
    struct cycle all = {.set = malloc((size_t)batch * MAX_COMMAND), .del = malloc((size_t)batch * MAX_COMMAND)};
    long long *samples = malloc(room * sizeof *samples);
    for (int i = 5; i < argc && count < MAX_MASTERS; i++)
        masters[count++] = (struct pollfd){.fd = connect_to(atoi(argv[i])), .events = POLLIN};

    long long begin = now() + (long long)(atof(argv[1]) * 1e9);
    long long end = begin + (long long)(atof(argv[2]) * 1e9);
    for (int number = 0; !done || now() < end; number++) {
        prepare(&all, number, batch, path);
        long long start = now();
        send_to_all(all.set, all.set_size);
        await_all("+OK\r\n", batch);
        send_to_all(all.del, all.del_size);
        await_all(":1\r\n", batch);
        if (start < begin)
            continue;
        if (done == room && !(samples = realloc(samples, (room *= 2) * sizeof *samples)))
            fail("no memory");
        samples[done++] = now() - start;
    }
    print(samples, done, batch, path);
    return 0;
}
