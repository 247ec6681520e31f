/* The keys that a RESP3 push invalidates, read in place without a copy. The function invalidated() of
 * redlock_fast/wire/push.py does the same. Source: redis.io, client-side caching. */
#ifndef REDLOCK_PUSH_H
#define REDLOCK_PUSH_H

#include "reply.h"

/* An iterator over the items of a push. */
typedef struct {
    reply_bytes in;
    size_t at;
    int64_t items;
} push_keys;

/* Returns the type of the item at `at` in a whole push, its end, and its text if it is a string. */
static inline char push_look(const push_keys *k, size_t at, size_t *end, reply_bytes *text) {
    reply_bytes rest = {k->in.data + at, k->in.size - at};
    reply_scan scan = {0};
    size_t size = 0;
    reply_resume(rest, rest.size + 1, &scan, &size);
    *end = at + size;
    *text = (reply_bytes){NULL, 0};
    if (*rest.data != '$' || rest.data[1] == '-') return *rest.data;
    size_t head = (size_t)((const char *)memchr(rest.data, '\n', size) - rest.data) + 1;
    *text = (reply_bytes){rest.data + head, size - head - 2};
    return '$';
}

/* Takes the next item, which must exist. Returns its type, and its text if it is a string. */
static inline char push_item(push_keys *k, reply_bytes *text) {
    char type;
    do type = push_look(k, k->at, &k->at, text);
    while (type == '|');
    k->items--;
    return type;
}

/* Enters the array or push at k->at. Returns 0 if it is null. */
static inline int push_enter(push_keys *k) {
    const char *start = k->in.data + k->at;
    size_t line = (size_t)((const char *)memchr(start, '\r', k->in.size - k->at) - start);
    int fits;
    reply_integer(start + 1, line - 1, &k->items, &fits);
    k->at += line + 2;
    return k->items >= 0;
}

enum push_kind { PUSH_OTHER, PUSH_KEYS, PUSH_ALL };

/* Returns the kind of a whole push. For PUSH_KEYS, push_key() returns the keys. */
static inline enum push_kind push_read(reply_bytes push, push_keys *k) {
    static const char name[] = "invalidate";
    reply_bytes text;
    *k = (push_keys){push, 0, 0};
    if (!push_enter(k) || k->items != 2) return PUSH_OTHER;
    push_item(k, &text);
    if (text.size != sizeof name - 1 || memcmp(text.data, name, text.size)) return PUSH_OTHER;
    push_keys second = *k;
    char type = push_item(&second, &text);
    if (type == '_' || (type == '$' && !text.data)) return PUSH_ALL;
    if (type != '*') return PUSH_OTHER;
    while (k->in.data[k->at] == '|') push_look(k, k->at, &k->at, &text); /* attributes precede the array */
    return push_enter(k) ? PUSH_KEYS : PUSH_ALL;
}

/* Takes the next key, skipping items that are no string. Returns 0 if there is none. */
static inline int push_key(push_keys *k, reply_bytes *key) {
    while (k->items > 0) {
        push_item(k, key);
        if (key->data) return 1;
    }
    return 0;
}

#endif
