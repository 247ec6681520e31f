# How wire/slots.py is compiled: the same source, with the types of its hot function.

cpdef int slot_of(bytes key) except -1
