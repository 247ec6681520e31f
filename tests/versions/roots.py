"""``python -m tests.versions.roots FOLDER``: Debian systems with versions that this machine does not have.

As root. FOLDER/trixie and FOLDER/sid come from Debian's mirror, with the settings of apt and pip on this
machine. A Python without the GIL is built from Debian's source package: some six minutes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .places import Place

TOOLS = ("ca-certificates", "gcc", "libc6-dev", "make")
SERVERS = ("redis-server", "valkey-server")
#: What CPython's modules need.
TO_BUILD = (
    "dpkg-dev", "libbz2-dev", "libffi-dev", "liblzma-dev", "libncurses-dev", "libreadline-dev",
    "libsqlite3-dev", "libssl-dev", "pkgconf", "uuid-dev", "xz-utils", "zlib1g-dev",
)  # fmt: skip
#: Of this machine, for the network of a root.
COPIED = ("etc/hosts", "etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
APT = ("apt-get", "-qq", "-o", "Acquire::Check-Valid-Until=false", "-o", "Acquire::Check-Date=false")
#: No package starts its server.
POLICY = "#!/bin/sh\nexit 101\n"
BUILD = """
set -e
cd "$(mktemp -d)"
sed 's/^deb /deb-src /' /etc/apt/sources.list >/etc/apt/sources.list.d/sources.list
{apt} update
{apt} source --download-only python{version}
tar xf python{version}_*.orig.tar.[gx]z  # a signature is beside it
cd Python-*
./configure -q --disable-gil --prefix=/opt/python{version}t
make -s -j "$(nproc)"
make -s altinstall
"""


@dataclass(frozen=True)
class System:
    """``free_threaded``: a Python of its source packages that is built without the GIL."""

    suite: str
    pythons: tuple[str, ...]
    free_threaded: str = ""


SYSTEMS = (System("trixie", ("3.13",), "3.13"), System("sid", ("3.14", "3.15")))


def main(folder: str) -> int:
    for system in SYSTEMS:
        root = Path(folder).resolve() / system.suite
        if not (root / "etc/debian_version").exists():
            subprocess.run(["debootstrap", "--variant=minbase", system.suite, root], check=True)
        prepare(root)
        place = Place(root)
        pythons = (f"python{version}{end}" for version in system.pythons for end in ("-venv", "-dev"))
        builds = TO_BUILD if system.free_threaded else ()
        install(place, *TOOLS, *SERVERS, *pythons, *builds)
        copy_settings(root)  # the package ca-certificates has replaced one
        free = system.free_threaded
        if free and not (root / f"opt/python{free}t/bin/python{free}t").exists():
            place.run("sh", "-c", BUILD.format(apt=" ".join(APT), version=free))
        print(f"{root}: {', '.join([*place.pythons(), *place.servers()])}")
    return 0


def prepare(root: Path) -> None:
    copy_settings(root)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text(POLICY)
    policy.chmod(0o755)


def copy_settings(root: Path) -> None:
    for name in COPIED:
        if Path("/", name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(Path("/", name), root / name)


def install(place: Place, *packages: str) -> None:
    place.run(*APT, "update")
    environment = ("env", "DEBIAN_FRONTEND=noninteractive")
    place.run(*environment, *APT, "install", "--yes", "--no-install-recommends", *packages)


if __name__ == "__main__":
    if len(sys.argv) != 2 or os.geteuid():
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
