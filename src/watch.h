/* One fd that is readable as long as any of those that it watches is ready: epoll, or kqueue. */
#ifndef REDLOCK_WATCH_H
#define REDLOCK_WATCH_H

#include <unistd.h>

#ifdef __linux__
#include <sys/epoll.h>

static inline int watch_new(void) { return epoll_create1(EPOLL_CLOEXEC); }

static inline void watch_control(int watch, int operation, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    epoll_ctl(watch, operation, fd, &event);
}

static inline void watch_add(int watch, int fd) { watch_control(watch, EPOLL_CTL_ADD, fd, EPOLLIN); }
static inline void watch_output(int watch, int fd, int on) {
    watch_control(watch, EPOLL_CTL_MOD, fd, on ? EPOLLIN | EPOLLOUT : EPOLLIN);
}
static inline void watch_remove(int watch, int fd) { watch_control(watch, EPOLL_CTL_DEL, fd, 0); }

#else
#include <fcntl.h>
#include <sys/event.h>

static inline void watch_control(int watch, int fd, int filter, int flags) {
    struct kevent change;
    EV_SET(&change, fd, filter, flags, 0, 0, NULL);
    kevent(watch, &change, 1, NULL, 0, NULL);
}

static inline int watch_new(void) {
    int watch = kqueue();
    if (watch >= 0) fcntl(watch, F_SETFD, FD_CLOEXEC);
    return watch;
}

static inline void watch_add(int watch, int fd) { watch_control(watch, fd, EVFILT_READ, EV_ADD); }
static inline void watch_output(int watch, int fd, int on) {
    watch_control(watch, fd, EVFILT_WRITE, on ? EV_ADD : EV_DELETE);
}
static inline void watch_remove(int watch, int fd) {
    watch_control(watch, fd, EVFILT_READ, EV_DELETE);
    watch_control(watch, fd, EVFILT_WRITE, EV_DELETE);
}
#endif

#endif
