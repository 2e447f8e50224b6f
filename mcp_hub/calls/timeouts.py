"""What is said of a call that ran out of time: which limit it was, and what to set."""

from mcp_hub.call import Call
from mcp_hub.errors import DeadlineExceeded, UpstreamLost
from mcp_hub.events import Failed

__all__ = ["in_doubt", "out_of_time", "unanswered"]


def out_of_time(call: Call, what: str, seconds: float, key: str) -> Failed:
    """`what` its upstream did for so many seconds, where the setting `key` allows no more."""
    return Failed(
        DeadlineExceeded(
            f'upstream "{call.upstream}" {what} {seconds:g} s on {call.method}; '
            f"raise `{key}` of the server if that is normal",
            data={"upstream": {"server": call.upstream}, "limit": key, "seconds": seconds},
        )
    )


def in_doubt(call: Call, seconds: float) -> Failed:
    """The upstream answered nobody, and was not heard of afterwards."""
    said = f"has said something that belongs to no call, and no answer to {call.method} for {seconds:g} s more"
    data = {"upstream": {"server": call.upstream}, "outcome": "unknown"}
    return Failed(UpstreamLost(f'upstream "{call.upstream}" {said}', data=data))


def unanswered(method: str, seconds: float) -> Failed:
    """The caller did not answer a question."""
    return Failed(
        DeadlineExceeded(
            f"{method} was not answered for {seconds:g} s; raise hub.limits.question_timeout if that is normal",
            data={"question": method, "limit": "question_timeout", "seconds": seconds},
        )
    )
