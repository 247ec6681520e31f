/* src/reply.h alone: it stays inside its bytes, and what it says of a stream it says of its pieces. */
#include "fuzz.h"

#include "../src/reply.h"

typedef struct {
    enum reply_kind kind;
    size_t end;
    int64_t number;
} verdict;

/* From memory of just that size, so that one byte further is found. */
static verdict judge(const char *data, size_t size) {
    char *exact = malloc(size ? size : 1);
    memcpy(exact, data, size);
    verdict v = {.kind = REPLY_PARTIAL};
    reply_scan scan = {0};
    v.kind = reply_next((reply_bytes){exact, size}, REPLY_MAX_PUSH, &scan, &v.end, &v.number);
    free(exact);
    fuzz_inputs++;
    return v;
}

/* The prefix of that size: partial, or the same result, and a malformed prefix makes the whole malformed. */
static void check_prefix(const char *data, verdict whole, size_t size) {
    verdict v = judge(data, size);
    if (v.kind >= REPLY_MALFORMED) {
        CHECK(whole.kind >= REPLY_MALFORMED);
    } else if (v.kind == REPLY_PARTIAL) {
        CHECK(whole.kind == REPLY_PARTIAL || whole.kind >= REPLY_MALFORMED || size < whole.end);
    } else {
        CHECK(v.kind == whole.kind && v.end == whole.end && v.end <= size);
        CHECK(v.kind != REPLY_NUMBER || v.number == whole.number);
    }
}

/* In pieces of up to `most` bytes the same as whole, and no byte is looked at more than twice: as the scan counts
 * it, and as the system does. */
static void check_pieces(chance *c, const char *data, verdict whole, size_t size, size_t most) {
    reply_scan scan = {0};
    verdict v = {.kind = REPLY_PARTIAL};
    size_t came = 0;
    system_state.work = 0;
    while (v.kind == REPLY_PARTIAL && came < size) {
        came += 1 + below(c, most);
        if (came > size) came = size;
        v.kind = reply_next((reply_bytes){data, came}, REPLY_MAX_PUSH, &scan, &v.end, &v.number);
        CHECK(scan.looked <= 2 * came && system_state.work <= 2 * came);
    }
    CHECK(v.kind == whole.kind);
    if (v.kind == REPLY_PARTIAL || v.kind >= REPLY_MALFORMED) return;
    CHECK(v.end == whole.end && (v.kind != REPLY_NUMBER || v.number == whole.number));
    CHECK(!scan.at && !scan.searched && !scan.tail && !scan.depth);
}

/* `c`: where it is cut. */
static void check_stream(chance *c, const char *data, size_t size) {
    for (verdict whole; size; data += whole.end, size -= whole.end) {
        whole = judge(data, size);
        check_pieces(c, data, whole, size, 1 + below(c, size < 1000 ? 2 : 300));
        if (size < 64) {
            for (size_t cut = 1; cut < size; cut++) check_prefix(data, whole, cut);
        } else {
            for (int times = 0; times < 4; times++) check_prefix(data, whole, 1 + below(c, size - 1));
            if (whole.kind > REPLY_PARTIAL && whole.kind < REPLY_MALFORMED) check_prefix(data, whole, whole.end - 1);
        }
        if (whole.kind == REPLY_PARTIAL || whole.kind >= REPLY_MALFORMED) return;
        CHECK(whole.end >= 3 && whole.end <= size);
        CHECK(!memcmp(data + whole.end - 2, "\r\n", 2));
    }
}

static void one(chance *c) {
    static stream s;
    put_stream(&s, c);
    check_stream(c, s.data, s.size);
}

static void one_input(const char *data, size_t size) {
    chance cuts = {.state = size};
    check_stream(&cuts, data, size);
}
