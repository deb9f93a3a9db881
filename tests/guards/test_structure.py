"""The command line starts fast because it imports little."""

from __future__ import annotations

import functools
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import get_args, get_type_hints

import pandas
import pytest

import omnigraph
import omnigraph.errors
from omnigraph import Graph
from omnigraph.api.graph_api import GraphApi
from omnigraph.api.rows import Result
from omnigraph.client.remote_graph import RemoteGraph
from omnigraph.core.lazy_exports import late_types
from omnigraph.lang.query.compiler import QUERY_CODES
from omnigraph.lang.schema.compiler import SCHEMA_CODES
from support.servers import listening, open_server
from support.subtests import each_case

PROBE = """
import json, sys
from omnigraph.cli.main import main
try:
    main({words!r})
except SystemExit:
    pass
heavy = ("pyspark", "lance", "starlette", "pyarrow", "numpy", "pandas", "lark")
print("\\n@" + json.dumps([name for name in heavy if name in sys.modules]))
"""


def _imported(*words: str) -> list[str]:
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(words=list(words))], capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.rpartition("@")[2])


@each_case("words", [("--help",), ("version",), ("schema", "--help"), ("shell", "--help")])
def test_help_imports_no_heavy_library(words: tuple[str, ...]) -> None:
    assert _imported(*words) == []


def test_explain_needs_only_the_parser() -> None:
    imported = _imported(
        "explain",
        "--schema",
        "tests/unit/lang/golden/reading.pg",
        "-e",
        "query q() { match { $p: Paper } return { $p } }",
    )
    # pyarrow imports pandas by itself when it is installed.
    assert set(imported) <= {"lark", "pyarrow", "numpy", "pandas"}


#: Modules that would make a command start late, by the kind of command; also those below them.
EARLY = (
    *("pandas", "pydantic", "pygments", "pyspark", "rich.console", "starlette", "typer", "yaml", "omnigraph.server"),
    *("omnigraph.cli.commands.data", "omnigraph.cli.commands.history", "omnigraph.cli.commands.setup"),
)
BEHIND_A_SERVER = (
    *("lance", "lark", "obstore", "pyarrow.compute", "omnigraph.commit.publisher", "omnigraph.engine"),
    *(
        "omnigraph.graph",
        "omnigraph.lang.query.syntax.parser",
        "omnigraph.lang.schema.parser",
        "omnigraph.storage.datasets",
    ),
)
FORBIDDEN = {
    "local read": (
        *(*EARLY, "email", "http.client", "httpx", "ulid", "urllib.request", "omnigraph.branches"),
        *("omnigraph.client.connection", "omnigraph.embedding", "omnigraph.maintenance", "omnigraph.pipeline.load"),
        "omnigraph.writes",
    ),
    "remote read": (*EARLY, *BEHIND_A_SERVER),
    "remote document": (
        *(name for name in EARLY if name != "omnigraph.cli.commands.history"),
        *(*BEHIND_A_SERVER, "numpy", "pyarrow", "omnigraph.api.rows"),
    ),
}
LOADED = """
import json, sys
from omnigraph.__main__ import main
sys.argv[1:] = {words!r}
try:
    main()
except SystemExit:
    pass
print("\\n@" + json.dumps(sorted(sys.modules)))
"""


def test_a_read_loads_what_reads_alone(tmp_path: Path) -> None:
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, "node Person { name: String @key }") as graph:
        graph.mutate('query add() { insert Person { name: "Ann" } }')
    text = "match { $p: Person } return { $p.name }"
    with listening(open_server(uri)) as url:
        commands = {
            "local read": ["query", uri, "-e", text],
            "remote read": ["query", "--server", url, "-e", text],
            "remote document": ["branch", "list", "--server", url],
        }
        for kind, words in commands.items():
            code = LOADED.format(words=words)
            run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            printed, _, modules = run.stdout.rpartition("@")
            assert ("main" if kind == "remote document" else "Ann") in printed
            beside = [
                name
                for name in json.loads(modules)
                if any(f"{name}.".startswith(f"{item}.") for item in FORBIDDEN[kind])
            ]
            assert beside == [], kind


