/* A pipe that wakes a thread that polls it. Not an eventfd: all of these are of one file, so that one could not be
 * told from a stranger's. */
#ifndef REDLOCK_WAKEFD_H
#define REDLOCK_WAKEFD_H

#include <fcntl.h>
#include <unistd.h>

#include "descriptor.h"

typedef struct {
    int fd[2]; /* for reading, for writing; -1: not open */
    file_id file[2];
} wakefd;

#define NO_WAKEFD {{-1, -1}, {{0, 0}, {0, 0}}}

static inline int wakefd_open(wakefd *w) {
#ifdef __linux__
    if (pipe2(w->fd, O_NONBLOCK | O_CLOEXEC)) return w->fd[0] = w->fd[1] = -1;
#else
    if (pipe(w->fd)) return w->fd[0] = w->fd[1] = -1;
    for (int i = 0; i < 2; i++) {
        fcntl(w->fd[i], F_SETFL, O_NONBLOCK);
        fcntl(w->fd[i], F_SETFD, FD_CLOEXEC);
    }
#endif
    for (int i = 0; i < 2; i++) w->file[i] = file_of(w->fd[i]);
    return 0;
}

static inline int wakefd_is_ours(const wakefd *w) {
    return is_file(w->fd[0], w->file[0]) && is_file(w->fd[1], w->file[1]);
}

static inline void wakefd_close(wakefd *w) {
    for (int i = 0; i < 2; i++) {
        if (is_file(w->fd[i], w->file[i])) close(w->fd[i]);
        w->fd[i] = -1;
    }
}

static inline void wakefd_signal(const wakefd *w) {
    if (!is_file(w->fd[1], w->file[1])) return;
    ssize_t written = write(w->fd[1], "!", 1);
    (void)written; /* if it is full it is readable already */
}

static inline void wakefd_drain(const wakefd *w) {
    char some[64];
    if (!is_file(w->fd[0], w->file[0])) return;
    ssize_t got = read(w->fd[0], some, sizeof some);
    (void)got;
}

#endif
