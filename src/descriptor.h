/* The file that a descriptor is of. A program may close descriptors that it did not open, as a daemon does, and get
 * their numbers for files of its own. So a number is compared with its file before it is used after idle time: a
 * stranger's descriptor is neither written to, nor read, nor closed. */
#ifndef REDLOCK_DESCRIPTOR_H
#define REDLOCK_DESCRIPTOR_H

#include <sys/stat.h>

typedef struct {
    dev_t device;
    ino_t number;
} file_id;

static inline file_id file_of(int fd) {
    struct stat s;
    return fstat(fd, &s) ? (file_id){0, 0} : (file_id){s.st_dev, s.st_ino};
}

static inline int is_file(int fd, file_id id) {
    struct stat s;
    return fd >= 0 && !fstat(fd, &s) && s.st_dev == id.device && s.st_ino == id.number;
}

#endif
