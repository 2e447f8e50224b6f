"""Models that follow a script, behind an HTTP server that speaks the API of each provider.

A request is checked as its provider would: the SDK's own types, what the model said before unchanged, a result for
each call, and no call of a tool that the model has not been shown.
"""

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

from mcp_hub.formats.providers import Format
from tests.e2e.client import Silent, threaded
from tests.unit.formats.documented_results import broken_result
from tests.unit.formats.sdk_types import ANTHROPIC, GEMINI, OPENAI, RESPONSES, adapter_of, sdk_type

Json: TypeAlias = dict[str, Any]


class Call(NamedTuple):
    """The model wants a tool called."""

    name: str
    arguments: Json


Turn: TypeAlias = Sequence[str | Call]


class Answer(NamedTuple):
    """The body of a response; events are sent as SSE."""

    body: Json
    events: Sequence[Json] = ()


def fits(module: str, kind: str, value: Any) -> None:
    """Raises unless this is a value of the SDK's type, without members that the type does not know."""
    adapter = adapter_of(module, kind)
    there = json.loads(adapter.dump_json(adapter.validate_python(value), exclude_unset=True, by_alias=True))
    assert there == value, f"{value} has members that {kind} does not"


class Provider:
    """One API. `said` has what the model answered so far, as it has to come back; `run` makes its ids unique."""

    path = ""

    def __init__(self) -> None:
        self.run = secrets.token_hex(4)
        self.said: list[Any] = []
        self.called: list[str] = []
        """The ids of the calls that the model made last."""

    def check(self, body: Json) -> None:
        """Raises `AssertionError`, `ValidationError` for a request that the provider would not take."""
        raise NotImplementedError

    def answer(self, turn: Turn, number: int, body: Json) -> Answer:
        """Turn `number` of the script."""
        raise NotImplementedError

    def ids(self, turn: Turn, number: int) -> list[str]:
        """The ids of the calls of a turn, which are noted."""
        calls = [piece for piece in turn if isinstance(piece, Call)]
        self.called = [f"call_{number}_{at}" for at, _ in enumerate(calls)]
        return self.called


class Anthropic(Provider):
    """The Messages API; a deferred tool may be called once a result has referred to it."""

    path = "/anthropic/v1/messages"

    def check(self, body: Json) -> None:
        results = []
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            for block in blocks:
                fits(ANTHROPIC, "ContentBlockParam", block)
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            assert not results or broken_result(Format.ANTHROPIC, [message]) == []
        for tool in body["tools"]:
            fits(ANTHROPIC, "ToolUnionParam", tool)
        assert [message["content"] for message in body["messages"] if message["role"] == "assistant"] == self.said
        assert sorted(results) == self.called
        assert {tool["name"] for tool in body["tools"]} >= _references(body), "a reference to no tool"

    def answer(self, turn: Turn, number: int, body: Json) -> Answer:
        deferred = {tool["name"] for tool in body["tools"] if tool.get("defer_loading")}
        ids = iter(self.ids(turn, number))
        content: list[Json] = [{"type": "thinking", "thinking": "hm", "signature": f"c2ln{number}"}]
        for piece in turn:
            if isinstance(piece, str):
                content.append({"type": "text", "text": piece})
            else:
                assert piece.name not in deferred - _references(body), f"{piece.name} was not shown to the model"
                block = {"type": "tool_use", "id": next(ids), "name": piece.name, "input": piece.arguments}
                content.append({**block, "caller": {"type": "direct"}})
        self.said.append(content)
        reason = "tool_use" if self.called else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{self.run}_{number}", "type": "message", "role": "assistant", "model": body["model"]}
        message |= {"content": content, "stop_reason": reason, "stop_sequence": None, "usage": usage}
        return Answer(message, list(_anthropic_events(message)) if body.get("stream") else ())


def _references(body: Json) -> set[str]:
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    found = [one for block in blocks if block["type"] == "tool_result" for one in block.get("content", ())]
    return {one["tool_name"] for one in found if one["type"] == "tool_reference"}


