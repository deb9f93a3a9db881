from __future__ import annotations

import pytest
from lark import Transformer

from omnigraph.core.source import SourceText
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, Diagnostic
from omnigraph.lang.parsing import DeclarationGrammar, EscapeFailure, unescape
from support.subtests import each_case

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
        advise=lambda found, before: f"not {found}" if before.endswith("{") else None,
    )


def failures(grammar: DeclarationGrammar[str], source: SourceText) -> tuple[Diagnostic, ...]:
    return grammar.parse_all(source)[1].errors


def test_all_declarations_are_parsed(grammar: DeclarationGrammar[str]) -> None:
    assert grammar.parse(SourceText('thing a {} thing b { c "d" }')) == ("a", "b")


def test_sound_declarations_are_kept_beside_broken_ones(grammar: DeclarationGrammar[str]) -> None:
    parsed, findings = grammar.parse_all(SourceText("thing a {}\nthing b (\nthing c {}\nthing {"))

    assert parsed == ("a", "c")
    assert [(item.line, item.column) for item in findings.errors] == [(2, 9), (4, 7)]


def test_a_broken_text_raises_all_failures(grammar: DeclarationGrammar[str]) -> None:
    with pytest.raises(CompilerError) as failure:
        grammar.parse(SourceText("thing a (\nthing b )"))

    assert failure.value.codes == ("C-1", "C-1")


def test_expected_words_are_plain_english(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText("thing a { b } }"))

    assert failure.message == "found `}`, expected the end of the text or `thing`"


def test_terminals_of_a_group_are_named_together(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText("thing a { ("))

    assert failure.message == "found `(`, expected a word or `}`"


def test_advice_sees_the_word_and_what_stands_before(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText("thing a { { }"))

    assert failure.hint == "not {"


def test_the_word_of_a_declaration_inside_strings_and_comments_is_no_beginning(
    grammar: DeclarationGrammar[str],
) -> None:
    text = 'thing a { "thing b {" /* thing c { */ } // thing d {\nthing e {\n'

    parsed, findings = grammar.parse_all(SourceText(text))

    assert parsed == ("a",)
    assert [item.line for item in findings.errors] == [2]


def test_a_text_without_any_declaration_is_reported_once(grammar: DeclarationGrammar[str]) -> None:
    found = failures(grammar, SourceText("what is this"))

    assert [(item.line, item.column) for item in found] == [(1, 1)]


def test_what_stands_before_the_first_declaration_is_reported(grammar: DeclarationGrammar[str]) -> None:
    parsed, findings = grammar.parse_all(SourceText("junk\nthing a {}\nthing b {}"))

    assert [(item.line, item.column) for item in findings.errors] == [(1, 1)]
    assert "b" in parsed


def test_an_unknown_escape_has_its_own_code(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText('thing a { "b\\c" }'))

    assert (failure.code, failure.column) == ("C-2", 13)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('thing a { "b }', "found a string that never ends", 11),
        ("thing a { /* b }", "found a comment that never ends", 11),
        ("thing a {", "found the end of the text, expected a word or `}`", 10),
    ],
)
def test_a_text_that_ends_too_early_says_what_is_open(
    grammar: DeclarationGrammar[str], text: str, message: str, column: int
) -> None:
    (failure,) = failures(grammar, SourceText(text))

    assert (failure.message, failure.column) == (message, column)


def test_a_long_word_is_cut_in_the_message(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText("thing " + "X" * 100))

    assert "`" + "X" * 40 + "…`" in failure.message


def test_a_character_that_does_not_print_is_named_by_its_number(grammar: DeclarationGrammar[str]) -> None:
    (failure,) = failures(grammar, SourceText("thing \x07"))

    assert failure.message.startswith("found the character U+0007")


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
