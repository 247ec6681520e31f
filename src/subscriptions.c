/* Subscriptions: requests whose votes stay open until a push or their time changes them. With the mutex held.
 * A subscription is listed as long as it is undecided. The cost of a push is linear in its bytes and in the votes
 * that it changes, however many subscriptions there are.
 */
#include "hub_internal.h"
#include "push.h"

#define SUB_BUCKETS_MIN 64
/* A larger table is freed when it has no votes. */
#define SUB_BUCKETS_KEEP 1024

/* --- the table of one master ---------------------------------------------------------------- */

/* FNV-1a */
#define HASH_START UINT64_C(14695981039346656037)
static uint64_t hash_byte(uint64_t hash, char byte) { return (hash ^ (unsigned char)byte) * UINT64_C(1099511628211); }

static uint64_t hash_of(const char *data, size_t size) {
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < size; i++) hash = hash_byte(hash, data[i]);
    return hash;
}

static hub_sub_vote **bucket(const sub_table *table, uint64_t hash) {
    return &table->buckets[(hash ^ hash >> 32) & (table->bucket_count - 1)];
}

/* Returns the pointer to the first vote of that name, or the one where it would be. The table must have buckets. */
static hub_sub_vote **find_name(const sub_table *table, int watch, uint64_t hash, const char *data, size_t size) {
    hub_sub_vote **at = bucket(table, hash);
    for (; *at; at = &(*at)->next) {
        hub_sub *sub = (*at)->sub;
        if (sub->hash == hash && sub->watch == watch && sub->op->arg[0].size == size &&
            !memcmp(sub->op->arg[0].data, data, size))
            break;
    }
    return at;
}

/* Doubles the number of buckets. Returns 0 if there are none. */
static int grow_table(sub_table *table) {
    sub_table larger = *table;
    larger.bucket_count = table->bucket_count ? table->bucket_count * 2 : SUB_BUCKETS_MIN;
    larger.buckets = calloc(larger.bucket_count, sizeof *larger.buckets);
    if (!larger.buckets) return table->bucket_count > 0;
    for (size_t i = 0; i < table->bucket_count; i++) {
        for (hub_sub_vote *vote = table->buckets[i], *next; vote; vote = next) {
            next = vote->next;
            hub_sub_vote **at = bucket(&larger, vote->sub->hash);
            vote->next = *at;
            if (vote->next) vote->next->pprev = &vote->next;
            vote->pprev = at;
            *at = vote;
        }
    }
    free(table->buckets);
    *table = larger;
    return 1;
}

static void count_prefix(sub_table *table, const hub_sub *sub, int more) {
    if (sub->watch == WATCH_PREFIX) table->prefixes[sub->op->arg[0].size % 64] += (size_t)more;
}

/* Adds a vote to the table. Returns 0 without memory. */
static int list_vote(sub_table *table, hub_sub_vote *vote) {
    hub_sub *sub = vote->sub;
    if (table->names == table->bucket_count && !grow_table(table)) return 0;
    hub_sub_vote **at = find_name(table, sub->watch, sub->hash, sub->op->arg[0].data, sub->op->arg[0].size);
    hub_sub_vote *first = *at;
    vote->next = vote->next_same_name = NULL;
    vote->first_of_name = !first;
    if (first) {
        at = &first->next_same_name;
        vote->next_same_name = first->next_same_name;
        if (vote->next_same_name) vote->next_same_name->pprev = &vote->next_same_name;
    }
    vote->pprev = at;
    *at = vote;
    table->names += !first;
    table->votes++;
    count_prefix(table, sub, 1);
    return 1;
}

void hub_free_sub_table(sub_table *table) {
    free(table->buckets);
    *table = (sub_table){.buckets = NULL};
}

static void unlist_vote(sub_table *table, hub_sub_vote *vote) {
    if (!vote->pprev) return;
    hub_sub_vote *successor = vote->first_of_name && !vote->next_same_name ? vote->next : vote->next_same_name;
    if (vote->first_of_name && vote->next_same_name) {
        successor->first_of_name = 1;
        successor->next = vote->next;
        if (successor->next) successor->next->pprev = &successor->next;
    }
    *vote->pprev = successor;
    if (successor) successor->pprev = vote->pprev;
    table->names -= vote->first_of_name && !vote->next_same_name;
    vote->pprev = NULL;
    table->votes--;
    count_prefix(table, vote->sub, -1);
    if (!table->votes && table->bucket_count > SUB_BUCKETS_KEEP) hub_free_sub_table(table);
}

/* --- requests ------------------------------------------------------------------------------- */

int hub_subscribe(hub *h, hub_op *op, int master, int watch) {
    hub_sub *sub = op->sub;
    if (!sub) {
        size_t n = (size_t)op->master_count;
        if (!op->args || !(sub = malloc(sizeof *sub + n * sizeof sub->votes[0]))) return 0;
        *sub = (hub_sub){.op = op, .watch = watch, .deadline = FOREVER};
        sub->hash = hash_of(op->arg[0].data, op->arg[0].size);
        for (size_t i = 0; i < n; i++) sub->votes[i] = (hub_sub_vote){.sub = sub, .expires = FOREVER};
        sub->next = h->subs.first;
        sub->pprev = &h->subs.first;
        if (sub->next) sub->next->pprev = &sub->next;
        h->subs.first = op->sub = sub;
        if (op->waiter) op->waiter->subscribed++;
    }
    if (!sub->votes[master].pprev && !list_vote(&h->links[master].subs, &sub->votes[master])) return 0;
    sub->masters |= BIT(master);
    return 1;
}

