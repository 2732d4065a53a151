"""Loaded beside the example of admission, which makes certificates with a library that does not know every OpenSSL.

It is the last to choose the server, so the example stays as it is: same handlers, certificates from elsewhere.
"""

import datetime
import ipaddress
import pathlib
import tempfile
from typing import Any

import kopf
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST = "127.0.0.1"


def certificate(name, key, issuer=None, issuer_key=None):
    """A certificate of an authority, or of a server if it has an issuer."""
    now = datetime.datetime.now(datetime.timezone.utc)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer:
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key or key, hashes.SHA256())


@kopf.on.startup()
def choose_server(settings: kopf.OperatorSettings, **_: Any) -> None:
    folder = pathlib.Path(tempfile.mkdtemp())
    pem = serialization.Encoding.PEM
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = certificate("webhooks of a test", authority_key)
    served = certificate(HOST, key, authority, authority_key)
    (folder / "ca.pem").write_bytes(authority.public_bytes(pem))
    (folder / "cert.pem").write_bytes(served.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    settings.admission.server = kopf.WebhookServer(
        host=HOST, cafile=folder / "ca.pem", certfile=folder / "cert.pem", pkeyfile=folder / "key.pem"
    )
