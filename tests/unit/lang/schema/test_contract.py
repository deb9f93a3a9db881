from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.accepted import IR_VERSION, read_contract, write_contract, write_state
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema
from support.schemas import DOMAIN, accept, apply, catalog_of
from support.subtests import each_case

TEXT = """
interface I { t: String @index }
node A implements I { a: String @key b: F64? @unit("m", k=1) @range(b, 0.5..) }
node B { x: I32 y: I32 @key(y, x) }
edge E: A -> B @card(0..2) { w: F32? }
"""

Contract = dict[str, Any]


def stored(text: str = TEXT) -> Contract:
    return json.loads(json.dumps(write_contract(accept(text))))


def test_the_contract_carries_version_domain_and_counter() -> None:
    contract = stored()

    assert IR_VERSION == 2
    assert contract["ir_version"] == 2
    assert contract["identity_domain"] == DOMAIN
    assert contract["next_identity_id"] == accept(TEXT).identities.next_id


def test_every_type_and_property_has_its_number() -> None:
    contract = stored()

    assert [(item["name"], item["id"]) for item in contract["nodes"]] == [("A", 2), ("B", 3)]
    assert [(p["name"], p["id"]) for p in contract["nodes"][1]["properties"]] == [
        ("x", 9),
        ("y", 10),
    ]
    assert "incarnation" not in contract["interfaces"][0]
    assert contract["edges"][0]["incarnation"] == 14


@each_case(
    "text",
    [
        pytest.param(TEXT, id="small"),
        pytest.param("", id="empty"),
        pytest.param('node A @description("naïve 知识") {}', id="not ASCII"),
        pytest.param("node A { b: Blob @unique(b) }", id="tolerated shape"),
    ],
)
def test_a_contract_is_read_back_as_it_was_written(text: str) -> None:
    accepted = accept(text)

    read = read_contract(stored(text), catalog_of(text, accepted=True))

    assert read == accepted


def test_the_whole_reading_graph_is_read_back(reading: Catalog) -> None:
    from omnigraph.core.source import SourceText
    from omnigraph.lang.schema.accepted import AcceptedSchema, fresh_identities

    identities = fresh_identities(reading, DOMAIN, SourceText("")).identities
    accepted = AcceptedSchema(catalog=reading, identities=identities)

    assert read_contract(json.loads(json.dumps(write_contract(accepted))), reading) == accepted


def test_numbers_after_migrations_are_read_back() -> None:
    new = 'node C { n: I32? } node B { x: I32 z: I32 @rename_from("y") @key(z, x) }'
    accepted = apply("node B { x: I32 y: I32 @key(y, x) }", new)

    read = read_contract(json.loads(json.dumps(write_contract(accepted))), catalog_of(new))

    assert read.identities == accepted.identities


def test_comments_order_and_hints_of_the_source_do_not_matter() -> None:
    other = "// moved\n" + TEXT.replace("x: I32 y: I32", "y: I32 @rename_from(z) x: I32")

    assert read_contract(stored(), catalog_of(other)).identities == accept(TEXT).identities


@each_case(
    "text",
    [
        pytest.param(TEXT.replace("w: F32?", "w: F64?"), id="type"),
        pytest.param(TEXT + "node C {}", id="new type"),
        pytest.param(TEXT.replace("@card(0..2)", ""), id="cardinality"),
        pytest.param(TEXT.replace("node B", 'node B @description("x")'), id="description"),
        pytest.param(TEXT.replace("edge E: A -> B @card(0..2) { w: F32? }", ""), id="type gone"),
        pytest.param(TEXT.replace("w: F32?", ""), id="property gone"),
    ],
)
def test_an_edited_source_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"schema apply|damaged"):
        read_contract(stored(), catalog_of(text))


def _set(path: list[str | int], value: object) -> Callable[[Contract], None]:
    def damage(contract: Contract) -> None:
        place: Any = contract
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return damage


def _remove(path: list[str | int]) -> Callable[[Contract], None]:
    def damage(contract: Contract) -> None:
        place: Any = contract
        for part in path[:-1]:
            place = place[part]
        del place[path[-1]]

    return damage


