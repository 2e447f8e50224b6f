"""The OpenAPI 3.1 document of the routes. Pure."""

import re
from http import HTTPStatus
from typing import Final

import msgspec

from mcp_hub.fronts.rest.routes import ROUTES, RestRoute
from mcp_hub.protocol.rest.problems import ProblemBody
from mcp_hub.types import JsonObject

_REFERENCE: Final = "#/components/schemas/{name}"
_PUBLISHED: Final = {"StreamStatus": "StreamInfo", "StreamPage": "EventPage"}
"""Names of components that are not those of the classes: clients are generated from the document."""
_EVERYWHERE: Final = (401, 403, 405, 421, 429, 503)
"""Problems of any route: authentication, a wrong method, a limit, a hub that stops."""
_NAME: Final = re.compile(r"{(\w+)}")
_IN_PATH: Final = {"type": "string", "minLength": 1}


def openapi_document(version: str) -> bytes:
    """The OpenAPI 3.1 document of a hub's version."""
    shapes = sorted(
        {route.body for route in ROUTES if route.body is not None}
        | {form for route in ROUTES for answer in route.answers for form in answer.forms.values() if form is not None}
        | {ProblemBody},
        key=lambda shape: shape.__name__,
    )
    references, schemas = msgspec.json.schema_components(shapes, ref_template=_REFERENCE)
    for name, published in _PUBLISHED.items():
        schemas[published] = {**schemas.pop(name), "title": published}
    refer = dict(zip(shapes, references, strict=True))
    paths: dict[str, JsonObject] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refer)
    described = msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "mcp-hub", "version": version},
            "paths": paths,
            "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
            "security": [{}, {"token": []}],
        }
    )
    for name, published in _PUBLISHED.items():
        described = described.replace(_quoted(name), _quoted(published))
    return described


def _quoted(name: str) -> bytes:
    return msgspec.json.encode(_REFERENCE.format(name=name))


def _operation(route: RestRoute, refer: dict[type, JsonObject]) -> JsonObject:
    responses: JsonObject = {str(answer.status): answer.described(refer) for answer in route.answers}
    for status in sorted({*route.problems, *_EVERYWHERE}):
        content = {"application/problem+json": {"schema": refer[ProblemBody]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    operation: JsonObject = {"operationId": route.operation, "summary": route.summary, "responses": responses}
    if parameters := [
        *({"name": name, "in": "path", "required": True, "schema": _IN_PATH} for name in _NAME.findall(route.path)),
        *(each.described() for each in route.parameters),
    ]:
        operation["parameters"] = parameters
    if route.body is not None:
        text: JsonObject = {} if route.text is None else {route.text: {"schema": {"type": "string"}}}
        operation["requestBody"] = {"content": {"application/json": {"schema": refer[route.body]}, **text}}
    return operation
