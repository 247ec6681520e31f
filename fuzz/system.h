/* Replaces the system calls of src/ for the fuzzers; every file is compiled with `-include` of this one. Allocations
 * fail when the fuzzer says so, time passes only in waits and clock reads, and bytes searched or moved are counted. */
#ifndef REDLOCK_FUZZ_SYSTEM_H
#define REDLOCK_FUZZ_SYSTEM_H

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    size_t allocations; /* so many succeed, */
    size_t failures;    /* and then so many fail */
    int64_t now;        /* ns */
    uint64_t work;      /* bytes */
} fuzz_system;

extern fuzz_system system_state;

static inline int no_memory(void) {
    if (!system_state.failures) return 0;
    if (system_state.allocations) {
        system_state.allocations--;
        return 0;
    }
    system_state.failures--;
    return 1;
}

static inline void *fuzz_malloc(size_t size) { return no_memory() ? NULL : malloc(size); }
static inline void *fuzz_calloc(size_t count, size_t size) { return no_memory() ? NULL : calloc(count, size); }
static inline void *fuzz_realloc(void *old, size_t size) { return no_memory() ? NULL : realloc(old, size); }

/* Each look at the clock takes time: a loop that waits for a deadline ends. */
static inline int fuzz_clock(struct timespec *t) {
    system_state.now += 1000;
    *t = (struct timespec){system_state.now / 1000000000, system_state.now % 1000000000};
    return 0;
}

static inline int fuzz_poll(struct pollfd *fds, nfds_t used, int64_t timeout) {
    int events = poll(fds, used, 0);
    if (!events) system_state.now += timeout;
    return events;
}

/* There is one thread, so no wake-up comes while it waits. */
static inline long fuzz_futex(const void *timeout) {
    const long *t = timeout;
    if (t) system_state.now += t[0] * 1000000000 + t[1];
    return 0;
}

static inline void *fuzz_memchr(const void *data, int byte, size_t size) {
    const char *found = memchr(data, byte, size);
    system_state.work += found ? (size_t)(found - (const char *)data) + 1 : size;
    return (void *)found;
}

static inline void *fuzz_memcpy(void *to, const void *from, size_t size) {
    system_state.work += size;
    return memcpy(to, from, size);
}

static inline void *fuzz_memmove(void *to, const void *from, size_t size) {
    system_state.work += size;
    return memmove(to, from, size);
}

#undef memchr
#undef memcpy
#undef memmove
#define malloc(size) fuzz_malloc(size)
#define calloc(count, size) fuzz_calloc(count, size)
#define realloc(old, size) fuzz_realloc(old, size)
#define clock_gettime(clock, t) fuzz_clock(t)
#define ppoll(fds, used, t, mask) fuzz_poll(fds, used, (t)->tv_sec * INT64_C(1000000000) + (t)->tv_nsec)
#define poll(fds, used, ms) fuzz_poll(fds, used, (ms) * INT64_C(1000000))
#define syscall(number, address, operation, value, timeout, ...) fuzz_futex(timeout)
#define memchr(data, byte, size) fuzz_memchr(data, byte, size)
#define memcpy(to, from, size) fuzz_memcpy(to, from, size)
#define memmove(to, from, size) fuzz_memmove(to, from, size)

#endif
