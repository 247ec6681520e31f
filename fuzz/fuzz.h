/* How a fuzzer of C runs. With libFuzzer (-DGUIDED) an input decides. By itself, a number does: any case can be
 * run again alone. */
#ifndef REDLOCK_FUZZ_H
#define REDLOCK_FUZZ_H

#include <signal.h>
#include <stdio.h>

#include "streams.h"
#include "system.h"

fuzz_system system_state;

static unsigned long long fuzz_case, fuzz_inputs;

#define CHECK(condition)                                                                  \
    do                                                                                    \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);     \
            abort();                                                                      \
        }                                                                                 \
    while (0)

/* One case of each fuzzer, from a number and from an input. */
__attribute__((unused)) static void one(chance *c);
static void one_input(const char *data, size_t size);

#ifdef GUIDED
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size) one_input((const char *)data, size);
    return 0;
}
#else

static inline void tell_case(void) { fprintf(stderr, "\nfailed: case %llu\n", fuzz_case); }

static inline void tell_abort(int number) {
    (void)number;
    tell_case();
}

#ifdef __SANITIZE_ADDRESS__
void __sanitizer_set_death_callback(void (*callback)(void));
#endif

static double real_seconds(void) {
    struct timespec t;
    (clock_gettime)(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int inputs(int count, char **paths) {
    static char data[1 << 20];
    for (int i = 0; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        CHECK(file);
        size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        if (size) one_input(data, size);
    }
    printf("%d inputs\n", count);
    return 0;
}

/* `fuzzer SEED SECONDS`, `fuzzer case NUMBER`, `fuzzer input FILE...`: prints how many cases ran. */
int main(int count, char **words) {
    if (count < 3) return 2;
    signal(SIGABRT, tell_abort);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_set_death_callback(tell_case);
#endif
    if (!strcmp(words[1], "input")) return inputs(count - 2, words + 2);
    int single = !strcmp(words[1], "case");
    unsigned long long first = strtoull(words[single ? 2 : 1], NULL, 10), cases = 0;
    double seconds = single ? 0 : atof(words[2]), began = real_seconds();
    do {
        /* Cases of one run have numbers in a row; those of different seeds do not overlap. */
        fuzz_case = single ? first : (first << 32) + cases;
        chance c = {.state = fuzz_case};
        one(&c);
        cases++;
    } while (real_seconds() - began < seconds);
    printf("%llu cases, %llu inputs\n", cases, fuzz_inputs);
    return 0;
}
#endif

#endif
