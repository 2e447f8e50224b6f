"""Tools that ask: sampling, elicitation, roots, alone and together, in one round and in several."""

import json
from collections.abc import Callable

import mcp_types as types

from rigs.conformance.server.asking import Answers, Dialogue, Questions, converse, elicitation, roots, sampling, text
from rigs.conformance.server.instance import Context, Instance, Result
from rigs.conformance.server.tools import Tool, tool

NAME = {"name": {"type": "string"}}
OK = {"ok": {"type": "boolean"}}
WHO = elicitation("What is your name?", NAME, ["name"])
CONFIRM = {"confirm": elicitation("Please confirm", OK, ["ok"])}

DEFAULTS = {
    "name": {"type": "string", "description": "User name", "default": "John Doe"},
    "age": {"type": "integer", "description": "User age", "default": 30},
    "score": {"type": "number", "description": "User score", "default": 95.5},
    "status": {
        "type": "string",
        "description": "User status",
        "enum": ["active", "inactive", "pending"],
        "default": "active",
    },
    "verified": {"type": "boolean", "description": "Verification status", "default": True},
}
"""A default for each primitive type (SEP-1034)."""

THREE = ["option1", "option2", "option3"]


def _titled(noun: str) -> list[Result]:
    return [{"const": f"value{n}", "title": f"{nth} {noun}"} for n, nth in enumerate(("First", "Second", "Third"), 1)]


ENUMS = {
    "untitledSingle": {"type": "string", "description": "One of three", "enum": THREE},
    "titledSingle": {"type": "string", "description": "One of three with titles", "oneOf": _titled("Option")},
    "legacyEnum": {
        "type": "string",
        "description": "One of three, titled the old way",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "description": "Some of three", "items": {"type": "string", "enum": THREE}},
    "titledMulti": {"type": "array", "description": "Some of three with titles", "items": {"anyOf": _titled("Choice")}},
}
"""Each way to write an enumeration (SEP-1330)."""


def _asking(name: str, description: str, dialogue: Dialogue, **properties: Result) -> Tool:
    async def run(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
        return await converse(context, params, dialogue)

    return tool(name, description, run, **properties)


async def _streaming(instance: Instance, context: Context, params: types.CallToolRequestParams) -> Result:
    await context.session.report_progress(1, 2, "about to ask")
    return await converse(context, params, GREETING)


def _shown(label: str, key: str) -> Callable[[Answers], Result]:
    """Says what the elicitation `key` was answered with."""

    def finish(answers: Answers) -> Result:
        answer = answers[key]
        return text(f"{label}: action={answer['action']}, content={json.dumps(answer.get('content', {}))}")

    return finish


def _heard(key: str) -> Callable[[Answers], Result]:
    """Says what the model answered to the sampling `key`."""

    def finish(answers: Answers) -> Result:
        content = answers[key]["content"]
        return text(f"LLM response: {content.get('text', json.dumps(content))}")

    return finish


def _greeting(answers: Answers) -> Result:
    return text(f"Hello, {answers['user_name'].get('content', {}).get('name', 'stranger')}!")


def _all_answers(answers: Answers) -> Result:
    return text(f"state-ok, answers: {json.dumps(answers, sort_keys=True)}")


def _fixed(**questions: Result) -> tuple[Callable[[Result], Questions]]:
    """One round of these questions."""
    return (lambda arguments: questions,)


def _username(arguments: Result) -> Questions:
    properties = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return {"user": elicitation(arguments.get("message", "Who are you?"), properties, list(properties))}


GREETING = Dialogue(_greeting, _fixed(user_name=WHO))
CAPITAL = sampling("What is the capital of France?")
STEPS = (
    *_fixed(step1=elicitation("Step 1: What is your name?", NAME, ["name"])),
    *_fixed(step2=elicitation("Step 2: What is your favorite color?", {"color": {"type": "string"}}, ["color"])),
)
THREE_KINDS = {"user_name": WHO, "greeting": sampling("Generate a greeting", 50), "client_roots": roots()}

ASKING_TOOLS = [
    _asking(
        "test_sampling",
        "Asks the model.",
        Dialogue(_heard("answer"), (lambda arguments: {"answer": sampling(arguments.get("prompt", "Hello?"))},)),
        prompt={"type": "string", "description": "The prompt for the model."},
    ),
    _asking(
        "test_elicitation",
        "Asks who the user is.",
        Dialogue(_shown("User response", "user"), (_username,)),
        message={"type": "string", "description": "The message to the user."},
    ),
    _asking(
        "test_elicitation_sep1034_defaults",
        "Asks with defaults.",
        Dialogue(_shown("Elicitation completed", "form"), _fixed(form=elicitation("Check these", DEFAULTS, []))),
    ),
    _asking(
        "test_elicitation_sep1330_enums",
        "Asks with enumerations.",
        Dialogue(_shown("Elicitation completed", "form"), _fixed(form=elicitation("Choose", ENUMS, []))),
    ),
    _asking("test_missing_capability", "Needs sampling.", Dialogue(_heard("answer"), _fixed(answer=sampling("Hi")))),
    tool("test_streaming_elicitation", "Reports progress, then asks.", _streaming),
    _asking("test_input_required_result_elicitation", "Asks for a name.", GREETING),
    _asking(
        "test_input_required_result_sampling",
        "Asks the model.",
        Dialogue(_heard("capital_question"), _fixed(capital_question=CAPITAL)),
    ),
    _asking(
        "test_input_required_result_list_roots",
        "Asks for the roots.",
        Dialogue(_all_answers, _fixed(client_roots=roots())),
    ),
    _asking(
        "test_input_required_result_request_state",
        "Asks, and remembers by requestState.",
        Dialogue(_all_answers, _fixed(**CONFIRM), keeps_state=True),
    ),
    _asking(
        "test_input_required_result_multiple_inputs",
        "Asks for three things at once.",
        Dialogue(_all_answers, _fixed(**THREE_KINDS), keeps_state=True),
    ),
    _asking("test_input_required_result_multi_round", "Asks twice.", Dialogue(_all_answers, STEPS, keeps_state=True)),
    _asking(
        "test_input_required_result_tampered_state",
        "Asks, and checks its requestState.",
        Dialogue(_all_answers, _fixed(**CONFIRM), keeps_state=True),
    ),
    _asking(
        "test_input_required_result_capabilities",
        "Asks what the client can answer.",
        Dialogue(_all_answers, _fixed(user_name=WHO, capital_question=CAPITAL), keeps_state=True, is_modest=True),
    ),
]
