"""Long results as the hub has them: cut and kept, and read on."""

import msgspec

from mcp_hub.calls.results.read_result import ReadResult
from mcp_hub.calls.results.retain import Retention


class LongResults(msgspec.Struct, frozen=True):
    """Where results that are cut are kept, and how they are read on."""

    keeping: Retention
    reading: ReadResult
