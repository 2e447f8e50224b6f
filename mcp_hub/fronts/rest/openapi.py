"""The OpenAPI 3.1 document, made from routes and shapes. Pure."""

import re
from http import HTTPStatus
from typing import Final

import msgspec

from mcp_hub.fronts.rest.routes import ROUTES, Parameter, ResponseSpec, RestRoute
from mcp_hub.protocol.rest.problems import ProblemBody
from mcp_hub.types import JsonObject

_REFERENCE: Final = "#/components/schemas/{name}"
_PUBLISHED: Final = {"StreamStatus": "StreamInfo", "StreamPage": "EventPage"}
"""Names of components that are not those of the classes: clients are generated from the document."""
_EVERYWHERE: Final = (401, 403, 405, 421, 429, 503)
"""Problems of any route: authentication, a wrong method, a limit, a hub that stops."""


def document(version: str) -> bytes:
    """The document of a hub's version."""
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
    in_path = [Parameter(name, "", is_required=True) for name in re.findall(r"{(\w+)}", route.path)]
    parameters = [_parameter(each, "path") for each in in_path]
    parameters += [_parameter(each, "header" if each.is_header else "query") for each in route.parameters]
    responses: JsonObject = {str(answer.status): _response(answer, refer) for answer in route.answers}
    for status in sorted({*route.problems, *_EVERYWHERE}):
        content = {"application/problem+json": {"schema": refer[ProblemBody]}}
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": content}
    operation: JsonObject = {"operationId": route.operation, "summary": route.summary, "responses": responses}
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": refer[route.body]}}}
    return operation


def _parameter(parameter: Parameter, location: str) -> JsonObject:
    described = {"description": parameter.summary} if parameter.summary else {}
    schema = {"type": parameter.kind}
    return {"name": parameter.name, "in": location, "required": parameter.is_required, "schema": schema, **described}


def _response(answer: ResponseSpec, refer: dict[type, JsonObject]) -> JsonObject:
    response: JsonObject = {"description": answer.summary}
    if answer.forms:
        response["content"] = {
            media: {} if form is None else {"schema": refer[form]} for media, form in answer.forms.items()
        }
    return response
