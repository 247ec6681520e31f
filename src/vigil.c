/* Requests that watch: votes that stay open until a push, or time, has changed them.
 * All with the mutex held. A request is listed as long as it is undecided. */
#include "inside.h"
#include "push.h"

/* Those that watch a key stand where its hash says, those that watch a prefix in a place of their own. */
static hub_vigil **place(hub *h, int watch, const char *key, size_t size) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    if (watch == WATCH_PREFIX) return &h->vigils[HUB_PLACES];
    for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)key[i]) * 16777619u;
    return &h->vigils[hash % HUB_PLACES];
}

int hub_begin_vigil(hub *h, hub_op *op, int master, int watch) {
    hub_vigil *v = op->vigil;
    if (!v) {
        size_t n = (size_t)h->masters;
        if (!op->args || !(v = malloc(sizeof *v + n * sizeof v->expires[0]))) return 0;
        *v = (hub_vigil){.op = op, .watch = watch, .due = FOREVER};
        for (size_t i = 0; i < n; i++) v->expires[i] = FOREVER;
        hub_vigil **first = place(h, watch, op->arg[0].data, op->arg[0].size);
        v->next = *first;
        v->link = first;
        if (v->next) v->next->link = &v->next;
        *first = op->vigil = v;
        h->listed++;
        if (op->waiter) op->waiter->watching++;
    }
    v->masters |= BIT(master);
    return 1;
}

void hub_end_vigil(hub *h, hub_op *op) {
    hub_vigil *v = op->vigil;
    if (!v || !v->link) return;
    *v->link = v->next;
    if (v->next) v->next->link = v->link;
    v->link = NULL;
    h->listed--;
    if (op->waiter) op->waiter->watching--;
}

/* The time is over when the `need` masters that are first to have granted, or expired, have done so. */
static int64_t due(const hub *h, const hub_op *op) {
    int64_t first[64];
    int count = 0;
    for (int i = 0; i < h->masters; i++) {
        int64_t when = op->values[i] > 0 ? 0 : op->vigil->expires[i];
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
    else op->vigil->expires[master] = asked + left;
    changed(h, op);
    return 1;
}

static int open_at(const hub_op *op, int master) {
    return op->vigil->masters & op->sent & BIT(master) && !hub_voted(op, master);
}

/* Those of one place that the key, or NULL for everything, is about. */
static void grant(hub *h, hub_vigil *v, int master, const reply_bytes *key) {
    for (hub_vigil *next; v; v = next) {
        next = v->next;
        hub_op *op = v->op;
        size_t size = op->arg[0].size;
        if (!open_at(op, master)) continue;
        if (key && (v->watch == WATCH_PREFIX ? key->size < size : key->size != size)) continue;
        if (key && memcmp(key->data, op->arg[0].data, size)) continue;
        hub_count(op, master, 1);
        changed(h, op);
    }
}

void hub_pushed(hub *h, int master, const char *data, size_t size) {
    push_keys keys;
    reply_bytes key;
    if (!h->listed) return;
    switch (push_read((reply_bytes){data, size}, &keys)) {
    case PUSH_OTHER:
        return;
    case PUSH_ALL:
        for (int i = 0; i <= HUB_PLACES; i++) grant(h, h->vigils[i], master, NULL);
        return;
    case PUSH_KEYS:
        while (push_key(&keys, &key)) {
            grant(h, *place(h, WATCH_KEY, key.data, key.size), master, &key);
            grant(h, h->vigils[HUB_PLACES], master, &key);
        }
    }
}

void hub_fail_open(hub *h, int master, const char *why) {
    if (!h->listed) return;
    for (int i = 0; i <= HUB_PLACES; i++) {
        for (hub_vigil *v = h->vigils[i], *next; v; v = next) {
            next = v->next;
            if (!open_at(v->op, master)) continue;
            hub_fault(v->op, master, REASON_BROKEN, why, strlen(why));
            changed(h, v->op);
        }
    }
}

void hub_end_vigils(hub *h) {
    for (int i = 0; i <= HUB_PLACES; i++)
        while (h->vigils[i]) hub_decide(h, h->vigils[i]->op);
}
