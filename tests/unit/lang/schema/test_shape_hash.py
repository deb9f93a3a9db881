from __future__ import annotations

import re

import pytest

from support.schemas import hash_of
from support.subtests import each_case

BASE = """
interface I { t: String @index }
node A @description("d") @tag("x", k=1, l=2) implements I {
    a: String
    b: I32? @unit("m") @note
    e: enum(x, y)
    v: Vector(3) @embed(a, model="m")
    @key(a, e)
    @unique(b, a)
    @index(b)
    @range(b, 1..2)
    @check(a, "p")
}
node B {}
edge E: A -> B @card(0..2) @instruction("i") { w: F32 @unique(src, w) @index(dst) }
"""


def changed(*pairs: tuple[str, str]) -> str:
    text = BASE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_hash_is_named_and_stable() -> None:
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", hash_of(BASE))
    assert hash_of(BASE) == hash_of(BASE)


@each_case(
    "text",
    [
        pytest.param("// a comment\n" + BASE + "/* another */", id="comments"),
        pytest.param(" ".join(BASE.split()), id="layout"),
        pytest.param(changed(("node B {}\n", "")) + "node B {}", id="order of declarations"),
        pytest.param(
            changed(
                ("    e: enum(x, y)\n", ""),
                ("    a: String\n", "    e: enum(x, y)\n    a: String\n"),
            ),
            id="order of properties",
        ),
        pytest.param(changed(("enum(x, y)", "enum(y, x)")), id="order of enum values"),
        pytest.param(changed(("@key(a, e)", "@key(e, a)")), id="order of key members"),
        pytest.param(changed(("@unique(b, a)", "@unique(a, b)")), id="order of unique members"),
        pytest.param(
            changed(("    @index(b)\n", ""), ("    @key(a, e)", "    @index(b)\n    @key(a, e)")),
            id="order of constraints",
        ),
        pytest.param(changed(('@unit("m") @note', '@note @unit("m")')), id="order of annotations"),
        pytest.param(changed(("k=1, l=2", "l=2, k=1")), id="order of keywords"),
        pytest.param(changed(("@embed(a,", '@embed("a",')), id="spelling of an embed source"),
        pytest.param(
            changed(("a: String\n", 'a: String @rename_from("z")\n')), id="property rename hint"
        ),
        pytest.param(changed(("node B {}", 'node B @rename_from("C") {}')), id="type rename hint"),
        pytest.param(
            changed(("@unique(b, a)", "@unique(b, a) @unique(a, b)")), id="a rule said twice"
        ),
    ],
)
def test_what_means_nothing_does_not_count(text: str) -> None:
    assert hash_of(text) == hash_of(BASE)


@each_case(
    "text",
    [
        pytest.param(changed(("node B {}", "node B {} node C {}")), id="a new type"),
        pytest.param(changed(("a: String\n", "a: String\n    n: I32?\n")), id="a new property"),
        pytest.param(changed(("b: I32?", "b: I64?")), id="type"),
        pytest.param(changed(("b: I32?", "b: I32")), id="nullability"),
        pytest.param(changed(("Vector(3)", "Vector(4)")), id="dimension"),
        pytest.param(changed(("enum(x, y)", "enum(x, y, z)")), id="enum values"),
        pytest.param(changed(("@key(a, e)", "@key(a)")), id="key members"),
        pytest.param(changed(("    @key(a, e)\n", "")), id="no key"),
        pytest.param(changed(("    @unique(b, a)\n", "")), id="no unique"),
        pytest.param(changed(("    @index(b)\n", "")), id="no index"),
        pytest.param(
            changed(("    @index(b)\n", ""), ("b: I32? @unit", "b: I32? @index @unit")),
            id="spelling of an index",
        ),
        pytest.param(changed(("@range(b, 1..2)", "@range(b, 1..3)")), id="range"),
        pytest.param(changed(("@range(b, 1..2)", "@range(b, 1..)")), id="open range"),
        pytest.param(changed(('@check(a, "p")', '@check(a, "q")')), id="check"),
        pytest.param(changed(('model="m"', 'model="n"')), id="embed model"),
        pytest.param(changed((', model="m"', "")), id="no embed model"),
        pytest.param(changed(('@description("d")', '@description("e")')), id="description"),
        pytest.param(changed(('@instruction("i")', "")), id="instruction"),
        pytest.param(changed(('@tag("x"', '@tag("y"')), id="opaque value"),
        pytest.param(changed(("k=1", "k=3")), id="opaque keyword"),
        pytest.param(changed((" @note", "")), id="opaque annotation"),
        pytest.param(changed(("@card(0..2)", "@card(0..3)")), id="cardinality"),
        pytest.param(changed(("A -> B", "B -> A")), id="direction"),
        pytest.param(changed(("implements I {", "{ t: String @index")), id="implements"),
        pytest.param(
            changed(("    a: String\n", "    a: String\n    t: String @index\n")), id="injected"
        ),
        pytest.param(changed(("@unique(src, w)", "@unique(dst, w)")), id="edge columns"),
        pytest.param(changed(("edge E:", "edge F:")), id="name of an edge"),
    ],
)
def test_what_means_something_counts(text: str) -> None:
    assert hash_of(text) != hash_of(BASE)


def test_the_interface_property_itself_counts_even_without_implementor() -> None:
    assert hash_of("interface I { a: String }") != hash_of("interface I { a: String @index }")


def test_a_node_and_an_interface_of_one_name_are_different_shapes() -> None:
    assert hash_of("node A { a: String }") != hash_of("interface A { a: String }")


def test_equal_bounds_of_a_range_are_equal_however_they_are_spelled() -> None:
    assert hash_of("node A { x: F64 @range(x, 1..2) }") == hash_of(
        "node A { x: F64 @range(x, 1.0..2.00) }"
    )
