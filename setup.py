"""Builds the native engine where it can: REDLOCK_FAST_BUILD_NATIVE=yes|no|auto (default auto)."""

import os
import sys

from setuptools import Extension, setup

CHOICE = os.environ.get("REDLOCK_FAST_BUILD_NATIVE", "auto")
if CHOICE not in ("yes", "no", "auto"):
    sys.exit(f"REDLOCK_FAST_BUILD_NATIVE must be yes, no or auto, not {CHOICE!r}")

NATIVE = Extension(
    "redlock_fast._native",
    sources=["src/_native.pyx", "src/hub.c", "src/link.c"],
    depends=["src/hub.h", "src/link.h", "src/buffer.h", "src/reply.h"],
    include_dirs=["src"],
    extra_compile_args=["-std=c11", "-O2", *os.environ.get("REDLOCK_FAST_CFLAGS", "").split()],
    optional=CHOICE == "auto",
)

setup(ext_modules=[] if CHOICE == "no" else [NATIVE])
