"""
Certificates and keys for one run of the lab.

Problem: TLS and client certificates behave differently from plain HTTP with a fixed password, and a lab that leaves
them out hides faults. Promise: an authority is made at each start, lives in memory and in one private folder, signs
for loopback only, and is valid for days, not years. The extensions satisfy strict verification (Python 3.13 and later
demand the key identifiers).
"""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = timedelta(days=30)
"""Longer than anybody keeps a lab running; short enough that a leaked key is soon worthless."""

BACKDATED: Final = timedelta(minutes=5)
"""For clocks that disagree a little, such as a virtual machine's after a pause."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Never show the key."""
        return "Pair(...)"


class Authority:
    """A certificate authority of its own for one run."""

    def __init__(self, *, now: datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agentterminal lab")])
        usage = _build_key_usage(signs_certificates=True)
        self._certificate = (
            self._begin(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """Return what clients trust, as PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue_server(self, *names: str) -> Pair:
        """Issue for a server that is reached under these names and addresses."""
        return self._issue(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]),
            ExtendedKeyUsageOID.SERVER_AUTH,
            x509.SubjectAlternativeName([_build_general_name(name) for name in names]),
        )

    def issue_client(self, user: str, *groups: str) -> Pair:
        """Issue for a user of the API server: the common name is the user, each organization a group."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self, subject: x509.Name, purpose: x509.ObjectIdentifier, names: x509.SubjectAlternativeName | None
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._begin(subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_build_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(certificate.public_bytes(serialization.Encoding.PEM), render_private_key(key))

    def _begin(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - BACKDATED)
            .not_valid_after(self._now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def build_signing_key() -> ec.EllipticCurvePrivateKey:
    """Make the key that signs service account tokens."""
    return ec.generate_private_key(ec.SECP256R1())


def render_private_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Render a private key as PEM, unencrypted: the folder it lies in is private."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def render_public_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Render the public half as PEM."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _build_general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _build_key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
