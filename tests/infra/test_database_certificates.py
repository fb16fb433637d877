"""Authorities trusted by functions: Amazon's and RDS's of every region, and no others."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.session import Session
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from infra.bundling.bundle import BUDGET_BYTES, STANDS_ALONE, Bundle
from infra.bundling.database_certificates import (
    AMAZON_ROOTS,
    RDS_ROOTS,
    DatabaseCertificateError,
    write_database_certificates,
)

KINDS = ("RSA2048", "RSA4096", "ECC384")
RDS_NAME = re.compile(rf"Amazon RDS (?:Beta |Preview )?([a-z0-9-]+) Root CA ({'|'.join(KINDS)}) G1")


def certificates(file: Path) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(file.read_bytes())


def name(certificate: x509.Certificate) -> str:
    return str(certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bundle") / "certificates"
    write_database_certificates(made)
    return made


@pytest.mark.parametrize("function", sorted(BUDGET_BYTES.keys() - STANDS_ALONE))
def test_bundles_contain_database_certificates(
    bundle: Callable[[str], tuple[Path, Bundle]], function: str, folder: Path
) -> None:
    made, _ = bundle(function)
    for file in ("database.pem", "proxy.pem"):
        assert (made / "certificates" / file).read_bytes() == (folder / file).read_bytes()


def test_certificates_are_self_signed_roots_valid_for_years(folder: Path) -> None:
    for certificate in certificates(folder / "database.pem"):
        certificate.verify_directly_issued_by(certificate)  # self-signed
        assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert certificate.not_valid_before_utc < datetime.now(UTC)
        assert certificate.not_valid_after_utc > datetime.now(UTC) + timedelta(days=5 * 365), name(
            certificate
        )


def test_trusted_roots_are_amazon_and_rds_only(folder: Path) -> None:
    found = certificates(folder / "database.pem")
    assert len({certificate.fingerprint(hashes.SHA256()) for certificate in found}) == len(found)
    amazon, rds = found[: len(AMAZON_ROOTS)], found[len(AMAZON_ROOTS) :]
    assert {name(c): c.fingerprint(hashes.SHA256()).hex() for c in amazon} == AMAZON_ROOTS
    assert certificates(folder / "proxy.pem") == amazon
    for certificate in rds:
        assert RDS_NAME.fullmatch(name(certificate)), name(certificate)
        [organization] = certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
        assert organization.value == "Amazon Web Services, Inc."


def test_commercial_regions_have_rds_roots(folder: Path) -> None:
    names = map(name, certificates(folder / "database.pem"))
    held = {match.groups() for match in map(RDS_NAME.fullmatch, names) if match}
    regions = Session().get_available_regions("rds", "aws")
    assert len(regions) >= 34
    assert {(region, kind) for region in regions for kind in KINDS} <= held


def test_modified_certificate_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "roots.pem").write_bytes(RDS_ROOTS.read_bytes() + b"\n")
    with pytest.raises(DatabaseCertificateError, match="RDS_ROOTS_SHA256"):
        write_database_certificates(tmp_path / "out", rds_roots=tmp_path / "roots.pem")
    assert not (tmp_path / "out").exists()
