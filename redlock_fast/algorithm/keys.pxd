# How algorithm/keys.py is compiled: the same source, with types that C can reach into.

cimport cython

@cython.locals(name=bytes, key=bytes)
cpdef bytes key_of(bytes prefix, object resource)

cpdef list many_keys(bytes prefix, object resources)

@cython.locals(key=bytes, size=Py_ssize_t)
cpdef Py_ssize_t size_of(object keys) except -1

cpdef bytes encoded(str name, object value)
