# How _keys.py is compiled: the same source, with types that C can reach into.

cimport cython

@cython.locals(name=bytes)
cpdef bytes key_of(bytes prefix, object resource)

cpdef list many_keys(bytes prefix, object resources)

cpdef bytes encoded(str name, object value)
