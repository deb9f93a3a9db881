from __future__ import annotations

import doctest
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest

import omnigraph.core.ids
import omnigraph.core.lazy_exports
import omnigraph.core.source
import omnigraph.lang.schema.compiler
from omnigraph.core.source import (
    MAX_NESTING,
    MAX_SOURCE_BYTES,
    Findings,
    SourceText,
    Span,
    check_readable,
    did_you_mean,
    one_of,
    read_source,
)
from omnigraph.core.yaml_files import YamlDocument, yaml_content, yaml_text
from omnigraph.errors import (
    MAX_DIAGNOSTICS,
    BadRequestError,
    CompilerError,
    ConfigurationError,
    InputFileError,
    Severity,
)
from omnigraph.lang.schema.compiler import compile_schema_file
from support.subtests import each_case, named_cases


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
def test_a_position_is_line_and_column_from_one(text: str, offset: int, position: tuple[int, int]) -> None:
    assert SourceText(text).position(offset) == position


@named_cases(
    ("text", "span", "shown"),
    {
        "several lines are marked to the end of the first": ("ab cd\nef", (3, 8), ["  1 | ab cd", "    |    ^^"]),
        "an empty span has one caret": ("ab", (2, 2), ["  1 | ab", "    |   ^"]),
        "an empty text has one caret": ("", (0, 0), ["  1 | ", "    | ^"]),
        "the margin is as wide as the number of the line": ("\n" * 9 + "ab", (10, 11), ["  10 | ab", "     |  ^"]),
        "a tab is four cells wide": ("\ta\tb", (3, 4), ["  1 |     a    b", "    |          ^"]),
        "a marked tab has four carets": ("a\tb", (1, 2), ["  1 | a    b", "    |  ^^^^"]),
        "a carriage return at the end is not shown": ("ab\r\ncd", (0, 4), ["  1 | ab", "    | ^^"]),
    },
)
def test_an_excerpt_marks_its_span(text: str, span: tuple[int, int], shown: list[str]) -> None:
    assert excerpt(text, *span) == shown


def test_spans_join_from_first_to_last() -> None:
    assert Span(2, 5).to(Span(8, 9)) == Span(2, 9)


def test_a_finding_carries_place_and_excerpt() -> None:
    finding = SourceText("one\ntwo three\n", "f.pg").diagnostic(
        "S-01", Span(8, 13), "wrong", hint="try", severity=Severity.WARNING
    )

    assert finding.location == "f.pg:2:5"
    assert finding.render() == ("f.pg:2:5: warning S-01: wrong\n  2 | two three\n    |     ^^^^^\n  hint: try")


def test_a_finding_that_quotes_several_lines_is_one_line() -> None:
    found = SourceText("x").diagnostic("C-1", Span(0, 1), "no `a\nb`", hint="see `c\nd`")

    assert (found.message, found.hint) == ("no `a\\nb`", "see `c\\nd`")


@named_cases(
    ("before", "cells"),
    {
        "narrow": ("ab", 2),
        "wide": ("知识", 4),
        "emoji": ("🙂", 2),
        "full width": ("ｆ", 2),
        "combining": ("e\u0301", 1),
        "control": ("\x07", 1),
        "zero width space is shown as a dot": ("\u200b", 1),
        "ideographic space is shown as a dot": ("\u3000", 1),
    },
)
def test_a_caret_stands_below_its_character_whatever_stands_before(before: str, cells: int) -> None:
    _, carets = excerpt(f"{before}x", len(before), len(before) + 1)

    assert carets == "    | " + " " * cells + "^"


@each_case("char", ["\x07", "\x1b", "\u200b", "\u202e", "\u3000"])
def test_a_character_that_does_not_print_is_shown_as_a_dot(char: str) -> None:
    line, _ = excerpt(f"a{char}b", 0, 1)

    assert line == "  1 | a·b"


