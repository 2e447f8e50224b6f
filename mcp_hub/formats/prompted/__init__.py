"""Tool calls for models that have them only as text: a prompt that describes tools, and a parser of what they write.

In: definitions of tools and results as MCP has them, and the text of a model, whole or in pieces of any size.

Out: a section for the prompt, the events of `formats.events`, and the text of a result for the next turn.

Held together by `table`: each format is an entry with its tags, the parser of its calls, and how it writes them.

Parsers are generators that read characters once (`characters`), so that the events of a text do not depend on how it
was split, and hostile text costs no more than other text. They hold back only what may still become a tag or a call.

Only the text of the model is parsed. What comes from others goes into prompts through `escapes`, without tags.

`parser` is fed the text; `json_calls`, `parameter_calls` and `pythonic_calls` read one form of calls each, `members`
their arguments, `fences` code that holds no calls; `output` makes events of them. `section` describes tools, by
`schemas` and `signatures`; `results` writes results.

Not here: requests to models, running the calls, routes.
"""

from mcp_hub.formats.prompted.parser import PromptedParser
from mcp_hub.formats.prompted.results import error_text, result_text
from mcp_hub.formats.prompted.section import tool_section
from mcp_hub.formats.prompted.table import FORMATS, PromptFormat

__all__ = ["FORMATS", "PromptFormat", "PromptedParser", "error_text", "result_text", "tool_section"]
