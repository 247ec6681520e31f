/* A byte queue: bytes are appended at the end and taken from the front. */
#ifndef REDLOCK_BUFFER_H
#define REDLOCK_BUFFER_H

#include <stdlib.h>
#include <string.h>

typedef struct {
    char *data;
    size_t head, tail, capacity;
} buffer;

/* A buffer with a larger capacity is freed when it is empty. */
#define BUFFER_KEEP (64u << 10)

static inline size_t buffer_size(const buffer *b) { return b->tail - b->head; }
static inline char *buffer_front(const buffer *b) { return b->data + b->head; }

static inline void buffer_free(buffer *b) {
    free(b->data);
    memset(b, 0, sizeof *b);
}

static inline void buffer_take(buffer *b, size_t size) {
    b->head += size;
    if (b->head < b->tail) return;
    b->head = b->tail = 0;
    if (b->capacity > BUFFER_KEEP) buffer_free(b);
}

/* Makes room for `size` more bytes. Returns where they go, or NULL without memory. */
static inline char *buffer_room(buffer *b, size_t size) {
    if (b->capacity - b->tail >= size) return b->data + b->tail;
    size_t used = buffer_size(b);
    if (b->capacity - used < size || b->head < b->capacity / 2) {
        size_t capacity = b->capacity ? b->capacity : 4096;
        while (capacity - used < size) capacity *= 2;
        char *data = malloc(capacity);
        if (!data) return NULL;
        if (used) memcpy(data, b->data + b->head, used);
        free(b->data);
        b->data = data;
        b->capacity = capacity;
    } else {
        memmove(b->data, b->data + b->head, used);
    }
    b->head = 0;
    b->tail = used;
    return b->data + used;
}

#endif
