"""Certificate authority of one deployment, for PgBouncer as Amazon's for RDS Proxy."""

import os
from dataclasses import dataclass
from pathlib import Path

from vectorforge.local.account import Account


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files of a server and its clients."""

    root: Path
    """Root certificate for clients."""
    certificate: Path
    """Certificate of the server, for localhost and 127.0.0.1."""
    key: Path
    """Private key of the server."""


def make_certificates(folder: Path, account: Account) -> Certificates:
    """Create an authority and a server's certificate, unless they exist. The authority's key is discarded.

    Args:
        folder: An existing folder.
        account: Only this account can read the server's key.
    """
    import trustme

    files = Certificates(folder / "root.pem", folder / "server.pem", folder / "server.key")
    if files.key.exists():
        return files
    authority = trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1")
    files.root.write_bytes(authority.cert_pem.bytes())
    files.certificate.write_bytes(b"".join(part.bytes() for part in server.cert_chain_pems))
    unfinished = files.key.with_suffix(".new")
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(server.private_key_pem.bytes())
    if account.is_other:
        os.chown(unfinished, account.uid, account.gid)
    unfinished.replace(files.key)
    return files
