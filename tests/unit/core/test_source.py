from __future__ import annotations

import pytest

from omnigraph.core.source import (
    MAX_NESTING,
    MAX_SOURCE_BYTES,
    Findings,
    SourceText,
    Span,
    check_readable,
)
from omnigraph.errors import MAX_DIAGNOSTICS, CompilerError, Severity
from support.subtests import each_case


def excerpt(text: str, start: int, end: int) -> list[str]:
    return SourceText(text, "f").diagnostic("C", Span(start, end), "m").excerpt.split("\n")


@each_case(
    ("text", "offset", "position"),
    [
        ("", 0, (1, 1)),
        ("abc", 0, (1, 1)),
        ("abc", 2, (1, 3)),
        ("abc", 3, (1, 4)),
        ("ab\ncd", 2, (1, 3)),
        ("ab\ncd", 3, (2, 1)),
        ("ab\ncd", 5, (2, 3)),
        ("ab\n", 3, (2, 1)),
        ("\n\n\n", 2, (3, 1)),
        ("a\r\nb", 3, (2, 1)),
        ("知识\n🙂x", 4, (2, 2)),
        ("a\u2028b", 2, (1, 3)),
    ],
)
def test_a_position_is_line_and_column_from_one(
    text: str, offset: int, position: tuple[int, int]
) -> None:
    assert SourceText(text).position(offset) == position


def test_spans_join_from_first_to_last() -> None:
    assert Span(2, 5).to(Span(8, 9)) == Span(2, 9)


def test_a_finding_carries_place_and_excerpt() -> None:
    finding = SourceText("one\ntwo three\n", "f.pg").diagnostic(
        "S-01", Span(8, 13), "wrong", hint="try", severity=Severity.WARNING
    )

    assert finding.location == "f.pg:2:5"
    assert finding.render() == (
        "f.pg:2:5: warning S-01: wrong\n  2 | two three\n    |     ^^^^^\n  hint: try"
    )


def test_a_finding_that_quotes_several_lines_is_one_line() -> None:
    found = SourceText("x").diagnostic("C-1", Span(0, 1), "no `a\nb`", hint="see `c\nd`")

    assert (found.message, found.hint) == ("no `a\\nb`", "see `c\\nd`")


def test_a_span_over_several_lines_is_marked_to_the_end_of_its_first() -> None:
    assert excerpt("ab cd\nef", 3, 8) == ["  1 | ab cd", "    |    ^^"]


def test_an_empty_span_has_one_caret() -> None:
    assert excerpt("ab", 2, 2) == ["  1 | ab", "    |   ^"]


def test_an_empty_text_has_one_caret() -> None:
    assert excerpt("", 0, 0) == ["  1 | ", "    | ^"]


def test_the_margin_is_as_wide_as_the_number_of_the_line() -> None:
    assert excerpt("\n" * 9 + "ab", 10, 11) == ["  10 | ab", "     |  ^"]


def test_a_tab_is_four_cells_wide() -> None:
    assert excerpt("\ta\tb", 3, 4) == ["  1 |     a    b", "    |          ^"]


def test_a_marked_tab_has_four_carets() -> None:
    assert excerpt("a\tb", 1, 2) == ["  1 | a    b", "    |  ^^^^"]


@each_case(
    ("before", "cells"),
    [
        pytest.param("ab", 2, id="narrow"),
        pytest.param("知识", 4, id="wide"),
        pytest.param("🙂", 2, id="emoji"),
        pytest.param("ｆ", 2, id="full width"),
        pytest.param("e\u0301", 1, id="combining"),
        pytest.param("\x07", 1, id="control"),
        pytest.param("\u200b", 1, id="zero width space is shown as a dot"),
        pytest.param("\u3000", 1, id="ideographic space is shown as a dot"),
    ],
)
def test_a_caret_stands_below_its_character_whatever_stands_before(before: str, cells: int) -> None:
    _, carets = excerpt(f"{before}x", len(before), len(before) + 1)

    assert carets == "    | " + " " * cells + "^"


@each_case("char", ["\x07", "\x1b", "\u200b", "\u202e", "\u3000"])
def test_a_character_that_does_not_print_is_shown_as_a_dot(char: str) -> None:
    line, _ = excerpt(f"a{char}b", 0, 1)

    assert line == "  1 | a·b"


def test_a_carriage_return_at_the_end_of_a_line_is_not_shown() -> None:
    assert excerpt("ab\r\ncd", 0, 4) == ["  1 | ab", "    | ^^"]


def test_a_long_line_is_shown_as_the_window_around_the_finding() -> None:
    line, carets = excerpt("a" * 500 + "X" + "b" * 500, 500, 501)

    assert line.startswith("  1 | …a")
    assert line.endswith("b…")
    assert len(line) < 180
    assert line[carets.index("^")] == "X"


