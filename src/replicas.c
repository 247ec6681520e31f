/* Grants that count when replicas have them: rule 15 of the contract, the command WAIT.
 *
 * A server executes no later command of a connection before it has answered WAIT. So one WAIT follows all requests of a
 * flush, and one at most is pending: a request that is submitted meanwhile waits for the end of two at most.
 */
#include "hub_internal.h"

#include <stdio.h>

void hub_append_wait(hub *h, int master) {
    static const hub_quorum nobody = {0};
    hub_link *l = &h->links[master];
    if (l->wait_pending) return;
    hub_op *op = hub_op_new(h, l->wait_verb, &nobody, WAIT_EARLY, BIT(master), 0, 0, NULL, NULL);
    if (!op) return;
    const hub_template *t = l->dialect[op->verb];
    size_t before = buffer_size(&l->out);
    op->decided = 1;
    if (link_encode(l, t, op) && link_add_pending(l, t, op, hub_now(), SLOT_REPLY)) {
        l->wait_pending = 1;
        l->wait_due = 0;
    } else {
        l->out.tail = l->out.head + before;
    }
    hub_op_release(op);
}

int hub_hold(hub *h, hub_link *l, hub_op *op, int64_t vote) {
    if (l->held_size >= h->max_pending) return 0;
    if (l->held_size == l->held_capacity) {
        size_t capacity = l->held_capacity ? l->held_capacity * 2 : 16;
        link_grant *held = realloc(l->held, capacity * sizeof *held);
        if (!held) return 0;
        l->held = held;
        l->held_capacity = capacity;
    }
    l->held[l->held_size++] = (link_grant){op, vote};
    op->held |= BIT(l - h->links);
    return 1;
}

void hub_give_up_held(hub_op *op) {
    static const char reply[] = "-NOREPLICAS replicas have not acknowledged the grant in time\r\n";
    for (int i = 0; i < op->master_count; i++)
        if (op->held & BIT(i)) hub_count_fault(op, i, REASON_REPLY, reply, sizeof reply - 1);
}

void hub_end_wait(hub *h, int master, int needed, enum reply_kind kind, reply_bytes reply, int64_t number,
                  int64_t now) {
    hub_link *l = &h->links[master];
    char text[96];
    if (kind == REPLY_NUMBER && number < needed) {
        int size = snprintf(text, sizeof text, "-NOREPLICAS %lld of %d replicas acknowledged the grant in time\r\n",
                            (long long)number, needed);
        reply = (reply_bytes){text, (size_t)size};
        kind = REPLY_OTHER;
    }
    for (size_t i = 0; i < l->held_size; i++) {
        link_slot slot = {l->held[i].op, 0, SLOT_REPLY};
        hub_count_reply(h, master, &slot, kind, reply, l->held[i].vote, now);
        hub_op_release(slot.op);
    }
    l->held_size = 0;
    l->wait_pending = 0;
    if (l->wait_due) h->output_pending = 1;
}

void hub_fail_held(hub *h, int master, const char *why) {
    hub_link *l = &h->links[master];
    for (size_t i = 0; i < l->held_size; i++) {
        hub_op *op = l->held[i].op;
        op->pending -= !hub_has_voted(op, master);
        hub_count_fault(op, master, REASON_BROKEN, why, strlen(why));
        hub_decide_if_determined(h, op);
        hub_op_release(op);
    }
    l->held_size = 0;
    l->wait_due = l->wait_pending = 0;
}
