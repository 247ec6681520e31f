/* Before a fork all hubs come to rest: the thread that forks takes every mutex, and no other thread is halfway
 * through a change that the child gets a copy of. In the child a hub is as if it was new (hub_inherit). */
#include "inside.h"

/* Of all waits before one fork together. A hub whose mutex is not free by then is leaked by the child. */
#define PATIENCE (100 * MS)
#define BETWEEN (50 * US)

/* Guards the list. Taken before the mutex of a hub; no other code takes two mutexes. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static hub *first;
static _Thread_local char held;

/* pthread_mutex_timedlock is missing on macOS, and its clock may be set. */
static char take(pthread_mutex_t *m, int64_t deadline) {
    while (pthread_mutex_trylock(m)) {
        if (hub_now() >= deadline) return 0;
        nanosleep(&(struct timespec){0, BETWEEN}, NULL);
    }
    return 1;
}

static void before(void) {
    int64_t deadline = hub_now() + PATIENCE;
    held = take(&mutex, deadline);
    for (hub *h = held ? first : NULL; h; h = h->next) h->held = take(&h->mutex, deadline);
}

static void in_parent(void) {
    if (!held) return;
    for (hub *h = first; h; h = h->next)
        if (h->held) pthread_mutex_unlock(&h->mutex);
    pthread_mutex_unlock(&mutex);
}

static void in_child(void) {
    for (hub *h = first; h; h = h->next) hub_inherit(h, held && h->held);
    pthread_mutex_init(&mutex, NULL);
}

static int ready;

static void get_ready(void) { ready = !pthread_atfork(before, in_parent, in_child); }

int hub_list(hub *h) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, get_ready);
    if (!ready) return 0;
    pthread_mutex_lock(&mutex);
    h->next = first;
    h->listing = &first;
    if (h->next) h->next->listing = &h->next;
    first = h;
    pthread_mutex_unlock(&mutex);
    return 1;
}

void hub_unlist(hub *h) {
    if (!h->listing) return;
    pthread_mutex_lock(&mutex);
    *h->listing = h->next;
    if (h->next) h->next->listing = h->listing;
    pthread_mutex_unlock(&mutex);
}
