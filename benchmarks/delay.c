/* A delay line for TCP: what one side sends reaches the other half a round trip later.
 *
 *     delay PORT:MICROSECONDS ...
 *
 * For each server port and round trip one listening port on 127.0.0.1; prints them on one line. Any
 * amount may be on its way (bandwidth is not limited), in order. Ends when its standard input ends.
 * A proxy adds two wake-ups to each round trip: measure a round trip of 0 to know what they take here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { MAX_ROUTES = 256, MAX_ENDS = 512 };

/* Sleep until so many nanoseconds before the next piece is due, then spin: timers wake up late. */
enum { SPIN = 60000 };

struct piece {
    struct piece *next;
    long long due;
    size_t size, sent; /* size 0: the end of the stream */
    char data[];
};

/* One socket and what was read from it. Ends 2n and 2n+1 are a connection: n's pieces go to n ^ 1. */
struct end {
    int sock, reading, writing;
    long long delay;
    struct piece *first, **last;
};

static struct route { int listener, port; long long delay; } routes[MAX_ROUTES];
static struct end ends[MAX_ENDS];
static int route_count;

static void fail(const char *what)
{
    fprintf(stderr, "delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static struct sockaddr_in local(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static int listen_anywhere(void)
{
    struct sockaddr_in address = local(0);
    socklen_t size = sizeof address;
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    if (sock < 0 || bind(sock, (struct sockaddr *)&address, size) || listen(sock, 64))
        fail("listen");
    getsockname(sock, (struct sockaddr *)&address, &size);
    printf("%d ", ntohs(address.sin_port));
    return sock;
}

static void open_end(struct end *end, int sock, long long delay)
{
    int on = 1;
    if (sock >= FD_SETSIZE)
        fail("too many connections");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(sock, F_SETFL, O_NONBLOCK);
    *end = (struct end){.sock = sock, .reading = 1, .writing = 1, .delay = delay, .last = &end->first};
}

static void close_pair(int i)
{
    for (int k = i & ~1; k <= (i | 1); k++) {
        for (struct piece *piece = ends[k].first, *next; piece; piece = next) {
            next = piece->next;
            free(piece);
        }
        close(ends[k].sock);
        ends[k].sock = -1;
    }
}

static void accept_one(const struct route *route)
{
    struct sockaddr_in address = local(route->port);
    int client = accept(route->listener, NULL, NULL), server = socket(AF_INET, SOCK_STREAM, 0), i = 0;
    if (client < 0 || server < 0)
        fail("accept");
    while (i < MAX_ENDS && ends[i].sock >= 0)
        i += 2;
    if (i == MAX_ENDS || connect(server, (struct sockaddr *)&address, sizeof address)) {
        close(client);
        close(server);
        return;
    }
    open_end(&ends[i], client, route->delay / 2);
    open_end(&ends[i + 1], server, route->delay / 2);
}

static void receive(int i)
{
    static char in[1 << 18];
    struct end *end = &ends[i];
    ssize_t size = recv(end->sock, in, sizeof in, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (size < 0) {
        close_pair(i);
        return;
    }
    struct piece *piece = malloc(sizeof *piece + (size_t)size);
    if (!piece)
        fail("malloc");
    *piece = (struct piece){.due = now() + end->delay, .size = (size_t)size};
    memcpy(piece->data, in, (size_t)size);
    *end->last = piece;
    end->last = &piece->next;
    end->reading = size > 0;
}

/* Send what is due. The other side's buffer may be full: then it is watched for writing. */
static void deliver(int i)
{
    struct end *end = &ends[i], *other = &ends[i ^ 1];
    while (end->first && end->first->due <= now()) {
        struct piece *piece = end->first;
        if (!piece->size) {
            shutdown(other->sock, SHUT_WR);
            other->writing = 0;
        } else {
            ssize_t sent = send(other->sock, piece->data + piece->sent, piece->size - piece->sent, MSG_NOSIGNAL);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) {
                close_pair(i);
                return;
            }
            piece->sent += sent > 0 ? (size_t)sent : 0;
            if (piece->sent < piece->size)
                return;
        }
        end->first = piece->next;
        if (!end->first)
            end->last = &end->first;
        free(piece);
    }
    if (!end->writing && !other->writing)
        close_pair(i);
}

static void watch(int sock, fd_set *set, int *highest)
{
    FD_SET(sock, set);
    *highest = sock > *highest ? sock : *highest;
}

/* Wait until something can be read or written, or the next piece is due. False: our input ended. */
static int await(fd_set *in, fd_set *out)
{
    int highest = 0;
    long long next = -1, time = now();
    FD_ZERO(in);
    FD_ZERO(out);
    watch(0, in, &highest);
    for (int i = 0; i < route_count; i++)
        watch(routes[i].listener, in, &highest);
    for (int i = 0; i < MAX_ENDS; i++) {
        if (ends[i].sock < 0)
            continue;
        if (ends[i].reading)
            watch(ends[i].sock, in, &highest);
        if (!ends[i].first)
            continue;
        if (ends[i].first->due <= time)
            watch(ends[i ^ 1].sock, out, &highest);
        else if (next < 0 || ends[i].first->due < next)
            next = ends[i].first->due;
    }
    long long wait = next - time > SPIN ? next - time - SPIN : 0;
    struct timespec timeout = {.tv_sec = wait / 1000000000, .tv_nsec = wait % 1000000000};
    if (pselect(highest + 1, in, out, NULL, next < 0 ? NULL : &timeout, NULL) < 0) {
        if (errno != EINTR)
            fail("pselect");
        FD_ZERO(in);
    }
    char byte;
    return !FD_ISSET(0, in) || read(0, &byte, 1) > 0;
}

int main(int argc, char **argv)
{
    fd_set in, out;
    signal(SIGPIPE, SIG_IGN);
#ifdef PR_SET_TIMERSLACK
    prctl(PR_SET_TIMERSLACK, 1); /* the usual 50 microseconds are a quarter of a short round trip */
#endif
    for (int i = 0; i < MAX_ENDS; i++)
        ends[i].sock = -1;
    for (; route_count < argc - 1 && route_count < MAX_ROUTES; route_count++) {
        struct route *route = &routes[route_count];
        if (sscanf(argv[route_count + 1], "%d:%lld", &route->port, &route->delay) != 2)
            fail("arguments: PORT:MICROSECONDS ...");
        route->delay *= 1000;
        route->listener = listen_anywhere();
    }
    printf("\n");
    fflush(stdout);
    while (await(&in, &out)) {
        for (int i = 0; i < route_count; i++)
            if (FD_ISSET(routes[i].listener, &in))
                accept_one(&routes[i]);
        for (int i = 0; i < MAX_ENDS; i++)
            if (ends[i].sock >= 0 && ends[i].reading && FD_ISSET(ends[i].sock, &in))
                receive(i);
        for (int i = 0; i < MAX_ENDS; i++)
            if (ends[i].sock >= 0)
                deliver(i);
    }
    return 0;
}
