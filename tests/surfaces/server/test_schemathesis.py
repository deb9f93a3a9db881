"""The OpenAPI document against the server: what it says is accepted, refused and answered, for every operation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from omnigraph.server.routing import openapi_document
from support.servers import QUERIES, client_of, copy_graph, open_server
from support.subtests import each_case

NDJSON = "application/x-ndjson"
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPERATIONS = [
    f"{method.upper()} {path}"
    for path, item in openapi_document(is_open=False)["paths"].items()
    for method in item
]


@schemathesis.serializer(NDJSON)
def text_as_it_is(_context: object, value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def server(pristine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An open server, so that every request gets to its route; stored queries keep the schema as it is."""
    root = tmp_path_factory.mktemp("described")
    (root / "queries.gq").write_text(QUERIES, encoding="utf-8")
    uri = copy_graph(pristine, root)
    with open_server(uri, queries=root / "queries.gq") as service, client_of(service) as client:
        yield client


@pytest.fixture(scope="module")
def schema(server: TestClient) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_dict(server.get("/openapi.json").json())


def check(schema: schemathesis.BaseSchema, server: TestClient, label: str, examples: int) -> None:
    """Send what the document allows, and what it does not, and hold every answer against it."""
    method, _, path = label.partition(" ")
    operation = schema[path][method]
    modes = [GenerationMode.POSITIVE]
    if operation.query or operation.headers or operation.body:
        # Every text is right in a path, as far as a document can tell.
        modes.append(GenerationMode.NEGATIVE)
    for mode in modes:

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def send(case: Case) -> None:
            if "graph_id" in case.path_parameters:
                case.path_parameters["graph_id"] = "default"
            call = case.as_transport_kwargs(base_url="http://127.0.0.1")
            call["content"] = call.pop("data", None)
            known = ("method", "url", "headers", "params", "json", "content")
            answer = server.request(
                **{name: call[name] for name in known if call.get(name) is not None},
                follow_redirects=False,
            )
            assert "Traceback" not in answer.text
            case.validate_response(answer, checks=CHECKS)

        send()


@each_case("label", OPERATIONS)
def test_the_document_tells_what_the_server_does(schema, server, label):
    check(schema, server, label, examples=2)


@pytest.mark.slow
@pytest.mark.parametrize("label", OPERATIONS)
def test_the_document_tells_what_the_server_does_at_length(schema, server, label):
    check(schema, server, label, examples=100)