void hub_unsubscribe(hub *h, hub_op *op) {
    hub_sub *sub = op->sub;
    if (!sub || !sub->pprev) return;
    *sub->pprev = sub->next;
    if (sub->next) sub->next->pprev = sub->pprev;
    sub->pprev = NULL;
    for (int i = 0; i < op->master_count; i++) unlist_vote(&h->links[i].subs, &sub->votes[i]);
    if (op->waiter) op->waiter->subscribed--;
}

/* A subscription ends when the masters that have granted or expired are a quorum. */
static int64_t subscription_deadline(const hub_op *op) {
    struct { int64_t when; uint64_t master; } first[64]; /* the earliest first */
    int count = 0;
    for (int i = 0; i < op->master_count; i++) {
        int64_t when = op->values[i] > 0 ? 0 : op->sub->votes[i].expires;
        if (when == FOREVER || op->values[i] == HUB_FAULT) continue;
        int at = count++;
        for (; at && first[at - 1].when > when; at--) first[at] = first[at - 1];
        first[at].when = when;
        first[at].master = BIT(i);
    }
    uint64_t ended = 0;
    for (int i = 0; i < count; i++)
        if (hub_is_quorum(op, ended |= first[i].master)) return first[i].when;
    return FOREVER;
}

/* A vote was counted, or its expiry is known. */
static void on_subscription_change(hub *h, hub_op *op) REQUIRES(h) {
    hub_decide_if_determined(h, op);
    if (op->decided) return;
    int64_t before = op->sub->deadline;
    op->sub->deadline = subscription_deadline(op);
    if (op->waiter && op->sub->deadline < before) hub_move_deadline_earlier(h, op->waiter, op->sub->deadline);
}

int hub_subscription_reply(hub *h, hub_op *op, int master, int64_t pttl, int64_t asked) {
    if (hub_has_voted(op, master)) return 1; /* a push came first */
    if (pttl < -2) return 0;
    int64_t left = pttl < 0 || pttl >= (FOREVER - asked) / MS - 1 ? FOREVER - asked : (pttl + 1) * MS;
    if (pttl == -2) hub_count_vote(op, master, 1);
    else op->sub->votes[master].expires = asked + left;
    on_subscription_change(h, op);
    return 1;
}

/* Makes the open vote a grant; or a fault, if there is a reason. */
static void cast_vote(hub *h, hub_sub_vote *vote, int master, const char *why) REQUIRES(h) {
    hub_op *op = vote->sub->op;
    unlist_vote(&h->links[master].subs, vote);
    if (!(op->sub->masters & op->sent & BIT(master)) || hub_has_voted(op, master)) return;
    if (why) hub_count_fault(op, master, REASON_BROKEN, why, strlen(why));
    else hub_count_vote(op, master, 1);
    on_subscription_change(h, op);
}

static void cast_all_votes(hub *h, int master, const char *why) REQUIRES(h) {
    sub_table *table = &h->links[master].subs;
    for (size_t i = 0; table->votes && i < table->bucket_count; i++)
        while (table->votes && table->buckets[i]) cast_vote(h, table->buckets[i], master, why);
}

static void grant_name(hub *h, int master, int watch, uint64_t hash, reply_bytes key) REQUIRES(h) {
    sub_table *table = &h->links[master].subs;
    for (hub_sub_vote *vote; table->votes && (vote = *find_name(table, watch, hash, key.data, key.size));)
        cast_vote(h, vote, master, NULL);
}

/* Grants the votes that watch the key or one of its prefixes. */
static void grant_key(hub *h, int master, reply_bytes key) REQUIRES(h) {
    const sub_table *table = &h->links[master].subs;
    uint64_t hash = HASH_START;
    for (size_t size = 0;; size++) {
        if (table->prefixes[size % 64]) grant_name(h, master, WATCH_PREFIX, hash, (reply_bytes){key.data, size});
        if (size == key.size) break;
        hash = hash_byte(hash, key.data[size]);
    }
    grant_name(h, master, WATCH_KEY, hash, key);
}

int hub_handle_push(hub *h, int master, const char *data, size_t size) {
    const sub_table *table = &h->links[master].subs;
    push_keys keys;
    reply_bytes key;
    enum push_kind kind = push_read((reply_bytes){data, size}, &keys);
    if (kind == PUSH_ALL && table->votes) cast_all_votes(h, master, NULL);
    while (kind == PUSH_KEYS && table->votes && push_key(&keys, &key)) grant_key(h, master, key);
    return kind != PUSH_ALL;
}

void hub_fail_subscriptions(hub *h, int master, const char *why) { cast_all_votes(h, master, why); }

void hub_end_subscriptions(hub *h) {
    while (h->subs.first) hub_decide(h, h->subs.first->op);
}
