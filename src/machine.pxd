# redlock_fast/algorithm/machine.py in C, for the compiled modules that cimport it.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.pythread cimport PyThread_get_thread_ident
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <time.h>
    #ifndef CLOCK_BOOTTIME
    #define CLOCK_BOOTTIME CLOCK_MONOTONIC
    #endif
    static inline unsigned long long machine_boot_time_ns(void) {
        struct timespec now;
        clock_gettime(CLOCK_BOOTTIME, &now);
        return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
    }
    """
    unsigned long long boot_time_ns "machine_boot_time_ns" () noexcept

cdef inline unsigned long thread_id() noexcept:
    return PyThread_get_thread_ident()

cdef inline double boot_time() noexcept:
    return boot_time_ns() * 1e-9

cdef inline bytes joined(bytes head, unsigned long long number, bytes end):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, 20 + PyBytes_GET_SIZE(end))
    cdef char *to = PyBytes_AS_STRING(made)
    if PyBytes_GET_SIZE(head) != 12:
        raise ValueError("a head of 12 bytes")
    memcpy(to, PyBytes_AS_STRING(head), 12)
    memcpy(to + 12, &number, 8)
    memcpy(to + 20, PyBytes_AS_STRING(end), <size_t> PyBytes_GET_SIZE(end))
    return made
