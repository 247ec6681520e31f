/* Requests that watch: votes that stay open until a push, or time, has changed them.
 * All with the mutex held. A request is listed as long as it is undecided. What a push costs is linear in its
 * bytes and in the votes that it changes, however many requests watch.
 */
#include "inside.h"
#include "push.h"

#define NAMES_FEWEST 64
/* Memory for more places than this is given back when none of them is in use. */
#define NAMES_KEEP 1024

/* --- what one master watches --------------------------------------------------------------- */

/* FNV-1a */
#define HASH_START UINT64_C(14695981039346656037)
static uint64_t hash_on(uint64_t hash, char byte) { return (hash ^ (unsigned char)byte) * UINT64_C(1099511628211); }

static uint64_t hash_of(const char *data, size_t size) {
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < size; i++) hash = hash_on(hash, data[i]);
    return hash;
}

static hub_open **place(const link_names *names, uint64_t hash) {
    return &names->place[(hash ^ hash >> 32) & (names->places - 1)];
}

/* What points to the first of that name, or would. There are places. */
static hub_open **find(const link_names *names, int watch, uint64_t hash, const char *data, size_t size) {
    hub_open **at = place(names, hash);
    for (; *at; at = &(*at)->next) {
        hub_vigil *v = (*at)->vigil;
        if (v->hash == hash && v->watch == watch && v->op->arg[0].size == size &&
            !memcmp(v->op->arg[0].data, data, size))
            break;
    }
    return at;
}

/* Twice as many places; 0 if there are none. */
static int grow(link_names *names) {
    link_names larger = *names;
    larger.places = names->places ? names->places * 2 : NAMES_FEWEST;
    larger.place = calloc(larger.places, sizeof *larger.place);
    if (!larger.place) return names->places > 0;
    for (size_t i = 0; i < names->places; i++) {
        for (hub_open *open = names->place[i], *next; open; open = next) {
            next = open->next;
            hub_open **at = place(&larger, open->vigil->hash);
            open->next = *at;
            if (open->next) open->next->link = &open->next;
            open->link = at;
            *at = open;
        }
    }
    free(names->place);
    *names = larger;
    return 1;
}

static void count_prefix(link_names *names, const hub_vigil *v, int more) {
    if (v->watch == WATCH_PREFIX) names->prefixes[v->op->arg[0].size % 64] += (size_t)more;
}

/* 0 without memory. */
static int enlist(link_names *names, hub_open *open) {
    hub_vigil *v = open->vigil;
    if (names->names == names->places && !grow(names)) return 0;
    hub_open **at = find(names, v->watch, v->hash, v->op->arg[0].data, v->op->arg[0].size), *first = *at;
    open->next = open->same = NULL;
    open->first = !first;
    if (first) {
        at = &first->same;
        open->same = first->same;
        if (open->same) open->same->link = &open->same;
    }
    open->link = at;
    *at = open;
    names->names += !first;
    names->votes++;
    count_prefix(names, v, 1);
    return 1;
}

void hub_forget_names(link_names *names) {
    free(names->place);
    *names = (link_names){.place = NULL};
}

static void delist(link_names *names, hub_open *open) {
    if (!open->link) return;
    hub_open *heir = open->first && !open->same ? open->next : open->same;
    if (open->first && open->same) {
        heir->first = 1;
        heir->next = open->next;
        if (heir->next) heir->next->link = &heir->next;
    }
    *open->link = heir;
    if (heir) heir->link = open->link;
    names->names -= open->first && !open->same;
    open->link = NULL;
    names->votes--;
    count_prefix(names, open->vigil, -1);
    if (!names->votes && names->places > NAMES_KEEP) hub_forget_names(names);
}

/* --- requests ------------------------------------------------------------------------------ */

int hub_begin_vigil(hub *h, hub_op *op, int master, int watch) {
    hub_vigil *v = op->vigil;
    if (!v) {
        size_t n = (size_t)h->masters;
        if (!op->args || !(v = malloc(sizeof *v + n * sizeof v->open[0]))) return 0;
        *v = (hub_vigil){.op = op, .watch = watch, .due = FOREVER};
        v->hash = hash_of(op->arg[0].data, op->arg[0].size);
        for (size_t i = 0; i < n; i++) v->open[i] = (hub_open){.vigil = v, .expires = FOREVER};
        v->next = h->vigils;
        v->link = &h->vigils;
        if (v->next) v->next->link = &v->next;
        h->vigils = op->vigil = v;
        if (op->waiter) op->waiter->watching++;
    }
    if (!v->open[master].link && !enlist(&h->links[master].names, &v->open[master])) return 0;
    v->masters |= BIT(master);
    return 1;
}

