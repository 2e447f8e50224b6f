"""Secrets in the arguments of a command, and arguments that only look like one."""

from collections import Counter

import pytest

from mcp_hub.config.load import secrets
from mcp_hub.config.load.secrets import is_secret, secret_arguments
from mcp_hub.masking import Mask


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
