# How algorithm/tokens.py is compiled: the same source, with types that C can reach into.

cimport cython
cimport machine

@cython.locals(head=bytes, number=cython.ulonglong)
cpdef bytes new_token(bytes owner=*)

cpdef list new_tokens(Py_ssize_t count, bytes owner=*)
