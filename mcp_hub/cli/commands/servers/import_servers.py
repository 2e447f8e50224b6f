"""`mcp-hub import`: the servers of another client's file, as a `servers.yaml` of the hub.

Values that the other client would ask for, and those of its files of variables, are secrets: they are kept in files of
their own, for nobody else's eyes, and never in the configuration.
"""

import os
import re
import sys
from pathlib import Path

import click
import yaml

from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import fail, fail_with
from mcp_hub.config.load.imported import Input, ValuePlaces, imported
from mcp_hub.config.load.interpolate import variable_of_input
from mcp_hub.errors import ConfigError
from mcp_hub.stores.locks import make_folder

_SECRETS = "secrets"


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option(
    "--output", metavar="FILE", default="servers.yaml", show_default=True,
    help="The file to write. It must not exist yet.",
)  # fmt: skip
def import_servers(file: str, output: str) -> None:
    """Make a servers.yaml of the servers in another client's FILE.

    A value of ${input:NAME} comes from the environment variable NAME; if that is not set, the command asks for it on a
    terminal. Answers, and the variables of an envFile, are kept in the folder `secrets` beside the output.
    """
    target = Path(output).absolute()
    if target.exists():
        fail("output_exists", f"{target} exists already. Choose another file with --output.")
    values = _Values()
    try:
        servers, warnings = imported(Path(file), os.environ, ValuePlaces(values.ask, values.keep))
    except ConfigError as exc:
        fail_with(exc)
    tables.print_warnings(warnings)
    text = yaml.safe_dump({"servers": servers}, sort_keys=False, allow_unicode=True, width=120)
    try:
        for name, value in values.kept.items():
            make_folder(target.parent / _SECRETS)
            _write(target.parent / _SECRETS / name, value + "\n")  # the reader removes one line break
        _write(target, text)
    except OSError as problem:
        fail("output_unwritable", f"{problem.filename} cannot be written: {problem.strerror}. Choose another --output.")
    say(f"Imported {tables.plural(len(servers), 'server')} into {target}. Run: mcp-hub check --config {target}")


class _Values:
    """The `${…}` for values from outside; `kept` are texts by the name of the file to keep them in."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self._asked: dict[str, str] = {}

    def ask(self, wanted: Input) -> str:
        """Of an input: its variable, or a file with the answer of a person, who is asked once."""
        if wanted.id not in self._asked:
            self._asked[wanted.id] = self._found(wanted)
        return self._asked[wanted.id]

    def keep(self, server: str, name: str, value: str) -> str:
        """Of a variable of a server."""
        return self._kept(f"{server}.{name}", value)

    def _found(self, wanted: Input) -> str:
        name = variable_of_input(wanted.id)
        if name not in os.environ and _is_anybody_there():
            said = wanted.description or wanted.id
            return self._kept(
                wanted.id, click.prompt(said, default=wanted.default, hide_input=wanted.password, err=True)
            )
        if name not in os.environ and wanted.default is None:
            say(f"warning: set the environment variable {name}, or run this command in a terminal, which asks for it")
        default = wanted.default
        return f"${{{name}}}" if default is None or "}" in default or "${" in default else f"${{{name}:-{default}}}"

    def _kept(self, name: str, value: str) -> str:
        file = re.sub(r"[^\w.-]", "_", name).lstrip(".") or "value"
        while self.kept.get(file, value) != value:
            file += "_"
        self.kept[file] = value
        return f"${{file:{_SECRETS}/{file}}}"


def _is_anybody_there() -> bool:
    return sys.stdin.isatty()


def _write(path: Path, text: str) -> None:
    """A new file for nobody else's eyes. Raises `OSError`."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w", encoding="utf-8") as out:
        out.write(text)
