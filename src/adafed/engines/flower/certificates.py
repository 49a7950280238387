"""Certificates and node keys to try a deployment with: an authority, the SuperLink's certificate, a key for each node.

For tests and first steps. A real deployment has its certificates from the authority of its organisation, and every
node makes its own key and hands over only the public half.
"""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adafed.errors import AdafedError
from adafed.files import full_disk_in_a_sentence

VALID = timedelta(days=30)
NAME = re.compile(r"(?=.{1,64}$)([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.|$))+")


def make_certificates(folder: str | Path, *, host: str = "127.0.0.1", nodes: int = 3) -> Path:
    """Writes ca.crt, server.pem, server.key, and for each node its key `nodeN` and `nodeN.pub`."""
    root = Path(folder)
    if not (NAME.fullmatch(host) or _is_address(host)):
        raise AdafedError(f"--host is {host!r}; it must be an address or a name without a port, as in fl.example.org")
    with full_disk_in_a_sentence(root):
        if root.exists() and any(root.iterdir()):
            raise AdafedError(f"{root} is there and not empty; keys are never overwritten, so name a new folder")
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        root.chmod(0o700)  # also one that was there, empty and open
        authority, key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
        signed = _certificate("adafed test authority", authority, "adafed test authority", authority, None)
        served = _certificate(host, key, "adafed test authority", authority, host)
        (root / "ca.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        (root / "server.pem").write_bytes(served.public_bytes(serialization.Encoding.PEM))
        _secret(root / "server.key", key, serialization.PrivateFormat.PKCS8)
        for node in range(nodes):
            own = ec.generate_private_key(ec.SECP384R1())
            _secret(root / f"node{node}", own, serialization.PrivateFormat.OpenSSH)
            public = own.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
            (root / f"node{node}.pub").write_bytes(public + b"\n")
    return root


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    host: str | None,
) -> x509.Certificate:
    """Of the authority where `host` is None, else of that host; clients check the host against the last extension."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if host is None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(usage, critical=True)
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer, hashes.SHA384())


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _secret(file: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    content = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(content)
