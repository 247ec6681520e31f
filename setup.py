"""Builds the native engine where it can: REDLOCK_FAST_BUILD_NATIVE=yes|no|auto (default auto).

REDLOCK_FAST_TRACE=1 makes a slow build whose .pyx lines coverage can see; REDLOCK_FAST_CFLAGS adds
compiler and linker options (sanitizers).
"""

import os
import sys

from setuptools import Extension, setup

CHOICE = os.environ.get("REDLOCK_FAST_BUILD_NATIVE", "auto")
if CHOICE not in ("yes", "no", "auto"):
    sys.exit(f"REDLOCK_FAST_BUILD_NATIVE must be yes, no or auto, not {CHOICE!r}")

FLAGS = os.environ.get("REDLOCK_FAST_CFLAGS", "").split()
TRACE = os.environ.get("REDLOCK_FAST_TRACE") == "1"

PARTS = ("helper", "hub", "link", "lookout", "loop", "request", "round", "vigil", "waiter")
HEADERS = ("bell", "buffer", "hub", "inside", "link", "push", "reply", "watch")

native = Extension(
    "redlock_fast._native",
    sources=["src/_native.pyx", *(f"src/{name}.c" for name in PARTS)],
    depends=[f"src/{name}.h" for name in HEADERS],
    include_dirs=["src"],
    define_macros=[("_GNU_SOURCE", None), *([("CYTHON_TRACE_NOGIL", "1")] if TRACE else [])],
    extra_compile_args=["-std=c11", "-O2", *FLAGS],
    extra_link_args=FLAGS,
    optional=CHOICE == "auto",
)
if TRACE:
    native.cython_directives = {"linetrace": True}

setup(ext_modules=[] if CHOICE == "no" else [native])
