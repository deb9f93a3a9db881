from __future__ import annotations

import doctest
from pathlib import Path
from types import ModuleType

import pytest

import omnigraph.core.ids
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
from omnigraph.core.yaml_files import YamlDocument, read_yaml
from omnigraph.errors import (
    MAX_DIAGNOSTICS,
    BadRequestError,
    CompilerError,
    ConfigurationError,
    InputFileError,
    Severity,
)
from omnigraph.lang.schema.compiler import compile_schema_file
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
def test_a_position_is_line_and_column_from_one(text: str, offset: int, position: tuple[int, int]) -> None:
    assert SourceText(text).position(offset) == position


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


BOM = b"\xef\xbb\xbf"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "graph.pg"


def test_a_file_is_read_under_its_path(path: Path) -> None:
    path.write_bytes("node A {} // naïve 知识\r\n".encode())

    source = read_source(path, code="S-01")

    assert (source.text, source.name) == ("node A {} // naïve 知识\r\n", str(path))


def test_a_path_may_be_a_text(path: Path) -> None:
    path.write_bytes(b"x")

    assert read_source(str(path), code="S-01").text == "x"


def test_an_empty_file_is_an_empty_text(path: Path) -> None:
    path.write_bytes(b"")

    assert read_source(path, code="S-01").text == ""


def test_a_byte_order_mark_is_not_part_of_the_text(path: Path) -> None:
    path.write_bytes(BOM + b"node A {}")

    assert read_source(path, code="S-01").text == "node A {}"
    assert list(compile_schema_file(path).catalog.nodes) == ["A"]


@pytest.mark.parametrize(
    ("data", "line", "column", "message"),
    [
        pytest.param(b"\xff", 1, 1, "byte 0xff at offset 0", id="first byte"),
        pytest.param(b"node A\n  \xfe", 2, 3, "byte 0xfe at offset 9", id="second line"),
        pytest.param("é".encode() + b"\xe9", 1, 2, "byte 0xe9 at offset 2", id="after a wide character"),
        pytest.param(b"ab\xe7\x9f", 1, 3, "byte 0xe7 at offset 2", id="cut character"),
        pytest.param(b"\xed\xa0\x80", 1, 1, "byte 0xed at offset 0", id="half a surrogate pair"),
        pytest.param(b"a\xc0\x80", 1, 2, "byte 0xc0 at offset 1", id="overlong"),
        pytest.param(BOM + b"node \xff", 1, 6, "byte 0xff at offset 8", id="after a byte order mark"),
    ],
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


def test_utf_16_is_refused(path: Path) -> None:
    path.write_bytes("node A {}".encode("utf-16"))

    with pytest.raises(CompilerError, match="not UTF-8"):
        read_source(path, code="S-01")


def test_a_missing_file_is_named(path: Path) -> None:
    with pytest.raises(InputFileError) as failure:
        read_source(path, code="S-01")

    assert failure.value.path == str(path)
    assert failure.value.reason == "No such file or directory"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="Is a directory"):
        read_source(tmp_path, code="S-01")


def test_a_path_with_a_nul_character_is_no_crash() -> None:
    with pytest.raises(InputFileError, match="null"):
        read_source("a\0b", code="S-01")


def test_a_file_at_the_limit_is_read(path: Path) -> None:
    path.write_bytes(b" " * MAX_SOURCE_BYTES)

    assert len(read_source(path, code="S-01").text) == MAX_SOURCE_BYTES


def test_a_file_beyond_the_limit_is_refused(path: Path) -> None:
    path.write_bytes(b" " * (MAX_SOURCE_BYTES + 1))

    with pytest.raises(CompilerError, match="larger than 4 MiB") as failure:
        read_source(path, code="Q000")

    assert failure.value.codes == ("Q000",)


@each_case(
    ("name", "known", "hint"),
    {
        "near": ("Papr", ["Paper", "Venue"], "did you mean `Paper`?"),
        "other case": ("paper", ["Paper", "Venue"], "did you mean `Paper`?"),
        "all capitals": ("PAPER", ["Paper"], "did you mean `Paper`?"),
        "far, few known": ("X", ["Paper", "Author"], "known here: `Author`, `Paper`"),
        "repeated names": ("X", ["b", "a", "b"], "known here: `a`, `b`"),
        "eight known": (
            "X",
            [f"name{i}" for i in range(8)],
            "known here: " + ", ".join(f"`name{i}`" for i in range(8)),
        ),
        "nine known": ("X", [f"name{i}" for i in range(9)], None),
        "none known": ("X", [], None),
        "empty name": ("", ["Paper"], "known here: `Paper`"),
    },
)
def test_a_hint_names_the_nearest_word_or_the_few_known(name: str, known: list[str], hint: str | None) -> None:
    assert did_you_mean(name, known) == hint


def test_the_known_words_may_come_from_a_generator() -> None:
    assert did_you_mean("title2", (word for word in ("title",))) == "did you mean `title`?"


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


def test_a_mapping_where_a_text_belongs_is_no_text() -> None:
    document = _document("name: {a: b}\n")
    assert document.root.members("the file")["name"].text("`name`") is None
    assert _found(document) == [(1, 7, "`name` is a text, not a mapping")]


def test_a_number_that_was_meant_as_text_is_refused_with_the_way_out() -> None:
    document = _document("name: 007\n")
    assert document.root.members("the file")["name"].text("`name`") is None
    assert document.findings.errors[0].hint == 'write it in quotes: "007"'


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
    assert read_yaml(path, are_texts=True) == {
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
            read_yaml(path, are_texts=True)
        assert said in caught.value.message


@pytest.mark.parametrize(
    "module",
    [omnigraph.core.ids, omnigraph.lang.schema.compiler, omnigraph.core.source],
    ids=lambda module: module.__name__,
)
def test_the_examples_of_a_docstring_are_true(module: ModuleType) -> None:
    result = doctest.testmod(module)

    assert result.attempted > 0
    assert result.failed == 0
