"""Values that VS Code asks for (`${input:NAME}`): a person at the terminal answers once, or sees how to set them."""

import os
import re
import sys
from collections.abc import Callable

from mcp_hub.cli.render.output import answer, say
from mcp_hub.cli.servers_file.kept_secrets import SERVICE
from mcp_hub.config.load.imported import Input
from mcp_hub.config.load.interpolate import escaped, variable_of_input


class AskedInputs:
    """Gives the `${…}` for each input. `keep` is called with its name and the answer of a person.

    The value comes from the environment variable of the input's name if that is set now. Else a person answers, where
    there is one. Else it is the default, if the input has one and is not a password; else an entry of the keyring, and
    the command that sets it is printed.
    """

    def __init__(self, keep: Callable[[str, str], str]) -> None:
        self._keep = keep
        self._asked: dict[str, str] = {}

    def ask(self, wanted: Input) -> str:
        """The `${…}` of an input; a person is asked once."""
        if wanted.id not in self._asked:
            self._asked[wanted.id] = self._found(wanted)
        return self._asked[wanted.id]

    def _found(self, wanted: Input) -> str:
        name, default = variable_of_input(wanted.id), wanted.default
        if name in os.environ:
            return f"${{{name}}}"
        if is_anybody_there():
            said = wanted.description or wanted.id
            return self._keep(wanted.id, answer(said, default, is_secret=wanted.password))
        if default is not None and not wanted.password:
            is_plain = "}" not in default and "${" not in default
            return f"${{{name}:-{default}}}" if is_plain else escaped(default)
        entry = re.sub(r"[^\w.-]", "_", wanted.id) or "input"
        say(f"Set the value of the input {wanted.id} with: keyring set {SERVICE} {entry}")
        return f"${{keyring:{SERVICE}/{entry}}}"


def is_anybody_there() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty()
