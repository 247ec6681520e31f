"""Builds the native engine where it can: REDLOCK_FAST_BUILD_NATIVE=yes|no|auto (default auto).

REDLOCK_FAST_TRACE=1 makes a slow build whose .pyx lines coverage can see; REDLOCK_FAST_CFLAGS adds
compiler and linker options (sanitizers, -g for a debugger). With SOURCE_DATE_EPOCH builds are reproducible.
"""

import gzip
import os
import sys
import tarfile
import time

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

CHOICE = os.environ.get("REDLOCK_FAST_BUILD_NATIVE", "auto")
if CHOICE not in ("yes", "no", "auto"):
    sys.exit(f"REDLOCK_FAST_BUILD_NATIVE must be yes, no or auto, not {CHOICE!r}")

FLAGS = os.environ.get("REDLOCK_FAST_CFLAGS", "").split()
TRACE = os.environ.get("REDLOCK_FAST_TRACE") == "1"

PARTS = ("helper", "hub", "link", "lookout", "loop", "request", "round", "vigil", "waiter")
HEADERS = ("bell", "buffer", "hub", "inside", "link", "push", "reply", "watch")

#: What every lock makes, in C from the same source; with the engine or not at all, for it reaches into them.
VALUES = ("_answer", "_claim", "_lease", "_messages")
#: The types of fields are in the .pxd files; annotations are for people.
DIRECTIVES = {"annotation_typing": False, "auto_pickle": False, "freethreading_compatible": True}


def extension(name, sources, **more):
    made = Extension(
        f"redlock_fast.{name}",
        sources,
        define_macros=[("_GNU_SOURCE", None), *([("CYTHON_TRACE_NOGIL", "1")] if TRACE else [])],
        # -g0: what Python's own flags add for debuggers is half of a wheel, and has the build's paths in it.
        extra_compile_args=["-std=c11", "-O2", "-g0", *FLAGS],
        extra_link_args=FLAGS,
        optional=CHOICE == "auto",
        **more,
    )
    made.cython_directives = {**DIRECTIVES, "linetrace": TRACE}
    made.cython_include_dirs = ["."]  # where redlock_fast/*.pxd are; a build backend has no path to them
    return made


native = extension(
    "_native",
    ["src/_native.pyx", *(f"src/{name}.c" for name in PARTS)],
    depends=[*(f"src/{name}.h" for name in HEADERS), "redlock_fast/_messages.pxd"],
    include_dirs=["src"],
)
values = [
    extension(name, [f"redlock_fast/{name}.py"], depends=[f"redlock_fast/{name}.pxd"]) for name in VALUES
]


class Sdist(sdist):
    """The same bytes for the same files, whoever packs them, where and when."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, **_):
        when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def anonymous(member):
            member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.mtime = when
            return member

        path = f"{base_name}.tar.gz"
        with gzip.GzipFile(path, "wb", mtime=when) as file, tarfile.open(fileobj=file, mode="w") as archive:
            archive.add(base_dir, filter=anonymous)
        return path


setup(ext_modules=[] if CHOICE == "no" else [*values, native], cmdclass={"sdist": Sdist})
