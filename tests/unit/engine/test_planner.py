"""The planner without a graph: golden plans of a catalogue of shapes, and one plan for every order of the clauses."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.core.source import SourceText
from omnigraph.engine.plan.estimates import Model, rows_behind
from omnigraph.engine.plan.ordering import EXACT_NODES
from omnigraph.engine.plan.planner import plan_match, plan_read
from omnigraph.engine.plan.statistics import Degrees, EdgeStatistics, Statistics
from omnigraph.engine.tables.settings import PlanOrder, PlanSettings
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_file, compile_query
from support.planning import EDGES, ROWS, catalog, plan_text, planned, statistics, written
from support.subtests import each_case

CATALOGUE = Path(__file__).parent / "plans" / "catalogue.gq"


def texts() -> dict[str, str]:
    """The queries of the catalogue by name."""
    source = CATALOGUE.read_text(encoding="utf-8")
    names = [query.name for query in compile_file(SourceText(source, CATALOGUE.name), catalog())]
    parts = source.split("\nquery ")[1:]
    return {name: f"query {part}" for name, part in zip(names, parts, strict=True)}


def test_plans_of_the_catalogue(golden) -> None:
    golden(CATALOGUE.with_suffix(".expected"), "\n".join(map(plan_text, texts().values())))


# ---- What is asked of plans


def starts(query: ir.ReadIR) -> list[str]:
    return [op.variable for op in query.pipeline if isinstance(op, ir.NodeScan)]


def test_the_anchor_begins_wherever_it_stands() -> None:
    first = planned('query q() { match { $a: Person { name: "x" } $a knows $b $b knows $c } return { count(*) as n } }')
    last = planned('query q() { match { $b knows $c $a knows $b $a: Person $a.name = "x" } return { count(*) as n } }')
    assert first.pipeline == last.pipeline
    assert starts(first) == ["a"]


def test_the_condition_that_names_a_node_comes_first() -> None:
    """Storage and dictionaries of keys look at the first condition."""
    plan = planned('query q() { match { $a: Person $a.age > 3 $a.bio = "x" $a.name = "y" } return { $a.age } }')
    scan = plan.pipeline[0]
    assert isinstance(scan, ir.NodeScan)
    named = scan.filters[0]
    assert isinstance(named, ir.Comparison)
    assert isinstance(named.left, ir.PropertyRef)
    assert named.left.property == "name"


def test_links_are_followed_from_the_end_that_has_fewer_nodes() -> None:
    few = Statistics.of({**ROWS, "City": 3}, dict(statistics().edges), dict(statistics().properties))
    text = "query q() { match { $p: Person $p livesIn $c $p.age = 30 $c.size = 1 } return { $p.name } }"
    assert starts(planned(text)) == ["p"] or starts(planned(text)) == ["c"]
    assert starts(planned(text, few)) == ["c"]


def test_counted_ends_are_not_written_down() -> None:
    """Both neighbours of the middle are only counted, so it begins there and nothing grows."""
    plan = planned("query q() { match { $a: Person $a knows $b $b knows $c } return { count(*) as n } }")
    assert starts(plan) == ["b"]


def test_products_come_last() -> None:
    plan = planned(
        "query q() { match { $a: Country $b: Person $b knows $c $d cityIn $a } return { $c.name, $d.name } }"
    )
    kinds = [type(op).__name__ for op in plan.pipeline]
    assert kinds == ["NodeScan", "Expand", "NodeScan", "Expand"]


def test_a_search_for_paths_keeps_its_direction() -> None:
    text = (
        "query q() { match { $a: Person $b: Person { name: 'x' } path $w = shortest $a knows{1,3} $b } return { $w } }"
    )
    text = text.replace("'", '"').replace("{ $w }", "{ length($w) as n }")
    (path,) = [op for op in planned(text).pipeline if isinstance(op, ir.PathSearch)]
    assert path.source == "a"


def test_a_large_component_is_planned_greedily() -> None:
    links = " ".join(f"$p{i} knows $p{i + 1}" for i in range(EXACT_NODES + 8))
    plan = planned(f'query q() {{ match {{ {links} $p{EXACT_NODES}.name = "x" }} return {{ count(*) as n }} }}')
    assert starts(plan) == [f"p{EXACT_NODES}"]
    assert sum(isinstance(op, ir.Expand) for op in plan.pipeline) == EXACT_NODES + 8


def test_the_order_of_the_text_may_be_kept() -> None:
    query = written('query q() { match { $a: Person $a knows $b $b.name = "x" } return { $a.name } }')
    assert plan_read(query, statistics(), PlanSettings(order=PlanOrder.TEXT)) is query


def test_plans_follow_from_row_counts_alone() -> None:
    plan = planned(
        'query q() { match { $a: Person $a livesIn $c $c.name = "x" } return { $a.name } }', Statistics.of(ROWS)
    )
    assert starts(plan) == ["c"]


def test_a_match_of_a_mutation_is_planned() -> None:
    text = 'query q() { match { $a: Person $a knows $b $b.name = "x" } update $a set { age: 1 } }'
    compiled = compile_query(text, catalog()).ir
    assert isinstance(compiled, ir.MutationIR)
    assert compiled.match is not None
    ops = plan_match(compiled.match, ("a",), statistics())
    assert isinstance(ops[0], ir.NodeScan)
    assert ops[0].variable == "b"


def test_what_was_counted_wins_over_what_was_estimated() -> None:
    query = written("query q() { match { $a: Person $a.age = 30 $a knows $b $b.age = 31 } return { $a.name } }")
    few = plan_read(query, statistics(), observed={"a": 1.0})
    many = plan_read(query, statistics(), observed={"a": 99_000.0})
    assert starts(few) == ["a"]
    assert starts(many) == ["b"]
    assert starts(plan_read(query, statistics(), observed={"a": 99_000.0}, start="a")) == ["a"]


# ---- Every order of the clauses gives one plan

LINKS = {
    "Person": [("knows", "Person"), ("livesIn", "City"), ("likesPost", "Post"), ("<knows>", "Person")],
    "City": [("cityIn", "Country")],
    "Country": [],
    "Post": [("postCreator", "Person"), ("postTag", "Tag")],
    "Tag": [],
}
CONDITIONS = {
    "Person": ["${}.age > 40", '${}.name = "x"', "${}.active = true", "count {{ ${} knows $_ }} > 2"],
    "City": ['${}.name = "x"', "${}.size < 9"],
    "Country": ['${}.name != "x"'],
    "Post": ["${}.made = 3", "${}.made > 5"],
    "Tag": ['${}.name = "x"'],
}


@dataclass
class Clauses:
    """The clauses of one match: bindings, and what may stand in any order behind or between them."""

    bindings: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    #: An optional block stands behind the bindings of what it begins with.
    optionals: list[str] = field(default_factory=list)


@st.composite
def matches(draw: st.DrawFn) -> Clauses:
    types = draw(st.lists(st.sampled_from(sorted(LINKS)), min_size=1, max_size=5))
    names = {f"v{number}": type_ for number, type_ in enumerate(types)}
    found = Clauses([f"${name}: {type_}" for name, type_ in names.items()])
    for name, type_ in names.items():
        if draw(st.booleans()):
            found.others.append(draw(st.sampled_from(CONDITIONS[type_])).format(name))
        for word, target in LINKS[type_]:
            ends = [f"${other}" for other, other_type in names.items() if other_type == target]
            for end in draw(st.lists(st.sampled_from([*ends, "$_"]), max_size=2, unique=True)):
                found.others.append(draw(link(name, word, end, len(found.others))))
    pairs = [(left, right) for left in names for right in names if left < right and names[left] == names[right]]
    if pairs:
        left, right = draw(st.sampled_from(pairs))
        found.others.append(draw(st.sampled_from([f"${left} != ${right}", "{}.name = {}.name"])))
        found.others[-1] = found.others[-1].format(f"${left}", f"${right}").replace("name", name_of(names[left]))
    persons = [name for name, type_ in names.items() if type_ == "Person"]
    if persons:
        person = draw(st.sampled_from(persons))
        found.others += draw(
            st.lists(
                st.sampled_from(
                    [
                        f"not {{ ${person} knows $n  $n livesIn $m  $m.size > 3 }}",
                        f"exists {{ $f: Forum  $f hasMember ${person}  $f containerOf $_ }}",
                        f"(${person}.age > 3 or exists {{ ${person} livesIn $_  ${person} knows $k }})",
                    ]
                ),
                max_size=2,
                unique=True,
            )
        )
        found.optionals += draw(
            st.lists(
                st.sampled_from(
                    [
                        f"optional {{ ${person} livesIn $home }}",
                        f"optional {{ ${person} knows $friend  $friend knows $_ }}",
                    ]
                ),
                max_size=2,
                unique=True,
            )
        )
    return found


def name_of(type_: str) -> str:
    return {"Post": "number"}.get(type_, "name")


def link(name: str, word: str, end: str, number: int) -> st.SearchStrategy[str]:
    forms = [f"${name} {word} {end}"]
    if word == "knows":
        forms += [
            f"${name} knows{{1,3}} {end}",
            f"${name} $e{number}: knows {end}",
            f"${name} (knows where since > 3) {end}",
            f"path $w{number} = shortest ${name} knows{{1,2}} {end}",
        ]
    return st.sampled_from(forms)


def text_of(clauses: list[str]) -> str:
    return f"query q() {{ match {{ {'  '.join(clauses)} }} return {{ count(*) as n }} }}"


@settings(max_examples=150, deadline=None)
@given(matches(), st.data())
def test_every_order_of_the_clauses_gives_one_plan(match: Clauses, data: st.DataObject) -> None:
    plan = planned(text_of([*match.bindings, *match.others, *match.optionals]))
    bindings = data.draw(st.permutations(match.bindings))
    behind = data.draw(st.permutations([*match.others, *match.optionals]))
    other = text_of([*bindings, *behind])
    assert planned(other).pipeline == plan.pipeline, other
    if not match.optionals:
        mixed = text_of(data.draw(st.permutations([*match.bindings, *match.others])))
        assert planned(mixed).pipeline == plan.pipeline, mixed


@settings(max_examples=60, deadline=None)
@given(matches())
def test_planning_again_changes_nothing(match: Clauses) -> None:
    plan = planned(text_of([*match.bindings, *match.others, *match.optionals]))
    assert plan_read(plan, statistics()).pipeline == plan.pipeline


@each_case("seed", range(20))
def test_a_random_order_has_the_same_parts(seed: int) -> None:
    """Forced orders are for tests; they bind the same variables."""
    for text in texts().values():
        query = written(text)
        forced = plan_read(query, statistics(), PlanSettings(order=PlanOrder.RANDOM, seed=seed))
        assert bound(forced) == bound(query)


def bound(query: ir.ReadIR) -> set[str]:
    found: set[str] = set()
    for op in query.pipeline:
        match op:
            case ir.NodeScan(variable) | ir.UnionScan(variable):
                found.add(variable)
            case ir.Expand() | ir.ExpandEdges() | ir.Search() | ir.PathSearch():
                found.add(op.target)
            case _:
                pass
    return {name for name in found if not name.startswith("~")}


def test_an_estimate_of_a_set_does_not_depend_on_its_order() -> None:
    text = texts()["star"]
    ends: set[str] = set()
    for seed in range(10):
        plan = plan_read(written(text), statistics(), PlanSettings(order=PlanOrder.RANDOM, seed=seed))
        *_, last = rows_behind(Model.of(statistics(), plan.pipeline, {}), plan.pipeline)
        ends.add(f"{last:.6g}")
    assert len(ends) == 1


def test_how_many_nodes_have_an_edge_is_counted_where_degrees_are_known() -> None:
    text = "query q() { match { $p: Person  not { $p knows $_ } } return { $p.name } }"
    edges = dict(statistics().edges)
    edges["Knows"] = EdgeStatistics(EDGES["Knows"], Degrees(60_000, 20.0, 140, 740))
    known = Statistics.of(ROWS, edges, dict(statistics().properties))
    plan = planned(text, known)
    *_, rows = rows_behind(Model.of(known, plan.pipeline, {}), plan.pipeline)
    assert rows == pytest.approx(40_000)


@pytest.mark.parametrize("count", [60, 250])
def test_hundreds_of_parts_are_planned(count: int) -> None:
    star = " ".join(f"$p knows $q{i}" for i in range(count))
    assert len(planned(f"query q() {{ match {{ {star} }} return {{ count(*) as n }} }}").pipeline) == count + 1
