"""Stored queries: reading them, checking them against a schema, and describing them to callers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from omnigraph.api.answers import StoredQueryEntry
from omnigraph.api.operations import OPERATIONS
from omnigraph.core.source import Findings, SourceText, Span, did_you_mean
from omnigraph.errors import CompilerError, Diagnostic
from omnigraph.frozen import frozen
from omnigraph.lang.query.compiler import check_declaration, check_query, read_queries
from omnigraph.lang.query.signature import FieldDescriptor, ValueKind, describe_field
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import parse_queries_all
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.server.config import QuerySource, query_sources

#: Tools that every graph offers to agents beside its stored queries; no stored query may have one of their names.
BUILT_IN_TOOLS = frozenset(entry.tool.name for entry in OPERATIONS.values() if entry.tool is not None)
#: Some agents refuse tools with longer names.
_TOOL_NAME_LENGTH = 64

_NAME_TWICE = "Q101"
_NOT_IN_FILE = "R101"
_TOOL_TWICE = "R102"
_TOOL_BUILT_IN = "R103"
_VECTOR_PARAMETER = "R201"
_LONG_TOOL_NAME = "R202"

_BEGINNING = Span(0, 0)


@frozen(kw_only=True)
class StoredQuery:
    """One stored query. `source` holds its text alone, and does not name the file that it stands in."""

    name: str
    tool_name: str
    description: str | None
    instruction: str | None
    is_mutation: bool
    params: tuple[FieldDescriptor, ...]
    source: SourceText
    _declared: _Declared = field(repr=False, compare=False)

    @property
    def kind(self) -> str:
        """`read` or `mutation`."""
        return "mutation" if self.is_mutation else "read"

    @property
    def is_destructive(self) -> bool:
        """Whether it changes or removes what exists, rather than only adding to it."""
        body = self._declared.tree.body
        return isinstance(body, ast.MutationBody) and not all(
            isinstance(statement, ast.Insert) for statement in body.statements
        )

    def entry(self) -> StoredQueryEntry:
        """The query as callers see it."""
        return StoredQueryEntry(
            name=self.name,
            tool_name=self.tool_name,
            description=self.description,
            instruction=self.instruction,
            mutation=self.is_mutation,
            params=list(self.params),
        )


@frozen
class RegistryFinding:
    """One finding, and the query it is about; None for a file that does not parse."""

    query: str | None
    diagnostic: Diagnostic

    def __str__(self) -> str:
        item = self.diagnostic
        return f"{item.location}: {item.code}: {item.message}"

    def to_json(self) -> dict[str, object]:
        """`{query, code, severity, message, file, line, column, hint?}`."""
        return {"query": self.query} | self.diagnostic.to_json()


@frozen
class CheckReport:
    """The findings about stored queries: breakages stop a server from serving the graph, warnings do not."""

    breakages: tuple[RegistryFinding, ...]
    warnings: tuple[RegistryFinding, ...]
    #: How many queries were judged.
    queries: int = 0
    #: Breakages beyond those that are listed: a text that is wrong everywhere lists its first ones.
    unlisted: int = 0

    @property
    def ok(self) -> bool:
        """Whether the queries can be served."""
        return not self.breakages

    @property
    def total(self) -> int:
        """All breakages, listed or not."""
        return len(self.breakages) + self.unlisted

    def to_json(self) -> dict[str, object]:
        """`{ok, breakages[], warnings[]}`, with `breakage_total` where not all are listed."""
        body: dict[str, object] = {
            "ok": self.ok,
            "breakages": [item.to_json() for item in self.breakages],
            "warnings": [item.to_json() for item in self.warnings],
        }
        return body | ({"breakage_total": self.total} if self.unlisted else {})


class StoredQueries:
    """The stored queries of one graph, sorted by name. Immutable."""

    def __init__(self, queries: Iterable[StoredQuery] = ()) -> None:
        self._by_name = {query.name: query for query in sorted(queries, key=lambda q: q.name)}

    @classmethod
    def read(cls, sources: Iterable[QuerySource | Path]) -> StoredQueries:
        """The queries of some files, directories or sources.

        Raises:
            InputFileError: a file cannot be read.
            CompilerError: with everything that is wrong before a schema is known: files that do not parse, names that
                are declared twice, parameters of unknown types.
        """
        queries, found = _gather(sources)
        if found.items:
            raise CompilerError(tuple(item.diagnostic for item in found.items), found.total)
        return cls(queries)

    def __iter__(self) -> Iterator[StoredQuery]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> StoredQuery | None:
        """The query of that name."""
        return self._by_name.get(name)

    def check(self, catalog: Catalog) -> CheckReport:
        """Judge every query against a schema, and their names as tools."""
        breakages = _Breakages()
        warnings: list[RegistryFinding] = []
        tools: dict[str, StoredQuery] = {}
        for query in self:
            findings = Findings(query._declared.source)
            check_query(query._declared.tree, catalog, findings)
            _check_tool(query, tools, findings)
            tools.setdefault(query.tool_name, query)
            breakages.add(query.name, findings)
            warnings += [RegistryFinding(query.name, item) for item in findings.warnings]
        return CheckReport(tuple(breakages.items), tuple(warnings), len(self), breakages.unlisted)

    def to_json(self) -> list[dict[str, object]]:
        """The list of stored queries."""
        return [query.entry().to_json() for query in self]


def check_files(sources: Iterable[QuerySource | Path], catalog: Catalog) -> CheckReport:
    """As `StoredQueries.read` and `check`, with everything that is wrong in one report.

    Raises:
        InputFileError: a file cannot be read.
    """
    queries, found = _gather(sources)
    report = StoredQueries(queries).check(catalog)
    return CheckReport(
        (*found.items, *report.breakages), report.warnings, report.queries, found.unlisted + report.unlisted
    )


@frozen
class _Declared:
    """A declaration and the file that it stands in."""

    tree: ast.Query
    source: SourceText


@dataclass(slots=True)
class _Breakages:
    """The breakages: those that the findings of each text list, and the number of further ones."""

    items: list[RegistryFinding] = field(default_factory=list)
    unlisted: int = 0

    @property
    def total(self) -> int:
        return len(self.items) + self.unlisted

    def add(self, query: str | None, findings: Findings) -> None:
        errors = findings.errors
        self.items += [RegistryFinding(query, item) for item in errors]
        self.unlisted += findings.error_count - len(errors)


def _gather(sources: Iterable[QuerySource | Path]) -> tuple[list[StoredQuery], _Breakages]:
    """Every query that is declared well, and what is wrong with the others."""
    found: dict[str, StoredQuery] = {}
    breakages = _Breakages()
    files: dict[Path, _File] = {}
    for source in _expanded(sources):
        file = files.get(source.path)
        if file is None:
            file = files[source.path] = _read(source.path)
            breakages.add(None, file.broken)
        for tree in _selected(source, file, breakages):
            first = found.get(tree.name)
            if first is not None and first._declared.tree is tree:
                continue
            problems = Findings(file.text)
            if first is not None:
                where = _place(first)
                problems.error(_NAME_TWICE, tree.name_span, f"query `{tree.name}` is declared twice", where)
            stored = _stored(tree, file.text, source.tool_name, problems)
            breakages.add(tree.name, problems)
            if not problems.errors:
                found[tree.name] = stored
    return list(found.values()), breakages


@frozen
class _File:
    text: SourceText
    queries: tuple[ast.Query, ...]
    broken: Findings


def _expanded(sources: Iterable[QuerySource | Path]) -> Iterator[QuerySource]:
    for source in sources:
        if isinstance(source, QuerySource):
            yield source
        else:
            yield from query_sources(source)


def _read(path: Path) -> _File:
    try:
        text = read_queries(path)
        tree, broken = parse_queries_all(text)
    except CompilerError as error:
        # Not text at all: too large, or no UTF-8.
        nothing = SourceText("", str(path))
        return _File(nothing, (), Findings(nothing, list(error.diagnostics), error.total))
    return _File(text, tree.queries, broken)


def _selected(source: QuerySource, file: _File, breakages: _Breakages) -> tuple[ast.Query, ...]:
    if source.name is None:
        return file.queries
    named = tuple(tree for tree in file.queries if tree.name == source.name)
    if not named and not file.broken.error_count:
        message = f"{file.text.name} holds no query `{source.name}`"
        hint = did_you_mean(source.name, [tree.name for tree in file.queries])
        finding = file.text.diagnostic(_NOT_IN_FILE, _BEGINNING, message, hint=hint)
        breakages.items.append(RegistryFinding(source.name, finding))
    return named


def _stored(tree: ast.Query, text: SourceText, tool_name: str | None, problems: Findings) -> StoredQuery:
    params = check_declaration(tree, problems)
    notes = {note.kind: note.text for note in tree.notes}
    own_text = text.text[tree.span.start : tree.span.end]
    return StoredQuery(
        name=tree.name,
        tool_name=tool_name or tree.name,
        description=notes.get("description"),
        instruction=notes.get("instruction"),
        is_mutation=isinstance(tree.body, ast.MutationBody),
        params=tuple(describe_field(param.name, param.type) for param in params),
        source=SourceText(own_text, f"<stored query {tree.name}>"),
        _declared=_Declared(tree, text),
    )


def _place(query: StoredQuery) -> str:
    declared = query._declared
    line, _ = declared.source.position(declared.tree.name_span.start)
    return f"the other one is in {declared.source.name}, line {line}"


def _check_tool(query: StoredQuery, tools: dict[str, StoredQuery], findings: Findings) -> None:
    place = query._declared.tree.name_span
    tool = query.tool_name
    rename = "give one of them another `tool_name` in the configuration of the server"
    if tool in tools:
        message = f"`{query.name}` and `{tools[tool].name}` are both offered as the tool `{tool}`"
        findings.error(_TOOL_TWICE, place, message, rename)
    if tool in BUILT_IN_TOOLS:
        message = f"`{query.name}` has the name of a built-in tool, `{tool}`"
        hint = "rename the query, or give it another `tool_name` in the configuration of the server"
        findings.error(_TOOL_BUILT_IN, place, message, hint)
    if len(tool) > _TOOL_NAME_LENGTH:
        message = f"the tool name of `{query.name}` is longer than {_TOOL_NAME_LENGTH} characters"
        hint = "some agents refuse it: give a shorter `tool_name` in the configuration"
        findings.warning(_LONG_TOOL_NAME, place, message, hint)
    for param, declared in zip(query.params, query._declared.tree.params, strict=True):
        if param.kind is ValueKind.VECTOR:
            message = f"parameter `${param.name}` of `{query.name}` is a vector"
            hint = "an agent cannot supply it: take a String, it is embedded when the query runs"
            findings.warning(_VECTOR_PARAMETER, declared.span, message, hint)
