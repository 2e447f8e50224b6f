"""Variables of real servers with made values: which are secrets, and which stay readable.

A line of `secret_samples.txt` is a name and a value. `<a36>` is 36 random letters and digits, `<l8>` small letters and
digits, `<h32>` hexadecimal digits, `<d8>` digits, `<b40>` base64, `<u>` a UUID; the same in each run. The second sample
was written before the rules were tuned on the first.
"""

import base64
import json
import random
import re
import string
import uuid
from collections import Counter
from pathlib import Path

import pytest

from mcp_hub.config.load import secrets
from mcp_hub.config.load.secrets import is_secret, secret_arguments
from mcp_hub.masking import Mask

_ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "l": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "h": "0123456789abcdef",
    "d": string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "w": string.ascii_letters + string.digits + "_-",
    "s": string.ascii_letters + string.digits + "!#$%&*",
}


SAMPLES = Path(__file__).with_name("secret_samples.txt").read_text()


def samples(table: str, seed: int = 0) -> list[tuple[str, str]]:
    """The names and values of a table, the random parts filled in."""
    chance = random.Random(f"{table} {seed}")
    lines = SAMPLES.partition(f"# {table}\n")[2].partition("\n\n")[0].splitlines()
    pairs = [line.split(" ", 1) for line in lines]
    return [
        (name, re.sub(r"<([A-Za-z-]+?)(\d*)>", lambda part: filled(part[1], part[2], chance), template))
        for name, template in pairs
    ]


def filled(kind: str, length: str, chance: random.Random) -> str:
    if kind in _ALPHABETS and length:
        return "".join(chance.choices(_ALPHABETS[kind], k=int(length)))
    body = "\n".join("".join(chance.choices(_ALPHABETS["b"], k=64)) for _ in range(4))
    pem = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    account = {"type": "service_account", "project_id": "acme-data", "private_key": pem, "client_id": "1083"}
    match kind:
        case "u":
            return str(uuid.UUID(int=chance.getrandbits(128), version=4))
        case "private-key":
            return pem
        case "basic":
            return base64.b64encode(f"jane:{filled('a', '12', chance)}".encode()).decode()
        case "tskey":
            return f"tskey-auth-{filled('a', '17', chance)}-{filled('a', '32', chance)}"
        case "service-account":
            return json.dumps(account)
        case "service-account-encoded":
            return base64.b64encode(json.dumps(account).encode()).decode()
    raise ValueError(kind)


FORMS = """
dapi<h32> sbp_<h40> sntryu_<h64> glsa_<h32>_<h8> dop_v1_<h64> figd_<l24> shpat_<h32> squ_<h40> e2b_<h40> npg_<l12>
fc-<h32> sk-<h32> key-<h32> glpat-<l20> xoxb-<d12>-<d12>-<l24> hf_<l34> ntn_<l46> lin_api_<l40> AKIA<U16> npm_<l36>
hvs.<l24> SG.<l22>.<l43> eyJhbGciOiJIUzI1NiJ9.<l40>.<l20> ghp_<l36> github_pat_<l22>_<l59> apify_api_<l36> tvly-<l32>
"""


def test_form_of_a_token_is_recognized_under_every_name_and_within_a_text() -> None:
    chance = random.Random(1)
    for template in FORMS.split():
        token = re.sub(r"<([a-zA-Z])(\d+)>", lambda part: filled(part[1], part[2], chance), template)
        for text in (token, f"use {token}", f"--with={token}", f"https://mcp.example/{token}/sse"):
            assert is_secret("THING", text) and is_secret("THING_ID", text), text
            assert any(token in text for text in secret_arguments(["run", text])[1]), text


@pytest.mark.parametrize("sample", ["", "held out "], ids=["tuned", "held-out"])
@pytest.mark.parametrize("seed", range(5))
def test_secrets_of_real_servers_are_recognized_and_their_settings_stay_readable(sample: str, seed: int) -> None:
    secrets, plain = samples(f"{sample}secrets", seed), samples(f"{sample}plain", seed)
    missed = [pair for pair in secrets if not is_secret(*pair)]
    hidden = [pair for pair in plain if is_secret(*pair)]
    assert len(missed) <= len(secrets) // 100, missed
    assert len(hidden) <= len(plain) // 10, hidden


@pytest.mark.parametrize(
    ("args", "secret"),
    [
        (["--apiKey", "hunter22"], "hunter22"),
        (["-u", "root", "-p", "hunter22"], "hunter22"),
        (["-uroot", "-phunter22"], "hunter22"),
        (["--user=root", "-p", "hunter22"], "hunter22"),
        (["--username", "root", "-p", "123456"], "123456"),
        (["-u", "jane:hunter22"], "hunter22"),
        (["--user=jane:hunter22"], "hunter22"),
        (["-H", "Cookie: sid=abcd1234; other=zz9911"], "zz9911"),
        (["--header", "X-Api-Key: ab cd ef gh"], "ab cd ef gh"),
        (["--header=X-Api-Key: hunter22"], "hunter22"),
        (["--header=Cookie: sid=abcd1234; other=zz9911"], "zz9911"),
        (["--env=TOKEN=hunter22"], "hunter22"),
        (["--env=GMAIL_APP_PASSWORD=abcd efgh ijkl mnop"], "abcd efgh ijkl mnop"),
        (["-eTOKEN=hunter22"], "hunter22"),
        (["--password=two words"], "two words"),
        (["--password", "-Xy7$k.."], "-Xy7$k.."),
        (['--headers={"X-Api-Key": "hunter22"}'], "hunter22"),
        (["-e", 'OPENAPI_MCP_HEADERS={"Cookie": "sid=hunter22"}'], "hunter22"),
        (["--keys", '["hunter22", "hunter23"]'], "hunter23"),
        (["scott/hunter22@//db.example.com:1521/orcl"], "hunter22"),
    ],
)
def test_a_secret_in_an_argument_is_recognized_however_the_flag_is_written(args: list[str], secret: str) -> None:
    texts = {text for of_one in secret_arguments(args).values() for text in of_one}
    assert secret not in Mask(texts)(" ".join(args))


@pytest.mark.parametrize(
    "args",
    [
        ["run", "-u", "1000:1000", "-p", "8080:80", "x"],
        ["--user=1000:1000"],
        ["-u", "app", "-p", "127.0.0.1:80:80"],
        ["-u", "app", "-p", "8080:80/tcp"],
        ["-p", "@acme/tools", "run"],
        ["-prod"],
        ["--password", "--verbose"],
        ["--token", "-v"],
        ["--header=Accept: application/json"],
        ["--env=MODE=production-eu"],
        ["--user", "jane"],
        ["acme/tools@1.2.3", "@acme/tools@next"],
        ["a/b@sha256:0123456789abcdef"],
    ],
)
def test_ports_users_packages_and_settings_in_arguments_stay_readable(args: list[str]) -> None:
    assert secret_arguments(args) == {}


def test_a_list_under_the_name_of_a_secret_holds_secrets_of_their_own() -> None:
    assert is_secret("CONFIG", '{"api_keys": ["hunter22"], "team": "platform-eu"}')
    assert not is_secret("CONFIG", '{"topics": ["hunter22"], "team": "platform-eu"}')


def test_many_arguments_are_looked_at_once() -> None:
    looks = Counter[str]()

    class Flag:
        def match(self, text: str) -> bool:
            looks[text] += 1
            return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secrets, "_USER_FLAG", Flag())
        secret_arguments([*map(str, range(1000))])
    assert len(looks) == looks.total()
