/* Random streams of RESP, whole and damaged; all of one stream comes from one seed, or from one input. */
#ifndef REDLOCK_STREAMS_H
#define REDLOCK_STREAMS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    uint64_t state;
    const unsigned char *input; /* NULL: there is only a state */
    size_t left;
} chance;

/* So many bytes of the input as a number; behind its end there are zeros. */
static inline uint64_t taken(chance *c, int bytes) {
    uint64_t number = 0;
    for (; bytes && c->left; bytes--, c->left--) number = number << 8 | *c->input++;
    return number;
}

/* splitmix64 */
static inline uint64_t draw(chance *c) {
    if (c->input) return taken(c, 8);
    uint64_t z = (c->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline size_t below(chance *c, size_t n) {
    if (n < 2) return 0;
    if (c->input) return (size_t)(taken(c, n <= 1 << 8 ? 1 : n <= 1 << 16 ? 2 : 4) % n);
    return (size_t)(draw(c) % n);
}

#define STREAM_MAX (192u << 10)

typedef struct {
    char data[STREAM_MAX + 64];
    size_t size;
} stream;

static inline void put(stream *s, const char *data, size_t size) {
    if (s->size + size > STREAM_MAX) return;
    memcpy(s->data + s->size, data, size);
    s->size += size;
}

static inline void put_text(stream *s, const char *text) { put(s, text, strlen(text)); }

static const char *const FIXED[] = {"+OK\r\n", "$-1\r\n", "_\r\n", ":0\r\n", ":1\r\n", ":42\r\n"};

static const char *const NUMBERS[] = {
    "0", "1", "-1", "7", "+3", "00", "-0", "", "-", "+", "1.5", "12345678901", "9223372036854775807",
    "9223372036854775808", "-9223372036854775807", "-9223372036854775808", "9999999999999999999",
    "99999999999999999999", "2147483647", "2147483648", "4294967296", "1048576", "1048577", "65536", "-2", "x"};

static inline void put_number(stream *s, chance *c, size_t sane) {
    char text[24];
    if (below(c, 24) == 0) {
        put_text(s, NUMBERS[below(c, sizeof NUMBERS / sizeof *NUMBERS)]);
        return;
    }
    snprintf(text, sizeof text, "%zu", sane);
    put_text(s, text);
}

static inline void put_noise(stream *s, chance *c, size_t size) {
    static const char likely[] = "\r\n\r\n:$*+-_%~>|!=(,#0123456789OKtf";
    for (; size; size--) {
        char byte = below(c, 4) ? likely[below(c, sizeof likely - 1)] : (char)draw(c);
        put(s, &byte, 1);
    }
}

static inline void put_line(stream *s, chance *c) {
    size_t size = below(c, 200) ? below(c, 30) : 4060 + below(c, 50);
    for (; size; size--) {
        char byte = (char)(' ' + below(c, 90));
        put(s, &byte, 1);
    }
}

static inline void put_bulk(stream *s, chance *c) {
    size_t size = below(c, 300) ? below(c, 20) : below(c, 4200);
    put_number(s, c, size);
    put_text(s, "\r\n");
    put_noise(s, c, size);
}

/* One reply of any type, most of them valid. */
static inline void put_reply(stream *s, chance *c, int depth) {
    if (below(c, 3) == 0) {
        put_text(s, FIXED[below(c, sizeof FIXED / sizeof *FIXED)]);
        return;
    }
    char type = "+-,#_:($!=*~>%|"[below(c, 15)];
    put(s, &type, 1);
    if (strchr("+-,", type)) {
        put_line(s, c);
    } else if (type == '#') {
        put_text(s, below(c, 9) ? "t" : "true");
    } else if (type == ':' || type == '(') {
        put_number(s, c, draw(c) >> below(c, 64));
    } else if (type != '_') {
        if (strchr("$!=", type)) {
            put_bulk(s, c);
        } else {
            size_t items = depth > 9 ? 0 : below(c, 60) ? below(c, 4) : below(c, 3000);
            put_number(s, c, items);
            put_text(s, "\r\n");
            if (strchr("%|", type)) items *= 2;
            for (size_t i = 0; i < items && s->size < STREAM_MAX; i++) put_reply(s, c, depth + 1);
            if (type == '|') put_reply(s, c, depth + 1);
            return;
        }
    }
    put_text(s, "\r\n");
}

/* Change, lose, double or put in a few bytes. */
static inline void damage(stream *s, chance *c) {
    for (size_t times = below(c, 4); times; times--) {
        size_t at = below(c, s->size + 1), cut = below(c, 5), extra = below(c, 5);
        if (cut > s->size - at) cut = s->size - at;
        if (s->size + extra > STREAM_MAX) extra = 0;
        static stream in;
        in.size = 0;
        put_noise(&in, c, extra);
        memmove(s->data + at + extra, s->data + at + cut, s->size - at - cut);
        memcpy(s->data + at, in.data, extra);
        s->size = s->size - cut + extra;
    }
    if (below(c, 8) == 0) s->size = below(c, s->size + 1);
}

static inline void put_stream(stream *s, chance *c) {
    s->size = 0;
    if (below(c, 16) == 0) {
        put_noise(s, c, below(c, 40));
    } else {
        for (size_t replies = below(c, 6); replies; replies--) put_reply(s, c, 0);
        if (below(c, 40) == 0)
            for (size_t deep = below(c, 20); deep; deep--) put_text(s, below(c, 2) ? "*1\r\n" : "|1\r\n+a\r\n");
    }
    if (below(c, 2)) damage(s, c);
}

#endif
