# How algorithm/tokens.py is compiled: the same source, with types that C can reach into.

cimport cython

@cython.locals(head=bytes, token=bytes)
cpdef bytes new_token(bytes owner=*)

cpdef list new_tokens(Py_ssize_t count, bytes owner=*)
