/* A file descriptor that wakes a thread that polls it: an eventfd, or a pipe. fd[0] is for reading, fd[1] for
 * writing; they may be the same. */
#ifndef REDLOCK_WAKEFD_H
#define REDLOCK_WAKEFD_H

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/eventfd.h>
#endif

static inline int wakefd_open(int fd[2]) {
#ifdef __linux__
    fd[0] = fd[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return fd[0] < 0 ? -1 : 0;
#else
    if (pipe(fd)) return fd[0] = fd[1] = -1;
    for (int i = 0; i < 2; i++) {
        fcntl(fd[i], F_SETFL, O_NONBLOCK);
        fcntl(fd[i], F_SETFD, FD_CLOEXEC);
    }
    return 0;
#endif
}

static inline void wakefd_close(int fd[2]) {
    if (fd[0] >= 0) close(fd[0]);
    if (fd[1] >= 0 && fd[1] != fd[0]) close(fd[1]);
    fd[0] = fd[1] = -1;
}

static inline void wakefd_signal(const int fd[2]) {
    uint64_t one = 1;
    ssize_t written = write(fd[1], &one, sizeof one);
    (void)written; /* if it is full it is readable already */
}

static inline void wakefd_drain(const int fd[2]) {
    uint64_t counts[8];
    ssize_t got = read(fd[0], counts, sizeof counts);
    (void)got;
}

#endif
