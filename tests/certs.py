"""Certificates for tests, made with `cryptography` when they are needed: a CA and what it signed, good and bad."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path

    def server_context(self, client_ca: Path | None = None) -> ssl.SSLContext:
        """A server's settings; with `client_ca` it demands a client certificate signed by it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True)
class Certs:
    """What `make_certs` made.

    Attributes:
        ca: the CA's certificate (PEM).
        other_ca: a CA that signed none of these.
        server: for localhost, 127.0.0.1 and ::1.
        client: a client's, common name `prometheus`.
        expired: like `server`, but its time is over.
        wrong_host: for `elsewhere.example` alone.
        self_signed: for localhost, signed by itself.
    """

    ca: Path
    other_ca: Path
    server: Pair
    client: Pair
    expired: Pair
    wrong_host: Pair
    self_signed: Pair


def make_certs(folder: Path) -> Certs:
    """Makes all of them as files in `folder` (about 20 ms)."""
    ca = _Signer.new(folder, "ca")
    other = _Signer.new(folder, "other-ca")
    local = ("localhost", "127.0.0.1", "::1")
    return Certs(
        ca=ca.path,
        other_ca=other.path,
        server=ca.sign(folder, "server", local),
        client=ca.sign(folder, "client", (), common_name="prometheus", client=True),
        expired=ca.sign(folder, "expired", local, days=(-20, -10)),
        wrong_host=ca.sign(folder, "wrong-host", ("elsewhere.example",)),
        self_signed=_Signer.new(folder, "self-signed", local).pair,
    )


@dataclass(frozen=True)
class _Signer:
    pair: Pair
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @property
    def path(self) -> Path:
        return self.pair.cert

    @classmethod
    def new(cls, folder: Path, name: str, hosts: tuple[str, ...] = ()) -> _Signer:
        """A certificate that signs itself; a CA unless it is for hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(f"infscale test {name}")
        builder = _builder(subject, subject, key, (-1, 30)).add_extension(
            x509.BasicConstraints(ca=not hosts, path_length=None), critical=True
        )
        if hosts:
            builder = builder.add_extension(_hosts(hosts), critical=False)
        return cls(_write(folder, name, builder.sign(key, hashes.SHA256()), key), subject, key)

    def sign(
        self,
        folder: Path,
        name: str,
        hosts: tuple[str, ...],
        *,
        common_name: str = "",
        client: bool = False,
        days: tuple[int, int] = (-1, 30),
    ) -> Pair:
        """A certificate signed by this one, valid between two days from today."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = _builder(_name(common_name or f"infscale test {name}"), self.name, key, days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if hosts:
            builder = builder.add_extension(_hosts(hosts), critical=False)
        return _write(folder, name, builder.sign(self.key, hashes.SHA256()), key)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * _DAY)
        .not_valid_after(now + days[1] * _DAY)
    )


def _hosts(hosts: tuple[str, ...]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return x509.SubjectAlternativeName(names)


def _write(folder: Path, name: str, cert: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    pair.cert.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    pair.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    pair.key.chmod(0o600)
    return pair
