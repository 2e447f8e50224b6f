"""What we repeat of the SDK so as not to import it on a fast path is what the installed SDK says."""

from typing import get_args

import mcp_types
import pytest
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp_types import methods, version

from mcp_hub.protocol import eras, meta
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.jsonrpc import rpc_errors

VERSIONS = version.KNOWN_PROTOCOL_VERSIONS


def test_the_versions_of_each_era_are_those_of_the_sdk() -> None:
    assert eras.HANDSHAKE_VERSIONS == version.HANDSHAKE_PROTOCOL_VERSIONS
    assert eras.MODERN_VERSIONS == version.MODERN_PROTOCOL_VERSIONS
    assert eras.LATEST_HANDSHAKE == version.LATEST_HANDSHAKE_VERSION
    assert eras.LATEST_MODERN == version.LATEST_MODERN_VERSION
    assert eras.HANDSHAKE_VERSIONS + eras.MODERN_VERSIONS == VERSIONS


@pytest.mark.parametrize("one", [*VERSIONS, "zzz", ""])
@pytest.mark.parametrize("minimum", VERSIONS)
def test_versions_compare_as_in_the_sdk(one: str, minimum: str) -> None:
    assert eras.is_at_least(one, minimum) == version.is_version_at_least(one, minimum)


@pytest.mark.parametrize("one", VERSIONS)
def test_the_hub_serves_the_methods_that_the_version_has(one: str) -> None:
    era = eras.era_of(one)
    of_version = {method for method, at in methods.CLIENT_REQUESTS if at == one}
    served = {method for method in methods.SPEC_CLIENT_METHODS if eras.serves(era, method)}
    assert served == of_version
    assert all((method, one) in methods.SERVER_RESULTS for method in served)


def test_calls_and_lists_exist_in_both_eras() -> None:
    lists = [spec.list_method for spec in KINDS.values() if spec.extension is spec.instead is None]
    for method in (*eras.CALL_METHODS, *lists):
        assert all((method, one) in methods.CLIENT_REQUESTS for one in VERSIONS)


def test_log_levels_are_those_of_the_sdk_in_its_order() -> None:
    assert eras.LOG_LEVELS == get_args(mcp_types.LoggingLevel)


def test_error_codes_are_those_of_the_sdk() -> None:
    ours = (
        rpc_errors.PARSE_ERROR,
        rpc_errors.INVALID_REQUEST,
        rpc_errors.METHOD_NOT_FOUND,
        rpc_errors.INVALID_PARAMS,
        rpc_errors.INTERNAL_ERROR,
        rpc_errors.HEADER_MISMATCH,
        rpc_errors.MISSING_CAPABILITY,
        rpc_errors.UNSUPPORTED_VERSION,
        rpc_errors.URL_ELICITATION_REQUIRED,
    )
    assert ours == (
        mcp_types.PARSE_ERROR,
        mcp_types.INVALID_REQUEST,
        mcp_types.METHOD_NOT_FOUND,
        mcp_types.INVALID_PARAMS,
        mcp_types.INTERNAL_ERROR,
        mcp_types.HEADER_MISMATCH,
        mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        mcp_types.UNSUPPORTED_PROTOCOL_VERSION,
        mcp_types.URL_ELICITATION_REQUIRED,
    )


def test_http_statuses_are_those_of_the_sdk() -> None:
    assert dict(ERROR_CODE_HTTP_STATUS) == rpc_errors.HTTP_STATUS


def test_reserved_meta_keys_are_those_of_the_sdk() -> None:
    assert (meta.VERSION, meta.CLIENT_INFO) == (mcp_types.PROTOCOL_VERSION_META_KEY, mcp_types.CLIENT_INFO_META_KEY)
    assert (meta.CAPABILITIES, meta.LOG_LEVEL) == (mcp_types.CLIENT_CAPABILITIES_META_KEY, mcp_types.LOG_LEVEL_META_KEY)
    assert meta.SERVER_INFO == mcp_types.SERVER_INFO_META_KEY


def test_a_refused_version_comes_with_the_data_that_the_sdk_reads() -> None:
    data = mcp_types.UnsupportedProtocolVersionErrorData.model_validate(eras.unsupported_version("1999-01-01"))
    assert data.model_dump() == {"supported": list(version.MODERN_PROTOCOL_VERSIONS), "requested": "1999-01-01"}
