/* A word that one thread waits for and another thread posts: a futex, or a condition. Zero: nothing was posted. */
#ifndef REDLOCK_WAITWORD_H
#define REDLOCK_WAITWORD_H

#include <limits.h>
#include <stdint.h>
#include <time.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct { int word; } waitword; /* atomic */

/* The kernel's type of a timeout: two longs, whatever time_t is. 32-bit systems without SYS_futex use int64_t. */
#ifdef SYS_futex
typedef struct { long seconds, nanoseconds; } waitword_time;
#define WAITWORD_LONGEST LONG_MAX
#else
#define SYS_futex SYS_futex_time64
typedef struct { int64_t seconds, nanoseconds; } waitword_time;
#define WAITWORD_LONGEST INT64_MAX
#endif

static inline void waitword_init(waitword *w) { __atomic_store_n(&w->word, 0, __ATOMIC_RELAXED); }

/* Resets the word if `number` was posted last. */
static inline void waitword_clear(waitword *w, int number) {
    __atomic_compare_exchange_n(&w->word, &number, 0, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline void waitword_post(waitword *w, int number) {
    __atomic_store_n(&w->word, number, __ATOMIC_RELEASE);
    /* The waiting thread may have freed the word by now. FUTEX_WAKE uses only the address, so that is safe. */
    syscall(SYS_futex, &w->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Waits for at most `ns`. Returns the number that was posted last; 0 if there is none, or a signal came. */
static inline int waitword_wait(waitword *w, int64_t ns) {
    int64_t seconds = ns / INT64_C(1000000000);
    waitword_time t = {seconds < WAITWORD_LONGEST ? seconds : WAITWORD_LONGEST, ns % INT64_C(1000000000)};
    if (!__atomic_load_n(&w->word, __ATOMIC_ACQUIRE))
        syscall(SYS_futex, &w->word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);
    return __atomic_load_n(&w->word, __ATOMIC_ACQUIRE);
}

#else
#include <pthread.h>

typedef struct { pthread_mutex_t mutex; pthread_cond_t cond; int word; } waitword;

static inline void waitword_init(waitword *w) {
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->cond, NULL);
    w->word = 0;
}

static inline void waitword_clear(waitword *w, int number) {
    pthread_mutex_lock(&w->mutex);
    if (w->word == number) w->word = 0;
    pthread_mutex_unlock(&w->mutex);
}

static inline void waitword_post(waitword *w, int number) {
    pthread_mutex_lock(&w->mutex);
    w->word = number;
    pthread_cond_signal(&w->cond);
    pthread_mutex_unlock(&w->mutex);
}

static inline int waitword_wait(waitword *w, int64_t ns) {
    struct timespec t = {ns / INT64_C(1000000000), ns % INT64_C(1000000000)};
    pthread_mutex_lock(&w->mutex);
    if (!w->word) pthread_cond_timedwait_relative_np(&w->cond, &w->mutex, &t);
    int word = w->word;
    pthread_mutex_unlock(&w->mutex);
    return word;
}
#endif

#endif