@named_cases(
    ("before", "after", "begin", "end"),
    {
        "in the middle": ("a" * 500, "b" * 500, "  1 | …a", "b…"),
        "at the beginning": ("", "b" * 500, "  1 | Xb", "b…"),
        "at the end": ("a" * 500, "", "  1 | …a", "aX"),
    },
)
def test_a_long_line_is_shown_as_the_window_around_the_finding(before: str, after: str, begin: str, end: str) -> None:
    line, carets = excerpt(f"{before}X{after}", len(before), len(before) + 1)

    assert (line[: len(begin)], line[-len(end) :]) == (begin, end)
    assert len(line) < 180
    assert line[carets.index("^")] == "X"


def test_a_long_span_of_a_long_line_is_marked_inside_the_window() -> None:
    line, carets = excerpt("a" * 1000, 10, 990)

    assert len(carets) <= len(line)


def test_a_text_is_shown_under_the_name_of_an_input_without_file() -> None:
    assert SourceText("x").diagnostic("C", Span(0, 1), "m").file == "<input>"


class TestFindings:
    def test_errors_and_warnings_are_kept_in_order_and_only_errors_are_raised(self) -> None:
        findings = Findings(SourceText("abc"))
        findings.warning("W", Span(0, 1), "first")
        findings.raise_errors()
        assert findings.error_count == 0
        findings.error("E", Span(1, 2), "second", "hint")

        with pytest.raises(CompilerError) as failure:
            findings.raise_errors()

        assert failure.value.codes == ("E",)
        assert [(it.code, it.severity, it.hint) for it in findings.items] == [
            ("W", Severity.WARNING, None),
            ("E", Severity.ERROR, "hint"),
        ]

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


@named_cases(
    "text",
    {
        "at the limit of bytes": " " * MAX_SOURCE_BYTES,
        "brackets that nest to the limit": "(" * MAX_NESTING + ")" * MAX_NESTING,
        "brackets in a string": f'"{"(" * 200}"',
        "brackets in a line comment": f"// {'(' * 200}\n",
        "brackets in a block comment": f"/* {'(' * 200} */",
        "brackets that close": "()[]{}" * 500,
    },
)
def test_a_text_at_the_edge_of_a_limit_is_readable(text: str) -> None:
    check_readable(SourceText(text), "C")