def _anthropic_events(message: Json) -> Iterator[Json]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        match block["type"]:
            case "thinking":
                empty: Json = {"thinking": "", "signature": ""}
                deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
                deltas += [{"type": "signature_delta", "signature": block["signature"]}]
            case "text":
                empty = {"text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in _halves(block["text"])]
            case _:
                empty = {"input": {}}
                pieces = _halves(json.dumps(block["input"]))
                deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": message["usage"]}
    yield {"type": "message_stop"}


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


class OpenAiChat(Provider):
    """Chat Completions."""

    path = "/openai/v1/chat/completions"

    def check(self, body: Json) -> None:
        results: list[str] = []
        for message in body["messages"]:
            if isinstance(message["content"], list):  # which the type of a message takes for an iterator
                for part in message["content"]:
                    fits(OPENAI, "ChatCompletionContentPartParam", part)
            else:
                fits(OPENAI, "ChatCompletionMessageParam", message)
            results = [] if message["role"] == "assistant" else results
            results += [message["tool_call_id"]] if message["role"] == "tool" else []
        given = [one for one in body["messages"] if one["role"] == "tool" or isinstance(one["content"], list)]
        assert [fault for message in given for fault in broken_result(Format.OPENAI, [message])] == []
        for tool in body.get("tools", ()):
            fits(OPENAI, "ChatCompletionToolParam", tool)
        assert [message for message in body["messages"] if message["role"] == "assistant"] == self.said
        assert sorted(results) == self.called

    def answer(self, turn: Turn, number: int, body: Json) -> Answer:
        text = "".join(piece for piece in turn if isinstance(piece, str))
        calls = [piece for piece in turn if isinstance(piece, Call)]
        message: Json = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
                for id_, (name, arguments) in zip(self.ids(turn, number), calls, strict=True)
            ]
        self.said.append(message)
        head: Json = {"id": f"chatcmpl_{self.run}_{number}", "created": 1, "model": body["model"]}
        if body.get("stream"):
            deltas = [{"role": "assistant", "content": ""}, *({"content": letter} for letter in text)]
            chunks: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
            chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
            return Answer({}, [{**head, "object": "chat.completion.chunk", "choices": [chunk]} for chunk in chunks])
        choice: Json = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        return Answer({**head, "object": "chat.completion", "choices": [choice]})


class OpenAiResponses(Provider):
    """The Responses API; what it said before may be named by `previous_response_id`. `tool_search` is a search."""

    path = "/openai/v1/responses"

    def check(self, body: Json) -> None:
        if isinstance(body["input"], str):
            body["input"] = [{"role": "user", "content": body["input"]}]
        for item in body["input"]:
            fits(RESPONSES, "ResponseInputItemParam", item)
            assert item.get("type") != "function_call_output" or broken_result(Format.OPENAI_RESPONSES, [item]) == []
        for tool in body["tools"]:
            fits(RESPONSES, "ToolParam", tool)
        if "previous_response_id" in body:
            assert body["previous_response_id"] == f"resp_{self.run}_{len(self.said) - 1}"
        else:
            ours = ("reasoning", "message", "function_call", "tool_search_call")
            flat = [item for output in self.said for item in output]
            assert [item for item in body["input"] if item.get("type") in ours] == flat
        answers = ("function_call_output", "tool_search_output")
        results = [item["call_id"] for item in body["input"] if item.get("type") in answers]
        assert sorted(results[len(results) - len(self.called) :]) == self.called

    def answer(self, turn: Turn, number: int, body: Json) -> Answer:
        ids = iter(self.ids(turn, number))
        output: list[Json] = [{"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x"}]
        for at, piece in enumerate(turn):
            if isinstance(piece, str):
                content = [{"type": "output_text", "text": piece, "annotations": []}]
                output.append({"type": "message", "id": f"m_{at}", "role": "assistant", "content": content})
            elif piece.name == "tool_search":
                search = {"type": "tool_search_call", "id": f"ts_{at}", "call_id": next(ids), "execution": "client"}
                output.append({**search, "arguments": piece.arguments})
            else:
                shown = _shown(body)
                assert piece.name in shown, f"{piece.name} was not shown to the model: {shown}"
                call = {"type": "function_call", "id": f"fc_{at}", "call_id": next(ids), "name": piece.name}
                output.append({**call, "arguments": json.dumps(piece.arguments)})
            output[-1]["status"] = "completed"
        self.said.append(output)
        response = {"id": f"resp_{self.run}_{number}", "object": "response", "created_at": 1, "model": body["model"]}
        response |= {"status": "completed", "output": output, "parallel_tool_calls": True, "tool_choice": "auto"}
        response |= {"tools": [], "error": None, "incomplete_details": None}
        return Answer(response, list(_response_events(response)) if body.get("stream") else ())


