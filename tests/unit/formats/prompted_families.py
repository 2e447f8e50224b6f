"""Texts of the newer families of models, and the events that they are."""

from collections.abc import Mapping
from typing import Any, Final

WEATHER: Final = '{"city": "Bern"}'
NOW: Final = ("now", "{}")


def plain(text: str) -> tuple[str, list[Any]]:
    """A text without a call."""
    return text, [text, "stop"]


FAMILIES: Final[Mapping[str, list[tuple[str, list[Any]]]]] = {
    "deepseek-v3.2": [
        (
            '<think>Hm</think>Look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
            '<｜DSML｜parameter name="city" string="true">a < b\n</｜DSML｜parameter>\n'
            '<｜DSML｜parameter name="days" string="false">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
            '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
            [("thinking", "Hm"), "Look.\n\n", ("get_weather", '{"city": "a < b\\n", "days": 2}'), NOW, "tool_calls"],
        ),
        (
            '<｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="any" string="true">1</｜DSML｜parameter>'
            '<｜DSML｜parameter name="note" string="false">null</｜DSML｜parameter></｜DSML｜invoke>',
            [("get_weather", '{"any": "1", "note": null}'), "tool_calls"],
        ),
        ('<｜DSML｜invoke name="now"><｜DSML｜para', [("now", "truncated_call"), "interrupted"]),
        plain("The tag <｜DSML｜function_calls"),
    ],
    "minimax": [
        (
            '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Bern</parameter>\n'
            '<parameter name="days">2</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>',
            [("get_weather", '{"city": "Bern", "days": 2}'), NOW, "tool_calls"],
        ),
        ('<invoke name="nope"><parameter name="a">1</parameter></invoke>.', [("nope", "unknown_tool"), ".", "stop"]),
        plain("Call <invoke> it."),
    ],
    "gpt-oss": [
        (  # the first message breaks off as the second one begins
            "<|channel|><|channel|>commentary to=functions.now<|message|>{",
            [("now", "malformed_call"), ("now", "truncated_call"), "interrupted"],
        ),
        (
            "<|channel|>analysis<|message|>Hm <b><|end|><|start|>assistant<|channel|>"
            "commentary to=functions.get_weather "
            '<|constrain|>json<|message|>{"city": "Bern"}<|call|>',
            [("thinking", "Hm <b>"), ("get_weather", WEATHER), "tool_calls"],
        ),
        (
            "<|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>"
            "<|start|>assistant<|channel|>final<|message|>Done.<|return|>",
            [NOW, "Done.", "tool_calls"],
        ),
        ("<|channel|>final<|message|>Hi.", ["Hi.", "stop"]),
        ("<|channel|>commentary to=functions.now<|message|>{", [("now", "truncated_call"), "interrupted"]),
    ],
    "gemma4": [
        (
            '<|channel>thought\nHm<channel|>Look.<|tool_call>call:get_weather{city:<|"|>a "b", {c}<|"|>,days:2,'
            'place:{at:[1,<|"|>x<|"|>]}}<tool_call|><|tool_call>call:now{}<tool_call|>',
            [
                *(("thinking", "\nHm"), "Look."),
                ("get_weather", '{"city":"a \\"b\\", {c}","days":2,"place":{"at":[1,"x"]}}'),
                *(NOW, "tool_calls"),
            ],
        ),
        ("<|tool_call>call:nope{}<tool_call|>", [("nope", "unknown_tool"), "stop"]),
        ("<|tool_call>call:now{a:", [(None, "truncated_call"), "interrupted"]),
    ],
    "functiongemma": [
        (
            "<start_function_call>call:get_weather{city:<escape>a, {b}<escape>,days:2,exact:true}<end_function_call>"
            "<start_function_call>call:now{}<end_function_call>",
            [("get_weather", '{"city":"a, {b}","days":2,"exact":true}'), NOW, "tool_calls"],
        ),
        plain("<start_function_call> is a tag"),
    ],
    "phi4": [
        (
            (
                '<|tool_call|>[{"name": "now", "arguments": {}}, {"name": "'
                'get_weather", "arguments": {"city": "Bern"}}]<|/tool_call|>'
            ),
            [NOW, ("get_weather", WEATHER), "tool_calls"],
        ),
        ('functools[{"name": "get_weather", "arguments": {"city": "Bern"}}]', [("get_weather", WEATHER), "tool_calls"]),
        plain("functools are functions"),
    ],
    "granite": [
        (
            '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Bern"}}]',
            [("get_weather", WEATHER), "tool_calls"],
        ),
        ('<tool_call>[{"name": "now", "arguments": {}}]<|end_of_text|>', [NOW, "tool_calls"]),
        plain("<|tool_call|> is a tag"),
    ],
    "kimi-k3": [
        (
            "<|open|>think<|sep|>Hm<|close|>think<|sep|><|open|>response<|sep|>Look.<|close|>response<|sep|>"
            '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|>'
            '<|open|>argument key="city" type="string"<|sep|>a <|close|> b<|close|>argument<|sep|>'
            '<|open|>argument key="days" type="number"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|>'
            '<|open|>call tool="now" index="2"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>',
            [
                *(("thinking", "Hm"), "Look."),
                *(("get_weather", '{"city": "a <|close|> b", "days": 2}'), NOW, "tool_calls"),
            ],
        ),
        plain("Constants: <|open|>, <|close|> and <|sep|>"),
    ],
}
