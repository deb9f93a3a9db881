"""Lint of a query file against a schema: every query judged, nothing raised.

The JSON form is a public contract (`omnigraph lint --json`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

from omnigraph.codec import HIDDEN, OMIT_EMPTY, OMIT_NONE, Document, When
from omnigraph.core.source import Findings, SourceText, Span
from omnigraph.errors import CompilerError, Diagnostic, Severity
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import repeated
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.lowering import separate_patterns
from omnigraph.lang.query.compiler import check_query
from omnigraph.lang.query.signature import Operation, describe
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import parse_queries
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef, embedded_vectors
from omnigraph.lang.schema.compiler import CompiledSchema

NEVER_UPDATED = "L201"
CROSS_PRODUCT = "L202"
NOT_EMBEDDED = "L203"
#: Patterns that a warning names.
_NAMED_GROUPS = 3
#: Properties that a warning names.
_NAMED_PROPERTIES = 5
_SEVERITY_ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)


class LintStatus(StrEnum):
    """The verdict on a query or on the whole file."""

    OK = "ok"
    ERROR = "error"


@frozen(kw_only=True)
class QueryResult(Document):
    """The verdict on one query. `diagnostics` holds its errors, `operation` its descriptor when it has none."""

    computed: ClassVar = {"status": "kind", "error": "warnings"}

    name: str
    kind: str
    warnings: tuple[str, ...]
    diagnostics: Annotated[tuple[Diagnostic, ...], OMIT_EMPTY]
    #: All errors of the query; `diagnostics` holds the first of them.
    diagnostic_total: Annotated[int, When(lambda result: result.diagnostic_total > len(result.diagnostics))] = 0
    operation: Annotated[Operation | None, OMIT_NONE]

    @property
    def status(self) -> LintStatus:
        """Whether the query has errors."""
        return LintStatus.ERROR if self.diagnostics else LintStatus.OK

    @property
    def error(self) -> Annotated[str | None, OMIT_NONE]:
        """All errors as one text."""
        if not self.diagnostics:
            return None
        return "; ".join(f"{item.code}: {item.message}" for item in self.diagnostics)


@frozen(kw_only=True)
class Finding(Document):
    """A finding about the file as a whole, with its place. One that has a code has a `diagnostic` with the excerpt."""

    severity: Severity
    code: str | None
    message: str
    type_name: Annotated[str | None, OMIT_NONE] = None
    properties: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    query_names: tuple[str, ...] = ()
    line: int
    column: int
    diagnostic: Annotated[Diagnostic | None, HIDDEN] = None


@frozen(kw_only=True)
class LintReport(Document):
    """Everything found in one file."""

    computed: ClassVar = {
        "status": "",
        "queries_processed": "query_path",
        "errors": "queries_processed",
        "warnings": "errors",
        "infos": "warnings",
    }

    schema_source: str
    #: None for a schema alone.
    query_path: Annotated[str | None, OMIT_NONE] = None
    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]
    #: Errors of the file as a whole beyond those in `findings`, which holds the first of very many.
    unlisted: Annotated[int, HIDDEN] = 0

    @property
    def errors(self) -> int:
        """Queries with errors, and errors of the file as a whole."""
        failed = sum(result.status is LintStatus.ERROR for result in self.results)
        return failed + self._count(Severity.ERROR) + self.unlisted

    @property
    def warnings(self) -> int:
        """All warnings, of queries and of the file."""
        return self._count(Severity.WARNING)

    @property
    def infos(self) -> int:
        """All remarks."""
        return self._count(Severity.INFO)

    @property
    def status(self) -> LintStatus:
        """Whether anything is an error."""
        return LintStatus.ERROR if self.errors else LintStatus.OK

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def queries_processed(self) -> int:
        """The number of queries the file has."""
        return len(self.results)


def lint_schema(compiled: CompiledSchema, schema_source: str) -> LintReport:
    """Judge a schema alone: one that compiles has warnings at most."""
    findings = tuple(_finding(item) for item in compiled.warnings)
    return LintReport(schema_source=schema_source, results=(), findings=findings)


def lint_queries(source: SourceText, catalog: Catalog, schema_source: str, *, no_embedding: str = "") -> LintReport:
    """Judge every query of a source. A source that does not parse has `Q000` findings and no results.

    `no_embedding` says what keeps writes of this environment from embedding texts. That is no error of a query, which
    may run elsewhere, but a warning.
    """
    try:
        tree = parse_queries(source)
    except CompilerError as failure:
        return LintReport(
            schema_source=schema_source,
            query_path=source.name,
            results=(),
            findings=tuple(_finding(item) for item in failure.diagnostics),
            unlisted=failure.total - len(failure.diagnostics),
        )
    judged = [_judge(query, source, catalog) for query in tree.queries]
    findings = [
        *_repeated_names(tree, source),
        *_parameterless(judged, source),
        *_never_updated(judged, catalog, source),
        *_cross_products(judged, source),
        *(_not_embedded(judged, catalog, source, no_embedding) if no_embedding else ()),
    ]
    return LintReport(
        schema_source=schema_source,
        query_path=source.name,
        results=tuple(item.result for item in judged),
        findings=tuple(sorted(findings, key=_order)),
    )


@frozen
class _Judged:
    """One query as it is written, the verdict on it, and its meaning when it has one."""

    query: ast.Query
    result: QueryResult
    meaning: ir.QueryIR | None


def _judge(query: ast.Query, source: SourceText, catalog: Catalog) -> _Judged:
    findings = Findings(source)
    meaning = check_query(query, catalog, findings)
    is_mutation = isinstance(query.body, ast.MutationBody)
    warnings = (_parameterless_text(query.name),) if is_mutation and not query.params and not query.is_bare else ()
    result = QueryResult(
        name=query.name,
        kind="mutation" if is_mutation else "read",
        warnings=warnings,
        diagnostics=findings.errors,
        operation=describe(meaning, catalog) if meaning is not None else None,
        diagnostic_total=findings.error_count,
    )
    return _Judged(query, result, meaning)


def _finding(
    found: Diagnostic,
    query_names: tuple[str, ...] = (),
    *,
    type_name: str | None = None,
    properties: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        severity=found.severity,
        code=found.code,
        message=found.message,
        type_name=type_name,
        properties=properties,
        query_names=query_names,
        line=found.line,
        column=found.column,
        diagnostic=found,
    )


def _repeated_names(tree: ast.QueryFile, source: SourceText) -> Iterator[Finding]:
    for query in repeated(tree.queries, lambda query: query.name):
        message = f"query `{query.name}` is declared twice"
        yield _finding(source.diagnostic("Q101", query.name_span, message), (query.name,))


def _parameterless(judged: Iterable[_Judged], source: SourceText) -> Iterator[Finding]:
    for item in judged:
        for warning in item.result.warnings:
            line, column = source.position(item.query.name_span.start)
            yield Finding(
                severity=Severity.WARNING,
                code=None,
                message=warning,
                query_names=(item.query.name,),
                line=line,
                column=column,
            )


def _parameterless_text(name: str) -> str:
    return f"mutation `{name}` declares no parameters: it does the same on every call"


def _never_updated(judged: Iterable[_Judged], catalog: Catalog, source: SourceText) -> Iterator[Finding]:
    """L201: nullable properties that no valid update sets, once for each node type that some valid update touches."""
    assigned: dict[str, set[str]] = defaultdict(set)
    updaters: dict[str, set[str]] = defaultdict(set)
    #: The first update of each type: where an assignment is missing.
    places: dict[str, Span] = {}
    for item in judged:
        if not isinstance(item.meaning, ir.MutationIR) or not isinstance(item.query.body, ast.MutationBody):
            continue
        written = [statement.target for statement in item.query.body.statements if isinstance(statement, ast.Update)]
        for statement in item.meaning.statements:
            if not isinstance(statement, ir.UpdateRows) or statement.type_key.kind != "node":
                continue
            type_name = statement.type_key.name
            assigned[type_name] |= {given.property for given in statement.assignments}
            updaters[type_name].add(item.query.name)
            name = type_name if statement.variable is None else statement.variable
            places.setdefault(type_name, next(target.span for target in written if target.name == name))
    for type_name in sorted(updaters):
        node = catalog.nodes[type_name]
        members = node.key.members if node.key else ()
        left = tuple(
            prop.name
            for prop in node.properties.values()
            if prop.type.nullable
            and prop.name not in assigned[type_name]
            and prop.name not in members
            and not prop.embedding
        )
        if left:
            listing = ", ".join(f"`{type_name}.{name}`" for name in left[:_NAMED_PROPERTIES])
            more = f" and {len(left) - _NAMED_PROPERTIES} more" if len(left) > _NAMED_PROPERTIES else ""
            message = f"no update sets {listing}{more}, which may be null"
            found = source.diagnostic(NEVER_UPDATED, places[type_name], message, severity=Severity.WARNING)
            names = tuple(sorted(updaters[type_name]))
            yield _finding(found, names, type_name=type_name, properties=left)


def _cross_products(judged: Iterable[_Judged], source: SourceText) -> Iterator[Finding]:
    """L202: patterns that no traversal or comparison joins, and statements whose rows nothing joins with the match."""
    for item in judged:
        if isinstance(item.meaning, ir.MutationIR):
            yield from _unjoined_statements(item, item.meaning, source)
        if not isinstance(item.meaning, ir.ReadIR):
            continue
        groups = separate_patterns(item.meaning)
        if len(groups) > 1:
            names = " and ".join(f"`${group[0]}`" for group in groups[:_NAMED_GROUPS])
            message = (
                f"nothing in `{item.query.name}` joins {names}: every row of one meets every row of the other; "
                "join them with a traversal or a comparison, or run a query for each"
            )
            span = _first_mention(item.query, groups[1][0])
            found = source.diagnostic(CROSS_PRODUCT, span, message, severity=Severity.WARNING)
            yield _finding(found, (item.query.name,))


def _unjoined_statements(item: _Judged, meaning: ir.MutationIR, source: SourceText) -> Iterator[Finding]:
    assert isinstance(item.query.body, ast.MutationBody), "a mutation has statements"
    written = [part for part in item.query.body.statements if isinstance(part, ast.Update | ast.Delete)]
    spans = [part.target.span for part in written if isinstance(part.target, ast.TypeName)]
    meant = [part for part in meaning.statements if isinstance(part, ir.UpdateRows | ir.DeleteNode | ir.DeleteEdge)]
    for statement, span in zip((part for part in meant if part.variable is None), spans, strict=True):
        conditions = list(ir.conjuncts(statement.predicate)) if statement.predicate is not None else []
        mixed = [part for part in conditions if ir.OWN_ROW in (names := set(ir.variables(part))) and len(names) > 1]
        if mixed and not any(map(ir.own_equality, mixed)):
            name = ir.written_type(statement).name
            message = (
                f"no equality joins the rows of `{name}` with the match: each is compared with everything that it "
                "finds; find the rows in the match, or compare one of their properties by `=`"
            )
            found = source.diagnostic(CROSS_PRODUCT, span, message, severity=Severity.WARNING)
            yield _finding(found, (item.query.name,), type_name=name)


def _not_embedded(judged: Iterable[_Judged], catalog: Catalog, source: SourceText, reason: str) -> Iterator[Finding]:
    """L203: statements that assign a text and leave out its vector, where nothing would embed it."""
    for item in judged:
        if not isinstance(item.meaning, ir.MutationIR) or not isinstance(item.query.body, ast.MutationBody):
            continue
        written, meant = item.query.body.statements, item.meaning.statements
        # A statement about a variable of several types means one for each of them.
        spans = [one.span for one in written] if len(written) == len(meant) else [item.query.name_span] * len(meant)
        for statement, span in zip(meant, spans, strict=True):
            match statement:
                case ir.InsertNode(node_type=type_name, keeps_rest=keeps_rest):
                    outcome = "stays as it is" if keeps_rest else "stays null"
                    definition: NodeDef | EdgeDef = catalog.nodes[type_name]
                case ir.UpdateRows(type_key=key):
                    outcome, definition = "stays as it is", catalog.types[key]
                case _:
                    continue
            assigned = {given.property for given in statement.assignments}
            for vector in embedded_vectors(definition):
                if vector.source not in assigned or vector.property in assigned:
                    continue
                if isinstance(statement, ir.InsertNode) and not vector.is_nullable:
                    outcome = "must not be null"
                message = f"`{vector.source}` is assigned without `{vector}`, which {outcome}: {reason}"
                found = source.diagnostic(NOT_EMBEDDED, span, message, severity=Severity.WARNING)
                names = (item.query.name,)
                yield _finding(found, names, type_name=definition.name, properties=(vector.property,))


def _first_mention(query: ast.Query, variable: str) -> Span:
    """The first place where a match names a variable; the name of the query for one that has no name in the text."""
    if isinstance(query.body, ast.ReadBody):
        for clause in query.body.clauses:
            match clause:
                case ast.Binding(found) if found.name == variable:
                    return found.span
                case ast.Traversal(left=found) if found.name == variable:
                    return found.span
                case ast.Traversal(right=found) if found.name == variable:
                    return found.span
                case _:
                    continue
    return query.name_span


def _order(finding: Finding) -> tuple[int, str, str]:
    return (_SEVERITY_ORDER.index(finding.severity), finding.type_name or "", finding.message)
