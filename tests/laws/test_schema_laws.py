"""Laws of whole schemas: shape hashes, migration plans, stable identities, the persisted contract."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.ids import derive_id
from omnigraph.errors import BadRequestError
from omnigraph.lang.schema import ast as pg
from omnigraph.lang.schema.accepted import (
    AcceptedSchema,
    Identities,
    fresh_identities,
    read_contract,
    write_contract,
    write_state,
)
from omnigraph.lang.schema.ast import print_schema
from omnigraph.lang.schema.compiler import CompiledSchema, compile_schema
from omnigraph.lang.schema.plan import plan_migration
from support.strategies import (
    DOMAIN,
    attempt,
    comments,
    json_values,
    refused_migrations,
    reorderings,
    supported_migrations,
    tokens_of,
    valid_schemas,
    without_hints,
)
from support.subtests import each_case


def _compile(tree: pg.Schema) -> CompiledSchema:
    return compile_schema(print_schema(tree))


def _accept(compiled: CompiledSchema) -> AcceptedSchema:
    resolution = fresh_identities(compiled.catalog, DOMAIN, compiled.source)
    return AcceptedSchema(catalog=compiled.catalog, identities=resolution.identities)


def _plan(accepted: AcceptedSchema, wanted: CompiledSchema):
    return plan_migration(accepted, wanted)


def _numbers(identities: Identities) -> list[int]:
    return [
        number
        for identity in identities.types.values()
        for number in (identity.type_id, identity.incarnation, *identity.properties.values())
        if number is not None
    ]


# ---- the shape hash


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_the_order_of_anything_in_a_schema_never_changes_its_hash(data, tree) -> None:
    other = data.draw(reorderings(tree))
    assert _compile(other).catalog.schema_hash == _compile(tree).catalog.schema_hash


@settings(max_examples=15)
@given(valid_schemas(), comments)
def test_comments_never_change_the_hash(tree, comment) -> None:
    text = print_schema(tree)
    commented = f"{comment}{text}{comment}"
    assert compile_schema(commented).catalog.schema_hash == compile_schema(text).catalog.schema_hash


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_every_change_that_a_plan_carries_out_changes_the_hash(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    assert _compile(change.schema).catalog.schema_hash != _compile(tree).catalog.schema_hash


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_every_change_that_a_plan_refuses_changes_the_hash(data, tree) -> None:
    change = data.draw(refused_migrations(tree))
    assert _compile(change.schema).catalog.schema_hash != _compile(tree).catalog.schema_hash


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_rename_hints_never_change_the_hash(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    with_hints, without = _compile(change.schema), _compile(without_hints(change.schema))
    assert with_hints.catalog.schema_hash == without.catalog.schema_hash


# ---- plans


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_a_schema_needs_no_step_to_itself_however_it_is_written(data, tree) -> None:
    plan = _plan(_accept(_compile(tree)), _compile(data.draw(reorderings(tree))))
    assert plan.steps == ()
    assert plan.supported


@settings(max_examples=30)
@given(st.data(), valid_schemas())
def test_a_supported_change_gives_a_supported_plan_with_its_step(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    plan = _plan(_accept(_compile(tree)), _compile(change.schema))
    assert plan.supported, [str(step) for step in plan.refusals]
    assert change.step in [step.kind for step in plan.steps]


@settings(max_examples=30)
@given(st.data(), valid_schemas())
def test_a_refused_change_gives_a_refusal_with_its_code(data, tree) -> None:
    change = data.draw(refused_migrations(tree))
    plan = _plan(_accept(_compile(tree)), _compile(change.schema))
    assert not plan.supported
    if change.code:
        assert change.code in [step.code for step in plan.refusals]


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_a_refused_change_stays_refused_beside_a_supported_one(data, tree) -> None:
    change = data.draw(refused_migrations(tree))
    extra = pg.NodeDecl(pg.Name("Unrelated"), (), (), ())
    both = pg.Schema((*change.schema.declarations, extra))
    assert not _plan(_accept(_compile(tree)), _compile(both)).supported


@each_case(
    ("old", "new"),
    [
        ("x: I32? @unique @unique(x)", "x: I32? @unique"),
        ("x: I32? @unique @unique(x)", "x: I32? @unique(x)"),
        ("x: I32? @index @index(x)", "x: I32? @index"),
        ("x: I32 @range(x, 0..) @range(x, 0..)", "x: I32 @range(x, 0..)"),
    ],
)
def test_a_constraint_written_twice_cannot_lose_one_spelling_beside_another_change(
    old, new
) -> None:
    accepted = _accept(compile_schema(f"node A {{ {old} }}"))
    alone = compile_schema(f"node A {{ {new} }}")
    assert (
        alone.catalog.schema_hash == accepted.catalog.schema_hash
        or not _plan(accepted, alone).supported
    )
    beside = compile_schema(f"node A {{ {new} y: I32? }}")
    assert _plan(accepted, beside).supported == _plan(accepted, alone).supported


@settings(max_examples=21)
@given(st.data(), valid_schemas())
def test_planning_twice_gives_the_same_plan_whatever_the_order_of_the_texts(data, tree) -> None:
    change = data.draw(supported_migrations(tree) | refused_migrations(tree))
    first = _plan(_accept(_compile(tree)), _compile(change.schema))
    shuffled, wanted = data.draw(reorderings(tree)), data.draw(reorderings(change.schema))
    again = _plan(_accept(_compile(shuffled)), _compile(wanted))
    assert json.dumps(again.to_json()) == json.dumps(first.to_json())
    assert again.resolution.identities == first.resolution.identities


@settings(max_examples=18)
@given(valid_schemas(), valid_schemas())
def test_any_two_schemas_have_a_plan_and_an_empty_one_only_when_they_mean_the_same(
    old, new
) -> None:
    before, after = _compile(old), _compile(new)
    plan = _plan(_accept(before), after)
    assert (not plan.steps) == (before.catalog.schema_hash == after.catalog.schema_hash)
    json.dumps(plan.to_json())


@settings(max_examples=15)
@given(st.data(), valid_schemas())
def test_data_loss_changes_the_mode_of_the_drops_and_nothing_else(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    accepted, wanted = _accept(_compile(tree)), _compile(change.schema)
    soft = json.dumps(plan_migration(accepted, wanted).to_json())
    hard = plan_migration(accepted, wanted, allow_data_loss=True)
    assert '"hard"' not in soft
    assert soft.replace('"soft"', '"hard"') == json.dumps(hard.to_json())


# ---- identities


@settings(max_examples=21)
@given(valid_schemas())
def test_fresh_identities_count_from_one_without_gaps(tree) -> None:
    identities = _accept(_compile(tree)).identities
    assert sorted(_numbers(identities)) == list(range(1, identities.next_id))


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_identities_survive_a_chain_of_migrations(data, tree) -> None:
    accepted = _accept(_compile(tree))
    ever = set(_numbers(accepted.identities))
    for _ in range(data.draw(st.integers(1, 4))):
        change = data.draw(supported_migrations(tree))
        wanted = _compile(change.schema)
        plan = _plan(accepted, wanted)
        old, new = accepted.identities, plan.resolution.identities
        numbers = _numbers(new)
        assert len(numbers) == len(set(numbers))
        assert new.next_id > max(numbers)
        assert new.next_id >= old.next_id
        assert new.domain == old.domain
        fresh = set(numbers) - set(_numbers(old))
        assert not fresh & ever
        assert all(number >= old.next_id for number in fresh)
        for key, identity in new.types.items():
            origin = plan.resolution.type_origins.get(key)
            if origin is None:
                assert identity.type_id in fresh
                continue
            before = old.types[key[0], origin]
            assert (identity.type_id, identity.incarnation) == (before.type_id, before.incarnation)
            origins = plan.resolution.property_origins[key]
            for name, number in identity.properties.items():
                kept = origins.get(name)
                assert number == before.properties[kept] if kept else number in fresh
        if change.step == "rename_type":
            assert not fresh
        ever |= set(numbers)
        accepted = AcceptedSchema(catalog=wanted.catalog, identities=new)
        tree = change.schema


@settings(max_examples=15)
@given(st.data(), valid_schemas())
def test_a_type_that_is_dropped_and_added_again_gets_new_numbers(data, tree) -> None:
    extra = pg.NodeDecl(
        pg.Name("Phoenix"), (), (), (pg.Property(pg.Name("p"), pg.TypeExpr("scalar", True, "I32")),)
    )
    full = pg.Schema((*tree.declarations, extra))
    first = _accept(_compile(full))
    gone = _compile(data.draw(reorderings(tree)))
    second = AcceptedSchema(
        catalog=gone.catalog, identities=_plan(first, gone).resolution.identities
    )
    third = _plan(second, _compile(full)).resolution.identities
    used = set(_numbers(first.identities))
    again = next(i for (_, name), i in third.types.items() if name == "Phoenix")
    assert not {again.type_id, again.incarnation, *again.properties.values()} & used


@settings(max_examples=15)
@given(st.data(), valid_schemas())
def test_the_member_order_of_a_key_survives_every_rename(data, tree) -> None:
    compiled = _compile(tree)
    accepted = _accept(compiled)
    change = data.draw(supported_migrations(tree))
    wanted = _compile(change.schema)
    plan = _plan(accepted, wanted)
    for key, origin in plan.resolution.type_origins.items():
        node = wanted.catalog.nodes.get(key[1]) if key[0] == "node" else None
        if node is None:
            continue
        before = accepted.identities.key_members(accepted.catalog.nodes[origin])
        after = plan.resolution.identities.key_members(node)
        origins = plan.resolution.property_origins[key]
        assert tuple(origins[name] for name in after) == before
        if before:
            assert derive_id(before)


# ---- the contract


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_a_contract_reads_back_through_json(data, tree) -> None:
    change = data.draw(supported_migrations(tree))
    wanted = _compile(change.schema)
    plan = _plan(_accept(_compile(tree)), wanted)
    accepted = AcceptedSchema(catalog=wanted.catalog, identities=plan.resolution.identities)
    contract = json.loads(json.dumps(write_contract(accepted)))
    source = compile_schema(wanted.source.text, accepted=True)
    again = read_contract(contract, source.catalog)
    assert again == accepted
    assert write_state(again, wanted.source.text) == write_state(accepted, wanted.source.text)


@settings(max_examples=18)
@given(st.data(), valid_schemas())
def test_a_contract_does_not_fit_any_other_schema(data, tree) -> None:
    contract = write_contract(_accept(_compile(tree)))
    change = data.draw(supported_migrations(tree) | refused_migrations(tree))
    with pytest.raises(BadRequestError):
        read_contract(contract, _compile(change.schema).catalog)


def _places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = [] if not path else [path]
    for key, part in inside:
        found += _places(part, (*path, key))
    return found


@settings(max_examples=36)
@given(st.data(), valid_schemas(), json_values)
def test_a_damaged_contract_is_refused_and_never_crashes(data, tree, junk) -> None:
    compiled = _compile(tree)
    accepted = _accept(compiled)
    contract = json.loads(json.dumps(write_contract(accepted)))
    *path, last = data.draw(st.sampled_from(_places(contract)))
    spot = contract
    for key in path:
        spot = spot[key]
    if data.draw(st.booleans()):
        del spot[last]
    else:
        spot[last] = junk
    again, failure = attempt(BadRequestError, read_contract, contract, compiled.catalog)
    if failure is not None:
        assert failure.message
    else:
        numbers = _numbers(again.identities)
        assert again.catalog == compiled.catalog
        assert len(numbers) == len(set(numbers))
        assert again.identities.next_id > max(numbers)


@settings(max_examples=15)
@given(valid_schemas())
def test_a_type_may_not_be_renamed_in_an_accepted_source(tree) -> None:
    compiled = _compile(tree)
    contract = write_contract(_accept(compiled))
    words = tokens_of(compiled.source.text)
    renamed = " ".join("Node9" if word == "Node0" else word for word in words)
    with pytest.raises(BadRequestError):
        read_contract(contract, compile_schema(renamed).catalog)
