"""The error of this package."""

from mcp_hub.errors import HubError


class FormatRefused(HubError):
    """A request that a format cannot carry. `code` is one of `mcp_hub.codes`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
