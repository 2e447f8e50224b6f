"""What pydantic's URL type, which servers hand their URIs to, makes of one."""

import re
from urllib.parse import unquote

from pydantic import AnyUrl, TypeAdapter, ValidationError

_read = TypeAdapter(AnyUrl).validate_python


def known_as(uri: str) -> str | None:
    """The URI as it is afterwards; None if it is refused."""
    try:
        return str(_read(uri))
    except (ValidationError, ValueError):
        return None


def same(uri: str) -> str:
    """A URI without what no filter is to tell apart: escapes, slashes, a dot behind a host, how a drive is written."""
    text = unquote(re.sub(r"^(\w+://[^/?#]*?)\.?(:\d+)?(?=[/?#]|$)", r"\1\2", uri))
    if text.startswith("file://"):
        text = "file://" + re.sub("/+", "/", text[7:])
        text = re.sub(r"^file:///([A-Za-z])\|(?=[/?#]|$)", r"file:///\1:", text)
    return text.rstrip("/")
