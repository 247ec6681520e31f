/* Before a fork the forking thread takes every hub's mutex, so that no other thread is in the middle of a change
 * that the child copies. In the child each hub is reset (hub_reset_after_fork). */
#include "hub_internal.h"

/* The time for all mutexes together. The child leaks a hub whose mutex was not free by then. */
#define LOCK_TIMEOUT (100 * MS)
#define LOCK_RETRY_INTERVAL (50 * US)

/* Guards the list of hubs. Lock order: this mutex, then the mutex of a hub. */
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static hub *all_hubs;
static _Thread_local char list_locked;

/* pthread_mutex_timedlock is missing on macOS, and uses a clock that can be set. */
static char lock_until(pthread_mutex_t *m, int64_t deadline) {
    while (pthread_mutex_trylock(m)) {
        if (hub_now() >= deadline) return 0;
        nanosleep(&(struct timespec){0, LOCK_RETRY_INTERVAL}, NULL);
    }
    return 1;
}

static void before_fork(void) {
    int64_t deadline = hub_now() + LOCK_TIMEOUT;
    list_locked = lock_until(&list_mutex, deadline);
    for (hub *h = list_locked ? all_hubs : NULL; h; h = h->list_next)
        h->fork_locked = lock_until(&h->mutex, deadline);
}

static void after_fork_in_parent(void) {
    if (!list_locked) return;
    for (hub *h = all_hubs; h; h = h->list_next)
        if (h->fork_locked) pthread_mutex_unlock(&h->mutex);
    pthread_mutex_unlock(&list_mutex);
}

static void after_fork_in_child(void) {
    for (hub *h = all_hubs; h; h = h->list_next) hub_reset_after_fork(h, list_locked && h->fork_locked);
    pthread_mutex_init(&list_mutex, NULL);
}

static int handlers_registered;

static void register_handlers(void) {
    handlers_registered = !pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

int hub_register(hub *h) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_handlers);
    if (!handlers_registered) return 0;
    pthread_mutex_lock(&list_mutex);
    h->list_next = all_hubs;
    h->list_pprev = &all_hubs;
    if (h->list_next) h->list_next->list_pprev = &h->list_next;
    all_hubs = h;
    pthread_mutex_unlock(&list_mutex);
    return 1;
}

void hub_unregister(hub *h) {
    if (!h->list_pprev) return;
    pthread_mutex_lock(&list_mutex);
    *h->list_pprev = h->list_next;
    if (h->list_next) h->list_next->list_pprev = h->list_pprev;
    pthread_mutex_unlock(&list_mutex);
}
