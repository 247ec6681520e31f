/* Finds the end of a RESP reply, and the vote of a fixed reply.
 *
 * +OK, $-1, _ and :n are fixed replies; every other whole reply is passed on as bytes. The scan of an incomplete
 * reply resumes where it stopped, so that no byte is read more than twice. The rules for malformed replies are those
 * of redlock_fast/wire/resp.py. Source: the RESP specification, redis.io.
 */
#ifndef REDLOCK_REPLY_H
#define REDLOCK_REPLY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum reply_kind {
    REPLY_PARTIAL,   /* more bytes are needed */
    REPLY_NUMBER,    /* a fixed reply: its number is the vote */
    REPLY_OTHER,     /* a whole reply of another shape, such as an error */
    REPLY_PUSH,      /* RESP3: not a reply to a request */
    REPLY_ATTRIBUTE, /* RESP3: the reply itself follows */
    REPLY_MALFORMED,
    REPLY_TOO_LONG /* it begins well, and is or will be longer than the caller allows */
};

#define REPLY_MAX (4u << 10)        /* bytes of a whole reply */
#define REPLY_MAX_PUSH (128u << 10) /* bytes of a whole push, which names a key */
#define REPLY_MAX_DEPTH 8
#define REPLY_MAX_DIGITS 19
#define REPLY_LEAST 3 /* the shortest item, in bytes */
#define REPLY_HEAD 4  /* bytes of a line that are checked before its end arrives */

typedef struct {
    const char *data;
    size_t size;
} reply_bytes;

/* The state of a scan. Offsets count from the start of the reply. All zero: at a new reply. */
typedef struct {
    size_t at;       /* start of the incomplete line */
    size_t searched; /* before this offset the line has no end */
    size_t tail;     /* end of the incomplete bulk string, or 0 */
    int depth;
    uint32_t open[REPLY_MAX_DEPTH]; /* by depth: twice the number of missing items, plus one for an attribute */
    uint64_t looked; /* number of bytes read, of all replies */
} reply_scan;

static inline void reply_restart(reply_scan *s) {
    s->at = s->searched = s->tail = 0;
    s->depth = 0;
}

/* Parses a decimal number. Returns 0 if the text is none. *fits: it is a 64-bit number that can be a vote. */
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

/* Returns the maximum length of a line of this type, without the type. A longer line is malformed. */
static inline size_t reply_max_line(char type) {
    if (type == '+' || type == '-' || type == ',') return REPLY_MAX_PUSH;
    return type == '_' ? 0 : type == '#' ? 1 : REPLY_MAX_DIGITS + 1;
}

/* Whether a line of this type can begin with these bytes. Without this check the parser waits for the end of
 * random bytes, and takes the next replies for a part of their line. */
static inline int reply_begins(char type, const char *text, size_t size) {
    if (type == '-') {
        for (size_t i = 0; i < size && i < REPLY_HEAD; i++)
            if (text[i] < 32 || text[i] > 126) return 0;
        return 1;
    }
    return !size || !strchr(":($!=*~>%|", type) || (*text && strchr("0123456789+-", *text));
}

/* Parses a whole line of `size` bytes behind its type: the length of a bulk string, or the number of items that
 * follow. */
static inline enum reply_kind reply_line(char type, const char *text, size_t size, int64_t *length, int64_t *items) {
    int fits;
    *length = -1;
    *items = 0;
    switch (type) {
    case '+': case '-': case ',':
        return memchr(text, '\n', size) ? REPLY_MALFORMED : REPLY_OTHER;
    case '_':
        return size ? REPLY_MALFORMED : REPLY_OTHER;
    case '#':
        return size == 1 && (*text == 't' || *text == 'f') ? REPLY_OTHER : REPLY_MALFORMED;
    }
    int64_t number;
    if (!reply_integer(text, size, &number, &fits)) return REPLY_MALFORMED;
    if (type == ':' || type == '(') return REPLY_OTHER;
    if (number < 0) return number == -1 && (type == '$' || type == '*') ? REPLY_OTHER : REPLY_MALFORMED;
    if (number > REPLY_MAX_PUSH) return REPLY_MALFORMED;
    if (type == '$' || type == '!' || type == '=') *length = number;
    else *items = type == '%' || type == '|' ? number * 2 : number;
    return REPLY_OTHER;
}

