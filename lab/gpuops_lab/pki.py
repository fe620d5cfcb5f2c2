# Copyright: Contributors to the gpuops.k8s project
# GNU General Public License v3.0-or-later (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys and certificates of one lab, made with the cryptography library."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpuops_lab.paths import write_atomically

VALID_DAYS = 30


@dataclass(frozen=True)
class Identity:
    """Who a certificate speaks for, and the addresses it may serve."""

    common_name: str
    organization: str = ""
    addresses: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class Authority:
    """The lab's own certificate authority, in a folder of key and certificate files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gpuops-lab-ca")])
        builder = _builder(subject, subject, self._key.public_key())
        self._certificate = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(certificate_authority=True), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        write_atomically(folder / "ca.key", _private_text(self._key), 0o600)
        write_atomically(folder / "ca.crt", _certificate_text(self._certificate))

    @property
    def certificate(self) -> Path:
        """The authority's certificate file."""
        return self.folder / "ca.crt"

    def issue(self, name: str, identity: Identity, *, valid: datetime.timedelta | None = None) -> tuple[Path, Path]:
        """Write NAME.crt and NAME.key for an identity and return both paths.

        Args:
            name: File name without suffix.
            identity: Subject and subject alternative names.
            valid: How long from now; may be negative for a certificate that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, identity.common_name)]
        if identity.organization:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, identity.organization))
        builder = _builder(x509.Name(attributes), self._certificate.subject, key.public_key(), valid)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        alternative: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(a)) for a in identity.addresses]
        alternative += [x509.DNSName(dns) for dns in identity.names]
        if alternative:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        key_path, certificate_path = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        write_atomically(key_path, _private_text(key), 0o600)
        write_atomically(certificate_path, _certificate_text(certificate))
        return certificate_path, key_path


def write_service_account_key(path: Path) -> None:
    """Write the RSA key that signs service account tokens."""
    write_atomically(path, _private_text(rsa.generate_private_key(public_exponent=65537, key_size=2048)), 0o600)


def new_ssh_key(comment: str) -> tuple[str, str]:
    """Return a new Ed25519 key as private text and public line, both in OpenSSH's form."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    return private, f"{public} {comment}\n"


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    valid: datetime.timedelta | None = None,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    end = now + (datetime.timedelta(days=VALID_DAYS) if valid is None else valid)
    start = min(now, end) - datetime.timedelta(hours=1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _key_usage(*, certificate_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=certificate_authority, crl_sign=certificate_authority,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _private_text(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _certificate_text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
