"""Query text → compiled queries: the one entrance to the query language, and its cache."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from omnigraph.errors import CompilerError, MixedMutationError, QuerySelectionError
from omnigraph.query import ast, ir
from omnigraph.query.descriptor import Operation, describe
from omnigraph.query.parser import SYNTAX_ERROR, parse_queries
from omnigraph.query.typecheck import check_query, is_mixed
from omnigraph.syntax.source import Findings, SourceText, read_source
from omnigraph.syntax.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from omnigraph.schema.catalog import Catalog

_CACHE_ENTRIES = 256
#: Names that a message lists.
_LISTED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledQuery:
    """A query that passed every check, with what it returns, reads and writes."""

    ir: ir.QueryIR
    operation: Operation
    description: str | None = None
    instruction: str | None = None

    @property
    def name(self) -> str:
        """The name it is declared under."""
        return self.ir.name

    @property
    def is_mutation(self) -> bool:
        """Whether it changes the graph."""
        return isinstance(self.ir, ir.MutationIR)


def compile_file(source: SourceText | str, catalog: Catalog) -> tuple[CompiledQuery, ...]:
    """Every query of a source, in source order.

    Raises:
        CompilerError: with every finding in the source.
        MixedMutationError: the only thing wrong is a mutation that both writes and deletes.
    """
    source = _as_source(source)
    tree = parse_queries(source)
    findings = Findings(source)
    check_names(tree, findings)
    compiled = [_compile(query, catalog, findings) for query in tree.queries]
    _raise_findings(findings, tree)
    return tuple(query for query in compiled if query is not None)


def compile_query(
    source: SourceText | str, catalog: Catalog, name: str | None = None
) -> CompiledQuery:
    """One query of a source: the one called `name`, or the only one.

    The other queries of the source have to parse, but they need not fit the catalog.

    Raises:
        CompilerError: the source does not parse, or the query is wrong.
        QuerySelectionError: the source does not hold that query, or holds several and none was named.
        MixedMutationError: the query both writes and deletes.
    """
    source = _as_source(source)
    tree = parse_queries(source)
    findings = Findings(source)
    check_names(tree, findings)
    findings.raise_errors()
    query = _select(tree, name, source)
    compiled = _compile(query, catalog, findings)
    _raise_findings(findings, ast.QueryFile((query,)))
    assert compiled is not None, "a query without findings compiles"
    return compiled


def read_queries(path: str | Path) -> SourceText:
    """Read a `.gq` file.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: it is no UTF-8 text, or too large.
    """
    return read_source(path, code=SYNTAX_ERROR)


class QueryCompiler:
    """Compiles queries and keeps the results, by source text, query name and schema.

    Thread-safe. Failures are not kept.
    """

    def __init__(self, entries: int = _CACHE_ENTRIES) -> None:
        self._entries = entries
        self._cache: OrderedDict[tuple[str, str | None, str], CompiledQuery] = OrderedDict()
        self._lock = Lock()
        #: How often a query was found in the cache and how often it was compiled.
        self.hits = 0
        self.misses = 0

    def compile(
        self, source: SourceText | str, catalog: Catalog, name: str | None = None
    ) -> CompiledQuery:
        """As `compile_query`, from the cache when the same text was compiled against the same schema before."""
        source = _as_source(source)
        key = (source.text, name, catalog.schema_hash)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                self.hits += 1
                return known
        compiled = compile_query(source, catalog, name)
        with self._lock:
            self.misses += 1
            self._cache[key] = compiled
            while len(self._cache) > self._entries:
                self._cache.popitem(last=False)
        return compiled


def _as_source(source: SourceText | str) -> SourceText:
    return SourceText(source, "<query>") if isinstance(source, str) else source


def _compile(query: ast.Query, catalog: Catalog, findings: Findings) -> CompiledQuery | None:
    meaning = check_query(query, catalog, findings)
    if meaning is None:
        return None
    notes = {note.kind: note.text for note in query.notes}
    return CompiledQuery(
        ir=meaning,
        operation=describe(meaning, catalog),
        description=notes.get("description"),
        instruction=notes.get("instruction"),
    )


def check_names(tree: ast.QueryFile, findings: Findings) -> None:
    """Record every query that has the name of an earlier one (Q101)."""
    for query in repeated_queries(tree):
        findings.error("Q101", query.name_span, f"query `{query.name}` is declared twice")


def repeated_queries(tree: ast.QueryFile) -> Iterator[ast.Query]:
    """The queries that have the name of an earlier one."""
    seen: set[str] = set()
    for query in tree.queries:
        if query.name in seen:
            yield query
        seen.add(query.name)


def _select(tree: ast.QueryFile, name: str | None, source: SourceText) -> ast.Query:
    names = tuple(query.name for query in tree.queries)
    if name is None:
        if len(names) == 1:
            return tree.queries[0]
        if not names:
            raise QuerySelectionError(f"{source.name} holds no query", names)
        listing = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
        raise QuerySelectionError(
            f"{source.name} holds {len(names)} queries, name one: {listing}", names
        )
    for query in tree.queries:
        if query.name == name:
            return query
    hint = did_you_mean(name, names)
    message = f"{source.name} holds no query `{name}`" + (f": {hint}" if hint else "")
    raise QuerySelectionError(message, names)


def _raise_findings(findings: Findings, tree: ast.QueryFile) -> None:
    errors = findings.errors
    if errors and all(error.code == "D2" for error in errors):
        raise MixedMutationError(next(query.name for query in tree.queries if is_mixed(query)))
    if errors:
        raise CompilerError(errors, total=findings.error_count)
