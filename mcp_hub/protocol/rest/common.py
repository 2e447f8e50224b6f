"""Types that the shapes of several subjects share."""

from typing import Annotated

from msgspec import Meta, Raw

JsonObjectText = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
"""An encoded object; that it is one is for the reader to check."""