@each_case("module", ["omnigraph.graph.graph", "omnigraph.client.remote_graph", "omnigraph.server.app"])
def test_a_graph_and_its_server_load_no_pyspark(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('pyspark', 'py4j') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_no_grammar_repeats_a_group_possessively() -> None:
    """Python 3.11 before 3.11.5 matches less than it should where such a group has alternatives."""
    assert [path.name for path in SOURCES.rglob("*.lark") if re.search(r"\)[*+?]\+", path.read_text("utf-8"))] == []


def test_the_package_lists_its_public_names() -> None:
    assert set(dir(omnigraph)) == set(omnigraph.__all__)


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, omnigraph; print(sorted(m for m in sys.modules if m.startswith('omnigraph.')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# ---- Hints of the public surface can be resolved


def _documented() -> Iterator[object]:
    """What the pages of the Python reference show, and what the doors of the package name."""
    for page in sorted((ROOT / "docs/reference/python").glob("*.md")):
        for path in re.findall(r"^::: (\S+)$", page.read_text("utf-8"), re.MULTILINE):
            yield pkgutil.resolve_name(path)
    for door in (omnigraph, omnigraph.errors):
        yield from (getattr(door, name) for name in door.__all__)
    yield RemoteGraph


def _annotated(item: object) -> Iterator[object]:
    """A function, or a class and its public methods and properties."""
    if not isinstance(item, type):
        plain = inspect.unwrap(getattr(item, "__func__", None) or getattr(item, "fget", None) or item)  # type: ignore[arg-type]
        plain = plain.func if isinstance(plain, functools.cached_property) else plain
        # Classes may inherit methods of libraries.
        if inspect.isfunction(plain) and plain.__module__.startswith("omnigraph."):
            yield plain
        return
    yield item
    for name in dir(item):
        if not name.startswith("_"):
            found = inspect.getattr_static(item, name)
            yield from () if isinstance(found, type) else _annotated(found)


def _own_types(hint: object) -> Iterator[type]:
    if isinstance(hint, type) and hint.__module__.startswith("omnigraph."):
        yield hint
    for part in hint if isinstance(hint, list) else get_args(hint):
        yield from _own_types(part)


def test_hints_of_public_methods_and_of_what_they_take_and_return_can_be_resolved() -> None:
    left, known = list(_documented()), set[int]()
    unresolved, count = list[str](), 0
    while left:
        item = left.pop()
        if id(item) in known:
            continue
        known.add(id(item))
        for annotated in _annotated(item):
            count += 1
            try:
                hints = get_type_hints(annotated)
            except NameError as error:
                unresolved.append(f"{annotated.__module__}: {annotated.__qualname__}: {error}")
            else:
                left += [kind for hint in hints.values() for kind in _own_types(hint)]
    assert unresolved == []
    assert count > 500
    assert get_type_hints(Graph.query)["return"] is Result
    assert get_type_hints(Result.to_pandas)["return"] is pandas.DataFrame


def test_hints_of_a_package_that_is_missing_are_any() -> None:
    code = (
        "import sys, typing; sys.modules['pyspark'] = sys.modules['polars'] = None\n"
        "from omnigraph import Graph\nfrom omnigraph.api.rows import Result\n"
        "assert typing.get_type_hints(Graph.load)['spark'] == typing.Optional[typing.Any]\n"
        "assert typing.get_type_hints(Result.to_polars)['return'] is typing.Any"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_a_module_of_the_package_lacks_is_a_failure() -> None:
    def wrong() -> Missing: ...  # type: ignore[name-defined] # noqa: F821

    wrong.__globals__["Missing"] = late_types({"omnigraph.core.missing": "Missing"})["Missing"]
    with pytest.raises(ModuleNotFoundError, match=r"omnigraph\.core\.missing"):
        get_type_hints(wrong)


# ---- Every code is registered, used, explained by a golden file, and unique


ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "omnigraph"
GOLDEN = ROOT / "tests" / "unit" / "lang" / "golden"


def _named(room: str, pattern: str) -> Counter[str]:
    """How often the modules of a room name each code; the table of codes does so once."""
    texts = (path.read_text(encoding="utf-8") for path in (SOURCES / room).rglob("*.py"))
    return Counter(code for text in texts for code in re.findall(pattern, text))


@pytest.mark.parametrize(
    ("room", "pattern", "codes"),
    [("lang/schema", r'"(S-\d\d)"', SCHEMA_CODES), ("lang/query", r'"(T\d+|Q\d{3}|D2|L\d{3})"', QUERY_CODES)],
)
def test_the_codes_are_the_ones_that_the_checks_use(room: str, pattern: str, codes: Mapping[str, str]) -> None:
    named = _named(room, pattern)
    assert set(named) == set(codes)
    assert [code for code, count in named.items() if count < 2] == []


@each_case("code", [code for code in SCHEMA_CODES if code <= "S-28"])
def test_a_schema_code_has_a_golden_file(code: str) -> None:
    assert list((GOLDEN / "schema_errors").glob(f"{code}*.pg"))


def test_a_schema_warning_has_a_golden_file() -> None:
    assert list((GOLDEN / "schema_warnings").glob("S-32*.pg"))


@pytest.mark.parametrize("code", ["S-29", "S-30", "S-31"])
def test_an_identity_code_has_a_golden_file(code: str) -> None:
    errors = (GOLDEN / "migrations").glob("*/error.expected")
    assert any(f"error {code}:" in path.read_text(encoding="utf-8") for path in errors)


@each_case("code", QUERY_CODES)
def test_a_query_code_has_a_golden_file(code: str) -> None:
    assert list((GOLDEN / "query_errors").glob(f"{code}-*.gq"))


@each_case("module", ["blobs", "branches", "exports", "history", "maintenance", "mutations", "reads", "schema_changes"])
def test_a_function_that_becomes_a_method_takes_what_the_method_takes(module: str) -> None:
    functions = import_module(f"omnigraph.graph.{module}")
    found = [name for name in dir(GraphApi) if hasattr(getattr(functions, name, None), "__wrapped__")]
    assert found
    for name in found:
        declared = dict(inspect.signature(getattr(GraphApi, name)).parameters)
        work = inspect.getclosurevars(getattr(functions, name)).nonlocals["function"]
        (_, *taken) = inspect.signature(work).parameters.values()
        named = {item.name: item for item in taken if item.kind is not inspect.Parameter.VAR_KEYWORD}
        for item in named.values():
            assert (item.kind, item.default) == (declared[item.name].kind, declared[item.name].default), name
        assert set(declared) - {"self"} == set(named) or len(named) < len(taken), name
