# How algorithm/quorum.py is compiled: the same source, with numbers that need no objects.

cpdef double drift(double ttl, double factor)
cpdef double deadline(double start, double ttl, double factor)
