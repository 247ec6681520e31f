/* What one thread waits at and another rings, with a number above 0. */
#ifndef REDLOCK_BELL_H
#define REDLOCK_BELL_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct { int rung; } bell;

/* What the call takes for a time: two longs, however wide time_t is. Systems of 32 bits that never had
 * those have another call. */
#ifdef SYS_futex
typedef struct { long seconds, nanoseconds; } bell_time;
#define BELL_LONGEST LONG_MAX
#else
#define SYS_futex SYS_futex_time64
typedef struct { int64_t seconds, nanoseconds; } bell_time;
#define BELL_LONGEST INT64_MAX
#endif

static inline void bell_init(bell *b) { __atomic_store_n(&b->rung, 0, __ATOMIC_RELAXED); }

/* As if it had not been, if that was what it rang last. */
static inline void bell_hush(bell *b, int number) {
    __atomic_compare_exchange_n(&b->rung, &number, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline void bell_ring(bell *b, int number) {
    __atomic_store_n(&b->rung, number, __ATOMIC_RELEASE);
    /* Whoever waited may be gone from here on, and the bell with it: this needs no more than the address. */
    syscall(SYS_futex, &b->rung, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Up to `ns` for the last number that was rung; 0 if there is none, or a signal came. */
static inline int bell_wait(bell *b, int64_t ns) {
    int64_t seconds = ns / INT64_C(1000000000);
    bell_time t = {seconds < BELL_LONGEST ? seconds : BELL_LONGEST, ns % INT64_C(1000000000)};
    if (!__atomic_load_n(&b->rung, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &b->rung, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);
    return __atomic_load_n(&b->rung, __ATOMIC_ACQUIRE);
}

#else
#include <pthread.h>

typedef struct { pthread_mutex_t mutex; pthread_cond_t cond; int rung; } bell;

static inline void bell_init(bell *b) {
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->cond, NULL);
    b->rung = 0;
}

static inline void bell_hush(bell *b, int number) {
    pthread_mutex_lock(&b->mutex);
    if (b->rung == number) b->rung = 0;
    pthread_mutex_unlock(&b->mutex);
}

static inline void bell_ring(bell *b, int number) {
    pthread_mutex_lock(&b->mutex);
    b->rung = number;
    pthread_cond_signal(&b->cond);
    pthread_mutex_unlock(&b->mutex);
}

static inline int bell_wait(bell *b, int64_t ns) {
    struct timespec t = {ns / INT64_C(1000000000), ns % INT64_C(1000000000)};
    pthread_mutex_lock(&b->mutex);
    if (!b->rung) pthread_cond_timedwait_relative_np(&b->cond, &b->mutex, &t);
    int rung = b->rung;
    pthread_mutex_unlock(&b->mutex);
    return rung;
}
#endif

#endif
