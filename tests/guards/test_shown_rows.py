"""Examples of the query language are run on one small graph, and give the rows or the code that stands beside them.

A block of the language `rows` has a frame in its first line, in which `…` stands for what follows. Every example ends
with `//` and its result: rows with a comma between them, `none`, the counts of a mutation, the code of an error, or
`refused`.
A table behind a comment `<!-- frame: … -->` has examples in its last column, which only have to run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import BadRequestError, CompilerError
from support.subtests import each_case

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCK = re.compile(r"^```rows\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^<!-- frame: (?P<frame>.*?) -->\n+(?P<rows>(?:\|.*\n)+)", re.MULTILINE)
CHANGE = re.compile(r"\b(insert|upsert|update|delete) ")
EXAMPLE = re.compile(r"(?P<text>.+?)[ \t]+//[ \t]+(?P<result>[^\n]+)\n", re.DOTALL)


def _examples() -> Iterator[object]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            frame, rest = _parts(block["body"])
            line = text.count("\n", 0, block.start()) + 1
            for example in EXAMPLE.finditer(rest):
                query = frame.replace("…", example["text"].strip())
                yield pytest.param(query, example["result"].strip(), id=f"{page.name}:{line}: {query}")


def _parts(block: str) -> tuple[str, str]:
    """The frame of a block, and the examples that stand in it."""
    first, _, rest = block.partition("\n")
    return (first, rest) if "…" in first else ("…", block)


def _examples_of_tables() -> Iterator[object]:
    for page in PAGES:
        for table in TABLE.finditer(page.read_text(encoding="utf-8")):
            for row in table["rows"].splitlines()[2:]:
                *_, last = re.split(r"(?<!\\)\|", row.strip().strip("|"))
                for code in re.findall(r"`([^`]+)`", last):
                    query = table["frame"].replace("…", code.replace(r"\|", "|"))
                    yield pytest.param(query, id=f"{page.name}: {query}")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    graph = Graph.init(str(tmp_path_factory.mktemp("shown") / "people.omni"), ROOT / "docs/reference/people.pg")
    graph.mutate((ROOT / "docs/reference/people.gq").read_text(encoding="utf-8"))
    return graph


def _result_of(graph: Graph, query: str) -> str:
    try:
        if CHANGE.search(query):
            receipt = graph.mutate(query, dry_run=True)
            if receipt.rows is None:
                return f"{receipt.affected_nodes} nodes, {receipt.affected_edges} edges"
            rows = list(receipt.rows)
        else:
            rows = graph.query(query).to_pylist()
    except CompilerError as error:
        return ", ".join(error.codes)
    except BadRequestError:
        return "refused"
    return ", ".join(" ".join(map(_written, row.values())) for row in rows) or "none"


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


@each_case(("query", "result"), _examples())
def test_an_example_gives_what_stands_beside_it(people: Graph, query: str, result: str) -> None:
    assert _result_of(people, query) == result


@each_case("query", _examples_of_tables())
def test_an_example_of_a_table_runs(people: Graph, query: str) -> None:
    if CHANGE.search(query):
        people.mutate(query, dry_run=True)
    else:
        assert people.query(query).columns


def test_every_line_of_a_block_is_part_of_an_example() -> None:
    for page in PAGES:
        for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
            _, examples = _parts(block["body"])
            assert EXAMPLE.sub("", examples).strip() == "", page


@each_case("page", ["query-language.md", "cheat-sheet.md"])
def test_every_word_of_the_grammar_is_in_an_example(page: str) -> None:
    grammar = (ROOT / "src/omnigraph/lang/query/syntax/grammar.lark").read_text(encoding="utf-8")
    terminals = re.findall(r"^[A-Z_]+\.\d: /(@?[a-z_]+)", grammar, re.MULTILINE)
    assert len(terminals) > 40
    text = (ROOT / "docs/reference" / page).read_text(encoding="utf-8")
    shown = "".join(body for _, body in re.findall(r"^```(gq|rows)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert [word for word in terminals if not re.search(rf"(?<!\w){word}(?!\w)", shown)] == []
