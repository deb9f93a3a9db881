"""The rules of a schema as data, and single values on their way into a row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from omnigraph.core.ids import TableKey
from omnigraph.core.types import PropertyType, Scalar, ScalarType
from omnigraph.errors import BadRequestError, ExternalBlobPolicyError
from omnigraph.lang.query import ir
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.rules import EnumValues, Pattern, Range, ValueRule, derive_rules
from omnigraph.writes.pending import ExternalIntake
from omnigraph.writes.rules import check_values
from omnigraph.writes.values import assigned_value
from support.subtests import each_case

SCHEMA = """
node N {
    k: String @key
    stage: enum(b, a)?
    n: I64?
    u: I32? @unique
    @range(n, 1..)
    @check(k, "x")
    @unique(u, n)
}
edge E: N -> N @card(1..2) { kind: enum(p, q) @unique(src, dst) }
edge F: N -> N
"""


def test_rules_are_derived_from_the_schema() -> None:
    rules = derive_rules(compile_schema(SCHEMA).catalog)
    node, edge, free = rules["node:N"], rules["edge:E"], rules["edge:F"]
    assert node.values == (
        EnumValues(type_name="N", property="stage", values=("a", "b")),
        Range(type_name="N", property="n", low=1, high=None),
        Pattern(type_name="N", property="k", pattern="x"),
    )
    assert sorted(map(str, node.uniques)) == ["N.(u, n)", "N.u"]
    assert (node.ends, node.per_source) == ((), None)
    assert edge.values == (EnumValues(type_name="E", property="kind", values=("p", "q")),)
    assert [str(rule) for rule in edge.uniques] == ["E.(src, dst)"]
    assert edge.per_source is not None
    assert (edge.per_source.low, edge.per_source.high) == (1, 2)
    assert free.per_source is None
    assert [(end.column, end.node) for end in free.ends] == [("src", "node:N"), ("dst", "node:N")]


def test_what_a_key_makes_true_is_no_rule_of_its_own() -> None:
    """Rows with equal values in a key have one id, whatever else a `@unique` names."""
    catalog = compile_schema(
        """
        node N { k: String @key @unique  a: I32? @unique  @unique(k, a) }
        edge E: N -> N {
            t: String  u: String?
            @key(src, dst, t)  @unique(t, dst, src)  @unique(src, dst)  @unique(src, u)
        }
        """
    ).catalog
    rules = derive_rules(catalog)
    assert [str(rule) for rule in rules["node:N"].uniques] == ["N.a"]
    assert [str(rule) for rule in rules["edge:E"].uniques] == ["E.(src, dst)", "E.(src, u)"]


BIG = 2**53


@each_case(
    ("rule", "type_", "good", "bad"),
    [
        (Range(type_name="T", property="p", low=1, high=3), pa.int32(), [1, 3, None], [0, 4]),
        (Range(type_name="T", property="p", low=None, high=3), pa.int32(), [-9, 3], [4]),
        (Range(type_name="T", property="p", low=0.5, high=None), pa.int32(), [1], [0]),
        (Range(type_name="T", property="p", low=BIG + 1, high=None), pa.int64(), [BIG + 1], [BIG]),
        (Range(type_name="T", property="p", low=0, high=0.1), pa.float32(), [0.0, 0.1], [0.11]),
        (Range(type_name="T", property="p", low=0.7, high=None), pa.float32(), [0.7], [0.69]),
        (Range(type_name="T", property="p", low=0.7, high=None), pa.float64(), [0.7], [0.69999999]),
        (Pattern(type_name="T", property="p", pattern="^a"), pa.utf8(), ["ab", None], ["ba", ""]),
        (Pattern(type_name="T", property="p", pattern=r"\\d$"), pa.utf8(), [], ["x"]),
        (EnumValues(type_name="T", property="p", values=("a",)), pa.utf8(), ["a", None], ["A", ""]),
    ],
)
def test_a_value_rule_refuses_exactly_the_bad_values(
    rule: ValueRule, type_: pa.DataType, good: list[Any], bad: list[Any]
) -> None:
    def rows(values: list[Any]) -> pa.Table:
        return pa.table({"id": [str(n) for n in range(len(values))], "p": pa.array(values, type_)})

    key = TableKey("node:T")
    assert not list(check_values(key, [rule], rows(good)))
    for value in bad:
        (violation,) = check_values(key, [rule], rows([*good, value]))
        (text,) = violation.texts
        assert (violation.rule, violation.total) == (rule, 1)
        assert f"T.p: {value!r} of '{len(good)}' " in text


NO_EXTERNAL = ExternalIntake()
BLOB = PropertyType(ScalarType(Scalar.BLOB), nullable=True)


@pytest.mark.parametrize(("text", "stored"), [("base64:", b""), ("base64:AP8=", b"\x00\xff"), (None, None)])
def test_managed_blob_text_becomes_bytes(text: str | None, stored: bytes | None) -> None:
    assert assigned_value("T", "p", BLOB, ir.Constant(text, BLOB), {}, external=NO_EXTERNAL) == stored


@each_case("text", ["base64:A", "base64:A===", "base64: AAAA", "base64:AA-_"])
def test_text_that_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(BadRequestError, match=r"invalid value for T\.p"):
        assigned_value("T", "p", BLOB, ir.Constant(text, BLOB), {}, external=NO_EXTERNAL)


def test_a_null_for_a_required_blob_is_refused() -> None:
    required = PropertyType(ScalarType(Scalar.BLOB))
    with pytest.raises(BadRequestError, match="null"):
        assigned_value("T", "p", required, ir.Constant(None, BLOB), {}, external=NO_EXTERNAL)


def test_any_other_text_is_an_external_blob() -> None:
    with pytest.raises(ExternalBlobPolicyError) as caught:
        assigned_value("T", "p", BLOB, ir.Constant("s3://b/k", BLOB), {}, external=NO_EXTERNAL)
    assert caught.value.uri == "s3://b/k"