def _shown(body: Json) -> set[str]:
    """Tools that are not deferred, and those that a search has found."""
    found = [one for item in body["input"] if item.get("type") == "tool_search_output" for one in item["tools"]]
    offered = {tool["name"] for tool in functions_of(body["tools"]) if "name" in tool and not tool.get("defer_loading")}
    return offered | {tool["name"] for tool in functions_of(found)}


def functions_of(tools: list[Json]) -> list[Json]:
    """The tools, those in namespaces too."""
    return [one for tool in tools for one in (tool["tools"] if tool.get("type") == "namespace" else [tool])]


def _response_events(response: Json) -> Iterator[Json]:
    events: list[Json] = [{"type": "response.created", "response": {**response, "output": []}}]
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        if item["type"] == "message":
            text = {"type": "response.output_text.delta", **place, "content_index": 0, "logprobs": []}
            events += [{**text, "delta": piece} for piece in _halves(item["content"][0]["text"])]
        elif item["type"] == "function_call":
            piece = {"type": "response.function_call_arguments.delta", **place}
            events += [{**piece, "delta": part} for part in _halves(item["arguments"])]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": response})
    yield from ({**event, "sequence_number": number} for number, event in enumerate(events))


class Gemini(Provider):
    """`generateContent`."""

    path = "/gemini/v1/models/"

    def check(self, body: Json) -> None:
        for content in body["contents"]:
            # knows all members, in the two spellings that the SDK sends
            known = sdk_type(GEMINI, "Content").model_validate(content)
            dumped = known.model_dump(mode="json", by_alias=True, exclude_none=True)
            has_results = any("functionResponse" in part for part in dumped["parts"])
            assert not has_results or broken_result(Format.GEMINI, [dumped]) == []
        for tool in body["tools"]:
            sdk_type(GEMINI, "Tool").model_validate(tool)
        assert [content for content in body["contents"] if content["role"] == "model"] == self.said
        parts = body["contents"][-1]["parts"]
        assert sorted(part["functionResponse"]["id"] for part in parts if "functionResponse" in part) == self.called

    def answer(self, turn: Turn, number: int, body: Json) -> Answer:
        ids = iter(self.ids(turn, number))
        parts: list[Json] = [
            {"text": piece}
            if isinstance(piece, str)
            else {"functionCall": {"id": next(ids), "name": piece.name, "args": piece.arguments}}
            for piece in turn
        ]
        parts[0]["thoughtSignature"] = "c2ln"
        self.said.append({"role": "model", "parts": parts})
        candidate = {"content": self.said[-1], "index": 0, "finishReason": "STOP"}
        return Answer({"responseId": f"r{number}", "candidates": [candidate]})


class ScriptedModel:
    """Says its turns one after the other, whatever it is asked; `requests` has what it was asked."""

    def __init__(self, provider: Provider, turns: Sequence[Turn]) -> None:
        self.provider = provider
        self.requests: list[Json] = []
        self._turns = turns

    def respond(self, path: str, raw: bytes) -> Answer:
        """Raises what is wrong with the request."""
        number, body = len(self.requests), json.loads(raw)
        assert path.startswith(self.provider.path), path
        self.requests.append(body)
        self.provider.check(body)
        assert number < len(self._turns), "the script is over"
        return self.provider.answer(self._turns[number], number, body)


@contextmanager
def serving(model: ScriptedModel) -> Iterator[dict[str, str]]:
    """The model's server; gives the variables by which the SDKs find it. Raises what was wrong with a request."""
    wrong: list[Exception] = []

    class Handler(Silent):
        def do_POST(self) -> None:
            try:
                answer = model.respond(self.path, self.rfile.read(int(self.headers["content-length"])))
            except Exception as error:
                wrong.append(error)
                self._send(400, "application/json", json.dumps({"error": {"message": str(error)}}))
                return
            if answer.events:
                events = "".join(f"event: {one.get('type')}\ndata: {json.dumps(one)}\n\n" for one in answer.events)
                self._send(200, "text/event-stream", events + "data: [DONE]\n\n" * ("openai" in self.path))
            else:
                self._send(200, "application/json", json.dumps(answer.body))

        def _send(self, status: int, kind: str, text: str) -> None:
            self.answer(status, text.encode(), content_type=kind)

    with threaded(Handler) as url:
        yield {
            "ANTHROPIC_BASE_URL": f"{url}/anthropic",
            "OPENAI_BASE_URL": f"{url}/openai/v1",
            "GOOGLE_GEMINI_BASE_URL": f"{url}/gemini",
            **dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "key"),
        }
    if wrong:
        raise wrong[0]
