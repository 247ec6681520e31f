/* What a RESP3 push invalidates: walked as it stands, nothing is copied. The twin of _invalidated() in
 * redlock_fast/_pure_vigil.py. Source: redis.io, client-side caching. */
#ifndef REDLOCK_PUSH_H
#define REDLOCK_PUSH_H

#include "reply.h"

/* The keys that are left of a push. */
typedef struct {
    reply_bytes in;
    size_t at;
    int64_t items;
} push_keys;

/* The next item of a whole push that has one: its type, and its text if that is a string. */
static inline char push_item(push_keys *k, reply_bytes *text) {
    size_t start, end = k->at;
    enum reply_kind kind;
    do {
        start = end;
        kind = reply_frame(k->in, start, 0, &end);
    } while (kind == REPLY_ATTRIBUTE);
    k->at = end;
    k->items--;
    *text = (reply_bytes){NULL, 0};
    char type = k->in.data[start];
    if (type != '$' || k->in.data[start + 1] == '-') return type;
    reply_bytes line = {k->in.data + start, end - start};
    size_t head = reply_line(line, 0, &kind) + 2;
    *text = (reply_bytes){line.data + head, line.size - head - 2};
    return type;
}

/* Step into the array or push at k->at; 0 if it is null. */
static inline int push_enter(push_keys *k) {
    reply_bytes rest = {k->in.data + k->at, k->in.size - k->at};
    enum reply_kind kind = REPLY_OTHER;
    int fits;
    size_t line = reply_line(rest, 0, &kind);
    reply_integer(rest.data + 1, line - 1, &k->items, &fits);
    k->at += line + 2;
    return k->items >= 0;
}

enum push_kind { PUSH_OTHER, PUSH_KEYS, PUSH_ALL };

/* What a whole push says: of PUSH_KEYS, push_key() gives the keys. */
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
    while (k->in.data[k->at] == '|') { /* what stands before the array */
        size_t end;
        reply_frame(k->in, k->at, 0, &end);
        k->at = end;
    }
    return push_enter(k) ? PUSH_KEYS : PUSH_ALL;
}

/* The next key; 0 if there is none. What is no string is none. */
static inline int push_key(push_keys *k, reply_bytes *key) {
    while (k->items > 0) {
        push_item(k, key);
        if (key->data) return 1;
    }
    return 0;
}

#endif
