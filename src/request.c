/* Requests: command templates, arguments, votes. */
#include "hub_internal.h"

hub_template *hub_template_new(int parts) {
    hub_template *t = calloc(1, sizeof *t + (size_t)parts * sizeof t->part[0]);
    if (!t) return NULL;
    t->parts = parts;
    t->rollback_verb = t->confirm_verb = -1;
    return t;
}

int hub_template_text(hub_template *t, int part, const char *text, size_t size) {
    t->part[part].text = malloc(size ? size : 1);
    if (!t->part[part].text) return 0;
    memcpy(t->part[part].text, text, size);
    t->part[part].size = size;
    return 1;
}

void hub_template_free(hub_template *t) {
    if (!t) return;
    hub_template_free(t->fallback);
    for (int i = 0; i < t->parts; i++) free(t->part[i].text);
    free(t);
}

/* Returns the most votes against that prevent no quorum. A master of a list that the hub does not have never grants. */
static int most_against(const hub_quorum *quorum, size_t masters) {
    int most = (int)masters - quorum->need;
    for (int i = 0; i < quorum->lists; i++) {
        int of_list = __builtin_popcountll(quorum->list[i].masters & (BIT(masters) - 1)) - quorum->list[i].need;
        if (of_list < most) most = of_list;
    }
    return most;
}

hub_op *hub_op_new(hub *h, int verb, const hub_quorum *quorum, int wait, uint64_t masters, double resend_for, int args,
                   const char **data, const size_t *sizes) {
    size_t n = (size_t)hub_masters(h), size = sizeof(hub_op) + n * (sizeof(int64_t) + 1);
    for (int i = 0; i < args; i++) size += sizes[i];
    hub_op *op = malloc(size);
    if (!op) return NULL;
    memset(op, 0, sizeof *op);
    op->references = 1;
    op->verb = verb;
    op->master_count = (int)n;
    op->quorum = *quorum;
    op->quorum.most_against = most_against(quorum, n);
    op->wait = (char)wait;
    op->masters = masters & (BIT(n) - 1);
    op->resend_for = hub_later(0, resend_for);
    for (size_t i = 0; i < n; i++) op->values[i] = HUB_NO_REPLY;
    op->reasons = (unsigned char *)(op->values + n);
    memset(op->reasons, 0, n);
    char *text = (char *)op->reasons + n;
    op->args = args;
    for (int i = 0; i < args; i++) {
        memcpy(text, data[i], sizes[i]);
        op->arg[i].data = text;
        op->arg[i].size = sizes[i];
        text += sizes[i];
    }
    return op;
}

static void free_details(hub_op *op) {
    while (op->details) {
        hub_detail *detail = op->details;
        op->details = detail->next;
        free(detail);
    }
}

void hub_op_release(hub_op *op) {
    if (__atomic_sub_fetch(&op->references, 1, __ATOMIC_ACQ_REL)) return;
    free_details(op);
    free(op->sub);
    free(op);
}

/* --- votes ---------------------------------------------------------------------------------- */

void hub_count_vote(hub_op *op, int master, int64_t value) {
    if (hub_has_voted(op, master)) return;
    op->values[master] = value;
    if (value == HUB_FAULT) op->faulty++;
    else if (value > 0) op->granted++;
    else op->refused++;
}

void hub_count_fault(hub_op *op, int master, enum hub_reason reason, const char *text, size_t size) {
    if (op->decided || hub_has_voted(op, master)) return;
    op->reasons[master] = (unsigned char)reason;
    hub_detail *detail = text ? malloc(sizeof *detail + size) : NULL;
    if (detail) {
        detail->next = op->details;
        detail->master = master;
        detail->size = size;
        memcpy(detail->text, text, size);
        op->details = detail;
    }
    hub_count_vote(op, master, HUB_FAULT);
}

void hub_forget(hub_op *op) {
    free_details(op);
    for (int i = 0; i < op->master_count; i++) {
        op->values[i] = HUB_FAULT;
        op->reasons[i] = REASON_NOT_CONNECTED;
    }
    op->granted = op->refused = op->pending = 0;
    op->faulty = op->master_count;
    op->sent = 0;
    op->decided = 1;
}

/* --- quorums: the twin of PendingRequest in redlock_fast/engine/pure/request.py -------------- */

void hub_quorum_add(hub_quorum *quorum, uint64_t masters, int need) {
    if (need > quorum->need) quorum->need = need;
    quorum->list[quorum->lists].masters = masters;
    quorum->list[quorum->lists++].need = need;
}

int hub_is_quorum(const hub_op *op, uint64_t masters) {
    const hub_quorum *quorum = &op->quorum;
    if (!quorum->lists) return __builtin_popcountll(masters) >= quorum->need;
    for (int i = 0; i < quorum->lists; i++)
        if (__builtin_popcountll(masters & quorum->list[i].masters) < quorum->list[i].need) return 0;
    return 1;
}

/* Returns the mask of the masters whose votes are in this range. */
static uint64_t voters(const hub_op *op, int64_t least, int64_t most) {
    uint64_t found = 0;
    for (int i = 0; i < op->master_count; i++)
        if (op->values[i] >= least && op->values[i] <= most) found |= BIT(i);
    return found;
}

int hub_has_quorum(const hub_op *op) {
    return op->granted >= op->quorum.need && (!op->quorum.lists || hub_is_quorum(op, voters(op, 1, INT64_MAX)));
}

/* Whether the refusals prevent a quorum; the refusals and the faults if `faults`. */
static int cannot_have_quorum(const hub_op *op, int faults) {
    int against = op->refused + (faults ? op->faulty : 0);
    if (against <= op->quorum.most_against || !op->quorum.lists) return against > op->quorum.most_against;
    uint64_t all = BIT(op->master_count) - 1;
    return !hub_is_quorum(op, all & ~voters(op, faults ? HUB_FAULT : HUB_FAULT + 1, 0));
}

int hub_is_determined(const hub_op *op) {
    if (op->sub) return hub_has_quorum(op) || cannot_have_quorum(op, 1);
    if (!op->pending) return 1;
    return op->wait != WAIT_ALL && (hub_has_quorum(op) || cannot_have_quorum(op, op->wait == WAIT_EARLY));
}
