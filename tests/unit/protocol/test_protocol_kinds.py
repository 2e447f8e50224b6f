from mcp_hub.protocol.kinds import BY_LIST_METHOD, KINDS
from mcp_hub.types import Kind


def test_every_kind_is_found_again_by_its_list_method() -> None:
    assert set(KINDS) == set(Kind)
    assert all(BY_LIST_METHOD[spec.list_method] is kind for kind, spec in KINDS.items())
    assert len(BY_LIST_METHOD) == len(Kind)
