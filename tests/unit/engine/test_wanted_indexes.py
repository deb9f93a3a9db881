"""Which physical indexes a schema asks for, type by type."""

from __future__ import annotations

import pytest

from omnigraph.core.types import PropertyType, Scalar, ScalarType
from omnigraph.engine.wanted_indexes import (
    VECTOR_INDEX_MIN_ROWS,
    WantedIndex,
    index_spec,
    indexed_texts,
    scalar_index_name,
    vector_index_name,
    wanted_indexes,
)
from omnigraph.lang.schema.catalog import (
    EdgeDef,
    IndexKind,
    MemberSet,
    NodeDef,
    PropertyDef,
    Provenance,
)
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.storage.datasets.indexes import PhysicalIndex
from support.subtests import each_case

BTREE, VECTOR = IndexKind.BTREE, IndexKind.VECTOR
ID = ("id", BTREE)


def node(body: str) -> NodeDef:
    return compile_schema(f"node Thing {{ {body} }}").catalog.nodes["Thing"]


def edge(body: str) -> EdgeDef:
    text = f"node Thing {{ name: String @key }} edge Likes: Thing -> Thing {{ {body} }}"
    return compile_schema(text).catalog.edges["Likes"]


def wanted(definition: NodeDef | EdgeDef) -> list[tuple[str, IndexKind]]:
    return [(item.column, item.kind) for item in wanted_indexes(definition)]


@each_case(
    ("type_", "kinds"),
    [
        ("String", [BTREE]),
        ("String?", [BTREE]),
        ("enum(draft, final)", [BTREE]),
        ("Bool", [BTREE]),
        ("I32", [BTREE]),
        ("I64?", [BTREE]),
        ("U32", [BTREE]),
        ("U64", [BTREE]),
        ("F32", [BTREE]),
        ("F64", [BTREE]),
        ("Date", [BTREE]),
        ("DateTime", [BTREE]),
        ("Vector(4)", [VECTOR]),
        ("[String]", []),
        ("[I64]?", []),
    ],
)
def test_an_index_on_one_property_follows_its_type(type_: str, kinds: list[IndexKind]) -> None:
    definition = node(f"x: {type_} y: {type_} @index(x)")
    assert wanted(definition) == [ID, *(("x", kind) for kind in kinds)]


@each_case(
    ("body", "expected"),
    [
        ("x: I32", []),
        ("x: String @unique", []),
        ("x: Blob?", []),
        ("x: I32 @key", [("x", BTREE)]),
        ("x: String @key", [("x", BTREE)]),
        # The same intent twice is one index, however it is spelled.
        ("x: I32 @key @index", [("x", BTREE)]),
        ("x: I32 @key @index(x)", [("x", BTREE)]),
        ("x: String @index @key", [("x", BTREE)]),
        # Several properties in one annotation declare, and build nothing.
        ("x: I32 y: I32 @index(x, y)", []),
        ("x: I32 y: I32 @key(x, y)", []),
        ("x: I32 @index y: I32 @index(x, y)", [("x", BTREE)]),
        ("x: I32 y: I32 @index @key(x, y)", [("y", BTREE)]),
        (
            "x: I32 @key y: String @index z: Vector(2)? @index",
            [("y", BTREE), ("z", VECTOR), ("x", BTREE)],
        ),
    ],
)
def test_a_node_type_wants_the_indexes_it_declares(
    body: str, expected: list[tuple[str, IndexKind]]
) -> None:
    found = wanted(node(body))
    assert found[0] == ID
    assert sorted(found[1:]) == sorted(expected)
    assert len(set(found)) == len(found), "none twice"


def test_a_blob_wants_none_even_where_a_schema_would_ask() -> None:
    """The language refuses the annotation; the rule does not lean on that."""
    blob = PropertyDef(name="x", type=PropertyType(ScalarType(Scalar.BLOB)))
    asked = MemberSet(members=("x",), provenance=Provenance.PROPERTY)
    assert wanted(NodeDef(name="Thing", properties={"x": blob}, indexes=(asked,))) == [ID]


@each_case("body", ["", "weight: F64?", "weight: F64? @index", "note: String @index"])
def test_an_edge_type_wants_its_id_and_its_ends_and_nothing_else(body: str) -> None:
    assert wanted(edge(body)) == [ID, ("src", BTREE), ("dst", BTREE)]


def test_properties_of_interfaces_count_as_their_own() -> None:
    text = """
    interface Named { name: String @index }
    node Thing implements Named { size: I32 @index }
    """
    definition = compile_schema(text).catalog.nodes["Thing"]
    assert sorted(wanted(definition)[1:]) == [("name", BTREE), ("size", BTREE)]


def test_names_of_indexes_tell_column_and_kind() -> None:
    assert scalar_index_name("src") == WantedIndex(column="src", kind=BTREE).name == "src_btree"
    assert vector_index_name("v") == WantedIndex(column="v", kind=VECTOR).name == "v_vector"


@pytest.mark.parametrize("count", [0, 1, 1_000_000])
def test_a_scalar_index_is_built_with_the_defaults_of_the_library(count: int) -> None:
    spec = index_spec(WantedIndex(column="x", kind=BTREE), count)
    assert spec is not None
    assert (spec.name, spec.column, spec.kind) == ("x_btree", "x", PhysicalIndex.BTREE)
    assert spec.settings == ()


@each_case(
    ("body", "expected"),
    [
        ("x: String", []),
        ("x: String @key y: String? @index", ["y"]),
        ("x: String @key @index(x)", ["x"]),
        ("x: I32 @key y: String z: String @index(y, z)", []),
        ("x: I32 @index y: enum(a, b) @index w: Vector(2)? @index", []),
    ],
)
def test_terms_are_kept_of_single_texts_with_an_index(body: str, expected: list[str]) -> None:
    assert list(indexed_texts(node(body))) == expected


@pytest.mark.parametrize("count", [0, 1, 9_999])
def test_few_vectors_are_scanned_exactly(count: int) -> None:
    assert index_spec(WantedIndex(column="v", kind=VECTOR), count) is None


@each_case(
    ("count", "partitions"),
    [(10_000, 100), (10_200, 100), (10_201, 101), (1_000_000, 1_000), (10**8 - 1, 9_999)],
)
def test_many_vectors_have_as_many_partitions_as_their_root(count: int, partitions: int) -> None:
    spec = index_spec(WantedIndex(column="v", kind=VECTOR), count)
    assert spec is not None
    assert (spec.name, spec.column, spec.kind) == ("v_vector", "v", PhysicalIndex.IVF_FLAT)
    assert dict(spec.settings) == {"num_partitions": partitions, "metric": "l2"}


def test_the_limit_is_the_one_that_users_read_about() -> None:
    assert VECTOR_INDEX_MIN_ROWS == 10_000
