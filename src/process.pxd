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
    """
    long number "process_number" () noexcept
