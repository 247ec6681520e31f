/* Moves the wall clock of the processes that are started with it (LD_PRELOAD), and no other clock.
 *
 * CHAOS_CLOCK names a file of eight bytes: nanoseconds to add, as a signed integer. A process that
 * writes there sets the clock of all processes that have it mapped, at once. libfaketime hangs some servers;
 * this does nothing but add.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *moved;

__attribute__((constructor)) static void map_the_file(void)
{
    const char *path = getenv("CHAOS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *page = mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED)
        moved = page;
    close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || !moved || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t nanoseconds = now->tv_sec * SECOND + now->tv_nsec + *moved;
    now->tv_sec = nanoseconds / SECOND;
    now->tv_nsec = nanoseconds % SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise))
        return -1;
    if (out)
        *out = precise.tv_sec;
    return precise.tv_sec;
}
