"""Entries of the user's keyring, through the package `keyring` (the extra of that name)."""

import importlib
from typing import Any


class KeyringProblem(Exception):
    """An entry that cannot be read; the message says how to fix it and holds nothing secret."""


def password(service: str, name: str) -> str:
    """The entry. The keyring may ask its user to unlock it, which this waits for. Raises: KeyringProblem."""
    try:
        keyring: Any = importlib.import_module("keyring")
    except ImportError:
        raise KeyringProblem("no keyring is installed; add it with: pip install 'mcp-hub[keyring]'") from None
    try:
        found = keyring.get_password(service, name)
    except Exception as problem:  # each system's keyring has errors of its own
        raise KeyringProblem(f"the keyring cannot be read: {type(problem).__name__}") from None
    if not isinstance(found, str):
        raise KeyringProblem(f"the keyring has no {service}/{name}; store it with: keyring set {service} {name}")
    return found
