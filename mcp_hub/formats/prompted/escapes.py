"""Text of servers that cannot end its place in a prompt, or look like a call: tags are escaped."""

import re
from typing import Final

_ELEMENTS: Final = "tools|tool_calls?|function_calls?|tool_response|function_result|think|arg_key|arg_value"
_WORDS: Final = "TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|INST|SYSTEM_PROMPT|ARGS|CALL_ID|THINK"
_TAGS: Final = re.compile(
    rf"</?(?:{_ELEMENTS})>"
    r"|<(?=(?:function|parameter)=)|</(?:function|parameter|s)>|<s>|<(?:start|end)_of_turn>"
    r"|<(?=[|｜][^|｜<>\s]{1,64}[|｜]>)"
    rf"|\[/?(?:{_WORDS})\]"
    r"|(?m:^)#(?=# Return of )"
)
"""Tags of the formats, and those with which chat templates mark turns."""
_REFERENCES: Final = {"<": "&lt;", "[": "&#91;", "#": "&#35;"}


def escaped_json(text: str) -> str:
    return _TAGS.sub(lambda tag: f"\\u{ord(tag[0][0]):04x}{tag[0][1:]}", text)


def escaped_text(text: str) -> str:
    return _TAGS.sub(lambda tag: _REFERENCES[tag[0][0]] + tag[0][1:], text)
