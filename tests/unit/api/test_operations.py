"""The catalogue: every entry is answered, called and described, and both kinds of graphs have the same methods."""

from __future__ import annotations

import inspect
from typing import Any

import omnigraph.cli.main  # registers the renderers of derived commands
import omnigraph.server.app  # noqa: F401  # registers the handlers of operations
from omnigraph import Graph
from omnigraph.api.graph_api import DIRECT_ONLY, GraphApi
from omnigraph.api.operations import OPERATIONS
from omnigraph.cli.derived import _RENDERERS
from omnigraph.client.remote_graph import RemoteGraph
from omnigraph.codec import Document
from omnigraph.server.routing import _HANDLERS, openapi_document
from support.subtests import each_case

METHODS = sorted(
    name
    for name, item in vars(GraphApi).items()
    if not name.startswith("_") and (inspect.isfunction(item) or isinstance(item, property))
)


@each_case("entry", OPERATIONS.values(), ids=lambda entry: entry.id)
def test_an_entry_names_what_exists(entry: Any) -> None:
    assert entry.id in _HANDLERS or entry.call is not None
    assert all(issubclass(cls, Document) for cls in entry.result_classes)
    members = set(entry.path_parameters)
    for model in (entry.query_model, entry.body_model):
        fields = {} if model is None else model.model_fields
        members |= {item.alias or name for name, item in fields.items()}
    if entry.call is not None:
        parameters = set(inspect.signature(getattr(GraphApi, entry.call)).parameters) - {"self"}
        assert set(entry.names) <= parameters
        assert {entry.member_of(name) for name in entry.names} <= members
        # Everything that a request may say reaches the method.
        assert members <= {entry.member_of(name) for name in parameters}
    if entry.member is not None:
        assert entry.member in inspect.signature(entry.result_class).parameters
    if entry.command is not None:
        assert (_RENDERERS[entry.id].__doc__ or "").endswith(".")


@each_case("name", METHODS)
def test_both_kinds_of_graphs_have_every_method(name: str) -> None:
    declared = getattr(GraphApi, name)
    for kind in (Graph, RemoteGraph):
        found = getattr(kind, name)
        assert found is not declared, (kind, name)
        assert inspect.getdoc(found)
        if inspect.isfunction(declared):
            wanted = inspect.signature(declared).parameters
            assert list(inspect.signature(found).parameters) == list(wanted), (kind, name)
            given = {key: item.default for key, item in inspect.signature(found).parameters.items()}
            assert given == {key: item.default for key, item in wanted.items()}, (kind, name)


def test_what_a_server_does_not_offer_is_told_apart() -> None:
    for name in DIRECT_ONLY:
        assert callable(getattr(Graph, name))
        assert not hasattr(GraphApi, name)
        assert callable(getattr(RemoteGraph, name))


def test_the_document_describes_every_key() -> None:
    """Every object of an answer or of a failure is closed, or maps names of the user to one kind of value."""
    schemas = openapi_document(is_open=False)["components"]["schemas"]
    for name, schema in schemas.items():
        assert schema.get("additionalProperties") is False, name
        assert schema["properties"], name
