"""The result that a client gets early: a task, or the output so far with the mark of the call's stream."""

import msgspec

from mcp_hub.call import EarlyOutput
from mcp_hub.events import Completed
from mcp_hub.fronts.mcp.partials import marked
from mcp_hub.fronts.mcp.task_state import task_of
from mcp_hub.protocol.shape import results, tasks
from mcp_hub.sessions.session import Session


def early_result(session: Session, output: EarlyOutput) -> bytes:
    """The encoded result, in the shape of the client's era."""
    row = output.info
    if output.text is None:
        return tasks.created(task_of(row))
    result = msgspec.json.encode({"content": [{"type": "text", "text": output.text}], "isError": False})
    done = marked(Completed(result), row.id, output.cursor, row.status)
    return b"".join(results.call_result("tools/call", done, session.era))
