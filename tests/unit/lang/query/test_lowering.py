from __future__ import annotations

from omnigraph.core.source import MAX_PATTERNS
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from support.subtests import each_case


def pipeline(clauses: str, reading, params: str = "") -> tuple[ir.Op, ...]:
    text = f"query q({params}) {{ match {{ {clauses} }} return {{ 1 as one }} }}"
    return compile_query(text, reading).ir.pipeline


DIRECTIONS = [
    ("$p: Paper", "$p appearsAt $v", "p", "v", "out", "Venue"),
    ("$p: Paper", "$v appearsAt $p", "p", "v", "out", "Venue"),
    ("$v: Venue", "$p appearsAt $v", "v", "p", "in", "Paper"),
    ("$v: Venue", "$v appearsAt $p", "v", "p", "in", "Paper"),
    ("$p: Paper", "$p cites $q", "p", "q", "out", "Paper"),
    ("$p: Paper", "$q cites $p", "p", "q", "in", "Paper"),
    ("$p: Paper", "$p <cites> $q", "p", "q", "both", "Paper"),
    ("$p: Paper", "$q <cites> $p", "p", "q", "both", "Paper"),
    ("$a: Author", "$a wrote $p", "a", "p", "out", "Paper"),
    ("$p: Paper", "$a wrote $p", "p", "a", "in", "Author"),
    ("$p: Paper", "$p wrote $a", "p", "a", "in", "Author"),
]


@each_case(
    ("binding", "traversal", "source", "target", "direction", "type_"),
    DIRECTIONS,
    ids=[f"{item[0]} {item[1]}" for item in DIRECTIONS],
)
def test_a_traversal_is_expanded_from_its_bound_end(
    binding, traversal, source, target, direction, type_, reading
):
    _, expand = pipeline(f"{binding} {traversal}", reading)

    assert (expand.source, expand.target, str(expand.direction), expand.target_type) == (
        source,
        target,
        direction,
        type_,
    )


@each_case(
    ("binding", "traversal", "source", "target", "direction", "type_"),
    DIRECTIONS,
    ids=[f"{item[0]} {item[1]}" for item in DIRECTIONS],
)
def test_a_traversal_inside_not_keeps_its_direction(
    binding, traversal, source, target, direction, type_, reading
):
    _, anti = pipeline(f"{binding} not {{ {traversal} }}", reading)

    (expand,) = anti.pipeline
    assert (expand.source, expand.target, str(expand.direction), expand.target_type) == (
        source,
        target,
        direction,
        type_,
    )


def test_a_single_variable_filter_rides_on_the_operator_that_introduces_it(reading):
    scan, expand = pipeline(
        "$p: Paper $p $c:cites $q $q.year > 1 $c.weight > 0.5 $p.year > 2", reading
    )

    assert [item.left.variable for item in scan.filters] == ["p"]
    assert [item.left.variable for item in expand.filters] == ["q"]
    assert [item.left.variable for item in expand.edge_filters] == ["c"]


def test_a_filter_on_two_variables_runs_on_joined_rows(reading):
    ops = pipeline("$p: Paper $p cites $q $p.year > $q.year", reading)

    assert [type(op) for op in ops] == [ir.NodeScan, ir.Expand, ir.Filter]


def test_inline_and_standalone_spellings_of_a_condition_agree(reading):
    inline = pipeline('$p: Paper { stage: "accepted" } $p cites $q', reading)
    standalone = pipeline('$p: Paper $p.stage = "accepted" $p cites $q', reading)

    assert inline == standalone


def test_the_order_of_clauses_does_not_change_the_plan_of_a_chain(reading):
    one = pipeline('$p: Paper $p cites $q $q appearsAt $v $v.city = "x"', reading)
    two = pipeline('$v.city = "x" $q appearsAt $v $p cites $q $p: Paper', reading)

    assert one == two


def test_binding_a_variable_twice_is_one_scan_with_both_conditions(reading):
    (scan,) = pipeline('$p: Paper { year: 2020 } $p: Paper { stage: "accepted" }', reading)

    assert [item.left.property for item in scan.filters] == ["year", "stage"]


