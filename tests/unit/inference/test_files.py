"""Which files are tables, which belong together, and how CSV is written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.inference.csv_dialect import sniff
from omnigraph.inference.samples import INFER_MAX_BYTES, read_table
from omnigraph.inference.tables import find_tables
from support.subtests import named_cases

DIALECTS: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "commas": ("csv", "a,b\n1,2\n", ("a", "b"), {}),
    "semicolons": ("csv", "a;b\n1,5;2\n", ("a", "b"), {"delimiter": ";"}),
    "tabs in CSV": ("csv", "a\tb\n1\t2\n", ("a", "b"), {"delimiter": "\t"}),
    "tabs in TSV": ("tsv", "a\tb\n1\t2,3\n", ("a", "b"), {}),
    "bars": ("csv", "a|b\n1|2\n", ("a", "b"), {"delimiter": "|"}),
    "delimiters in quotes": ("csv", 'a,b\n"x;y;z",2\n"p;q;r",3\n', ("a", "b"), {}),
    "one column": ("csv", "name\nAda\nBo\n", ("name",), {}),
    "a byte order mark": ("csv", "\ufeffa,b\n1,2\n", ("a", "b"), {}),
    "line ends of Windows": ("csv", "a,b\r\n1,2\r\n", ("a", "b"), {}),
    "values over lines": ("csv", 'a,b\n1,"x\ny"\n2,z\n', ("a", "b"), {"multiline": True}),
    "another ending": ("dat", "a,b\n1,2\n", ("a", "b"), {"format": "csv"}),
    "numbers in the first line": ("csv", "1,x\n2,y\n", ("column_1", "column_2"), {"header": ["column_1", "column_2"]}),
    "a value of the first line comes again": (
        "csv",
        "AER,ok\nAER,ok\nKZN,ok\n",
        ("column_1", "column_2"),
        {"header": ["column_1", "column_2"]},
    ),
    "codes in the first line": (
        "csv",
        "AER,KZN\nASF,MRV\nCEK,OVB\n",
        ("column_1", "column_2"),
        {"header": ["column_1", "column_2"]},
    ),
    "names above texts": ("csv", "name,city\nAda,Rome\nBo,Oslo\n", ("name", "city"), {}),
    "names above codes": ("csv", "source,target\nAER,KZN\nASF,MRV\n", ("source", "target"), {}),
    "only names": ("csv", "name,city\n", ("name", "city"), {}),
    "a row without a name": ("csv", ",a\n0,x\n1,y\n", ("", "a"), {}),
}


@named_cases(("ending", "text", "names", "entry"), DIALECTS)
def test_the_dialect_of_a_file(ending: str, text: str, names: tuple[str, ...], entry: dict[str, Any]) -> None:
    found = sniff(text.encode(), ending=ending, is_whole=True)
    assert found is not None
    assert (found.names, found.entry(ending=ending)) == (names, entry)


@pytest.mark.parametrize(
    "text", ["Summary\n=======\n\nThis is about movies, and tags.\n", "one\ntwo\n", "1::2::3\n4::5::6\n"]
)
def test_a_text_is_not_a_table(text: str) -> None:
    assert sniff(text.encode(), ending="txt", is_whole=True) is None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "data"
    found.mkdir()
    return found


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def tables_of(*sources: Path) -> dict[str, str]:
    """The stems of tables, and what a mapping names for them, relative to the first folder."""
    found, _ = find_tables(sources)
    return {item.stem: str(Path(item.source).relative_to(sources[0])) for item in found}


def test_files_of_every_kind_are_tables(folder: Path) -> None:
    put(folder / "a.csv", "x,y\n1,2\n")
    put(folder / "b.tsv.gz", "x\ty\n1\t2\n")
    put(folder / "c.jsonl", '{"x": 1}\n')
    put(folder / "d.json", '[{"x": 1}]')
    put(folder / "e.dat", "1,2\n3,4\n")
    pq.write_table(pa.table({"x": [1]}), folder / "f.parquet")
    assert tables_of(folder) == {
        **{"a": "a.csv", "b": "b.tsv.gz", "c": "c.jsonl", "d": "d.json", "e": "e.dat", "f": "f.parquet"}
    }


def test_files_whose_names_differ_in_numbers_are_one_table(folder: Path) -> None:
    for year in (2023, 2024):
        put(folder / f"orders_{year}.csv", "x,y\n1,2\n")
        put(folder / f"{year}" / "visits.csv", "x,y\n1,2\n")
        put(folder / f"other_{year}.csv", f"x,y{year}\n1,2\n")
    for part in (0, 1):
        pq.write_table(pa.table({"x": [part]}), put(folder / "people" / f"part-{part:05d}-ab{part}.parquet", ""))
    assert tables_of(folder) == {
        **{"orders_ ": "orders_*.csv", "visits": "*/visits.csv", "people": "people/part-*.parquet"},
        **{"other_2023": "other_2023.csv", "other_2024": "other_2024.csv"},
    }


def test_folders_of_partitions_are_one_table_with_a_column(folder: Path) -> None:
    for country in ("DE", "FR"):
        put(folder / "people" / f"country={country}" / "data.csv", "x,y\n1,2\n")
    (found,), _ = find_tables([folder])
    assert (found.stem, found.source) == ("people", str(folder / "people"))
    assert [column.name for column in read_table(found).columns] == ["x", "y", "country"]


#: What is passed over in a folder, and why.
LEFT_OUT: dict[str, tuple[str, str]] = {
    "readme.txt": ("Movies and tags, as text.\nSecond line.\n", "no common delimiter"),
    "readme.md": ("# x", "not a table"),
    "empty.csv": ("", "empty"),
    "book.xlsx": ("PK", "save its sheets as CSV"),
    "all.zip": ("PK", "unpack it first"),
    "pretty.json": ('{\n "x": 1\n}', "one object per line"),
    "numbers.jsonl": ("1\n2\n", "its lines are not objects"),
    "records.jsonl": ('{"type": "Paper", "data": {}}\n', "load --data"),
}


def test_what_is_not_a_table_is_left_out_with_the_reason(folder: Path) -> None:
    put(folder / "a.csv", "x,y\n1,2\n")
    for name, (content, _) in LEFT_OUT.items():
        put(folder / name, content)
    _, left_out = find_tables([folder])
    reasons = {item.name: item.reason for item in left_out}
    assert reasons.keys() == LEFT_OUT.keys()
    assert all(wanted in reasons[name] for name, (_, wanted) in LEFT_OUT.items())


def test_a_folder_without_a_table_is_refused(folder: Path) -> None:
    put(folder / "readme.md", "# x")
    with pytest.raises(BadRequestError, match=r"there is no table to look at: give folders.*; readme\.md: not a table"):
        find_tables([folder])


def test_a_file_that_is_named_has_to_be_a_table(folder: Path) -> None:
    with pytest.raises(BadRequestError, match=r"all\.zip is not a table: an archive: unpack it first"):
        find_tables([put(folder / "all.zip", "PK")])
    with pytest.raises(InputFileError, match="there is no such file"):
        find_tables([folder / "none"])


def test_a_file_in_another_encoding_is_refused_with_its_line(folder: Path) -> None:
    path = folder / "a.csv"
    path.write_bytes("name,city\nAda,Rome\nJosé,Oslo\n".encode("latin-1"))
    (found,), _ = find_tables([path])
    with pytest.raises(InputFileError, match=r"byte 0xe9 in line 3 is not UTF-8: convert the file"):
        read_table(found)


def test_columns_that_a_mapping_cannot_name_are_left_out(folder: Path) -> None:
    path = put(folder / "a.csv", ",x,x,Unnamed: 3,,y\n0,1,2,0,a,b\n1,1,2,1,c,d\n")
    (found,), _ = find_tables([path])
    table = read_table(found)
    assert [column.name for column in table.columns] == ["y"]
    assert {(item.name, item.reason) for item in table.left_out} == {
        ("column 1", "it numbers the rows"),
        ("x", "two columns have this name"),
        ("Unnamed: 3", "it numbers the rows"),
        ("column 5", "it has no name"),
    }


def test_lines_that_no_load_reads_are_counted(folder: Path) -> None:
    path = put(folder / "a.csv", 'x,y\n1,2\n1,2,3\n4,5\n"6,7\n8,9\n')
    (found,), _ = find_tables([path])
    table = read_table(found)
    assert (table.rows, table.bad_records) == (3, 2)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "json", "parquet"])
def test_large_tables_are_sampled(folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"n": number, "text": f"text {number}" * 5} for number in range(9_000)]
    path = folder / f"a.{kind}"
    match kind:
        case "csv" | "csv.gz":
            put(path, "n,text\n" + "".join(f"{row['n']},{row['text']}\n" for row in rows))
        case "jsonl":
            put(path, "".join(f"{json.dumps(row)}\n" for row in rows))
        case "json":
            put(path, json.dumps(rows))
        case _:
            pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=1_000)
    (found,), _ = find_tables([path])
    whole = read_table(found)
    assert (whole.rows, whole.is_whole, whole.extent) == (9_000, True, "9,000 rows")
    monkeypatch.setenv(INFER_MAX_BYTES, str(64 * 1024))
    some = read_table(found)
    if kind == "csv.gz" and found.size <= 64 * 1024:
        assert some.is_whole
        return
    assert not some.is_whole
    assert 10 < some.rows < 9_000
    assert some.extent.startswith("a sample of ")
    numbers = {int(value) for value in some.columns[0].values.to_pylist()}
    assert len(numbers) == some.rows
    assert min(numbers) == 0
