"""Sections of `hub.http` about access: `oauth` (access tokens), `authorization` (the hub gives them), `dashboard`."""

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints, model_validator

from mcp_hub.addresses import THIS_MACHINE, refused_place
from mcp_hub.config.schema.fields import Duration, PositiveDuration, Section, Text, TextLine, finding
from mcp_hub.config.schema.tools import Conditions

_Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"
]
_SHORTEST_KEY = {"HS256": 32, "HS384": 48, "HS512": 64}  # RFC 7518 §3.2: as long as the hash
_LONGEST_LEEWAY = 300.0


def _url(text: str) -> str:
    """https, or http to this machine: others could change keys on their way."""
    if (problem := refused_place(text, is_near=True)) is not None:
        raise ValueError(f"expected https:// with a host (http:// only for this machine), but {problem}")
    if "#" in text:
        raise ValueError("must not have a fragment")
    return text


def _identifier(text: str) -> str:
    if "?" in text:
        raise ValueError("must not have a query")  # RFC 8414 §2, RFC 9728 §1.2
    return _url(text)


def _public(text: str) -> str:
    if (problem := refused_place(text, is_near=False)) is not None:
        reason = "it is an address of this machine" if problem == THIS_MACHINE else problem
        raise ValueError(f"expected https:// with a host that others can reach, but {reason}")
    if "?" in text or "#" in text:
        raise ValueError("must not have a query or a fragment")
    return text


PublicUrl = Annotated[Text, AfterValidator(_public)]
"""The https address under which others reach the hub."""
BaseUrl = Annotated[Text, AfterValidator(_identifier)]
"""https, or http to this machine, without a query."""
_Url = Annotated[Text, AfterValidator(_url)]
_Identifier = Annotated[Text, AfterValidator(_identifier)]
# RFC 6749 §3.3; goes into a header between quotes
_Scope = Annotated[str, StringConstraints(pattern=r"^[\x21\x23-\x5b\x5d-\x7e]+$", max_length=256)]
_Scopes = Annotated[list[_Scope], Field(max_length=100)]


class IssuerSettings(Section):
    """An authorization server whose JWTs the hub accepts; its keys have one source.

    The profile: by `profile_claim`, else the first match of `scope_profiles`, else `profile`; a token that matches none
    is refused.
    """

    issuer: _Identifier
    jwks_url: _Url | None = None
    jwks_file: Text | None = None
    shared_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    algorithms: Annotated[list[_Algorithm], Field(min_length=1)] | None = None
    audience: Annotated[list[Text], Field(min_length=1, max_length=100)] | None = None
    scopes: _Scopes = []
    principal_claim: Text = "sub"
    profile_claim: Text | None = None
    scope_profiles: Annotated[dict[_Scope, Text], Field(max_length=100)] = {}
    profile: Text | None = None

    @model_validator(mode="after")
    def _has_keys_for_its_algorithms(self) -> Self:
        sources = [key for key in ("jwks_url", "jwks_file", "shared_key") if getattr(self, key) is not None]
        if not sources:
            raise finding("missing_key", 'needs a "jwks_url", a "jwks_file" or a "shared_key" to verify its tokens')
        if len(sources) > 1:
            raise finding("conflicting_keys", f"an issuer has a {sources[0]} or a {sources[1]}, not both", sources[1])
        has_shared_key = self.shared_key is not None
        for name in self.accepted_algorithms():
            if name.startswith("HS") and not has_shared_key:
                message = f"{name} needs a shared_key: with public keys anybody could sign"
                raise finding("missing_key", message, "algorithms")
            if has_shared_key and not name.startswith("HS"):
                message = f"{name} is for key pairs. A shared_key takes HS256, HS384 or HS512."
                raise finding("invalid_value", message, "algorithms")
        return self

    @model_validator(mode="after")
    def _has_a_long_key(self) -> Self:
        if self.shared_key is not None:
            needed = max(_SHORTEST_KEY[name] for name in self.accepted_algorithms())
            if len(self.shared_key.get_secret_value().encode("utf-8", "replace")) < needed:
                message = f"must have at least {needed} bytes: a shorter key can be guessed"
                raise finding("out_of_range", message, "shared_key")
        return self

    def accepted_algorithms(self) -> list[_Algorithm]:
        """The signature algorithms accepted."""
        if self.algorithms is not None:
            return self.algorithms
        return ["RS256", "ES256"] if self.shared_key is None else ["HS256"]


def _access(value: object) -> object:
    """`on` is all defaults; YAML reads a bare `on` and `off` as flags."""
    if value is True or value == "on":
        return {}
    return None if value is False or value == "off" else value


class _AuthorizationSettings(Section):
    """The hub as authorization server of its own principals. A grant ends after `idle` seconds without use.

    `registration`: clients may register themselves.
    """

    idle: PositiveDuration = 30 * 86400.0
    registration: bool = True


AuthorizationRule = Annotated[_AuthorizationSettings | None, BeforeValidator(_access)]


def _read_mode(value: object) -> object:
    """A word is the mode alone; YAML reads a bare `off` as a flag."""
    if value is False:
        return {"mode": "off"}
    return {"mode": value} if isinstance(value, str) else value


class _LoginSettings(Section):
    """People of an OpenID provider on the dashboard: those that meet one of `allow_if`; with `full_if`, all but those
    that meet one of it only read. `scopes` are asked for besides `openid`.
    """

    issuer: _Identifier
    client_id: TextLine
    client_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    scopes: _Scopes = ["profile", "email"]
    allow_if: Annotated[Conditions, Field(min_length=1)]
    full_if: Conditions | None = None

    @model_validator(mode="after")
    def _is_about_people(self) -> Self:
        for key in ("allow_if", "full_if"):
            for index, condition in enumerate(getattr(self, key) or ()):
                if misplaced := condition.patterns.keys() - {"claims", "principal"}:
                    message = f"is about a person: write claims or principal, not {min(misplaced)}"
                    raise finding("misplaced_key", message, (key, index))
        return self


class _DashboardSettings(Section):
    """The dashboard. Without `mode`, the hub's start decides."""

    mode: Annotated[Literal["off", "read", "full"], BeforeValidator(lambda value: value or "off")] | None = None
    login: _LoginSettings | None = None


DEFAULT_DASHBOARD: Final = _DashboardSettings.model_construct()
DashboardRule = Annotated[_DashboardSettings, BeforeValidator(_read_mode)]


class ResourceServerSettings(Section):
    """The HTTP front as OAuth 2.1 resource server.

    `resource`: the hub's URL for clients (RFC 8707, RFC 9728). Tokens need `scopes`, and their issuer's. `leeway`:
    allowed clock difference in seconds.
    """

    resource: _Identifier
    issuers: Annotated[list[IssuerSettings], Field(min_length=1, max_length=20)]
    scopes: _Scopes = []
    leeway: Annotated[Duration, Field(le=_LONGEST_LEEWAY)] = 30.0

    @model_validator(mode="after")
    def _has_each_issuer_once(self) -> Self:
        names = [issuer.issuer for issuer in self.issuers]
        if len(set(names)) < len(names):
            raise finding("duplicate_name", "names an issuer twice", "issuers")
        return self
