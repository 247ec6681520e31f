/* An fd that is readable while any of the fds in its set is ready: epoll, or kqueue. */
#ifndef REDLOCK_LOOP_FD_H
#define REDLOCK_LOOP_FD_H

#include <unistd.h>

#ifdef __linux__
#include <sys/epoll.h>

static inline int loop_fd_new(void) { return epoll_create1(EPOLL_CLOEXEC); }

static inline void loop_fd_control(int set, int operation, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    epoll_ctl(set, operation, fd, &event);
}

static inline void loop_fd_add(int set, int fd) { loop_fd_control(set, EPOLL_CTL_ADD, fd, EPOLLIN); }
static inline void loop_fd_set_output(int set, int fd, int on) {
    loop_fd_control(set, EPOLL_CTL_MOD, fd, on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}
static inline void loop_fd_remove(int set, int fd) { loop_fd_control(set, EPOLL_CTL_DEL, fd, 0); }

#else
#include <fcntl.h>
#include <sys/event.h>

static inline void loop_fd_control(int set, int fd, int filter, int flags) {
    struct kevent change;
    EV_SET(&change, fd, filter, flags, 0, 0, NULL);
    kevent(set, &change, 1, NULL, 0, NULL);
}

static inline int loop_fd_new(void) {
    int set = kqueue();
    if (set >= 0) fcntl(set, F_SETFD, FD_CLOEXEC);
    return set;
}

static inline void loop_fd_add(int set, int fd) { loop_fd_control(set, fd, EVFILT_READ, EV_ADD); }
static inline void loop_fd_set_output(int set, int fd, int on) {
    loop_fd_control(set, fd, EVFILT_WRITE, on ? EV_ADD : EV_DELETE);
}
static inline void loop_fd_remove(int set, int fd) {
    loop_fd_control(set, fd, EVFILT_READ, EV_DELETE);
    loop_fd_control(set, fd, EVFILT_WRITE, EV_DELETE);
}
#endif

#endif
