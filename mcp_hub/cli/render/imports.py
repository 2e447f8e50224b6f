"""An import for people: the servers to take, those that stay where they are and why, and the costs in tokens."""

import click
from msgspec.structs import asdict

from mcp_hub.cli.imports.costs import MeasuredCosts
from mcp_hub.cli.imports.plan import ImportPlan
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.servers import described
from mcp_hub.config.findings import on_one_line
from mcp_hub.masking import hide, hide_within, visible
from mcp_hub.types import JsonObject


def print_plan(plan: ImportPlan) -> None:
    """Prints the servers to take to stdout, each with its exact command; everything else to stderr."""
    for one in plan.taken:
        old = f"; there: {', '.join(one.old_names)}" if one.old_names else ""
        lines = ((f"{one.name} ({', '.join(one.sources)}{old})", "bold"), (f"  {described(one.own)}", ""))
        tables.print_lines([(visible(hide(on_one_line(text))), style) for text, style in lines])
    if not plan.sources and not plan.skipped and not plan.problems:
        say("No servers of other clients were found. Add one with: mcp-hub add NAME -- COMMAND")
        return
    counted = [tables.plural(len(plan.taken), "server"), f"from {tables.plural(len(plan.sources), 'source')}"]
    say(f"{' '.join(counted)}, {tables.plural(plan.doubles, 'double')} merged, {len(plan.skipped)} not taken")
    for gone in plan.skipped:
        say(hide(on_one_line(f"not taken: {gone.name} ({gone.source}): {gone.reason}")))
    for one in plan.taken:
        if one.left_out:
            say(f"{one.name}: the hub does not have these keys: {', '.join(one.left_out)}")
    for problem in plan.problems:
        say(hide(f"warning: {problem}"))


def data_of(plan: ImportPlan, *, written: bool, costs: MeasuredCosts | None) -> JsonObject:
    """The import as `--json` prints it."""
    taken = [
        {"name": one.name, "from": one.sources, "entry": hide_within(one.own), "left_out": one.left_out}
        for one in plan.taken
    ]
    gone = [{"name": one.name, "from": one.source, "reason": hide(one.reason)} for one in plan.skipped]
    counted = None if costs is None else {**asdict(costs), "absent": [one.server for one in costs.absent]}
    return {
        **{"file": str(plan.file.path), "written": written, "servers": taken, "not_taken": gone},
        **{"doubles": plan.doubles, "tokens": counted, "warnings": [hide(str(one)) for one in plan.problems]},
    }


def print_costs(costs: MeasuredCosts) -> None:
    """Prints the tokens before and after."""
    click.echo(
        f"{tables.plural(costs.tools, 'tool')}: {costs.before:,} tokens listed in full, {costs.after:,} by the hub"
    )
    tables.print_missing(costs.absent)