def test_the_beginning_of_a_long_line_has_no_leading_ellipsis() -> None:
    line, carets = excerpt("X" + "b" * 500, 0, 1)

    assert line.startswith("  1 | Xb")
    assert line.endswith("…")
    assert line[carets.index("^")] == "X"


def test_the_end_of_a_long_line_has_no_trailing_ellipsis() -> None:
    line, carets = excerpt("a" * 500 + "X", 500, 501)

    assert line.endswith("aX")
    assert line[carets.index("^")] == "X"


def test_a_long_span_of_a_long_line_is_marked_inside_the_window() -> None:
    line, carets = excerpt("a" * 1000, 10, 990)

    assert len(carets) <= len(line)


def test_a_text_is_shown_under_the_name_of_an_input_without_file() -> None:
    assert SourceText("x").diagnostic("C", Span(0, 1), "m").file == "<input>"


class TestFindings:
    def test_errors_and_warnings_are_kept_in_order(self) -> None:
        findings = Findings(SourceText("abc"))
        findings.warning("W", Span(0, 1), "first")
        findings.error("E", Span(1, 2), "second", "hint")

        assert [(item.code, item.severity) for item in findings.items] == [
            ("W", Severity.WARNING),
            ("E", Severity.ERROR),
        ]
        assert [item.hint for item in findings.errors] == ["hint"]

    def test_only_errors_are_raised(self) -> None:
        findings = Findings(SourceText("abc"))
        findings.warning("W", Span(0, 1), "first")
        findings.error("E", Span(1, 2), "second")

        with pytest.raises(CompilerError) as failure:
            findings.raise_errors()

        assert failure.value.codes == ("E",)

    def test_warnings_alone_raise_nothing(self) -> None:
        findings = Findings(SourceText("abc"))
        findings.warning("W", Span(0, 1), "first")

        findings.raise_errors()

        assert findings.error_count == 0

    def test_no_number_of_warnings_hides_an_error(self) -> None:
        findings = Findings(SourceText("abc"))
        for _ in range(MAX_DIAGNOSTICS + 1):
            findings.warning("W", Span(0, 1), "first")
        findings.error("E", Span(1, 2), "last")

        assert len(findings.warnings) == MAX_DIAGNOSTICS
        with pytest.raises(CompilerError, match="last"):
            findings.raise_errors()

    def test_findings_can_be_forgotten(self) -> None:
        findings = Findings(SourceText("abc"))
        findings.error("E", Span(0, 1), "kept")
        kept = findings.mark()
        findings.warning("W", Span(0, 1), "dropped")
        findings.error("E", Span(0, 1), "dropped")

        findings.forget(kept)

        assert [item.message for item in findings.items] == ["kept"]
        assert findings.error_count == 1


class TestUnreadableTexts:
    def test_a_text_at_the_limit_is_readable(self) -> None:
        check_readable(SourceText(" " * MAX_SOURCE_BYTES), "C")

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param(" " * (MAX_SOURCE_BYTES + 1), id="characters"),
            pytest.param("é" * (MAX_SOURCE_BYTES // 2 + 1), id="bytes"),
        ],
    )
    def test_a_text_beyond_the_limit_is_refused(self, text: str) -> None:
        with pytest.raises(CompilerError, match="larger than 4 MiB"):
            check_readable(SourceText(text), "C")

    def test_a_nul_character_is_refused_where_it_stands(self) -> None:
        with pytest.raises(CompilerError) as failure:
            check_readable(SourceText("ab\n\0"), "C")

        (finding,) = failure.value.diagnostics
        assert (finding.code, finding.line, finding.column) == ("C", 2, 1)

    def test_brackets_may_nest_to_the_limit(self) -> None:
        check_readable(SourceText("(" * MAX_NESTING + ")" * MAX_NESTING), "C")

    @pytest.mark.parametrize("bracket", ["(", "[", "{"])
    def test_brackets_beyond_the_limit_are_refused(self, bracket: str) -> None:
        with pytest.raises(CompilerError, match=f"deeper than {MAX_NESTING}") as failure:
            check_readable(SourceText(bracket * (MAX_NESTING + 1)), "C")

        assert failure.value.diagnostics[0].column == MAX_NESTING + 1

    @pytest.mark.parametrize("opaque", ['"{}"', "// {}\n", "/* {} */"])
    def test_brackets_in_strings_and_comments_do_not_count(self, opaque: str) -> None:
        check_readable(SourceText(opaque.replace("{}", "(" * 200)), "C")

    def test_brackets_that_close_do_not_count(self) -> None:
        check_readable(SourceText("()[]{}" * 500), "C")
