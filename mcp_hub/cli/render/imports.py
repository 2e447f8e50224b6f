"""An import for people: the servers to take, those that stay where they are and why, and the costs in tokens."""

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict

from mcp_hub.cli.imports.costs import MeasuredCosts
from mcp_hub.cli.imports.plan import ImportPlan, TakenServer
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import described
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.imported import target_of
from mcp_hub.masking import hide, hide_within, visible
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.process.commands import withheld


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
    for line in _passing(plan.taken, os.environ):
        say(hide(on_one_line(line)))
    for problem in plan.problems:
        say(hide(f"warning: {problem}"))


def _passing(taken: Sequence[TakenServer], env: Mapping[str, str]) -> Iterator[str]:
    """All that servers get from outside and its target, the variables to propose, and those that none gets."""
    for one in taken:
        if sources := one.sources_outside:
            target = target_of(one.own.get("command"), one.own.get("url"))
            yield f"{one.name}: gets {', '.join(sources)} of this machine, for {target}"
        if names := ", ".join(one.proposed(env)):
            yield f"{one.name}: may need {names} of this shell. If it does, add to its entry: pass_env: [{names}]"
    if any("command" in one.own for one in taken) and (names := ", ".join(withheld(env))):
        yield f"set here, and passed to a server by pass_env only: {names}"


def data_of(plan: ImportPlan, *, written: bool, costs: MeasuredCosts | None) -> JsonObject:
    """The import as `--json` prints it."""
    taken = [
        {
            "name": one.name,
            "from": one.sources,
            "entry": hide_within(one.own),
            "left_out": one.left_out,
            "pass_env": one.proposed(os.environ),
            "gets": one.sources_outside,
        }
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
    put(f"{tables.plural(costs.tools, 'tool')}: {costs.before:,} tokens listed in full, {costs.after:,} by the hub")
    tables.print_missing(costs.absent)