void hub_end_vigil(hub *h, hub_op *op) {
    hub_vigil *v = op->vigil;
    if (!v || !v->link) return;
    *v->link = v->next;
    if (v->next) v->next->link = v->link;
    v->link = NULL;
    for (int i = 0; i < h->masters; i++) delist(&h->links[i].names, &v->open[i]);
    if (op->waiter) op->waiter->watching--;
}

/* The time is over when the `need` masters that are first to have granted, or expired, have done so. */
static int64_t due(const hub *h, const hub_op *op) {
    int64_t first[64];
    int count = 0;
    for (int i = 0; i < h->masters; i++) {
        int64_t when = op->values[i] > 0 ? 0 : op->vigil->open[i].expires;
        if (when == FOREVER || op->values[i] == HUB_FAULT) continue;
        int at = count++;
        for (; at && first[at - 1] > when; at--) first[at] = first[at - 1];
        first[at] = when;
    }
    return count < op->need ? FOREVER : first[op->need - 1];
}

/* A vote has come, or will end. */
static void changed(hub *h, hub_op *op) {
    hub_conclude(h, op);
    if (op->decided) return;
    op->vigil->due = due(h, op);
    if (op->waiter) hub_hasten(h, op->waiter, op->vigil->due);
}

int hub_watched(hub *h, hub_op *op, int master, int64_t pttl, int64_t asked) {
    if (hub_voted(op, master)) return 1; /* a push came first */
    if (pttl < -2) return 0;
    int64_t left = pttl < 0 || pttl >= (FOREVER - asked) / MS - 1 ? FOREVER - asked : (pttl + 1) * MS;
    if (pttl == -2) hub_count(op, master, 1);
    else op->vigil->open[master].expires = asked + left;
    changed(h, op);
    return 1;
}

/* Its vote is a grant; or, if there is a reason, a fault. */
static void cast(hub *h, hub_open *open, int master, const char *why) {
    hub_op *op = open->vigil->op;
    delist(&h->links[master].names, open);
    if (!(op->vigil->masters & op->sent & BIT(master)) || hub_voted(op, master)) return;
    if (why) hub_fault(op, master, REASON_BROKEN, why, strlen(why));
    else hub_count(op, master, 1);
    changed(h, op);
}

static void cast_all(hub *h, int master, const char *why) {
    link_names *names = &h->links[master].names;
    for (size_t i = 0; names->votes && i < names->places; i++)
        while (names->votes && names->place[i]) cast(h, names->place[i], master, why);
}

static void grant(hub *h, int master, int watch, uint64_t hash, reply_bytes key) {
    link_names *names = &h->links[master].names;
    for (hub_open *open; names->votes && (open = *find(names, watch, hash, key.data, key.size));)
        cast(h, open, master, NULL);
}

/* Those that watch the key, or what it begins with. */
static void grant_key(hub *h, int master, reply_bytes key) {
    const link_names *names = &h->links[master].names;
    uint64_t hash = HASH_START;
    for (size_t size = 0;; size++) {
        if (names->prefixes[size % 64]) grant(h, master, WATCH_PREFIX, hash, (reply_bytes){key.data, size});
        if (size == key.size) break;
        hash = hash_on(hash, key.data[size]);
    }
    grant(h, master, WATCH_KEY, hash, key);
}

int hub_pushed(hub *h, int master, const char *data, size_t size) {
    const link_names *names = &h->links[master].names;
    push_keys keys;
    reply_bytes key;
    enum push_kind kind = push_read((reply_bytes){data, size}, &keys);
    if (kind == PUSH_ALL && names->votes) cast_all(h, master, NULL);
    while (kind == PUSH_KEYS && names->votes && push_key(&keys, &key)) grant_key(h, master, key);
    return kind != PUSH_ALL;
}

void hub_fail_open(hub *h, int master, const char *why) { cast_all(h, master, why); }

void hub_end_vigils(hub *h) {
    while (h->vigils) hub_decide(h, h->vigils->op);
}
