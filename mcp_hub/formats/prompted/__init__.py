"""Tool calls as text, for models without them: a section of the prompt, and a parser of the answer.

* `characters`: the text, read once
* `escapes`: text without tags
* `json_calls`, `pythonic_calls`: forms of calls
* `members`: arguments one by one
* `output`: the events
* `parser`: takes text, returns events
* `results`: results as text
* `section`: describe tools
* `table`: the formats
"""

from mcp_hub.formats.prompted.parser import PromptedParser
from mcp_hub.formats.prompted.results import error_text, result_text
from mcp_hub.formats.prompted.section import tool_section
from mcp_hub.formats.prompted.table import FORMATS, PromptFormat

__all__ = ["FORMATS", "PromptFormat", "PromptedParser", "error_text", "result_text", "tool_section"]