@named_cases(
    ("text", "why", "place"),
    {
        "too many characters": (" " * (MAX_SOURCE_BYTES + 1), "larger than 4 MiB", (1, 1)),
        "too many bytes": ("é" * (MAX_SOURCE_BYTES // 2 + 1), "larger than 4 MiB", (1, 1)),
        "a NUL character": ("ab\n\0", "", (2, 1)),
        "deep (": ("(" * (MAX_NESTING + 1), f"deeper than {MAX_NESTING}", (1, MAX_NESTING + 1)),
        "deep [": ("[" * (MAX_NESTING + 1), f"deeper than {MAX_NESTING}", (1, MAX_NESTING + 1)),
        "deep {": ("{" * (MAX_NESTING + 1), f"deeper than {MAX_NESTING}", (1, MAX_NESTING + 1)),
    },
)
def test_a_text_beyond_a_limit_is_refused_where_it_goes_beyond(text: str, why: str, place: tuple[int, int]) -> None:
    with pytest.raises(CompilerError) as failure:
        check_readable(SourceText(text), "C")

    (finding,) = failure.value.diagnostics
    assert why in finding.message
    assert (finding.code, finding.line, finding.column) == ("C", *place)


BOM = b"\xef\xbb\xbf"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graph.pg"


@named_cases(
    ("data", "text"),
    {
        "text": ("node A {} // naïve 知识\r\n".encode(), "node A {} // naïve 知识\r\n"),
        "nothing": (b"", ""),
        "at the limit": (b" " * MAX_SOURCE_BYTES, " " * MAX_SOURCE_BYTES),
        "a byte order mark is not part of the text": (BOM + b"node A {}", "node A {}"),
    },
)
def test_a_file_is_read_under_its_path(path: Path, data: bytes, text: str) -> None:
    path.write_bytes(data)

    for given in (path, str(path)):
        source = read_source(given, code="S-01")
        assert (source.text, source.name) == (text, str(path))


def test_a_schema_may_begin_with_a_byte_order_mark(path: Path) -> None:
    path.write_bytes(BOM + b"node A {}")

    assert list(compile_schema_file(path).catalog.nodes) == ["A"]


@named_cases(
    ("data", "line", "column", "message"),
    {
        "first byte": (b"\xff", 1, 1, "byte 0xff at offset 0"),
        "second line": (b"node A\n  \xfe", 2, 3, "byte 0xfe at offset 9"),
        "after a wide character": ("é".encode() + b"\xe9", 1, 2, "byte 0xe9 at offset 2"),
        "cut character": (b"ab\xe7\x9f", 1, 3, "byte 0xe7 at offset 2"),
        "half a surrogate pair": (b"\xed\xa0\x80", 1, 1, "byte 0xed at offset 0"),
        "overlong": (b"a\xc0\x80", 1, 2, "byte 0xc0 at offset 1"),
        "after a byte order mark": (BOM + b"node \xff", 1, 6, "byte 0xff at offset 8"),
        "UTF-16": ("node A {}".encode("utf-16"), 1, 1, "byte 0xff at offset 0"),
    },
)
def test_s_01_a_file_that_is_not_utf_8_is_refused_at_its_first_bad_byte(
    path: Path, data: bytes, line: int, column: int, message: str
) -> None:
    path.write_bytes(data)

    with pytest.raises(CompilerError) as failure:
        read_source(path, code="S-01")

    (finding,) = failure.value.diagnostics
    assert (finding.code, finding.line, finding.column) == ("S-01", line, column)
    assert finding.message == f"the file is not UTF-8: {message}"
    assert finding.hint == "save the file as UTF-8"


@each_case(("name", "why"), [("missing.pg", "No such file or directory"), (".", "Is a directory"), ("a\0b", "null")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InputFileError) as failure:
        read_source(tmp_path / name, code="S-01")

    assert failure.value.path == str(tmp_path / name)
    assert why in failure.value.reason


def test_a_file_beyond_the_limit_is_refused(path: Path) -> None:
    path.write_bytes(b" " * (MAX_SOURCE_BYTES + 1))

    with pytest.raises(CompilerError, match="larger than 4 MiB") as failure:
        read_source(path, code="Q000")

    assert failure.value.codes == ("Q000",)


@named_cases(
    ("name", "known", "hint"),
    {
        "near": ("Papr", ["Paper", "Venue"], "did you mean `Paper`?"),
        "other case": ("paper", ["Paper", "Venue"], "did you mean `Paper`?"),
        "all capitals": ("PAPER", ["Paper"], "did you mean `Paper`?"),
        "far, few known": ("X", ["Paper", "Author"], "known here: `Author`, `Paper`"),
        "repeated names": ("X", ["b", "a", "b"], "known here: `a`, `b`"),
        "eight known": ("X", "abcdefgh", "known here: " + ", ".join(f"`{name}`" for name in "abcdefgh")),
        "nine known": ("X", "abcdefghi", None),
        "none known": ("X", [], None),
        "empty name": ("", ["Paper"], "known here: `Paper`"),
    },
)
def test_a_hint_names_the_nearest_word_or_the_few_known(name: str, known: Iterable[str], hint: str | None) -> None:
    assert did_you_mean(name, (word for word in known)) == hint


@each_case(
    ("phrases", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a or b"),
        (["a", "b", "c"], "a, b or c"),
        (["a", "b", "a"], "a or b"),
        (["a", "a"], "a"),
    ],
)
def test_an_enumeration_is_plain_english(phrases: list[str], text: str) -> None:
    assert one_of(phrases) == text


# ---- YAML files with places: every mistake is reported, at its line and column, in one reading


def _document(text: str) -> YamlDocument:
    return YamlDocument(SourceText(text, "serve.yaml"), code="config")


def _found(document: YamlDocument) -> list[tuple[int, int, str]]:
    return [(item.line, item.column, item.message) for item in document.findings.errors]


def test_values_are_read_with_their_kinds() -> None:
    root = _document("name: graph\ncount: 3\nfiles: [a, b]\n").root
    members = root.members("the file", known=["name", "count", "files"])
    assert members["name"].text("`name`") == "graph"
    assert members["count"].integer("`count`") == 3
    assert [item.text("a file") for item in members["files"].items("`files`")] == ["a", "b"]


def test_every_mistake_is_reported_at_its_place() -> None:
    document = _document("name: 3\nnamme: x\nname: y\nfiles: here\ncount: many\n")
    members = document.root.members("the file", known=["name", "files", "count"], required=["store"])
    members["name"].text("`name`")
    members["files"].items("`files`")
    members["count"].integer("`count`")
    with pytest.raises(ConfigurationError) as raised:
        document.raise_errors()
    assert [(item.line, item.column) for item in raised.value.diagnostics] == [
        (1, 1),
        (1, 7),
        (2, 1),
        (3, 1),
        (4, 8),
        (5, 8),
    ]
    assert "`namme` is not a key of the file" in raised.value.message
    assert "did you mean `name`?" in raised.value.message
    assert "the key `name` is given twice" in raised.value.message


@each_case(
    ("value", "message", "hint"),
    [
        ("{a: b}", "`name` is a text, not a mapping", None),
        ("007", "`name` is a text, not the value `007`", 'write it in quotes: "007"'),
    ],
)
def test_another_kind_of_value_where_a_text_belongs_is_refused(value: str, message: str, hint: str | None) -> None:
    document = _document(f"name: {value}\n")
    assert document.root.members("the file")["name"].text("`name`") is None
    assert _found(document) == [(1, 7, message)]
    assert document.findings.errors[0].hint == hint


@each_case("text", ["a: [", "a: b: c", "\t- x", "a: *nobody", "--- a\n--- b\n"])
def test_broken_yaml_is_reported_with_a_place(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"serve\.yaml:\d+:\d+: error config: this is not valid YAML"):
        _document(text)


def test_an_empty_file_has_no_members() -> None:
    document = _document("# nothing\n")
    assert document.root.is_absent
    assert document.root.members("the file") == {}
    assert _found(document) == [(1, 1, "the file is a mapping, not nothing")]


def test_a_structure_that_holds_itself_is_not_followed() -> None:
    document = _document("a: &a [*a]\n")
    (inner,) = document.root.members("the file")["a"].items("`a`")
    assert inner.text("an item") is None


def test_a_merge_key_is_refused() -> None:
    document = _document("base: &b {x: 1}\nmore:\n  <<: *b\n")
    document.root.members("the file")["more"].members("`more`")
    assert _found(document)[0][:2] == (3, 3)


def test_a_text_nested_beyond_reason_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nests too deeply"):
        _document("[" * 100_000)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="nowhere"):
        YamlDocument.read(tmp_path / "nowhere.yaml", code="config")


def test_a_file_of_bytes_is_refused_as_configuration(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_bytes(b"a: \xff")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        YamlDocument.read(path, code="config")


def test_words_stay_words_where_all_values_are_texts(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "On: {null: [no, 007, 1.5], true: TRUE, day: 2024-01-01}\n"
        "empty:\nnothing: ~\nword: 'null'\nbase: &base {a: 1}\nmore: {<<: *base, b: 2}\n",
        encoding="utf-8",
    )
    assert yaml_content(yaml_text(path), are_texts=True) == {
        "On": {"null": ["no", "007", "1.5"], "true": "TRUE", "day": "2024-01-01"},
        "empty": None,
        "nothing": None,
        "word": "null",
        "base": {"a": "1"},
        "more": {"a": "1", "b": "2"},
    }
    for text, said in (("1: a\n'1': b", "'1' is given twice"), ("? [a]\n: b", "is not valid YAML")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadRequestError) as caught:
            yaml_content(yaml_text(path), are_texts=True)
        assert said in caught.value.message


@pytest.mark.parametrize(
    "module",
    [omnigraph.core.ids, omnigraph.lang.schema.compiler, omnigraph.core.lazy_exports, omnigraph.core.source],
    ids=lambda module: module.__name__,
)
def test_the_examples_of_a_docstring_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0
