"""Builds the native engine where it can: REDLOCK_FAST_BUILD_NATIVE=yes|no|auto (default auto).

REDLOCK_FAST_TRACE=1 makes a slow build whose .pyx lines coverage can see; REDLOCK_FAST_CFLAGS adds
compiler and linker options (sanitizers, -g for a debugger). With SOURCE_DATE_EPOCH builds are reproducible.
"""

import gzip
import os
import sys
import sysconfig
import tarfile
import tempfile
import time
from glob import glob
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist
from setuptools.errors import CompileError, LinkError

CHOICE = os.environ.get("REDLOCK_FAST_BUILD_NATIVE", "auto")
if CHOICE not in ("yes", "no", "auto"):
    sys.exit(f"REDLOCK_FAST_BUILD_NATIVE must be yes, no or auto, not {CHOICE!r}")

FLAGS = os.environ.get("REDLOCK_FAST_CFLAGS", "").split()
TRACE = os.environ.get("REDLOCK_FAST_TRACE") == "1"

PARTS = (
    *("fork", "helper", "hub", "io_round", "link", "loop", "replicas", "request", "subscriptions", "waiter"),
)
HEADERS = sorted(glob("src/*.h"))

#: What every lock makes and runs through, in C from the same source: all with a .pxd. With the engine or not
#: at all, for it reaches into them, and they into each other.
TYPES = sorted(glob("redlock_fast/**/*.pxd", recursive=True))
#: Functions in C that some of them use.
IN_C = ["src/machine.pxd", "src/process.pxd"]
#: Threads that share a lock change its fields. C leaves it to the GIL to protect them; so where there is none
#: the lock stays with the interpreter, which does.
NEEDS_GIL = {
    *("locks.bodies", "locks.lock_state", "locks.batch_state", "locks.operations"),
    *("threads.operations", "aio.driver"),
}
NO_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
#: The types of fields are in the .pxd files; annotations are for people. Where an object was never made (its
#: __init__ raised, say) such a field is None: to use one is an AttributeError, as in Python, and not whatever
#: the memory behind None has.
DIRECTIVES = {
    "annotation_typing": False,
    "auto_pickle": False,
    "freethreading_compatible": False,  # not tested there: importing turns the GIL on
    "nonecheck": True,
}


#: What makes an error in C harder to use, where the compiler has it: options, and those to try otherwise.
HARDENING = (
    ("-fstack-protector-strong",),
    ("-fstack-clash-protection",),
    ("-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3", "-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"),
    ("-fcf-protection=full", "-mbranch-protection=standard"),
    ("-fvisibility=hidden",),
)
HARDENED_LINKS = (("-Wl,-z,relro,-z,now",),)
TRIED = "#include <Python.h>\nint tried(char *to, const char *from) { strcpy(to, from); return 0; }\n"


def extension(name, sources, macros=(), directives=DIRECTIVES, **more):
    made = Extension(
        f"redlock_fast.{name}",
        sources,
        define_macros=[("_GNU_SOURCE", None), *macros],
        # -g0: what Python's own flags add for debuggers is half of a wheel, and has the build's paths in it.
        extra_compile_args=["-std=c11", "-O2", "-g0", *FLAGS],
        extra_link_args=FLAGS,
        optional=CHOICE == "auto",
        **more,
    )
    made.cython_directives = directives
    return made


native = extension(
    "engine._native",
    ["src/_native.pyx", *(f"src/{name}.c" for name in PARTS)],
    macros=[("CYTHON_TRACE_NOGIL", "1")] if TRACE else [],
    directives={**DIRECTIVES, "linetrace": TRACE},
    depends=["src/hub.pxd", *HEADERS, *TYPES],
    include_dirs=["src"],
)
values = [
    extension(name, [f"redlock_fast/{name.replace('.', '/')}.py"], depends=[*TYPES, *IN_C])
    for name in (".".join(Path(types).with_suffix("").parts[1:]) for types in TYPES)
    if not (NO_GIL and name in NEEDS_GIL)
]


def notice(text):
    """Show a line at the terminal: pip hides what a build prints. Without a terminal it goes to stderr."""
    try:
        with open("/dev/tty", "w") as terminal:
            terminal.write(f"\n  redlock-fast: {text}\n")
    except OSError:
        print(f"redlock-fast: {text}", file=sys.stderr, flush=True)


class BuildExt(build_ext):
    """All of the C first, by Cython, which is not for threads; then as many compilers as there are cores."""

    def build_extensions(self):
        from Cython.Build import cythonize

        if CHOICE == "auto" and not self.works():
            notice("found no C compiler with Python's headers: installing the pure-Python engine")
            self.extensions = []
            return
        notice(
            f"compiling {len(self.extensions)} extensions, half a minute of processor time "
            "(REDLOCK_FAST_BUILD_NATIVE=no skips them)"
        )
        for ext in self.extensions:
            (made,) = cythonize(
                ext,
                force=self.force,
                quiet=not self.verbose,
                include_path=[".", "src"],  # of redlock_fast and hub.pxd: a build backend has no path to them
                build_dir=None if ext is native else "build/cython",
                compiler_directives=ext.cython_directives,
            )
            ext.sources = made.sources
        if not any(flag.startswith("-fsanitize") for flag in FLAGS):  # sanitizers do not go with all of them
            self.harden()
        self.parallel = self.parallel or True
        super().build_extensions()
        built = [Path(self.get_ext_fullpath(ext.name)) for ext in self.extensions]
        if not all(path.exists() for path in built):  # those that are optional: they need each other
            for path in built:
                path.unlink(missing_ok=True)

    def works(self):
        """Whether there is a compiler that finds Python's headers."""
        with tempfile.TemporaryDirectory() as folder:
            return _first_taken([""], self.trial(folder)) is not None

    def trial(self, folder):
        """A function that compiles ``TRIED`` with some flags."""
        source = Path(folder, "tried.c")
        source.write_text(TRIED)
        return lambda flags: self.compiler.compile(
            [str(source)], output_dir=folder, include_dirs=self.include_dirs, extra_postargs=["-O2", *flags]
        )

    def harden(self):
        """Add what this compiler and this linker take without a warning."""
        with tempfile.TemporaryDirectory() as folder:
            attempt = self.trial(folder)

            def compiles(flags):
                return attempt([*flags, "-Werror"])

            def links(flags):
                place = str(Path(folder, "tried.so"))
                self.compiler.link_shared_object(compiles([]), place, extra_postargs=flags)

            compiling = [flag for options in HARDENING for flag in _first_taken(options, compiles) or ()]
            linking = [flag for options in HARDENED_LINKS for flag in _first_taken(options, links) or ()]
        for ext in self.extensions:
            ext.extra_compile_args = [*compiling, *ext.extra_compile_args]
            ext.extra_link_args = [*linking, *ext.extra_link_args]


def _first_taken(options, attempt):
    """The flags of the first option with which ``attempt`` does not fail; None if it fails with each."""
    for option in options:
        try:
            attempt(option.split())
        except (CompileError, LinkError):
            continue
        return option.split()
    return None


class Sdist(sdist):
    """Reproducible: equal files give equal bytes, on every machine and at every time."""

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


setup(
    # The largest first: the compilers work side by side, and the last one should not be alone for long.
    ext_modules=[] if CHOICE == "no" else [native, *values],
    cmdclass={"build_ext": BuildExt, "sdist": Sdist},
)
