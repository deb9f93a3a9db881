"""What the documentation shows is run: commands with their output, Python, schemas and queries."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import obstore
import pytest

from guards.shown_commands import Shell, commands_of
from omnigraph import Graph, GraphApi
from omnigraph.cli.main import app_with
from omnigraph.lang.query.compiler import compile_file
from omnigraph.lang.schema.compiler import compile_schema, compile_schema_file
from omnigraph.server.main import serve as server
from support.server_processes import Nursery
from support.subtests import each_case

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE = [*PAGES, ROOT / "SECURITY.md", ROOT / "examples/README.md", ROOT / "benchmarks/README.md"]
FENCE = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


def _blocks(language: str) -> list[pytest.param]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in FENCE.finditer(text):
            if block["language"] == language:
                line = text.count("\n", 0, block.start()) + 1
                name = f"{page.relative_to(ROOT)}:{line}"
                found.append(pytest.param(block["body"], id=name))
    return found


def _pages_with_commands() -> list[Path]:
    return [page for page in PAGES if "```console" in page.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    """Where the servers of all pages come from."""
    started = Nursery(tmp_path_factory.mktemp("nursery"))
    yield started
    started.close()


@pytest.mark.parametrize("page", _pages_with_commands(), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_commands_of_a_page_print_what_it_shows(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """All commands of a page run one after the other in one directory; `…` stands for anything within a line."""
    for folder in ("docs", "examples", "deploy"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / ".omnigraph"))
    commands = commands_of(FENCE.finditer(page.read_text(encoding="utf-8")))
    assert commands, "a console block shows at least one command"
    spark, nursery = (partial(request.getfixturevalue, name) for name in ("spark", "nursery"))
    with Shell(tmp_path, monkeypatch, capfd, spark, nursery) as shell:
        for line, shown in commands:
            command = re.sub(r"\s+#.*$", "", line)
            # A `>` in front of one last word redirects; others compare in a query.
            redirected = re.fullmatch(r"(.*) > (\S+)", command)
            command, redirect = redirected.groups() if redirected else (command, "")
            if command.startswith("make "):
                targets = (ROOT / "Makefile").read_text(encoding="utf-8")
                assert re.search(rf"^{command.split()[1]}:", targets, re.MULTILINE)
                continue
            code, printed = shell.run(command, redirect.strip())
            if redirect:
                assert code == 0, line
            pattern = ".*".join(map(re.escape, shown.split("…")))
            assert re.fullmatch(pattern, printed), f"{line}\nprinted:\n{printed}"


@pytest.mark.parametrize("body", _blocks("python"))
def test_shown_python_runs(body: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.chdir(ROOT)
    if "langchain" in body:
        _run_beside_langchain(body)
        return
    if "spark_session" in body:
        # The session of all other tests, which the shown code finds instead of starting one.
        request.getfixturevalue("spark")
    exec(compile(body, "<shown>", "exec"), {"__name__": "__main__"})


def _run_beside_langchain(body: str) -> None:
    """In a process of its own, with the release line of `mcp` that LangChain needs in front of that of the tests."""
    packages = Path(sys.prefix) / "langchain"
    if not packages.is_dir():
        pytest.skip("make test installs LangChain beside the environment, and it is not there")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    settings = {**os.environ, "PYTHONPATH": str(packages), "PATH": path}
    done = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 0, done.stderr
    assert "'schema'" in done.stdout
    assert "'query'" in done.stdout


@pytest.mark.parametrize("body", _blocks("pg"))
def test_a_shown_schema_compiles(body: str) -> None:
    assert compile_schema(body).catalog.nodes


@each_case(
    "page", [page for page in PAGES if "```gq" in page.read_text("utf-8")], ids=lambda it: str(it.relative_to(ROOT))
)
def test_a_shown_query_compiles(page: Path) -> None:
    """Against the schema that a comment at the top of the page names, else that of the first steps."""
    text = page.read_text(encoding="utf-8")
    named = re.match(r"<!-- schema: (\S+) -->", text)
    catalog = compile_schema_file(ROOT / (named[1] if named else "docs/start/papers.pg")).catalog
    for block in FENCE.finditer(text):
        if block["language"] == "gq":
            assert compile_file(block["body"], catalog)


@each_case(("page", "file"), [("query-recipes.md", "recipes.gq"), ("rag.md", "rag.gq")])
def test_the_queries_of_a_page_are_those_of_its_file(page: str, file: str) -> None:
    shown = FENCE.finditer((ROOT / "docs/guide" / page).read_text(encoding="utf-8"))
    held = (ROOT / "docs/guide" / file).read_text(encoding="utf-8")
    queries = [block["body"] for block in shown if block["language"] == "gq"]
    assert queries
    assert [body for body in queries if body not in held] == []


@each_case("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_link_between_pages_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    linked = (ROOT / "docs/project/decisions/index.md").read_text(encoding="utf-8")
    missing = [str(p) for p in pages if str(p) not in navigation and p.name not in linked]
    assert missing == []


#: What people search for, in their own words.
SEARCHED = """
    ACID API CSV Cypher DuckDB Docker GDPR JSON Jupyter Kafka Kubernetes LangChain Linux MCP Neo4j Parquet
    Prometheus RAG S3 SIGHUP TLS agent aggregate audit backup branch cancel cleanup cluster compare
    concurrency conflict cursor date delete diff dry-run edge embedding enum explain export FAQ foreign-key
    full-text hybrid import index install isolation key lint limitation list memory merge migration monitoring
    notebook null pandas performance polars policy quickstart recovery restore rollback schema security server
    Spark streaming systemd time-travel timeout token transaction traversal troubleshooting undo unique
    upgrade vector
