"""Compiles query texts: declarations, size, type check, codes, and the cache of compiled queries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from omnigraph.core.cache import LruCache
from omnigraph.core.source import (
    MAX_CHAIN,
    MAX_NESTING,
    MAX_PARTS,
    MAX_PATTERNS,
    Findings,
    SourceText,
    did_you_mean,
    query_source,
    read_source,
)
from omnigraph.core.types import PropertyType
from omnigraph.errors import CompilerError, MixedMutationError, QuerySelectionError
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import SCALARS, repeated
from omnigraph.lang.query import ir
from omnigraph.lang.query.check.inference import infer_params
from omnigraph.lang.query.check.lowering import lower_pattern
from omnigraph.lang.query.check.mutations import check_returns, check_statements
from omnigraph.lang.query.check.operands import default_value
from omnigraph.lang.query.check.patterns import check_block, check_pattern
from omnigraph.lang.query.check.results import check_result
from omnigraph.lang.query.check.scope import Context, Scope
from omnigraph.lang.query.signature import Operation, describe
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.depth import Measuring
from omnigraph.lang.query.syntax.parser import SYNTAX_ERROR, parse_queries
from omnigraph.lang.schema.catalog import Catalog

# ---- Checks of a declaration without a schema


def check_declaration(
    query: ast.Query, findings: Findings, types: dict[str, PropertyType | None] | None = None
) -> tuple[ir.Parameter, ...]:
    """The parameters of a query; what is wrong with them or with the annotations goes to `findings`.

    `types` gets the type of every parameter name, None where the type is wrong.
    """
    types = {} if types is None else types
    params: list[ir.Parameter] = []
    for param in query.params:
        type_ = _param_type(findings, param.type)
        if param.name.startswith("__"):
            findings.error("Q103", param.span, f"`${param.name}`: names that begin with `$__` are reserved")
        elif param.name == ast.ANONYMOUS:
            findings.error("Q103", param.span, "`$_` is the anonymous variable, not a parameter")
        elif param.name in types:
            findings.error("Q102", param.span, f"parameter `${param.name}` is declared twice")
            continue
        types[param.name] = type_
        if type_ is not None:
            params.append(_parameter(findings, param, type_))
    _check_notes(findings, query)
    return tuple(params)


def _parameter(findings: Findings, param: ast.Param, type_: PropertyType) -> ir.Parameter:
    if param.default is None:
        return ir.Parameter(name=param.name, type=type_)
    return ir.Parameter(name=param.name, type=type_, default=default_value(findings, param, type_), has_default=True)


def _param_type(findings: Findings, written: ast.TypeExpr) -> PropertyType | None:
    type_ = written.resolved()
    if isinstance(type_, PropertyType):
        return type_
    if type_.kind == "unknown":
        hint = partial(did_you_mean, written.name, [*SCALARS, "Vector"])
        findings.error("Q105", written.span, f"`{written.name}` is not a parameter type", hint)
    else:
        findings.error("Q105", written.span, type_.message)
    return None


def _check_notes(findings: Findings, query: ast.Query) -> None:
    seen: set[str] = set()
    for note in query.notes:
        if note.kind in seen:
            findings.error("Q116", note.span, f"`@{note.kind}` is given twice")
        elif not note.text.strip():
            findings.error("Q116", note.span, f"`@{note.kind}` is blank")
        seen.add(note.kind)


# ---- Stable codes of query findings


QUERY_CODES: dict[str, str] = {
    "Q000": "syntax",
    "T1": "unknown node type",
    "T2": "unknown property in an inline match",
    "T3": "value does not fit the property",
    "T4": "unknown edge",
    "T5": "variable's type is not an endpoint of the edge",
    "T6": "unbound variable, unknown property or unknown column",
    "T7": "operands cannot be compared or assigned",
    "T8": "aggregate over a type it does not support",
    "T9": "`not` without an outer variable; non-groupable column beside an aggregate",
    "T10": "unknown type in a mutation",
    "T11": "unknown property in a mutation, or Blob in a `where`",
    "T12": "insert lacks a required property or endpoint",
    "T13": "property assigned twice",
    "T14": "variable is not a parameter",
    "T15": "hop bounds, or arguments of `nearest`",
    "T16": "update of an end of an edge",
    "T17": "`nearest` without a limit",
    "T19": "arguments of `search` or `fuzzy`",
    "T20": "arguments of `match_text` or `bm25`",
    "T21": "arms, k or missing limit of `rrf`",
    "T23": "misuse of an edge variable",
    "T24": "Blob used as a value of a read",
    "T39": "block without an outer variable",
    "T41": "condition that is not a Bool",
    "T42": "order key that is not returned",
    "T43": "column without a name",
    "T44": "aggregate or search in a mutation",
    "T45": "property or block where a constant stands",
    "T46": "truth value where a property has its name",
    "Q101": "query declared twice",
    "Q102": "parameter declared twice",
    "Q103": "reserved parameter name",
    "Q104": "name is a parameter and a variable at once",
    "Q105": "unknown parameter type",
    "Q106": "variable bound to two types",
    "Q107": "bare variable is not bound",
    "Q108": "nested list, or list of several types",
    "Q109": "number or moment out of range or malformed",
    "Q110": "unknown function, wrong number of arguments, or function in the wrong place",
    "Q111": "text condition used as a value",
    "Q112": "rank function that is not the first order key",
    "Q113": "expression that cannot be an order key",
    "Q114": "two columns with one name",
    "Q115": "update of a key member",
    "Q116": "query annotation blank or given twice",
    "Q117": "column name used as a value",
    "Q118": "query with more parts than its limits allow",
    "Q119": "`offset`, `per`, or a number of rows",
    "Q120": "`null` where it has no type",
    "Q121": "misuse of a path",
    "Q122": "misuse of `let`",
    "Q123": "misuse of an optional variable",
    "D2": "one mutation both writes and deletes",
    "L202": "warning: patterns that nothing joins, so every row of one meets every row of the other",
    "L201": "warning: nullable property that no update sets",
    "L203": "warning: a text is assigned without its vector, and nothing is configured that would embed it",
}


# ---- Size limits of a query


_PATTERNS = (ast.Binding, ast.Traversal, ast.Optional, ast.Path)


def check_size(query: ast.Query, findings: Findings) -> bool:
    """Whether a query is within the limits (Q118).

    Checked before anything else: every later pass takes time and memory in proportion to what is counted here, and
    the rows of each pattern are held while the query runs.
    """
    expressions = list(_expressions(query.body))
    blocks = [ast.block_of(expression) for expression in expressions]
    clauses = [clause for block in (_written(query.body), *blocks) for clause in _clauses(block)]
    patterns = sum(isinstance(clause, _PATTERNS) for clause in clauses) + sum(bool(block) for block in blocks)
    if patterns > MAX_PATTERNS:
        message = (
            f"query `{query.name}` has {patterns:,} bindings, traversals and blocks: "
            f"at most {MAX_PATTERNS:,} are allowed"
        )
        hint = "follow one edge type over many hops with bounds, `$a knows{1,9} $b`, or run several queries"
        findings.error("Q118", query.name_span, message, hint)
        return False
    lets = {clause.variable.name: clause.expression for clause in clauses if isinstance(clause, ast.Let)}
    measuring = Measuring(lets, _roots_of)
    measured = [(expression, measuring.of(expression)) for expression in _roots(query.body)]
    for expression, measure in measured:
        if measure.is_too_deep:
            message = (
                f"operators and calls nest deeper than {MAX_NESTING} levels, or join more than {MAX_CHAIN} conditions"
            )
            hint = "test a value with `in` and a list; a value of `let` counts wherever it is used"
            findings.error("Q118", expression.span, message, hint)
            return False
    meant = sum(max(measure.parts, 1) for _, measure in measured)
    parts = len(query.params) + len(clauses) + meant + _listed_parts(query.body)
    if parts > MAX_PARTS:
        message = (
            f"query `{query.name}` lists {parts:,} clauses, columns, order keys, parameters, statements, "
            f"assignments and parts of expressions: at most {MAX_PARTS:,} are allowed"
        )
        is_read = isinstance(query.body, ast.ReadBody)
        hint = (
            "compare with a list parameter instead of one condition per value"
            + ("; a value of `let` counts wherever it is used" if lets else "")
            if is_read
            else "load records instead of inserting them one by one, or run several mutations"
        )
        findings.error("Q118", query.name_span, message, hint)
        return False
    return True


def _written(body: ast.Body) -> tuple[ast.Clause, ...]:
    """The clauses of the match of a query."""
    return body.clauses or ()


def _clauses(clauses: Iterable[ast.Clause]) -> Iterator[ast.Clause]:
    """Every clause with those of its own block; brackets nest within `MAX_NESTING`."""
    for clause in clauses:
        yield clause
        if isinstance(clause, ast.Optional):
            yield from _clauses(clause.clauses)
        elif isinstance(clause, ast.Path):
            yield clause.traversal


def _expressions(body: ast.Body) -> Iterator[ast.Expression]:
    """Every part of every expression, those of blocks included."""
    waiting = list(_roots(body))
    while waiting:
        expression = waiting.pop()
        yield expression
        waiting.extend(ast.parts(expression))
        waiting.extend(_roots_of(ast.block_of(expression)))


def _roots(body: ast.Body) -> Iterator[ast.Expression]:
    yield from _roots_of(_written(body))
    match body:
        case ast.ReadBody():
            yield from (item.expression for item in body.projections)
            yield from (key.expression for key in body.order)
            if body.having is not None:
                yield body.having
            if body.limit is not None:
                yield from body.limit.per
        case ast.MutationBody(statements, _, returns):
            yield from (item.expression for item in returns)
            for statement in statements:
                if not isinstance(statement, ast.Delete):
                    yield from (assignment.value for assignment in statement.assignments)
                if isinstance(statement, ast.Update | ast.Delete) and statement.condition is not None:
                    yield statement.condition


def _roots_of(clauses: Iterable[ast.Clause]) -> Iterator[ast.Expression]:
    for clause in _clauses(clauses):
        match clause:
            case ast.Binding(matches=matches) | ast.Traversal(binding=ast.Binding(matches=matches)):
                yield from (match.value for match in matches)
            case ast.Condition(expression) | ast.Let(_, expression):
                yield expression
            case _:
                pass
        if isinstance(clause, ast.Traversal) and clause.hop.condition is not None:
            yield clause.hop.condition


def _listed_parts(body: ast.Body) -> int:
    """How many statements there are, and how many inline matches without a value of their own."""
    return len(body.statements) if isinstance(body, ast.MutationBody) else 0


# ---- Type checking of one query


def check_query(query: ast.Query, catalog: Catalog, findings: Findings, *, no_embedding: str = "") -> ir.QueryIR | None:
    """The meaning of a query, or None when it is wrong; why goes to `findings`.

    `no_embedding` says what keeps writes from embedding texts: then vectors that must not be null are to be given.

    The rule that one mutation either writes or deletes (D2) is the last to be checked.
    """
    if not check_size(query, findings):
        return None
    context = Context(catalog, findings, {}, check_block, no_embedding=no_embedding)
    if query.is_bare:
        inferred = infer_params(query, catalog, findings)
        query, context.advice = replace(query, params=inferred.params), inferred.advice
    before = findings.error_count
    params = check_declaration(query, findings, context.params)
    result: ir.QueryIR | None
    match query.body:
        case ast.ReadBody():
            result = _check_read(context, query, query.body, params)
        case ast.MutationBody(statements):
            result = _check_mutation(context, query, query.body, params)
            if findings.error_count == before and is_mixed(query):
                _report_mixed(context, query, statements)
    if result is None or findings.error_count > before:
        return None
    marked = (replace(item, is_pattern=item.name in context.patterns) for item in params)
    return replace(result, params=tuple(marked)) if context.patterns else result


def _check_read(
    context: Context, query: ast.Query, body: ast.ReadBody, params: tuple[ir.Parameter, ...]
) -> ir.ReadIR | None:
    scope = Scope()
    before = context.findings.error_count
    pattern = check_pattern(context, body.clauses, scope)
    result = check_result(context, scope, body)
    if context.findings.error_count > before:
        return None
    pipeline, having = lower_pattern(context, pattern), result.having
    if having is not None and not result.grouped:
        pipeline, having = (*pipeline, ir.Filter(_of_rows(having, result.projections), is_strict=True)), None
    return ir.ReadIR(
        name=query.name,
        params=params,
        pipeline=pipeline,
        projections=result.projections,
        grouped=result.grouped,
        having=having,
        rank=result.rank,
        order=result.order,
        offset=result.offset,
        limit=result.limit,
        per=result.per,
    )


def _check_mutation(
    context: Context, query: ast.Query, body: ast.MutationBody, params: tuple[ir.Parameter, ...]
) -> ir.MutationIR | None:
    scope = Scope()
    before = context.findings.error_count
    pattern = None if body.clauses is None else check_pattern(context, body.clauses, scope)
    statements = check_statements(context, body.statements, scope, has_match=pattern is not None)
    returns = check_returns(context, scope, body)
    if context.findings.error_count > before:
        return None
    match = None if pattern is None else lower_pattern(context, pattern)
    return ir.MutationIR(name=query.name, params=params, statements=statements, match=match, returns=returns)


def _of_rows(having: ir.Expression, projections: tuple[ir.Projection, ...]) -> ir.Expression:
    """A condition over columns as one over the rows that they are made of."""
    made = {
        item.name: item.expression
        for item in projections
        if not isinstance(item.expression, ir.Nearest | ir.Bm25 | ir.Rrf)
    }
    return ir.rewritten(having, lambda part: made.get(part.name) if isinstance(part, ir.ColumnRef) else None)


def is_mixed(query: ast.Query) -> bool:
    """Whether a mutation both writes and deletes (D2)."""
    if not isinstance(query.body, ast.MutationBody):
        return False
    deletes = {isinstance(statement, ast.Delete) for statement in query.body.statements}
    return len(deletes) == 2


def _report_mixed(context: Context, query: ast.Query, statements: tuple[ast.Statement, ...]) -> None:
    first = next(statement for statement in statements if isinstance(statement, ast.Delete))
    message = f"mutation `{query.name}` mixes insert/update with delete"
    hint = "split it: inserts and updates first, deletes second; or use a branch and merge it"
    context.error("D2", first.span, message, hint)


# ---- Compiling query files, with a cache


_CACHE_ENTRIES = 256
#: Names that a message lists.
_LISTED = 100


@frozen(kw_only=True)
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
    source = query_source(source)
    tree = parse_queries(source)
    findings = Findings(source)
    check_names(tree, findings)
    compiled = [_compile(query, catalog, findings) for query in tree.queries]
    _raise_findings(findings, tree)
    return tuple(query for query in compiled if query is not None)


def compile_query(
    source: SourceText | str, catalog: Catalog, name: str | None = None, *, no_embedding: str = ""
) -> CompiledQuery:
    """One query of a source: the one called `name`, or the only one.

    The other queries of the source have to parse, but they need not fit the catalog. `no_embedding` as in
    `check_query`.

    Raises:
        CompilerError: the source does not parse, or the query is wrong.
        QuerySelectionError: the source does not hold that query, or holds several and none was named.
        MixedMutationError: the query both writes and deletes.
    """
    query, findings = _selected(query_source(source), name)
    compiled = _compile(query, catalog, findings, no_embedding)
    _raise_findings(findings, ast.QueryFile((query,)))
    assert compiled is not None, "a query without findings compiles"
    return compiled


def query_parameters(
    source: SourceText | str, catalog: Callable[[], Catalog], name: str | None = None
) -> tuple[ir.Parameter, ...]:
    """The parameters of one query of a source; `catalog` is asked only where their types follow from their use.

    Raises:
        CompilerError: the source does not parse, or the query is wrong.
        QuerySelectionError: the source does not hold that query, or holds several and none was named.
    """
    query, findings = _selected(query_source(source), name)
    if query.is_bare:
        return compile_query(source, catalog()).ir.params
    params = check_declaration(query, findings)
    findings.raise_errors()
    return params


def _selected(source: SourceText, name: str | None) -> tuple[ast.Query, Findings]:
    """One query of a source, and where to put what is wrong with it."""
    tree = parse_queries(source)
    findings = Findings(source)
    check_names(tree, findings)
    findings.raise_errors()
    return _select(tree, name, source), findings


def read_queries(path: str | Path) -> SourceText:
    """Read a `.gq` file.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: the file is not UTF-8, or too large.
    """
    return read_source(path, code=SYNTAX_ERROR)


class QueryCompiler:
    """Compiles queries and keeps the results, by source text, query name and schema.

    Thread-safe. Failures are not kept.
    """

    def __init__(self, entries: int = _CACHE_ENTRIES) -> None:
        #: Counts how often a query was found and how often it was compiled.
        self.cache: LruCache[CompiledQuery] = LruCache(entries)

    def compile(
        self, source: SourceText | str, catalog: Catalog, name: str | None = None, *, no_embedding: str = ""
    ) -> CompiledQuery:
        """As `compile_query`, from the cache when the same text was compiled against the same schema before."""
        source = query_source(source)
        key = (source.text, name, catalog.schema_hash, no_embedding)
        compiled = self.cache.get(key)
        if compiled is None:
            compiled = compile_query(source, catalog, name, no_embedding=no_embedding)
            self.cache.put(key, compiled)
        return compiled


def _compile(query: ast.Query, catalog: Catalog, findings: Findings, no_embedding: str = "") -> CompiledQuery | None:
    meaning = check_query(query, catalog, findings, no_embedding=no_embedding)
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
    for query in repeated(tree.queries, lambda query: query.name):
        findings.error("Q101", query.name_span, f"query `{query.name}` is declared twice")


def _select(tree: ast.QueryFile, name: str | None, source: SourceText) -> ast.Query:
    names = tuple(query.name for query in tree.queries)
    if name is None:
        if len(names) == 1:
            return tree.queries[0]
        if not names:
            raise QuerySelectionError(f"{source.name} holds no query", names)
        listing = ", ".join(names[:_LISTED]) + (", …" if len(names) > _LISTED else "")
        raise QuerySelectionError(f"{source.name} holds {len(names)} queries, name one: {listing}", names)
    for query in tree.queries:
        if query.name == name:
            return query
    hint = did_you_mean(name, names)
    raise QuerySelectionError(f"{source.name} holds no query `{name}`" + (f": {hint}" if hint else ""), names)


def _raise_findings(findings: Findings, tree: ast.QueryFile) -> None:
    errors = findings.errors
    if errors and all(error.code == "D2" for error in errors):
        raise MixedMutationError(next(query.name for query in tree.queries if is_mixed(query)))
    if errors:
        raise CompilerError(errors, total=findings.error_count)
