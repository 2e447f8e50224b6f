"""An import for people: the servers to take, what they get, those that stay where they are and why, and the costs."""

import os
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import asdict

from mcp_hub.cli.imports.costs import MeasuredCosts
from mcp_hub.cli.imports.plan import ImportPlan, TakenServer
from mcp_hub.cli.imports.trials import Trial
from mcp_hub.cli.registry.variables import decides_code
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import described
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.imported import sources_of, target_of
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
    for one in plan.taken:
        if isinstance(box := one.own.get("sandbox"), dict):
            rule = ", ".join(f"{key}: {_shown(value)}" for key, value in box.items())
            say(hide(on_one_line(f"{one.name}: keeps the sandbox that it has there, as {rule}")))
    for line in _passing(plan.taken, os.environ):
        say(hide(on_one_line(line)))
    for problem in plan.problems:
        say(hide(f"warning: {problem}"))


def _shown(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else str(value)


def _passing(taken: Sequence[TakenServer], env: Mapping[str, str]) -> Iterator[str]:
    """Paths with another name here, all that servers get from outside and its target, the variables to propose, and
    those that none gets."""
    for one in taken:
        if one.renamed:
            yield f"{one.name}: has paths of Windows; in this Linux {'; '.join(one.renamed)}"
        if sources := one.sources_outside:
            target = target_of(one.own.get("command"), one.own.get("url"))
            yield f"{one.name}: gets {', '.join(sources)} of this machine, for {target}"
        if names := ", ".join(one.proposed(env)):
            yield f"{one.name}: may need {names} of this shell, which it does not get without pass_env: [{names}]"
    if any("command" in one.own for one in taken) and (names := ", ".join(withheld(env))):
        yield f"no server gets {names} of this shell, unless its entry in servers.yaml lists the name under pass_env"


def print_alerts(plan: ImportPlan, env: Mapping[str, str]) -> bool:
    """Prints to stderr, in red, what a person should read before the answer; whether there is anything from a file that
    is not the user's own.
    """
    is_strange = False
    for one in plan.taken:
        lines = list(_alerts(one, env))
        is_strange |= bool(lines) and not one.is_users
        for line in lines:
            say(hide(on_one_line(f"{one.name}: {line}")), "red")
    return is_strange


def _alerts(one: TakenServer, env: Mapping[str, str]) -> Iterator[str]:
    variables = one.own.get("env")
    for name in variables if isinstance(variables, dict) else ():
        if decides_code(name):
            yield f"{name} decides what the program loads, or whom it talks to"
    if one.is_users:
        return
    target = target_of(one.own.get("command"), one.own.get("url"))
    sources = list(_sources(one.own))
    if names := ", ".join(f"{name[1:]} ({key})" for name, key in sources if name[0] == "$" and name[1:] in env):
        yield f"{target} gets the values of your variables: {names}"
    if names := ", ".join(f"{name} ({key})" for name, key in sources if name[0] != "$"):
        yield f"{target} gets these secrets: {names}"


def _sources(own: JsonObject) -> Iterator[tuple[str, str]]:
    """All that an entry takes from outside, as `sources_of` has it, each with the key that does."""
    for key, value in own.items():
        for label, text in value.items() if isinstance(value, dict) else [("", value)]:
            for source in sources_of(text):
                yield source, f"{key} {label}".strip()


def data_of(plan: ImportPlan, trial: Trial, *, written: bool, costs: MeasuredCosts | None) -> JsonObject:
    """The import as `--json` prints it."""
    taken = [
        {
            "name": one.name,
            "from": one.sources,
            "entry": hide_within(one.own),
            "left_out": one.left_out,
            "paths": [hide(line) for line in one.renamed],
            "pass_env": one.proposed(os.environ),
            "gets": one.sources_outside,
            "alerts": [hide(line) for line in _alerts(one, os.environ)],
        }
        for one in plan.taken
    ]
    gone = [{"name": one.name, "from": one.source, "reason": hide(one.reason)} for one in plan.skipped]
    counted = None if costs is None else {**asdict(costs), "absent": [one.server for one in costs.absent]}
    return {
        **{"file": str(plan.file.path), "written": written, "servers": taken, "not_taken": gone},
        "sandbox": {"on": [*trial.passed], "off": hide_within({**trial.refused, **trial.untried})},
        **{"doubles": plan.doubles, "tokens": counted, "warnings": [hide(str(one)) for one in plan.problems]},
    }


def print_costs(costs: MeasuredCosts) -> None:
    """Prints how many servers work, a line for each of the others, and the tokens before and after."""
    tables.print_outcome(costs.working, costs.absent)
    if costs.tools:
        put(saving(costs))


def saving(costs: MeasuredCosts) -> str:
    """The tokens of the tools before and after in a sentence, which also says why nothing is saved."""
    verb = "costs" if costs.tools == 1 else "cost"
    said = f"{tables.plural(costs.tools, 'tool')} {verb} {costs.before:,} tokens in every session; through the hub "
    if costs.after < costs.before:
        return f"{said}{costs.after:,}."
    if costs.mode != "full":
        return f"{said}{costs.after:,}, because so few tools take less than the hub's own."
    if costs.expose == "auto":
        return f"{said}{costs.after:,}: up to {costs.budget:,} it lists all of them in full."
    return f"{said}{costs.after:,}, because the configuration has it list all of them (expose: {costs.expose})."
