"""The declarations of hub.h that the compiled engine uses."""

from libc.stdint cimport int64_t, uint64_t


cdef extern from "sys/types.h" nogil:
    ctypedef Py_ssize_t ssize_t


cdef extern from "hub.h" nogil:
    enum: HUB_MAX_ARGS, HUB_MAX_MASTERS
    int64_t HUB_NO_REPLY
    int64_t HUB_FAULT
    enum: REASON_NONE, REASON_BROKEN, REASON_REPLY
    enum hub_state: HUB_DONE, HUB_SIGNALS

    ctypedef struct hub:
        pass

    ctypedef struct hub_waiter:
        hub_waiter *next
        void *owner

    ctypedef struct hub_detail:
        hub_detail *next
        int master
        size_t size
        char *text

    ctypedef struct hub_quorum:
        int need, lists

    ctypedef struct hub_op:
        int granted, refused, faulty, master_count
        hub_quorum quorum
        uint64_t sent
        hub_detail *details
        unsigned char *reasons
        int64_t *values

    struct template_part:  # unnamed in C
        int slot

    ctypedef struct hub_template:
        int args
        int rollback_verb
        int leading_replies
        int watch
        int reply
        int confirm_verb
        int replicas
        hub_template *fallback
        template_part *part

    ctypedef struct hub_transport:
        ssize_t (*send)(void *context, const char *data, size_t size) noexcept
        ssize_t (*receive)(void *context, char *data, size_t size) noexcept
        void *context
        char failure[128]

    ctypedef struct hub_connection_state:
        char attached
        const char *broken
        size_t pending
        int64_t lag, round_trip
        uint64_t late_replies, resent, resend_dropped, pushes, scanned

    hub_template *hub_template_new(int parts)
    int hub_template_text(hub_template *t, int part, const char *text, size_t size)
    void hub_template_free(hub_template *t)
    hub *hub_new(int masters, size_t max_pending, size_t max_buffer, size_t max_resend, double lag_after, int parallel)
    void hub_free(hub *h)
    void hub_retain(hub *h)
    void hub_release(hub *h)
    void hub_quorum_add(hub_quorum *quorum, uint64_t masters, int need)
    hub_op *hub_op_new(hub *h, int verb, const hub_quorum *quorum, int wait, uint64_t masters, double resend_for,
                       int args, const char **data, const size_t *sizes)
    void hub_op_release(hub_op *op)
    bint hub_has_quorum(const hub_op *op)
    hub_state hub_exchange(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout)
    hub_state hub_wait(hub *h, hub_waiter *w)
    int hub_leave(hub *h, hub_waiter *w)
    int hub_loop_fd(hub *h)
    void hub_close_loop_fd(hub *h)
    void hub_submit(hub *h, hub_waiter *w, hub_op **ops, size_t count, double timeout, double idle_timeout, void *owner)
    void hub_flush(hub *h)
    hub_waiter *hub_on_ready(hub *h)
    int64_t hub_next_timeout(hub *h)
    int hub_open_kick(hub *h)
    void hub_attach(hub *h, int master, int fd, const hub_transport *transport, hub_template **dialect,
                    int verbs, int kind)
    int hub_detach(hub *h, int master)
    void hub_grow(hub *h, int masters)
    int hub_close(hub *h, int *fds)
    void hub_maintain(hub *h)
    int hub_drain(hub *h, double timeout)
    void hub_get_connection_state(hub *h, int master, hub_connection_state *state)
    uint64_t hub_breaks(hub *h)
    void hub_stop_helper(hub *h)
    void hub_after_fork_in_child(hub *h)
