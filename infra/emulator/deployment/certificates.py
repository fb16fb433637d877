"""A certificate authority for one deployment: what Amazon's is for RDS Proxy, this one is for PgBouncer."""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vectorforge.local.account import Account

if TYPE_CHECKING:  # only who deploys locally has it
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_YEARS = datetime.timedelta(days=3650)


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in a folder."""

    folder: Path

    @property
    def root(self) -> Path:
        """What clients trust."""
        return self.folder / "root.pem"

    @property
    def certificate(self) -> Path:
        """Of the server, for localhost and 127.0.0.1."""
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        """Of the server."""
        return self.folder / "server.key"


def make_certificates(folder: Path, account: Account) -> Certificates:
    """Make an authority and a server's certificate, unless they are there. The authority's key is not kept.

    Args:
        folder: Is there.
        account: The only one that may read the server's key.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    files = Certificates(folder)
    if files.key.exists():
        return files
    authority_key, server_key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    authority = _certificate("VectorForge local root", authority_key, None, authority_key)
    server = _certificate("localhost", server_key, authority, authority_key)
    files.root.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    files.certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    secret = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    unfinished = files.key.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(secret)
    if account.is_other:
        os.chown(unfinished, account.uid, account.gid)
    unfinished.replace(files.key)
    return files


def _certificate(
    name: str,
    key: "EllipticCurvePrivateKey",
    issuer: "x509.Certificate | None",
    issuer_key: "EllipticCurvePrivateKey",
) -> "x509.Certificate":
    """A certificate; without an issuer one of an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _YEARS)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        names: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
