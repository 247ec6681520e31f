# How aio/owner_names.py is compiled: the same source, with types that C can reach into.

cimport cython

@cython.locals(part=bytes)
cpdef bytes task_owner(object loop=*)
