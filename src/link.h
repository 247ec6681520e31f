/* One master's connection: its buffers, the replies that it owes, what is kept for the next one. */
#ifndef REDLOCK_LINK_H
#define REDLOCK_LINK_H

#include "buffer.h"
#include "hub.h"
#include "reply.h"

enum link_state { LINK_NONE, LINK_UP, LINK_BROKEN };

typedef struct {
    hub_op *op;
    int64_t sent;
    enum link_turn { FIRST, AGAIN, SKIPPED } turn; /* AGAIN: its fallback; SKIPPED: comes before what counts */
} link_slot;

/* A hash table of what a master watches, by name: a key or a prefix. */
typedef struct {
    hub_open **place; /* the first of the names there */
    size_t places;    /* a power of two */
    size_t names, votes;
    size_t prefixes[64]; /* how many votes watch a prefix of that length, modulo 64 */
} link_names;

typedef struct {
    enum link_state state;
    hub_template **dialect;
    int verbs, kind; /* links of one kind have the same dialect */
    buffer out;                                 /* appended by anybody */
    link_slot *ring;                            /* owed replies, oldest at ring_head */
    size_t ring_head, ring_size, ring_capacity; /* capacity is a power of two */
    size_t asked;                               /* how many of the owed have begun to go out */
    hub_op **kept;                              /* to be sent again: when it can, or on the next connection */
    size_t kept_size, kept_capacity;
    int64_t retry_at;                           /* no look whether it can before then */
    int64_t purge_at;                           /* none of the kept ends before */
    int64_t lagging_since, round_trip; /* 0: is not lagging; is not known */
    uint64_t late, replayed, dropped, pushes;
    int64_t unasked;                   /* bytes that are no reply and that the master may still send */
    char broken[128];
    link_names names;
    /* leader: */
    int fd;
    const hub_transport *transport;
    buffer flight, in;
    reply_scan scan; /* of the first reply in `in`; the mutex guards `looked` */
    char polled, blocked, received;
    char watched, watched_output; /* by the loop's fd */
    char moving;                  /* the transport moves bytes, */
    pthread_t mover;              /* in this thread */
    char failure[128]; /* found while sending or receiving, not told yet */
} hub_link;

link_slot *link_oldest(hub_link *l);
void link_pop(hub_link *l);
/* Encode op's command (or its fallback, or another verb's) behind what is there. 0 without memory. */
int link_encode(hub_link *l, const hub_template *t, const hub_op *op);
/* The same bytes as the last `size` of another link's. */
int link_copy(hub_link *l, const hub_link *from, size_t size);
/* The op is owed the replies of this command from now on, and keeps a reference for each. 0 without memory. */
int link_owe(hub_link *l, const hub_template *t, hub_op *op, int64_t sent, enum link_turn turn);
/* Keep to be sent again, while it is worth it. */
void link_keep(hub_link *l, hub_op *op, int64_t now, size_t bound);

/* leader: move bytes; what goes wrong is in `failure`. 0 if a signal wants attention. */
int link_send(hub_link *l);
int link_receive(hub_link *l);
/* Close for good; the fd of a connection that C owns is returned half-closed, or -1. */
int link_close(hub_link *l, int half);
void link_clear(hub_link *l);

#endif