@each_case(
    "damage",
    [
        pytest.param(_remove(["nodes"]), id="no nodes"),
        pytest.param(_set(["nodes"], None), id="nodes is null"),
        pytest.param(_set(["nodes"], [1]), id="a node is a number"),
        pytest.param(_set(["nodes"], "AB"), id="nodes is a text"),
        pytest.param(_remove(["nodes", 0, "id"]), id="type without number"),
        pytest.param(_remove(["nodes", 0, "incarnation"]), id="node without incarnation"),
        pytest.param(_set(["interfaces", 0, "incarnation"], 90), id="interface with incarnation"),
        pytest.param(_remove(["nodes", 0, "properties", 0, "id"]), id="property without number"),
        pytest.param(_set(["nodes", 0, "id"], "2"), id="number as text"),
        pytest.param(_set(["nodes", 0, "id"], None), id="number is null"),
        pytest.param(_set(["nodes", 0, "id"], 2.5), id="number is a fraction"),
        pytest.param(_set(["nodes", 0, "id"], True), id="number is a boolean"),
        pytest.param(_set(["nodes", 0, "id"], 3), id="number used twice"),
        pytest.param(_set(["nodes", 0, "id"], 0), id="number zero"),
        pytest.param(_set(["nodes", 0, "id"], -4), id="negative number"),
        pytest.param(_set(["nodes", 0, "id"], 1000), id="number beyond the counter"),
        pytest.param(_set(["next_identity_id"], 3), id="counter too small"),
        pytest.param(_set(["next_identity_id"], "99"), id="counter as text"),
        pytest.param(_remove(["next_identity_id"]), id="no counter"),
        pytest.param(_set(["identity_domain"], "x"), id="domain is no ULID"),
        pytest.param(_set(["identity_domain"], DOMAIN.lower()), id="domain in lower case"),
        pytest.param(_set(["identity_domain"], None), id="domain is null"),
        pytest.param(_remove(["identity_domain"]), id="no domain"),
        pytest.param(_set(["nodes", 0, "name"], "Z"), id="other name"),
        pytest.param(_set(["extra"], 1), id="unknown member"),
        pytest.param(_set(["ir_version"], 1), id="older version"),
        pytest.param(_set(["ir_version"], 3), id="newer version"),
        pytest.param(_remove(["ir_version"]), id="no version"),
    ],
)
def test_a_damaged_contract_is_refused(damage: Callable[[Contract], None]) -> None:
    contract = copy.deepcopy(stored())
    damage(contract)

    with pytest.raises(BadRequestError):
        read_contract(contract, catalog_of(TEXT))


def test_another_version_is_named() -> None:
    with pytest.raises(BadRequestError, match="version 7, this release reads 2"):
        read_contract({"ir_version": 7}, catalog_of(""))


def test_the_state_hashes_source_shape_and_contract_apart() -> None:
    state = write_state(accept(TEXT), TEXT)

    assert set(state) == {"source_hash", "schema_hash", "contract_hash"}
    assert len(set(state.values())) == 3
    assert all(str(value).startswith("sha256:") for value in state.values())
    assert state["schema_hash"] == catalog_of(TEXT).schema_hash


def test_a_comment_changes_only_the_hash_of_the_source() -> None:
    commented = TEXT + "// more"

    before, after = write_state(accept(TEXT), TEXT), write_state(accept(commented), commented)

    assert before["source_hash"] != after["source_hash"]
    assert before["schema_hash"] == after["schema_hash"]
    assert before["contract_hash"] == after["contract_hash"]


def test_other_numbers_change_only_the_hash_of_the_contract() -> None:
    text = "node A { a: I32? } node B {}"
    again = apply(apply(text, "node A { a: I32? }"), text)

    before, after = write_state(accept(text), text), write_state(again, text)

    assert before["schema_hash"] == after["schema_hash"]
    assert before["contract_hash"] != after["contract_hash"]


def test_the_contract_is_plain_json_data() -> None:
    contract = write_contract(accept(TEXT))

    assert json.loads(json.dumps(contract, allow_nan=False)) == contract


def test_the_contract_holds_no_rename_hint() -> None:
    compiled = compile_schema("node A @rename_from(Z) { a: I32 @rename_from(b) }")

    assert compiled.catalog.nodes["A"].renamed_from is not None
    assert "rename" not in json.dumps(write_contract(accept(compiled.source.text)))
