"""The certificates, keys and kubeconfigs of one control plane, as files in its state folder."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.issue import Issued, new_authority, new_leaf

LIFETIME: Final = timedelta(days=365)
PRIVATE: Final = 0o600


class Pki:
    """One authority and what it signed, kept in a folder as NAME.crt and NAME.key."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._authority = new_authority("control-plane", now=_now(), lifetime=LIFETIME)
        self._save("ca", self._authority)

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self._authority.certificate_pem).decode()

    def issue_server(self, name: str, *names: str) -> None:
        self._save(name, new_leaf(self._authority, names, now=_now(), lifetime=LIFETIME))

    def issue_client(self, name: str, *, user: str, group: str) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._authority.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - timedelta(hours=1))
            .not_valid_after(_now() + LIFETIME)
            .add_extension(usage, critical=False)
        )
        certificate = builder.sign(self._authority.key, hashes.SHA256())
        self._save(name, Issued(certificate=certificate, key=key))

    def new_signing_key(self, name: str) -> None:
        """Write a key pair for ServiceAccount tokens: NAME.key and NAME.pub."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = serialization.Encoding.PEM
        public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
        private = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self.folder / f"{name}.pub").write_bytes(public)
        _write_private(self.key(name), private)

    def public_key(self, name: str) -> Path:
        return self.folder / f"{name}.pub"

    def _save(self, name: str, issued: Issued) -> None:
        self.certificate(name).write_bytes(issued.certificate_pem)
        _write_private(self.key(name), issued.key_pem)


def write_kubeconfig(
    path: Path, *, server: str, authority: Path, user: dict[str, Any], name: str
) -> None:
    """Write a kubeconfig of one context, readable by its owner alone."""
    cluster = {"server": server, "certificate-authority-data": encoded(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
    _write_private(path, yaml.safe_dump(config, sort_keys=False).encode())


def write_mounted(secret: Mapping[str, Any], folder: Path) -> bool:
    """Do what the kubelet does for a mounted Secret; tell whether it has a certificate yet."""
    data = secret.get("data") or {}
    folder.mkdir(exist_ok=True)
    # The certificate last: who waits for the files takes it as the sign that all are there.
    for name in ("ca.crt", "tls.key", "tls.crt"):
        if name in data:
            (folder / name).write_bytes(base64.b64decode(data[name]))
    return "tls.crt" in data


def encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write_private(path: Path, content: bytes) -> None:
    path.touch(PRIVATE)
    path.write_bytes(content)


def _now() -> datetime:
    return datetime.now(UTC)
