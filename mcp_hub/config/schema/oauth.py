"""The `oauth` section: the login to a remote server."""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator

from mcp_hub.addresses import is_this_machine, origin_parts, refused_place
from mcp_hub.config.schema.scalars import NoFlag, Text
from mcp_hub.config.schema.section import Section, finding

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # a scope token (RFC 6749 §3.3)
_SECRETS: Final = ("client_secret", "private_key")


class OAuthSettings(Section):
    """The login to a remote server; all keys are optional."""

    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    client_id: Text | None = None
    client_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    token_auth: Literal["basic", "post"] | None = None
    private_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    algorithm: Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"] = "RS256"
    client_metadata_url: Text | None = None
    issuer: Text | None = None
    scopes: list[Text] = []
    redirect_port: Annotated[int, Field(ge=1, le=65535), NoFlag] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for key in _SECRETS:
            if getattr(self, key) is not None and self.client_id is None:
                raise finding("missing_key", 'belongs to a client: set "client_id", too', key)
        if self.token_auth is not None and self.client_secret is None:
            raise finding("missing_key", 'says how a client_secret is sent: set "client_secret", too', "token_auth")
        if self.client_id is not None and self.client_metadata_url is not None:
            message = "client_id already says who the hub is. Keep one of them."
            raise finding("conflicting_keys", message, "client_metadata_url")
        if self.grant == "client_credentials":
            self._check_machine()
        elif self.private_key is not None:
            message = 'is for "grant: client_credentials"; a login in a browser takes a client_secret'
            raise finding("misplaced_key", message, "private_key")
        return self

    def _check_machine(self) -> None:
        if [getattr(self, key) is None for key in _SECRETS].count(False) != 1:
            message = 'client_credentials needs either a "client_secret" or a "private_key"'
            raise finding("missing_key", message, "grant")
        if self.issuer is None:  # else a secret could be sent to a server that somebody else names
            raise finding("missing_key", 'client_credentials needs "issuer", the server that gets the secret', "grant")

    @model_validator(mode="after")
    def _names_real_places(self) -> Self:
        for key in ("issuer", "client_metadata_url"):
            url: str | None = getattr(self, key)
            if url is not None and refused_place(url, is_near=True) is not None:
                raise finding("invalid_value", "expected an https:// URL (http:// only for this machine)", key)
        url = self.client_metadata_url
        if url is not None and (is_this_machine(origin_parts(url)[1]) or origin_parts(url)[2] in ("", "/")):
            message = "expected an https:// URL with a path, which everybody can read"
            raise finding("invalid_value", message, "client_metadata_url")
        if not all(_SCOPE.fullmatch(scope) for scope in self.scopes):
            message = "a scope has printable ASCII characters only, no spaces, quotes or backslashes"
            raise finding("invalid_value", message, "scopes")
        return self

    def secrets(self) -> set[str]:
        return {value.get_secret_value() for key in _SECRETS if (value := getattr(self, key)) is not None}
