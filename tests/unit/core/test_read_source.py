from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.core.source import MAX_SOURCE_BYTES, read_source
from omnigraph.errors import CompilerError, InputFileError
from omnigraph.lang.schema.compiler import compile_schema_file

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
        pytest.param(
            "é".encode() + b"\xe9", 1, 2, "byte 0xe9 at offset 2", id="after a wide character"
        ),
        pytest.param(b"ab\xe7\x9f", 1, 3, "byte 0xe7 at offset 2", id="cut character"),
        pytest.param(b"\xed\xa0\x80", 1, 1, "byte 0xed at offset 0", id="half a surrogate pair"),
        pytest.param(b"a\xc0\x80", 1, 2, "byte 0xc0 at offset 1", id="overlong"),
        pytest.param(
            BOM + b"node \xff", 1, 6, "byte 0xff at offset 8", id="after a byte order mark"
        ),
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