/* Finds the end of a reply of at most `most` bytes. */
static inline enum reply_kind reply_resume(reply_bytes in, size_t most, reply_scan *s, size_t *end) {
    size_t stop = in.size < most ? in.size : most;
    for (;;) {
        if (s->at >= stop) break;
        char type = in.data[s->at];
        if (!s->tail) {
            if (s->searched == s->at && (!type || !strchr("+-,#_:($!=*~>%|", type))) return REPLY_MALFORMED;
            const char *found = memchr(in.data + s->searched, '\r', stop - s->searched);
            size_t line = found ? (size_t)(found - in.data) : stop;
            s->looked += line + (found != NULL) - s->searched;
            if (s->searched <= s->at + REPLY_HEAD && line > s->at &&
                !reply_begins(type, in.data + s->at + 1, line - s->at - 1))
                return REPLY_MALFORMED;
            s->searched = line;
            if (line > s->at + 1 + reply_max_line(type)) return REPLY_MALFORMED;
            if (line + 1 >= stop) break;
            if (in.data[line + 1] != '\n') return REPLY_MALFORMED;
            int64_t length, items;
            s->looked += line - s->at;
            if (reply_line(type, in.data + s->at + 1, line - s->at - 1, &length, &items) == REPLY_MALFORMED)
                return REPLY_MALFORMED;
            size_t after = line + 2;
            if (length >= 0) s->tail = after + (size_t)length;
            if (s->tail + 2 > most || after + REPLY_LEAST * (size_t)items > most) return REPLY_TOO_LONG;
            if (!s->tail) s->at = s->searched = after;
            if (items) {
                if (s->depth == REPLY_MAX_DEPTH) return REPLY_MALFORMED;
                s->open[s->depth++] = 2 * (uint32_t)items + (type == '|');
                continue;
            }
        }
        if (s->tail) {
            size_t there = stop - s->tail;
            if (stop <= s->tail) break;
            s->looked += there < 2 ? there : 2;
            if (in.data[s->tail] != '\r' || (there > 1 && in.data[s->tail + 1] != '\n')) return REPLY_MALFORMED;
            if (there < 2) break;
            s->at = s->searched = s->tail + 2;
            s->tail = 0;
        }
        int attribute = type == '|'; /* an attribute belongs to the item that follows */
        while (s->depth && !attribute && (s->open[s->depth - 1] -= 2) <= 1) attribute = (int)s->open[--s->depth];
        if (s->depth) continue;
        *end = s->at;
        reply_restart(s);
        return *in.data == '>' ? REPLY_PUSH : *in.data == '|' ? REPLY_ATTRIBUTE : REPLY_OTHER;
    }
    return in.size >= most ? REPLY_TOO_LONG : REPLY_PARTIAL;
}

/* Finds the next reply, whose scan may have begun: its kind, its end and, if it is fixed, its number. A push has
 * at most `most_pushed` bytes. */
static inline enum reply_kind reply_next(
    reply_bytes in, size_t most_pushed, reply_scan *s, size_t *end, int64_t *number
) {
    const char *p = in.data;
    if (in.size >= 5 && !memcmp(p, "+OK\r\n", 5)) {
        reply_restart(s);
        *end = 5;
        *number = 1;
        return REPLY_NUMBER;
    }
    if (in.size >= 4 && p[0] == ':' && p[2] == '\r' && p[3] == '\n' && p[1] >= '0' && p[1] <= '9') {
        reply_restart(s);
        *end = 4;
        *number = p[1] - '0';
        return REPLY_NUMBER;
    }
    if (!in.size) return REPLY_PARTIAL;
    enum reply_kind kind = reply_resume(in, *p == '>' ? most_pushed : REPLY_MAX, s, end);
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