"""


def test_every_word_that_people_search_for_is_on_a_page() -> None:
    pages = " ".join(page.read_text(encoding="utf-8") for page in PAGES).casefold()
    words = (word.replace("-", " ") for word in SEARCHED.casefold().split())
    assert [word for word in words if word not in pages and word.replace(" ", "-") not in pages] == []


#: What pages do not say, as a pattern, and what they say instead.
_UNWANTED = {
    r"\b(we|us|our|let's)\b": "you, the command, or the component",
    r"\b(whoever|nobody|somebody|someone)\b": "the actor, no writer, a reader",
    r"(?<!\bthere )\b(is|are|was|were) no (?!longer\b|more\b)": "is not a",
    r"\btold\b(?! apart)": "is reported, is returned",
    r"\btells?\b(?!.{0,60}\bapart\b)": "reports, shows, says",
    r"\banew\b": "again",
    r"\bby (itself|themselves)\b": "automatically, on its own, or nothing",
    r"\bends? with (an?|the) [\w ]*(error|failure)\b": "fails with",
    r"\bunder its feet\b|\bto be gained\b|\bstands? against\b|\bcounts? too\b": "a plain word",
}
#: Words of a sentence; a table has none.
_LONGEST_SENTENCE = 35
_GENERATED = ("reference/cli/", "reference/errors", "reference/http-api", "reference/settings", "reference/functions")


def _prose(page: Path) -> str:
    """A page without what is shown and quoted, its lines as they are."""
    text = re.sub(r"^( *)```.*?^\1```$", _blank, page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "``", text)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


@each_case("page", PROSE, ids=lambda it: str(it.relative_to(ROOT)))
def test_a_page_is_in_plain_words(page: Path) -> None:
    found = [
        f"line {number}: `{word[0]}`, better: {better}"
        for number, line in enumerate(_prose(page).splitlines(), 1)
        for pattern, better in _UNWANTED.items()
        for word in re.finditer(pattern, line, re.IGNORECASE)
    ]
    assert found == []


@each_case(
    "page",
    [page for page in PROSE if not any(part in str(page) for part in (*_GENERATED, "decisions/"))],
    ids=lambda it: str(it.relative_to(ROOT)),
)
def test_sentences_of_a_page_are_short(page: Path) -> None:
    paragraphs = re.split(r"\n\s*\n", _prose(page))
    sentences = [
        sentence
        for paragraph in paragraphs
        if not paragraph.lstrip().startswith(("|", "#", "<"))
        for sentence in re.split(r"(?<=[.!?:])\s+|(?:^|\s)- ", " ".join(paragraph.split()))
    ]
    assert [item for item in sentences if len(item.split()) > _LONGEST_SENTENCE] == []


def test_the_words_that_pages_do_not_say_are_found() -> None:
    text = "We told nobody. It is no file by itself; there is no other, and two are told apart."
    found = [word[0] for pattern in _UNWANTED for word in re.finditer(pattern, text, re.IGNORECASE)]
    assert found == ["We", "nobody", "is no ", "told", "by itself"]


def test_the_examples_of_the_command_line_are_commands_that_it_takes() -> None:
    """Names, flags and values, as far as they can be checked without a graph."""
    programs = {"omnigraph": app_with(), "omnigraph-server": server}
    shown = json.loads((ROOT / "tools/cli_examples.json").read_text(encoding="utf-8"))
    for path, lines in shown.items():
        for line in lines:
            words = shlex.split(line.partition(" > ")[0])
            command, words = programs[words[0]], words[1:]
            assert line.startswith(f"{path} ") or line == path
            while hasattr(command, "commands"):
                command, words = command.commands[words[0]], words[1:]
            command.make_context(path, words)


def test_every_method_of_a_graph_is_on_a_page_of_the_reference() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference/python").glob("*.md"))
    named = set(re.findall(r"^::: omnigraph\.\S+\.(\w+)$", shown, re.MULTILINE))
    public = {name for kind in (Graph, GraphApi) for name in dir(kind) if not name.startswith("_")}
    assert public - named == set()


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_guide_is_linked_from_the_first_page_and_loading_comes_first() -> None:
    page = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\((guide/[^)#]+)\)", page)
    guides = {f"guide/{path.name}" for path in (ROOT / "docs/guide").glob("*.md")}
    assert guides - set(linked) == set()
    assert linked[0] == "guide/load-files.md"


def test_every_variable_that_a_text_names_is_declared_and_on_the_page_of_settings() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    declared = set(re.findall(r"^\| `(OMNIGRAPH_\w+)`", page, re.MULTILINE))
    assert declared
    # What a server prints, what shells ask for completions with, prefixes of variables, tokens of named servers, and
    # variables of the tests.
    others = re.compile(r"OMNIGRAPH_(LISTEN_ADDR|COMPLETE|\w*_|TOKEN_\w+|TEST_\w+)")
    for path in [*PAGES, *(ROOT / "src").rglob("*.py"), *(ROOT / "deploy").iterdir()]:
        for name in re.findall(r"OMNIGRAPH_[A-Z0-9_]+\b(?!\*)", path.read_text(encoding="utf-8")):
            assert name in declared or others.fullmatch(name), f"{path} names {name}"


def test_every_variable_of_a_store_is_on_the_page_of_settings() -> None:
    """Those that a text or the code names, and those that the library of the store says it reads."""
    page = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    declared = set(re.findall(r"^\| `(AWS_\w+)`", page, re.MULTILINE))
    # The address of a graph names its bucket, nothing is copied within one, and these names have another one.
    others = {"AWS_BUCKET", "AWS_BUCKET_NAME", "AWS_COPY_IF_NOT_EXISTS", "AWS_TOKEN", "AWS_REQUESTER_PAYS"}
    read = Path(obstore.__file__).with_name("_store") / "_aws.pyi"
    for path in [read, *PAGES, *(ROOT / "src").rglob("*.py")]:
        named = set(re.findall(r"\bAWS_[A-Z0-9_]*[A-Z0-9]\b", path.read_text(encoding="utf-8")))
        assert named - declared - others == set(), path


def test_a_walk_names_modules_that_its_call_goes_through() -> None:
    page = (ROOT / "docs/develop/architecture.md").read_text(encoding="utf-8")
    told = re.split(r"^## ", page, flags=re.MULTILINE)
    traced = subprocess.run(
        [sys.executable, ROOT / "tools/walk.py", "-v"], capture_output=True, text=True, check=True
    ).stdout
    for walk in re.split(r"^(?=\w)", traced, flags=re.MULTILINE)[1:]:
        call, *_ = walk.split()
        (section,) = (text for text in told if text.startswith(f"A {call}\n"))
        named = set(re.findall(r"^\| `([a-z_/]+)` \|", section, re.MULTILINE))
        assert named
        assert named - set(walk.split()) == set(), f"a {call} does not go through these"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_module_that_a_page_names_exists(page: Path) -> None:
    sources = ROOT / "src/omnigraph"
    rooms = "|".join(path.name for path in sources.iterdir() if path.is_dir())
    text = page.read_text(encoding="utf-8")
    named = rf"`(?:src/)?(?:omnigraph/)?((?:{rooms})/[a-z_/]+?)(?:/|\.py)?`"
    for name in re.findall(named, text):
        assert (sources / name).is_dir() or (sources / f"{name}.py").exists(), name
    for name in re.findall(r"`((?:tests|docs|tools)/[\w/.-]+)`", text):
        assert (ROOT / name).exists(), name


def test_every_document_that_a_text_names_is_in_the_repository() -> None:
    written = [path for folder in ("src", "tests", "tools", "docs") for path in (ROOT / folder).rglob("*")]
    texts = [*PAGES, *(path for path in written if path.suffix in (".py", ".md"))]
    known = {path.name for path in [*texts, *ROOT.glob("*.md")]} | {"readme.md", "_README.md"}
    for path in texts:
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"\b[\w-]+\.md\b", text)) - known == set(), path
        assert path == Path(__file__) or "§" not in text, path


def _coverage_rows() -> list[str]:
    text = (ROOT / "tests/coverage.md").read_text(encoding="utf-8")
    folders = "|".join(sorted(path.name for path in (ROOT / "tests").iterdir() if path.is_dir()))
    return re.findall(rf"`((?:{folders})/[^`]+)`", text)


@each_case("reference", sorted(set(_coverage_rows())))
def test_the_coverage_table_names_tests_that_exist(reference: str) -> None:
    path, _, name = reference.partition("::")
    found = list((ROOT / "tests").glob(path))
    assert found
    assert not name or name in found[0].read_text(encoding="utf-8")