def test_binding_a_variable_twice_with_one_type_is_the_same_as_once(reading):
    assert pipeline("$p: Paper $p: Paper", reading) == pipeline("$p: Paper", reading)


def test_a_traversal_between_bound_ends_expands_to_a_hidden_variable(reading):
    *_, expand, check = pipeline("$p: Paper $p cites $q $q cites $p", reading)

    assert expand.target.startswith("~")
    assert check.predicate == ir.Comparison(
        ir.EntityRef(expand.target, "Paper"), ir.CompareOp.EQ, ir.EntityRef("p", "Paper")
    )


def test_anonymous_ends_are_different_hidden_variables(reading):
    _, first, second = pipeline("$p: Paper $p cites $_ $p cites $_", reading)

    assert first.target != second.target
    assert first.target.startswith("~")


def test_an_anonymous_edge_binds_nothing(reading):
    assert pipeline("$p: Paper $p $_:cites $q", reading) == pipeline(
        "$p: Paper $p cites $q", reading
    )


def test_a_traversal_without_bound_ends_scans_the_source_type(reading):
    scan, expand = pipeline("$p appearsAt $v", reading)

    assert (scan.variable, scan.node_type, expand.target) == ("p", "Paper", "v")


def test_unconnected_bindings_are_a_cross_product(reading):
    ops = pipeline("$p: Paper $v: Venue", reading)

    assert [(type(op), op.variable) for op in ops] == [(ir.NodeScan, "p"), (ir.NodeScan, "v")]


def test_bounds_ride_on_the_expand(reading):
    _, expand = pipeline("$p: Paper $p cites{2,4} $q", reading)

    assert (expand.low, expand.high) == (2, 4)


def test_a_list_match_means_membership(reading):
    (scan,) = pipeline('$p: Paper { topics: "x" }', reading)

    assert scan.filters[0].op is ir.CompareOp.CONTAINS


def test_text_conditions_are_all_kept(reading):
    (scan,) = pipeline(
        '$p: Paper search($p.title, "a") search($p.title, "b") fuzzy($p.title, "c")', reading
    )

    assert [str(item.kind) for item in scan.filters] == ["search", "search", "fuzzy"]


def test_a_text_condition_on_a_traversed_variable_is_kept(reading):
    _, expand = pipeline('$p: Paper $p cites $q match_text($q.title, "a")', reading)

    assert str(expand.filters[0].kind) == "match_text"


def test_a_text_condition_over_an_outer_variable_inside_not_is_kept(reading):
    _, anti = pipeline('$p: Paper not { search($p.title, "a") }', reading)

    assert isinstance(anti.pipeline[0].predicate, ir.TextMatch)


def test_fuzzy_tolerates_two_edits_unless_told_otherwise(reading):
    (scan,) = pipeline('$p: Paper fuzzy($p.title, "a") fuzzy($p.title, "a", 0)', reading)

    assert [item.edits.value for item in scan.filters] == [2, 0]


def test_not_does_not_change_what_is_bound_after_it(reading):
    ops = pipeline("$p: Paper not { $p cites $q } not { $p appearsAt $q }", reading)

    assert [op.pipeline[0].target_type for op in ops[1:]] == ["Paper", "Venue"]


def test_negations_come_after_everything_else(reading):
    ops = pipeline("not { $p appearsAt $_ } $p: Paper $p cites $q $p.year > $q.year", reading)

    assert type(ops[-1]) is ir.AntiJoin


def test_negations_keep_the_order_of_the_text(reading):
    ops = pipeline("$p: Paper not { $p appearsAt $_ } not { $p cites $_ }", reading)

    assert [op.pipeline[0].edge_type for op in ops[1:]] == ["AppearsAt", "Cites"]


def test_now_becomes_the_reserved_parameter(reading):
    (scan,) = pipeline("$p: Paper { submitted: now() }", reading)

    assert scan.filters[0].right == ir.ParamRef("__now", ir.INSTANT_TYPE)


def test_a_pattern_of_many_traversals_compiles(reading):
    chain = " ".join(f"$p{i} cites $p{i + 1}" for i in range(MAX_PATTERNS - 1))

    ops = pipeline(f"$p0: Paper {chain}", reading)

    assert len(ops) == MAX_PATTERNS
