/* Where a RESP reply ends and, for the fixed replies, how it votes.
 *
 * +OK, $-1, _ and :n are read here; every other whole reply is handed on as bytes. The
 * rules for what is malformed are those of redlock_fast/_resp.py. Source: the RESP
 * specification, redis.io.
 */
#ifndef REDLOCK_REPLY_H
#define REDLOCK_REPLY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum reply_kind {
    REPLY_PARTIAL,   /* more bytes are needed */
    REPLY_NUMBER,    /* a fixed reply: its number says it all */
    REPLY_OTHER,     /* a whole reply of another shape: errors too */
    REPLY_PUSH,      /* RESP3: nobody asked for it */
    REPLY_ATTRIBUTE, /* RESP3: the reply itself follows */
    REPLY_MALFORMED
};

#define REPLY_MAX_FRAME (1u << 20)
#define REPLY_MAX_ITEMS (1u << 16) /* bytes of an array, which is scanned anew with each piece */
#define REPLY_MAX_LINE (1u << 16)
#define REPLY_MAX_DEPTH 8
#define REPLY_MAX_DIGITS 19

typedef struct {
    const char *data;
    size_t size;
} reply_bytes;

/* The position of the line's \r\n at or after `at`; REPLY_PARTIAL or REPLY_MALFORMED through *kind. */
static inline size_t reply_line(reply_bytes in, size_t at, enum reply_kind *kind) {
    size_t end = at;
    size_t limit = in.size - at > REPLY_MAX_LINE ? at + REPLY_MAX_LINE : in.size;
    while (end < limit) {
        const char *found = memchr(in.data + end, '\r', limit - end);
        if (!found) break;
        end = (size_t)(found - in.data);
        if (end + 1 >= limit) break;
        if (in.data[end + 1] == '\n') return end;
        end++;
    }
    *kind = in.size - at >= REPLY_MAX_LINE ? REPLY_MALFORMED : REPLY_PARTIAL;
    return 0;
}

/* 0 unless the text is a number; *fits says if it can be a vote: one of 64 bits, and no mark of the hub's. */
static inline int reply_integer(const char *text, size_t size, int64_t *number, int *fits) {
    int negative = size && text[0] == '-';
    size_t at = size && (negative || text[0] == '+');
    if (at == size || size - at > REPLY_MAX_DIGITS) return 0;
    uint64_t value = 0, most = negative ? INT64_MAX - 1 : INT64_MAX;
    for (size_t i = at; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *fits = value <= most;
    if (value > most) value = most;
    *number = negative ? -(int64_t)value : (int64_t)value;
    return 1;
}

static inline enum reply_kind reply_frame(reply_bytes in, size_t at, int depth, size_t *end);

static inline enum reply_kind reply_bulk(reply_bytes in, size_t body, int64_t length, size_t *end) {
    size_t tail = body + (size_t)length;
    if (tail < in.size && in.data[tail] != '\r') return REPLY_MALFORMED;
    if (tail + 1 < in.size && in.data[tail + 1] != '\n') return REPLY_MALFORMED;
    if (tail + 2 > in.size) return REPLY_PARTIAL;
    *end = tail + 2;
    return REPLY_OTHER;
}

static inline enum reply_kind reply_items(reply_bytes in, size_t start, size_t at, int64_t items,
                                          int depth, size_t *end) {
    for (; items > 0; items--) {
        enum reply_kind kind;
        do {
            if (at - start > REPLY_MAX_ITEMS) return REPLY_MALFORMED;
            kind = reply_frame(in, at, depth + 1, &at);
            if (kind == REPLY_PARTIAL || kind == REPLY_MALFORMED) return kind;
        } while (kind == REPLY_ATTRIBUTE);
    }
    *end = at;
    return REPLY_OTHER;
}

/* Where the reply at `at` ends. */
static inline enum reply_kind reply_frame(reply_bytes in, size_t at, int depth, size_t *end) {
    if (depth > REPLY_MAX_DEPTH) return REPLY_MALFORMED;
    if (at >= in.size) return REPLY_PARTIAL;
    char type = in.data[at];
    if (!type || !strchr("+-,#_:($!=*~>%|", type)) return REPLY_MALFORMED;
    enum reply_kind kind = REPLY_OTHER;
    size_t line = reply_line(in, at, &kind);
    if (kind != REPLY_OTHER) return kind;
    const char *text = in.data + at + 1;
    size_t size = line - at - 1;
    *end = line + 2;
    switch (type) {
    case '+': case '-': case ',':
        return memchr(text, '\r', size) || memchr(text, '\n', size) ? REPLY_MALFORMED : REPLY_OTHER;
    case '_':
        return size ? REPLY_MALFORMED : REPLY_OTHER;
    case '#':
        return size == 1 && (*text == 't' || *text == 'f') ? REPLY_OTHER : REPLY_MALFORMED;
    }
    int64_t number;
    int fits;
    if (!reply_integer(text, size, &number, &fits)) return REPLY_MALFORMED;
    if (type == ':' || type == '(') return REPLY_OTHER;
    if (number < 0) return number == -1 && (type == '$' || type == '*') ? REPLY_OTHER : REPLY_MALFORMED;
    if (number > REPLY_MAX_FRAME) return REPLY_MALFORMED;
    if (type == '$' || type == '!' || type == '=') return reply_bulk(in, line + 2, number, end);
    int pairs = type == '%' || type == '|';
    kind = reply_items(in, at, line + 2, pairs ? number * 2 : number, depth, end);
    if (kind != REPLY_OTHER) return kind;
    return type == '>' ? REPLY_PUSH : type == '|' ? REPLY_ATTRIBUTE : REPLY_OTHER;
}

/* The next reply: its kind, its end and, if it is fixed, its number. */
static inline enum reply_kind reply_next(reply_bytes in, size_t *end, int64_t *number) {
    const char *p = in.data;
    if (in.size >= 5 && !memcmp(p, "+OK\r\n", 5)) {
        *end = 5;
        *number = 1;
        return REPLY_NUMBER;
    }
    if (in.size >= 4 && p[0] == ':' && p[2] == '\r' && p[3] == '\n' && p[1] >= '0' && p[1] <= '9') {
        *end = 4;
        *number = p[1] - '0';
        return REPLY_NUMBER;
    }
    enum reply_kind kind = reply_frame(in, 0, 0, end);
    if (kind != REPLY_OTHER) return kind;
    if (p[0] == '_' || (*end == 5 && !memcmp(p, "$-1", 3))) {
        *number = 0;
        return REPLY_NUMBER;
    }
    int fits = 0;
    if (p[0] == ':' && reply_integer(p + 1, *end - 3, number, &fits) && fits) return REPLY_NUMBER;
    return REPLY_OTHER;
}

#endif
