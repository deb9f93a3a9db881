"""YAML files with places: every mistake is reported, at its line and column, in one reading."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.source import SourceText
from omnigraph.core.yaml_files import YamlDocument, read_yaml
from omnigraph.errors import BadRequestError, ConfigurationError, InputFileError
from support.subtests import each_case


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
    members = document.root.members(
        "the file", known=["name", "files", "count"], required=["store"]
    )
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
    assert "`namme` is no key of the file" in raised.value.message
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
    with pytest.raises(ConfigurationError, match=r"serve\.yaml:\d+:\d+: error config: this is no"):
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
    for text, said in (("1: a\n'1': b", "'1' is given twice"), ("? [a]\n: b", "is no YAML")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadRequestError) as caught:
            read_yaml(path, are_texts=True)
        assert said in caught.value.message
