from __future__ import annotations

import pytest
from lark import Transformer

from omnigraph.core.source import SourceText
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, Diagnostic
from omnigraph.lang.parsing import DeclarationGrammar, EscapeFailure, unescape
from support.subtests import each_case, named_cases

GRAMMAR = r"""
file: thing*
thing: "thing" NAME "{" (NAME | STRING)* "}"
NAME: /[a-z]+/
STRING: /"[^"\\]*(?:\\.[^"\\]*)*"/s
%ignore /\s+/
%ignore /\/\/[^\n]*/
%ignore /\/\*.*?\*\//s
"""


class Builder(Transformer):
    def file(self, items: list[str]) -> tuple[str, ...]:
        return tuple(items)

    def thing(self, items: list[str]) -> str:
        return str(items[0])


@pytest.fixture(scope="module")
def grammar() -> DeclarationGrammar[str]:
    return DeclarationGrammar(
        GRAMMAR,
        Builder(),
        declaration=r"(?<![a-z])thing\s",
        phrases={
            "NAME": "a name",
            "STRING": "a string",
            "LBRACE": "`{`",
            "RBRACE": "`}`",
            "THING": "`thing`",
            "$END": "the end of the text",
        },
        groups={frozenset({"NAME", "STRING"}): "a word"},
        code="C-1",
        escape_code="C-2",
        advise=lambda found, before, after: f"not {found} {after}" if before.endswith("{") else None,
    )


def failures(grammar: DeclarationGrammar[str], source: SourceText) -> tuple[Diagnostic, ...]:
    return grammar.parse_all(source)[1].errors


@named_cases(
    ("text", "message", "column"),
    {
        "expected words are plain English": (
            "thing a { b } }",
            "found `}`, expected the end of the text or `thing`",
            15,
        ),
        "terminals of a group are named together": ("thing a { (", "found `(`, expected a word or `}`", 11),
        "a string that never ends": ('thing a { "b }', "found a string that never ends", 11),
        "a comment that never ends": ("thing a { /* b }", "found a comment that never ends", 11),
        "a text that ends too early": ("thing a {", "found the end of the text, expected a word or `}`", 10),
        "a long word is cut": ("thing " + "X" * 100, f"found `{'X' * 40}…`, expected a name", 7),
        "a character that does not print has a number": (
            "thing \x07",
            "found the character U+0007, expected a name",
            7,
        ),
    },
)
def test_a_failure_says_what_was_found_and_expected(
    grammar: DeclarationGrammar[str], text: str, message: str, column: int
) -> None:
    (failure,) = failures(grammar, SourceText(text))

    assert (failure.message, failure.column) == (message, column)


def test_advice_sees_the_word_and_what_stands_around_it(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText("thing a { { }"))

    assert failure.hint == "not { }"


@named_cases(
    ("text", "parsed", "places"),
    {
        "sound declarations": ('thing a {} thing b { c "d" }', ("a", "b"), []),
        "sound declarations beside broken ones": (
            "thing a {}\nthing b (\nthing c {}\nthing {",
            ("a", "c"),
            [(2, 9), (4, 7)],
        ),
        "the word of a declaration inside strings and comments": (
            'thing a { "thing b {" /* thing c { */ } // thing d {\nthing e {\n',
            ("a",),
            [(2, 10)],
        ),
        "no declaration at all is reported once": ("what is this", (), [(1, 1)]),
        "a word before the first declaration": ("junk\nthing a {}\nthing b {}", ("b",), [(1, 1)]),
    },
)
def test_what_is_sound_is_parsed_and_what_is_broken_is_reported_where_it_stands(
    grammar: DeclarationGrammar[str], text: str, parsed: tuple[str, ...], places: list[tuple[int, int]]
) -> None:
    found, findings = grammar.parse_all(SourceText(text))

    assert found == parsed
    assert [(item.code, item.line, item.column) for item in findings.errors] == [("C-1", *place) for place in places]
    if places:
        with pytest.raises(CompilerError) as failure:
            grammar.parse(SourceText(text))
        assert failure.value.diagnostics == findings.errors


def test_an_unknown_escape_has_its_own_code(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText('thing a { "b\\c" }'))

    assert (failure.code, failure.column) == ("C-2", 13)


@pytest.mark.timeout(60)
def test_of_very_many_broken_declarations_the_first_are_reported_and_all_counted(
    grammar: DeclarationGrammar[str],
) -> None:
    with pytest.raises(CompilerError) as failure:
        grammar.parse(SourceText("thing a )\n" * 3000))

    assert (len(failure.value.diagnostics), failure.value.total) == (MAX_DIAGNOSTICS, 3000)


@each_case(
    ("literal", "value"),
    [
        ('""', ""),
        ('"abc"', "abc"),
        (r'"\""', '"'),
        (r'"\\"', "\\"),
        (r'"\n\r\t"', "\n\r\t"),
        (r'"\\n"', "\\n"),
        (r'"\\\\"', "\\\\"),
        ('"a\nb"', "a\nb"),
    ],
)
def test_a_literal_has_its_value(literal: str, value: str) -> None:
    assert unescape(literal, 0) == value


@each_case(
    ("literal", "offset", "place", "escape"),
    [(r'"\x"', 0, 1, r"\x"), (r'"ab\q"', 10, 13, r"\q"), (r'"\n\\\u0041"', 5, 10, r"\u"), ('"\\\n"', 0, 1, "\\\n")],
)
def test_an_unknown_escape_is_found_where_it_stands(literal: str, offset: int, place: int, escape: str) -> None:
    with pytest.raises(EscapeFailure) as failure:
        unescape(literal, offset)

    assert (failure.value.offset, failure.value.escape) == (place, escape)
