"""The streams of providers for one output: some text, two calls, an ending; arguments cut where the test says."""

from collections.abc import Callable, Sequence
from typing import Any

from mcp_hub.formats.providers import Format

Json = dict[str, Any]
Cut = Callable[[str], Sequence[str]]
FIRST = '{"text":"é \\ud83d\\ude00 }{\\"","n":[1,{"a":null}]}'
SECOND = '{"b":2}'


def anthropic(cut: Cut) -> list[Json]:
    def call(index: int, call_id: str, name: str, arguments: str, **extra: Any) -> list[Json]:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}, **extra}
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in cut(arguments)]
        deltas = [{"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces]
        start = {"type": "content_block_start", "index": index, "content_block": block}
        return [start, *deltas, {"type": "content_block_stop", "index": index}]

    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "out_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "ping"},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
        {"type": "content_block_stop", "index": 1},
        *call(2, "c1", "echo", FIRST, caller={"type": "direct"}),
        *call(3, "c2", "add", SECOND),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


def openai(cut: Cut) -> list[Json]:
    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "out_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    def call(index: int, call_id: str, name: str, arguments: str) -> list[Json]:
        start = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        return [
            chunk({"tool_calls": [start]}),
            *(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in cut(arguments)),
        ]

    return [
        chunk({"role": "assistant", "content": "", "reasoning_content": "hm"}),
        chunk({"content": "Hi"}),
        *call(0, "c1", "echo", FIRST),
        *call(1, "c2", "add", SECOND),
        chunk({}, "tool_calls"),
    ]


def responses(cut: Cut) -> list[Json]:
    def call(index: int, call_id: str, name: str, arguments: str, **extra: Any) -> list[Json]:
        item = {"type": "function_call", "id": f"fc_{index}", "call_id": call_id, "name": name, **extra}
        done = {**item, "arguments": arguments, "status": "completed"}
        place = {"output_index": index, "item_id": f"fc_{index}"}
        deltas = [{"type": "response.function_call_arguments.delta", **place, "delta": one} for one in cut(arguments)]
        return [
            {"type": "response.output_item.added", "output_index": index, "item": {**item, "arguments": ""}},
            *deltas,
            {"type": "response.function_call_arguments.done", **place, "arguments": arguments},
            {"type": "response.output_item.done", "output_index": index, "item": done},
        ]

    events: list[Json] = [
        {"type": "response.created", "response": {"id": "out_1"}},
        {"type": "response.in_progress", "response": {"id": "out_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs"}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "hm"},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "reasoning", "id": "rs"}},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Hi"},
        *call(2, "c1", "echo", FIRST, namespace="files"),
        *call(3, "c2", "add", SECOND),
        {"type": "response.completed", "response": {"id": "out_1", "status": "completed"}},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def gemini(cut: Cut) -> list[Json]:
    """Whole calls, whatever the cut."""

    def chunk(*parts: Json, **members: Any) -> Json:
        content = {"role": "model", "parts": list(parts)}
        return {"responseId": "out_1", "candidates": [{"content": content, "index": 0, **members}]}

    first = {"text": 'é \U0001f600 }{"', "n": [1, {"a": None}]}
    return [
        chunk({"text": "hm", "thought": True}),
        chunk({"text": "Hi"}),
        chunk({"functionCall": {"id": "c1", "name": "echo", "args": first}, "thoughtSignature": "c2ln"}),
        chunk({"functionCall": {"id": "c2", "name": "add", "args": {"b": 2}}}),
        chunk({"text": ""}, finishReason="STOP"),
    ]


def interactions(cut: Cut) -> list[Json]:
    def step(index: int, step: Json, *deltas: Json) -> list[Json]:
        start = {"event_type": "step.start", "index": index, "step": step}
        pieces = [{"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas]
        return [start, *pieces, {"event_type": "step.stop", "index": index}]

    def call(index: int, call_id: str, name: str, arguments: str) -> list[Json]:
        pieces = [{"type": "arguments_delta", "arguments": piece} for piece in cut(arguments)]
        return step(index, {"type": "function_call", "id": call_id, "name": name, "arguments": {}}, *pieces)

    interaction = {"id": "out_1", "status": "requires_action"}
    thought = {"type": "thought_summary", "content": {"type": "text", "text": "hm"}}
    return [
        {"event_type": "interaction.created", "interaction": {**interaction, "status": "in_progress"}},
        {"event_type": "interaction.status_update", "interaction_id": "out_1", "status": "in_progress"},
        *step(0, {"type": "thought"}, thought, {"type": "thought_signature", "signature": "c2ln"}),
        *step(1, {"type": "model_output"}, {"type": "text", "text": "Hi"}),
        *call(2, "c1", "echo", FIRST),
        *call(3, "c2", "add", SECOND),
        {"event_type": "interaction.completed", "interaction": interaction},
    ]


STREAMS: dict[Format, Callable[[Cut], list[Json]]] = {
    Format.ANTHROPIC: anthropic,
    Format.OPENAI: openai,
    Format.OPENAI_RESPONSES: responses,
    Format.GEMINI: gemini,
    Format.GEMINI_INTERACTIONS: interactions,
}
EXTRA = {
    Format.ANTHROPIC: {"caller": {"type": "direct"}},
    Format.OPENAI: {},
    Format.OPENAI_RESPONSES: {"id": "fc_2", "namespace": "files", "status": "completed"},
    Format.GEMINI: {"thoughtSignature": "c2ln"},
    Format.GEMINI_INTERACTIONS: {},
}
"""Of the first call."""
