"""Issuers, keys and tokens for tests: signed properly, or in every wrong way."""

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

RESOURCE = "https://hub.example.com/mcp"
ISSUER = "https://auth.example.com"
NOW = 1_800_000_000.0


@cache
def rsa_key(name: str = "one", bits: int = 2048) -> RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def ec_key(name: str = "one") -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(key: RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def private_jwk(key: RSAPrivateKey) -> dict[str, Any]:
    made = jwt.get_algorithm_by_name("RS256").to_jwk(key, as_dict=True)
    made.pop("key_ops", None)
    return {**made, "kid": "one"}


def jwk(key: Any, kid: str | None = "one", **more: Any) -> dict[str, Any]:
    """The public half of a key as a JSON Web Key."""
    if isinstance(key, rsa.RSAPrivateKey):
        algorithm = "RS256"
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = "ES256"
    else:
        algorithm = "EdDSA"
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(key.public_key(), as_dict=True)
    made.pop("key_ops", None)
    return {**made, **({} if kid is None else {"kid": kid}), "use": "sig", **more}


def key_set(*keys: Mapping[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def claims(**changed: Any) -> dict[str, Any]:
    """Of a good token; None takes a claim away."""
    usual = {"iss": ISSUER, "aud": RESOURCE, "sub": "alice", "exp": NOW + 600, "scope": "mcp read"}
    return {name: value for name, value in {**usual, **changed}.items() if value is not None}


def token(
    said: Mapping[str, Any] | None = None,
    key: Any = None,
    algorithm: str = "RS256",
    kid: str | None = "one",
    **header: Any,
) -> bytes:
    """A signed token."""
    head = {**({} if kid is None else {"kid": kid}), **header}
    signed = jwt.encode(dict(said or claims()), rsa_key() if key is None else key, algorithm=algorithm, headers=head)
    return signed.encode()


def forged(header: Mapping[str, Any], said: Mapping[str, Any] | None = None, signature: bytes = b"") -> bytes:
    """A token put together by hand."""
    parts = [json.dumps(header).encode(), json.dumps(dict(said or claims())).encode(), signature]
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
