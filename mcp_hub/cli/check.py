"""`mcp-hub check`: says what is wrong with a configuration, without starting anything."""

import os

import click
import msgspec

from mcp_hub.cli.programs import find_program
from mcp_hub.cli.setup import EXIT_CONFIG, config_option, read_config
from mcp_hub.cli.tables import masked, plural
from mcp_hub.config.findings import Report
from mcp_hub.config.load import Loaded
from mcp_hub.config.locate import read_document
from mcp_hub.config.schema import ServerSettings
from mcp_hub.errors import ConfigError, StartFailed
from mcp_hub.types import JsonObject

__all__ = ["check"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def check(as_json: bool, config: str | None) -> None:
    """Validate the configuration. Exit code 2 when it cannot be used; a warning is no failure."""
    try:
        loaded = read_config(config)
    except ConfigError as exc:
        errors = str(exc).split("\n")
        _print({"ok": False, "errors": errors, "warnings": []}, as_json)
        raise SystemExit(EXIT_CONFIG) from None
    found, missing = _programs(loaded)
    warnings = [masked(text, loaded.secrets) for text in (*loaded.warnings, *missing)]
    _print({"ok": True, "errors": [], "warnings": warnings, **summary(loaded, found)}, as_json)


def _programs(loaded: Loaded) -> tuple[dict[str, str], tuple[str, ...]]:
    """What each enabled server would run, and warnings about those that cannot."""
    report = _report(loaded)
    found: dict[str, str] = {}
    for name, server in loaded.settings.servers.items():
        if not server.enabled:
            continue
        if server.cwd is not None and not os.path.isdir(server.cwd):
            report.warn(("servers", name, "cwd"), f"working directory {server.cwd} does not exist")
        try:
            found[name] = find_program(server, os.environ, str(loaded.path.absolute().parent))
        except StartFailed as problem:
            key = "command" if server.local is None else "local"
            report.warn(("servers", name, key), str(problem))
    return found, report.rendered(report.warnings)


def _report(loaded: Loaded) -> Report:
    """A report that knows the lines of the file; without lines if it has changed meanwhile."""
    name = str(loaded.path)
    try:
        document = read_document(loaded.path.read_text(), name)
    except (ConfigError, OSError, ValueError):
        return Report(name)
    is_named_otherwise = isinstance(document.data, dict) and "mcpServers" in document.data
    return Report(name, document.lines, {"servers": "mcpServers"} if is_named_otherwise else {})


def summary(loaded: Loaded, found: dict[str, str]) -> JsonObject:
    """What is configured; arguments and environment are left out, they may be secret."""
    settings = loaded.settings
    return {
        "file": str(loaded.path),
        "servers": {name: _server(server, found.get(name)) for name, server in settings.servers.items()},
        "profiles": list(settings.profiles),
        "http": f"http://{settings.hub.http.host}:{settings.hub.http.port}/mcp",
        "tokens": len(settings.hub.tokens),
    }


def _server(server: ServerSettings, program: str | None) -> JsonObject:
    kind = next(key for key in ("command", "url", "local") if getattr(server, key) is not None)
    return {"kind": kind, "enabled": server.enabled, "runs": program}


def _print(report: JsonObject, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
        return
    for error in report["errors"]:
        click.echo(error, err=True)
    for warning in report["warnings"]:
        click.echo(f"warning: {warning}", err=True)
    if not report["ok"]:
        return
    servers = report["servers"]
    click.echo(f"{report['file']}: ok, {_counted(report)}")
    for name, server in servers.items():
        state = server["runs"] or "not found" if server["enabled"] else "disabled"
        click.echo(f"  {name}: {state}")


def _counted(report: JsonObject) -> str:
    parts = [
        plural(len(report["servers"]), "server"),
        plural(len(report["profiles"]), "profile"),
        plural(report["tokens"], "token"),
        plural(len(report["warnings"]), "warning"),
    ]
    return ", ".join(parts)
