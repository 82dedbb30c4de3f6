"""Makes an authority and the certificates that it signs. No I/O."""

import ipaddress
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edgeai import times
from globalmanager.rest.certificates import ENDS_SOON

AUTHORITY_LASTS: Final = timedelta(days=3650)
LASTS: Final = timedelta(days=365)
_EARLIER: Final = timedelta(minutes=5)
"""A certificate begins so much before now: clocks of edge nodes may be behind."""
_SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
"""Of a CA that the user has made."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM."""

    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Pair(…)"  # a key never gets into a log or an error


def new_authority(now: datetime) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("edgeai CA")
    builder = _builder(name, name, key.public_key(), now, is_authority=True)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue_server(authority: Pair, host: str, now: datetime) -> Pair:
    """For the edge port.

    Args: host: the name or IP address at which edge nodes reach it
    Raises: ValueError, TypeError when the authority cannot sign
    """
    names = x509.SubjectAlternativeName([_alternative(host)])
    return _issue(authority, "globalmanager", ExtendedKeyUsageOID.SERVER_AUTH, names, now)


def issue_node(authority: Pair, node: str, now: datetime) -> Pair:
    """For an edge node that proves who it is by a client certificate."""
    names = x509.SubjectAlternativeName([x509.DNSName(node)])
    return _issue(authority, f"system:node:{node}", ExtendedKeyUsageOID.CLIENT_AUTH, names, now)


def problem_of(certificate: str, host: str, now: datetime) -> str:
    """Why the certificate of the edge port does not do for long; "" when it does."""
    try:
        leaf = x509.load_pem_x509_certificates(certificate.encode())[0]
    except ValueError as error:
        return f"cannot be read ({error})"
    if leaf.not_valid_after_utc <= now + ENDS_SOON:
        return f"ends at {times.rfc3339(leaf.not_valid_after_utc)}"
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return f"has no name {host}"
    return "" if _has(names, host) else f"has no name {host}"


def node_problem_of(certificate: str, authority: Pair, now: datetime) -> str:
    """Why the certificate of an edge node does not do for long; "" when it does."""
    try:
        leaf = x509.load_pem_x509_certificates(certificate.encode())[0]
        signer = x509.load_pem_x509_certificate(authority.certificate.encode())
        leaf.verify_directly_issued_by(signer)
    except InvalidSignature:
        return "is of another CA, as of an earlier installation"
    except (ValueError, TypeError) as error:
        return f"is of another CA, or cannot be read ({error})"
    if leaf.not_valid_after_utc <= now + ENDS_SOON:
        return f"ends at {times.rfc3339(leaf.not_valid_after_utc)}"
    return ""


def _has(names: x509.SubjectAlternativeName, host: str) -> bool:
    name = _alternative(host)
    if isinstance(name, x509.IPAddress):
        return name.value in names.get_values_for_type(x509.IPAddress)
    hosts = names.get_values_for_type(x509.DNSName)
    return host in hosts or f"*.{host.partition('.')[2]}" in hosts


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issue(
    authority: Pair,
    common_name: str,
    purpose: x509.ObjectIdentifier,
    names: x509.SubjectAlternativeName,
    now: datetime,
) -> Pair:
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    signing_key = _signing_key(authority, signer)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key())
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_name(common_name), signer.subject, key.public_key(), now)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer, critical=False)
    )
    return _pair(builder.sign(signing_key, hashes.SHA256()), key)


def _signing_key(authority: Pair, signer: x509.Certificate) -> _SigningKey:
    """Raises: ValueError, TypeError"""
    key = serialization.load_pem_private_key(authority.key.encode(), password=None)
    if not isinstance(key, _SigningKey):
        raise ValueError("its key is neither EC nor RSA")
    if key.public_key() != signer.public_key():
        raise ValueError("its key is not the key of its certificate")
    return key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    *,
    is_authority: bool = False,
) -> x509.CertificateBuilder:
    constraints = x509.BasicConstraints(is_authority, path_length=0 if is_authority else None)
    usage = x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + (AUTHORITY_LASTS if is_authority else LASTS))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(pem).decode(), private.decode())
