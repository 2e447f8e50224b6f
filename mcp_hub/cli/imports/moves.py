"""The move of servers out of clients' files into the configuration of the hub, for `install --import`."""

import os
from collections.abc import Sequence
from pathlib import Path

from mcp_hub.cli.clients.files.acts import FileChange
from mcp_hub.cli.clients.find import ClientFile
from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.clients.plan import KeyPath, Moved
from mcp_hub.cli.imports.asked_inputs import AskedInputs, is_anybody_there, with_agreed_paths
from mcp_hub.cli.imports.found import FoundServer, of_files
from mcp_hub.cli.imports.plan import ImportPlan, planned
from mcp_hub.cli.imports.trials import boxed_plan, print_boxed
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.servers_file.kept_secrets import KeptSecrets
from mcp_hub.cli.servers_file.servers_file import ServersFile
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.imported import ValuePlaces
from mcp_hub.masking import hide


def moved_servers(
    files: Sequence[ClientFile], config: Path, *, is_boxed: bool | None = None, is_dry: bool = False
) -> Moved:
    """The servers of these files that the hub has from now on, or has already; all others stay where they are.

    The changes are those of the hub's own files: secrets, then the configuration, with the values that a person types
    when they are asked for, and a sandbox for those that start in one. Nothing is written here. `is_dry`: nobody is
    asked about paths of Windows. Raises `ConfigError`.
    """
    file = ServersFile(config, os.environ)
    secrets = KeptSecrets(file.folder)
    inputs = AskedInputs(secrets, asks=True)
    places = ValuePlaces(inputs.ask, secrets.keep)
    plan = planned(of_files(files, Where.here(os.environ), places), file, secrets, KeptSecrets(file.folder))
    plan = with_agreed_paths(plan, yes=False, asks=is_anybody_there() and not is_dry, tells=False)
    gone = [*plan.there, *(found for one in plan.taken for found in one.found)]
    lines = [hide(on_one_line(line)) for line in _lines(plan)]

    def changes() -> list[FileChange]:
        done, found = boxed_plan(inputs.settle(plan), is_boxed, asks=is_anybody_there())
        print_boxed(found)
        return done.changes()

    return Moved(_places(gone), changes, lines, plan.origins())


def _places(gone: Sequence[FoundServer]) -> dict[Path, list[KeyPath]]:
    """The entries to remove from each file; of a list the last one first, so that the others keep their index."""
    done: dict[Path, list[KeyPath]] = {}
    for one in gone:
        if one.file is not None:
            done.setdefault(one.file, []).append(one.place)
    return {file: sorted(paths, key=lambda path: path[-1] if isinstance(path[-1], int) else 0, reverse=True)
            for file, paths in done.items()}  # fmt: skip


def _lines(plan: ImportPlan) -> list[str]:
    counted = f"{plural(len(plan.taken), 'server')} from {plural(len(plan.sources), 'client')}"
    there = {(one.name, one.source) for one in plan.there}
    stays = [one for one in plan.skipped if (one.name, one.source) not in there]
    lines = [f"{counted} to {plan.file.path}, {plural(plan.doubles, 'double')} merged"]
    if not plan.taken:
        lines = ["Nothing can be moved." if stays else "Nothing to move: these clients start no servers of their own."]
        if plan.there:
            lines = [f"No server is new to the hub: those that move are in {plan.file.path} already."]
    lines += [f"  + {one.name} ({', '.join(one.sources)})" for one in plan.taken]
    lines += [f"  warning: {one}" for one in plan.problems if one.code == "sandbox_narrowed"]
    return [*lines, *(f"  not moved: {one.name} ({one.source}): {one.reason}" for one in stays)]
