"""The reader for a format."""

from mcp_hub.formats.errors import FormatRefused
from mcp_hub.formats.providers import Format
from mcp_hub.formats.streams.anthropic import AnthropicReader
from mcp_hub.formats.streams.gemini import GeminiReader
from mcp_hub.formats.streams.openai_chat import OpenAiChatReader
from mcp_hub.formats.streams.openai_responses import OpenAiResponsesReader
from mcp_hub.formats.streams.reader import OutputReader

_READERS: dict[Format, type[OutputReader]] = {
    Format.ANTHROPIC: AnthropicReader,
    Format.OPENAI: OpenAiChatReader,
    Format.OPENAI_RESPONSES: OpenAiResponsesReader,
    Format.GEMINI: GeminiReader,
}


def output_reader(out_of: Format) -> OutputReader:
    """A reader for one output. Raises: FormatRefused (`unknown_format`), also for MCP."""
    if out_of not in _READERS:
        raise FormatRefused("unknown_format", f'the format "{out_of}" has no streams. Use that of a provider.')
    return _READERS[out_of]()
