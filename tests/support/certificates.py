"""Certificates made for the occasion: good ones, and such as must be refused."""

from __future__ import annotations

import ssl
import typing
from datetime import UTC, datetime
from pathlib import Path

import pytest

if typing.TYPE_CHECKING:
    import trustme

LONG_AGO = {"not_before": datetime(2020, 1, 1, tzinfo=UTC), "not_after": datetime(2020, 1, 2, tzinfo=UTC)}


class Certificates:
    """In ``folder``: ca.crt and unknown_ca.crt, two authorities; and signed by the first, with their keys:
    server.crt for 127.0.0.1, elsewhere.crt for another host, expired.crt.
    """

    def __init__(self, folder: Path) -> None:
        trustme = pytest.importorskip("trustme")  # needs cffi, which not every Python has
        self.folder = folder
        ca, unknown_ca = trustme.CA(), trustme.CA()
        self._write("ca", ca.private_key_pem, ca.cert_pem)
        self._write("unknown_ca", unknown_ca.private_key_pem, unknown_ca.cert_pem)
        for name, certificate in (
            ("server", ca.issue_cert("127.0.0.1")),
            ("elsewhere", ca.issue_cert("elsewhere.example", "127.0.0.9")),
            ("expired", ca.issue_cert("127.0.0.1", **LONG_AGO)),
        ):
            self._write(name, certificate.private_key_pem, certificate.cert_chain_pems[0])

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def server(self, name: str = "server") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(f"{name}.crt"), self.path(f"{name}.key"))
        return context

    def server_options(self, name: str = "server") -> list[str]:
        """The options of a real server with TLS only, with the certificate ``name``."""
        options = ["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no"]
        for kind, file in (("cert", f"{name}.crt"), ("key", f"{name}.key"), ("ca-cert", "ca.crt")):
            options += [f"--tls-{kind}-file", self.path(file)]
        return options

    def _write(self, name: str, key: trustme.Blob, certificate: trustme.Blob) -> None:
        key.write_to_path(self.path(f"{name}.key"))
        certificate.write_to_path(self.path(f"{name}.crt"))
