/* How a fuzzer runs: cases by number, so that any of them can be run again alone. */
#ifndef REDLOCK_FUZZ_H
#define REDLOCK_FUZZ_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "streams.h"

static unsigned long long fuzz_case, fuzz_inputs;

static inline void tell_case(void) { fprintf(stderr, "\nfailed: case %llu\n", fuzz_case); }

static inline void tell_abort(int number) {
    (void)number;
    tell_case();
}

#define CHECK(condition)                                                                  \
    do                                                                                    \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);     \
            abort();                                                                      \
        }                                                                                 \
    while (0)

#ifdef __SANITIZE_ADDRESS__
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

/* `fuzzer SEED SECONDS`, or `fuzzer case NUMBER`: prints how many cases ran, and inputs in them. */
static inline int fuzz(int count, char **words, void (*one)(chance *)) {
    if (count != 3) return 2;
    signal(SIGABRT, tell_abort);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(tell_case);
#endif
    int single = !strcmp(words[1], "case");
    unsigned long long first = strtoull(words[single ? 2 : 1], NULL, 10), cases = 0;
    double seconds = single ? 0 : atof(words[2]);
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do {
        /* Cases of one run have numbers in a row; those of different seeds do not overlap. */
        fuzz_case = single ? first : (first << 32) + cases;
        chance c = {fuzz_case};
        one(&c);
        cases++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9 < seconds);
    printf("%llu cases, %llu inputs\n", cases, fuzz_inputs);
    return 0;
}

#endif
