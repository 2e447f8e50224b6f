"""Tool calls as text: a section of the prompt, and a parser of the answer.

* `characters`: the text and its tags
* `json_calls`, `pythonic_calls`, `tagged_calls`: forms of calls
* `loose_json`, `json_shapes`, `readings`: calls that break their form
* `output`: the events
* `parser`: text to events
* `prompt`: tools and results
* `regions`: where broken calls end
* `table`: the formats
"""

from mcp_hub.formats.prompted.parser import PromptedParser
from mcp_hub.formats.prompted.prompt import error_text, result_text, tool_section
from mcp_hub.formats.prompted.table import FORMATS, PromptFormat

__all__ = ["FORMATS", "PromptFormat", "PromptedParser", "error_text", "result_text", "tool_section"]
