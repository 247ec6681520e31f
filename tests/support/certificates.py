"""Certificates made for the occasion by the openssl command: good ones, and such as must be refused."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

NEW = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
LONG_AGO = ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]
#: What ``openssl ca`` wants to be told.
CONFIG = """
[ca]
default_ca = here
[here]
new_certs_dir = .
database = index
serial = serial
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


class Certificates:
    """In ``folder``: ca.crt and stranger.crt, two authorities; and signed by the first, with their keys:
    server.crt for 127.0.0.1, elsewhere.crt for another host, expired.crt.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "config").write_text(CONFIG)
        (folder / "index").touch()
        (folder / "serial").write_text("01\n")
        for name in ("ca", "stranger"):
            about = ["-subj", f"/CN={name}", "-addext", "keyUsage=keyCertSign,cRLSign"]
            self._openssl(*NEW, "-x509", "-days", "2", *self._files(name, "crt"), *about)
        self._sign("server", "IP:127.0.0.1", "-days", "2")
        self._sign("elsewhere", "DNS:elsewhere.example,IP:127.0.0.9", "-days", "2")
        self._sign("expired", "IP:127.0.0.1", *LONG_AGO)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def server(self, name: str = "server") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(f"{name}.crt"), self.path(f"{name}.key"))
        return context

    def _sign(self, name: str, hosts: str, *valid: str) -> None:
        names = ["-addext", f"subjectAltName={hosts}", "-addext", "basicConstraints=CA:FALSE"]
        self._openssl(*NEW, *self._files(name, "csr"), "-subj", f"/CN={name}", *names)
        authority = ["-cert", "ca.crt", "-keyfile", "ca.key", "-config", "config", "-batch", "-notext"]
        self._openssl("ca", *authority, "-in", f"{name}.csr", "-out", f"{name}.crt", *valid)

    def _files(self, name: str, kind: str) -> list[str]:
        return ["-keyout", f"{name}.key", "-out", f"{name}.{kind}"]

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(
            ["openssl", *words], cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
