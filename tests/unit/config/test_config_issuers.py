"""`hub.http.oauth`: what it may say, and what is refused because it would let anybody in."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown_all

KEYS = "https://auth.example.com/keys"
SECRET = "a-shared-key-of-32-bytes-or-more"
ISSUER = {"issuer": "https://auth.example.com", "jwks_url": KEYS}
HMAC = {"issuer": "https://auth.example.com", "shared_key": SECRET}


def loaded(oauth: Any, env: dict[str, str] | None = None, **more: Any) -> Loaded:
    data = {"hub": {"http": {"oauth": oauth}}, "servers": {"a": {"command": "x"}}, **more}
    return parse(yaml.safe_dump(data), "s", env or {}, Path("/base"))


def oauth(*issuers: Any, **more: Any) -> dict[str, Any]:
    return {"resource": "https://hub.example.com/mcp", "issuers": list(issuers) or [ISSUER], **more}


def mistakes(found: Any, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(found, **more)
    return "\n".join(shown_all(caught))


def test_an_issuer_with_its_keys_is_enough() -> None:
    found = loaded(oauth()).settings.hub.http.oauth
    assert found is not None and found.leeway == 30 and found.scopes == []
    (issuer,) = found.issuers
    assert issuer.accepted_algorithms() == ["RS256", "ES256"] and issuer.principal_claim == "sub"


def test_a_shared_key_is_secret_and_for_hmac() -> None:
    found = loaded(oauth({**HMAC, "shared_key": "${KEY}"}), {"KEY": SECRET})
    assert found.settings.hub.http.oauth is not None
    (issuer,) = found.settings.hub.http.oauth.issuers
    assert issuer.accepted_algorithms() == ["HS256"] and SECRET in found.secrets and SECRET not in repr(found)


def test_a_file_of_keys_is_relative_to_the_configuration() -> None:
    found = loaded(oauth({"issuer": "https://a.example", "jwks_file": "keys.json"}))
    assert found.settings.hub.http.oauth is not None
    assert found.settings.hub.http.oauth.issuers[0].jwks_file == "/base/keys.json"


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ({"issuers": [ISSUER]}, "hub.http.oauth.resource [missing_key]"),
        (oauth() | {"issuers": []}, "hub.http.oauth.issuers [out_of_range]"),
        (oauth({"issuer": "https://a.example"}), "hub.http.oauth.issuers[0] [missing_key]"),
        (oauth({**ISSUER, **HMAC}), "issuers[0].shared_key [conflicting_keys]"),
        (oauth({**ISSUER, "algorithms": ["HS256"]}), "issuers[0].algorithms [missing_key]"),
        (oauth({**HMAC, "algorithms": ["RS256"]}), "issuers[0].algorithms [invalid_value]"),
        (oauth({**ISSUER, "algorithms": ["RS256", "HS256"]}), "[missing_key]"),
        (oauth({**ISSUER, "algorithms": ["none"]}), "issuers[0].algorithms[0] [invalid_value]"),
        (oauth({**ISSUER, "algorithms": []}), "issuers[0].algorithms [out_of_range]"),
        (oauth({**HMAC, "shared_key": "short"}), "issuers[0].shared_key [out_of_range]"),
        (oauth({**HMAC, "algorithms": ["HS512"]}), "issuers[0].shared_key [out_of_range]"),
        (oauth({**ISSUER, "issuer": "http://auth.example.com"}), "issuers[0].issuer [invalid_value]"),
        (oauth({**ISSUER, "jwks_url": "http://auth.example.com/k"}), "issuers[0].jwks_url [invalid_value]"),
        (oauth({**ISSUER, "jwks_url": "file:///etc/passwd"}), "issuers[0].jwks_url [invalid_value]"),
        (oauth({**ISSUER, "jwks_url": "https://u:p@auth.example.com/k"}), "[invalid_value]"),
        (oauth({**ISSUER, "issuer": "https://auth.example.com#x"}), "[invalid_value]"),
        (oauth({**ISSUER, "issuer": "https://auth.example.com?x"}), "issuers[0].issuer [invalid_value]"),
        (oauth({**ISSUER, "issuer": 'https://auth.example.com/"x'}), "issuers[0].issuer [invalid_value]"),
        (oauth(ISSUER, ISSUER), "hub.http.oauth.issuers [duplicate_name]"),
        (oauth(scopes=['a"b']), "hub.http.oauth.scopes[0] [invalid_value]"),
        (oauth(scopes=["a b"]), "hub.http.oauth.scopes[0] [invalid_value]"),
        (oauth(leeway="1h"), "hub.http.oauth.leeway [out_of_range]"),
        (oauth({**ISSUER, "profile": "none"}), "issuers[0].profile [unknown_profile]"),
        (oauth({**ISSUER, "scope_profiles": {"a": "smal"}}), "scope_profiles.a [unknown_profile]"),
        (oauth({**ISSUER, "jwks_uri": KEYS}), "[unknown_key]"),
    ],
)
def test_a_mistake_is_named_with_its_place(section: Any, mistake: str) -> None:
    said = mistakes(section, profiles={"small": {}})
    assert mistake in said, said
    assert SECRET not in said and "u:p" not in said


def test_an_issuer_on_this_machine_may_do_without_tls() -> None:
    here = {"issuer": "http://127.0.0.1:9000", "jwks_url": "http://localhost:9000/keys"}
    assert loaded(oauth(here, resource="http://127.0.0.1:8765/mcp")).settings.hub.http.oauth is not None


EXAMPLES = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[3] / "docs/security.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES, ids=lambda text: text.split("\n")[1].strip())
def test_examples_of_the_documentation_load(text: str, tmp_path: Path) -> None:
    for name in ("ci-key", ".config/mcp-hub/ci-token"):
        place = tmp_path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x" * 40)
        place.chmod(0o600)
    data = {"servers": {"files": {"command": "x"}}, "profiles": {"review": {}}, **yaml.safe_load(text)}
    found = parse(yaml.safe_dump(data), "s", {"HUB_TOKEN": "y" * 40, "HOME": str(tmp_path)}, tmp_path)
    assert (found.warnings, found.notes) == ((), ()) and found.secrets
