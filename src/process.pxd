# redlock_fast/engine/process.py in C. Each compiled module that cimports it counts for itself, so only one does.

cdef extern from *:
    """
    #include <pthread.h>
    #include <unistd.h>
    static volatile long process_forks;
    static int process_counts;
    static void process_forked(void) { process_forks++; }
    __attribute__((constructor)) static void process_begin(void) {
        process_counts = !pthread_atfork(NULL, NULL, process_forked);
    }
    static inline long process_number(void) {
        return process_counts ? process_forks : (long)getpid(); /* without memory at the import */
    }
    /* Forks in C that are expected: the forking thread has the GIL meanwhile, so that no thread that the
     * child lacks has it, and in the child the interpreter drops these threads, as after os.fork. Not where
     * there are more interpreters: this thread may have the GIL for another one, and would wait for itself. */
    #if PY_VERSION_HEX < 0x030D0000
    #define PyThreadState_GetUnchecked _PyThreadState_UncheckedGet
    #endif
    static int process_fork_expected;
    static __thread int process_restarts, process_took_gil;
    static __thread PyGILState_STATE process_gil;
    static void process_before_fork(void) {
        PyInterpreterState *first = PyInterpreterState_Head();
        PyThreadState *own = PyGILState_GetThisThreadState();
        process_restarts = process_fork_expected && first && !PyInterpreterState_Next(first);
        process_took_gil = process_restarts && !(own && own == PyThreadState_GetUnchecked());
        if (process_took_gil) process_gil = PyGILState_Ensure();
    }
    static void process_after_fork(void) {
        if (process_took_gil) PyGILState_Release(process_gil);
    }
    static void process_after_fork_in_child(void) {
        process_fork_expected = 0; /* the forks of this child are Python's */
        if (process_restarts) PyOS_AfterFork_Child();
        process_after_fork();
    }
    static int process_expect_fork(void) {
        static int registered; /* later than the handlers of the hubs, which must have ended in the child */
        if (!registered)
            registered =
                !pthread_atfork(process_before_fork, process_after_fork, process_after_fork_in_child);
        return process_fork_expected = registered;
    }
    """
    long number "process_number" () noexcept
    bint expect_fork "process_expect_fork" () noexcept
