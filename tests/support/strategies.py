"""Hypothesis strategies for the two languages: syntax trees, valid schemas, migrations, queries, values.

Trees are built from the same classes that the parsers build, so that a printed tree is a text of the language.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from omnigraph.core.types import EnumType, ListType, PropertyType, Scalar, ScalarType, VectorType, integer_range
from omnigraph.lang.query.syntax import ast as gq
from omnigraph.lang.query.syntax.printing import print_expression
from omnigraph.lang.schema import ast as pg


def attempt(errors: type[Exception], action: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, Any]:
    """The result of an action and None, or None and the expected error; any other error goes through."""
    try:
        return action(*arguments, **options), None
    except errors as failure:
        return None, failure


DOMAIN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

_TAIL = string.ascii_letters + string.digits + "_"

#: Words that mean something somewhere in one of the languages, and are plain names everywhere else.
#: `node`, `edge`, `interface` and `implements` as property names have tests of their own.
SCHEMA_WORDS = ("enum", "key", "model", "src", "range", "order", "node", "edge", "interface", "implements")
QUERY_WORDS = [
    *("query", "match", "return", "order", "limit", "not", "as", "asc", "desc", "insert", "update", "delete", "set"),
    *("where", "true", "false", "distinct", "having", "offset", "per", "optional", "let", "path", "shortest", "all"),
    *("exists", "null", "case", "when", "then", "else", "end", "upsert"),
]
#: Words that also stand between operands: a property of that name needs a comma before it.
OPERATOR_WORDS = ["and", "or", "in", "is", "contains", "starts_with", "ends_with"]

#: Text of string literals: everything but NUL, which no source may hold, and lone surrogates.
string_values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


def _word(first: str) -> st.SearchStrategy[str]:
    tail = st.text(_TAIL, max_size=3)
    return st.builds(str.__add__, st.sampled_from(first), tail)


# Names are drawn from a pool, so that they meet each other now and then.
lower_names = st.sampled_from(["a", "b", "_", "__x", "a_b", "camelCase", "x9", "title", "p"]) | _word("abcxyz_")
upper_names = st.sampled_from(["A", "B", "Paper", "Vector", "String", "A_b", "X9"]) | _word("ABCXYZ")


# ---- schema syntax trees

schema_names = lower_names | st.sampled_from([*SCHEMA_WORDS, "true", "false", "query"])
bare_names = (schema_names | upper_names).filter(lambda name: name not in ("true", "false"))
_digits = st.from_regex(r"[0-9]{1,12}", fullmatch=True)
_float_texts = st.builds("{}.{}".format, _digits, _digits)


def names(strategy: st.SearchStrategy[str]) -> st.SearchStrategy[pg.Name]:
    return st.builds(pg.Name, strategy)


schema_literals = st.one_of(
    string_values.map(lambda text: pg.Value(text, text)),
    _digits.map(lambda text: pg.Value(int(text), text)),
    _float_texts.map(lambda text: pg.Value(float(text), text)),
    st.booleans().map(lambda flag: pg.Value(flag, "true" if flag else "false")),
)
schema_arguments = schema_literals | bare_names.map(lambda name: pg.Value(name, name, True))

_annotation_names = schema_names.filter(lambda name: name not in ("key", "unique", "index", "range", "check", "card"))
annotations = st.one_of(
    st.sampled_from(["key", "unique", "index"]).map(pg.Annotation),
    st.builds(pg.Annotation, _annotation_names),
    st.builds(
        pg.Annotation,
        st.sampled_from(["description", "instruction", "rename_from", "embed", "default"]) | _annotation_names,
        st.lists(schema_arguments, min_size=1, max_size=2).map(tuple),
        st.lists(
            st.tuples(names(schema_names.filter(lambda name: name not in ("true", "false"))), schema_arguments),
            max_size=2,
        ).map(tuple),
    ),
)
_enum_values = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=4)
_scalar_words = st.sampled_from([scalar.value for scalar in Scalar]) | upper_names | lower_names
type_expressions = st.one_of(
    st.builds(pg.TypeExpr, st.just("scalar"), st.booleans(), _scalar_words),
    st.builds(pg.TypeExpr, st.just("list"), st.booleans(), _scalar_words),
    st.builds(
        pg.TypeExpr, st.just("enum"), st.booleans(), values=st.lists(_enum_values, min_size=1, max_size=4).map(tuple)
    ),
    st.builds(pg.TypeExpr, st.just("vector"), st.booleans(), dimension=st.integers(0, 2**40)),
)
properties = st.builds(pg.Property, names(schema_names), type_expressions, st.lists(annotations, max_size=2).map(tuple))
numbers = st.builds(lambda sign, text: pg.Number(sign + text), st.sampled_from(["", "-"]), _digits | _float_texts)
_bounds = st.tuples(st.none() | numbers, st.none() | numbers).filter(any)
_ends = st.sampled_from(["src", "dst"]).map(lambda end: pg.Value(end, f"@{end}", True))
constraints = st.one_of(
    st.builds(
        pg.MemberConstraint,
        st.sampled_from(["key", "unique", "index"]),
        st.lists(schema_arguments | _ends, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(lambda name, bounds: pg.RangeConstraint(name, *bounds), names(schema_names), _bounds),
    st.builds(pg.CheckConstraint, names(schema_names), string_values),
)
_headers = st.lists(annotations | constraints, max_size=2).map(tuple)
_members = st.lists(properties | constraints, max_size=4).map(tuple)
declarations = st.one_of(
    st.builds(pg.InterfaceDecl, names(upper_names), st.lists(properties, max_size=3).map(tuple)),
    st.builds(pg.NodeDecl, names(upper_names), _headers, st.lists(names(upper_names), max_size=2).map(tuple), _members),
    st.builds(
        pg.EdgeDecl,
        names(upper_names),
        names(upper_names),
        names(upper_names),
        st.none() | st.builds(pg.Card, numbers, st.none() | numbers),
        _headers,
        _members,
    ),
)
schema_trees = st.lists(declarations, max_size=4).map(lambda items: pg.Schema(tuple(items)))


# ---- query syntax trees

#: Names where a keyword is one too: behind a dollar, a dot or a `:`.
free_names = lower_names | st.sampled_from([*QUERY_WORDS, *OPERATOR_WORDS])
#: Names that begin an expression; a keyword there is the keyword.
plain_names = lower_names.filter(lambda name: name not in {*QUERY_WORDS, *OPERATOR_WORDS})
variables = st.builds(gq.Variable, free_names | st.just("_"))

scalar_literals = st.one_of(
    string_values.map(lambda text: gq.Literal_(text, text)),
    _digits.map(lambda text: gq.Literal_(int(text), text)),
    _float_texts.map(lambda text: gq.Literal_(float(text), text)),
    st.booleans().map(lambda flag: gq.Literal_(flag, "true" if flag else "false")),
)
_functions = (
    st.sampled_from(
        [
            *("now", "date", "datetime", "count", "sum", "avg", "min", "max", "search", "fuzzy", "match_text"),
            *("nearest", "bm25", "rrf"),
        ]
    )
    | plain_names
)
aliases = st.builds(gq.Alias, plain_names)
property_accesses = st.builds(gq.PropertyAccess, variables, free_names)
_atoms = scalar_literals | variables | property_accesses | aliases


def _calls(arguments: st.SearchStrategy[gq.Expression]) -> st.SearchStrategy[gq.Call]:
    return st.builds(gq.Call, _functions, st.lists(arguments, max_size=3).map(tuple))


def _lists(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[gq.ListLiteral]:
    return st.builds(gq.ListLiteral, st.lists(elements, max_size=3).map(tuple))


#: What stands in blocks and under operators is drawn from these, so that trees stay small.
_names_of_values = variables | property_accesses | aliases


def _negated(operand: gq.Expression) -> gq.Expression:
    """`-operand`; a minus before a number belongs to the number."""
    is_number = isinstance(operand, gq.Literal_) and not isinstance(operand.value, str | bool)
    return gq.Unary("not", operand) if is_number else gq.Unary("-", operand)


_INFIX = (gq.Operator.CONTAINS, gq.Operator.STARTS_WITH, gq.Operator.ENDS_WITH)


def _binary(left: gq.Expression, operator: gq.Operator, right: gq.Expression) -> gq.Expression:
    """`left operator right`; directly before a parenthesis a word is a call."""
    made = gq.Binary(left, operator, right)
    is_call = operator in _INFIX and f"{operator} (" in print_expression(made)
    return replace(made, operator=gq.Operator.EQ) if is_call else made


def _operators(inner: st.SearchStrategy[gq.Expression]) -> st.SearchStrategy[gq.Expression]:
    branches = st.lists(st.builds(gq.When, inner, inner), min_size=1, max_size=2).map(tuple)
    return st.one_of(
        st.builds(_binary, inner, st.sampled_from(gq.Operator), inner),
        st.builds(gq.Unary, st.just("not"), inner),
        inner.map(_negated),
        st.builds(gq.NullTest, inner, st.booleans()),
        st.builds(gq.Case, branches, st.none() | inner),
        _calls(inner),
        _lists(inner),
    )


_plain_expressions = st.recursive(_atoms | st.just(gq.Null()), _operators, max_leaves=4)
_bounds_of_hops = st.builds(gq.Bounds, st.integers(0, 2**33), st.none() | st.integers(0, 2**33))
_edge_words = st.builds(gq.TypeName, plain_names | st.sampled_from(["and", "or", "not", "is", "null", "in"]))
_hop_conditions = st.builds(gq.Binary, aliases, st.sampled_from([gq.Operator.GE, gq.Operator.NE]), _atoms)
hops = st.one_of(
    st.builds(
        gq.Hop,
        st.lists(_edge_words, min_size=1, max_size=2).map(tuple),
        st.booleans(),
        st.none() | _bounds_of_hops,
        st.none() | _hop_conditions,
    ),
    st.builds(gq.Hop, st.builds(gq.TypeName, free_names).map(lambda word: (word,)), st.booleans(), st.none()),
    st.builds(gq.Hop, st.just(()), st.booleans(), st.none() | _bounds_of_hops),
)
_types = st.lists(st.builds(gq.TypeName, upper_names), min_size=1, max_size=2).map(tuple)
_matches = st.lists(st.builds(gq.PropertyMatch, free_names, _plain_expressions), max_size=2).map(tuple)
bindings = st.builds(gq.Binding, variables, _types, _matches)


@st.composite
def _traversals(draw: st.DrawFn) -> gq.Traversal:
    right, typed = draw(variables), draw(st.none() | bindings)
    return gq.Traversal(
        draw(variables),
        draw(st.none() | variables),
        draw(hops),
        right,
        None if typed is None else replace(typed, variable=right),
    )


traversals = _traversals()
#: Where one clause ends and the next begins is told by what they begin and end with: a name before parentheses is a
#: call, and a variable before a word and a variable is a traversal.
_BEGINS_LIKE_A_TRAVERSAL = re.compile(r"\$\w+( (\*|<|contains|starts_with|ends_with|not) |$)|[(-]")
_ENDS_LIKE_A_CALL = re.compile(r"(?<![\w.$@])(?!(?:end|null|true|false)$)[a-z_]\w*$")


def _stands_alone(condition: gq.Expression) -> bool:
    text = print_expression(condition)
    return not _BEGINS_LIKE_A_TRAVERSAL.match(text) and not _ENDS_LIKE_A_CALL.search(text)


def _clauses_with(expressions: st.SearchStrategy[gq.Expression]) -> st.SearchStrategy[gq.Clause]:
    alone = expressions.filter(_stands_alone)
    choices = st.sampled_from(["shortest", "all"])
    return st.one_of(
        bindings,
        traversals,
        st.builds(gq.Condition, alone),
        st.builds(gq.Let, variables, alone),
        st.builds(gq.Path, variables, choices, traversals),
    )


_counts = st.builds(gq.Count, st.integers(0, 2**63) | variables)
_directions = st.sampled_from([None, "asc", "desc"])
_blocks = st.lists(_clauses_with(_plain_expressions), min_size=1, max_size=2).map(tuple)
_block_values = st.one_of(
    st.builds(gq.Exists, st.booleans(), _blocks),
    st.builds(gq.Call, st.just("count"), st.just(()), clauses=_blocks),
    st.builds(gq.Call, _functions, _plain_expressions.map(lambda item: (item,)), st.booleans(), clauses=_blocks),
)
_inner_sorts = st.builds(gq.Sort, _names_of_values, _directions, st.sampled_from([None, "first", "last"]))
_aggregates = st.builds(
    gq.Call,
    st.sampled_from(["collect", "count"]),
    (_names_of_values | st.just(gq.Star())).map(lambda item: (item,)),
    st.just(False),
    st.lists(_inner_sorts, max_size=2).map(tuple),
    st.none() | _counts,
)
_fields = st.builds(gq.SystemField, variables, st.sampled_from(["id", "src", "type"])) | st.builds(
    gq.AllProperties, variables
)
expressions = st.recursive(_atoms | _block_values | _aggregates | _fields, _operators, max_leaves=4)
clauses = st.one_of(_clauses_with(expressions), st.builds(gq.Optional, _blocks))
read_bodies = st.builds(
    gq.ReadBody,
    st.lists(clauses, min_size=1, max_size=4).map(tuple),
    st.lists(st.builds(gq.Projection, expressions, st.none() | free_names), min_size=1, max_size=3).map(tuple),
    st.lists(st.builds(gq.Sort, expressions, _directions, st.sampled_from([None, "first", "last"])), max_size=2).map(
        tuple
    ),
    st.none() | st.builds(gq.Limit, _counts, st.lists(expressions, max_size=2).map(tuple)),
    st.booleans(),
    st.none() | expressions,
    st.none() | _counts,
)
_assignments = st.lists(st.builds(gq.Assignment, free_names, _plain_expressions), min_size=1, max_size=3).map(tuple)
_targets = st.builds(gq.TypeName, upper_names) | variables
_conditions_of_rows = st.none() | _plain_expressions
_columns_of_rows = st.builds(gq.Projection, _plain_expressions, st.none() | free_names)
mutation_bodies = st.builds(
    gq.MutationBody,
    st.lists(
        st.one_of(
            st.builds(gq.Insert, upper_names, _assignments, st.none() | variables),
            st.builds(gq.Upsert, upper_names, _assignments),
            st.builds(gq.Update, _targets, _assignments, _conditions_of_rows),
            st.builds(gq.Delete, _targets, _conditions_of_rows),
        ),
        min_size=1,
        max_size=3,
    ).map(tuple),
    st.none() | st.lists(clauses, min_size=1, max_size=2).map(tuple),
    st.lists(_columns_of_rows, max_size=2).map(tuple),
)
_param_types = st.one_of(
    st.builds(gq.TypeExpr, st.sampled_from(["scalar", "list"]), st.booleans(), _scalar_words),
    st.builds(gq.TypeExpr, st.just("vector"), st.booleans(), dimension=st.integers(0, 2**40)),
)
params = st.builds(gq.Param, free_names, _param_types, st.none() | scalar_literals | st.just(gq.Null()))
notes = st.builds(gq.Note, st.sampled_from(["description", "instruction"]), string_values)
query_trees = st.lists(
    st.builds(
        gq.Query,
        free_names,
        st.lists(params, max_size=3).map(tuple),
        st.lists(notes, max_size=2).map(tuple),
        read_bodies | mutation_bodies,
    ),
    max_size=2,
).map(lambda items: gq.QueryFile(tuple(items)))


# ---- tokens

_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"|enum\([^)]*\)|->|\.\.|[@$]?[A-Za-z_][A-Za-z0-9_]*'
    r"|[0-9]+\.[0-9]+|[0-9]+|[!<>]=|\S",
    re.DOTALL,
)
_ENUM_TOKEN = re.compile(r"[A-Za-z0-9_-]+|[(),]")


def tokens_of(text: str) -> list[str]:
    """The tokens of a printed text; joined with anything invisible between them they mean the same."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text):
        is_enum = token.startswith("enum(")
        tokens.extend(_ENUM_TOKEN.findall(token) if is_enum else [token])
    return tokens


spaces = st.sampled_from([" ", "\n", "\t", "\r\n", "  \n\t "])
COMMENTS = (
    *("// a comment\n", "//\n", '// "{[( /* \r\n', "/**/", "/* two\nlines */", '/* " { [ ( // */', "/***/"),
    "/* node A { query */",
)
comments = st.sampled_from(COMMENTS)
gaps = spaces | comments | st.builds(str.__add__, comments, comments)

SCHEMA_TOKENS = (
    *("interface", "node", "edge", "implements", "enum", "Vector", "String", "I32", "Blob", "Bool", "DateTime"),
    *("Date", "F64"),
    *("Paper", "A", "B", "title", "x", "_rowid", "id", "src", "dst", "true", "false", "@key", "@unique"),
    *("@index", "@range", "@check", "@card"),
    *("@embed", "@rename_from", "@description", "@instruction", "@x", "{", "}", "(", ")", "[", "]", ":", ","),
    *("?", "=", "-", "->", ".."),
    *["0", "1", "42", "1.5", "99999999999", '""', '"a"', '"^x"', '"\\n"', '"\\q"', "//", "/*", "*/", "#", "*", "'"],
    "\n",
)
QUERY_TOKENS = (
    *("query", "match", "return", "order", "limit", "not", "as", "asc", "desc", "insert", "update", "delete"),
    *("set", "where"),
    *("contains", "starts_with", "true", "false", "now", "date", "datetime", "count", "sum", "min", "search"),
    *("fuzzy", "nearest"),
    *("bm25", "rrf", "match_text", "cites", "wrote", "appearsAt", "year", "title", "vec", "stage", "x", "null"),
    *("Paper", "Venue"),
    *["Author", "Wrote", "Cites", "String", "I32", "[String]", "Vector(8)", "Vector", "@description", "@instruction"],
    *("$p", "$q", "$_", "$x", "$__now", "{", "}", "(", ")", "[", "]", "<", ">", "=", "!=", "<=", ">=", ":", ","),
    *(".", "?", "0", "1", "2.5", '""', '"a"', '"2024-05-01"'),
    *['"\\q"', "//", "/*", "*/", "#", "-", "*", "'"],
    "\n",
)


def token_soups(tokens: Iterable[str]) -> st.SearchStrategy[str]:
    """Sequences of real tokens."""
    words = st.lists(st.sampled_from(list(tokens)), max_size=40)
    return st.builds(lambda glue, items: glue.join(items), st.sampled_from([" ", " ", "", "\n"]), words)


@st.composite
def mutated_texts(draw: st.DrawFn, originals: list[str]) -> str:
    """A good text after a few accidents: characters deleted, doubled, exchanged, replaced; lines moved."""
    text = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        if not text:
            break
        at = draw(st.integers(0, len(text) - 1))
        length = draw(st.integers(1, 12))
        part = text[at : at + length]
        other = draw(st.integers(0, len(text) - 1))
        accident = draw(st.sampled_from(["delete", "double", "swap", "insert", "cut"]))
        match accident:
            case "delete":
                text = text[:at] + text[at + length :]
            case "double":
                text = text[:at] + part + text[at:]
            case "swap":
                rest = text[:at] + text[at + length :]
                text = rest[:other] + part + rest[other:]
            case "insert":
                junk = draw(st.sampled_from([*"{}()[]<>\"$@:,.?=#-/\\*\n\t'", "é", "𝒳", "\x7f", "/*"]))
                text = text[:at] + junk + text[at:]
            case "cut":
                text = text[:at]
    return text


# ---- valid schemas

_NUMBER_WORDS = ("I32", "I64", "U32", "U64", "F32", "F64")
_SCALARS = (*_NUMBER_WORDS, "String", "Bool", "Date", "DateTime", "Blob")


@st.composite
def valid_types(draw: st.DrawFn) -> pg.TypeExpr:
    """A type that exists."""
    nullable = draw(st.booleans())
    match draw(st.sampled_from(["scalar", "scalar", "scalar", "list", "enum", "vector"])):
        case "scalar":
            return pg.TypeExpr("scalar", nullable, draw(st.sampled_from(_SCALARS)))
        case "list":
            return pg.TypeExpr("list", nullable, draw(st.sampled_from(_SCALARS[:-1])))
        case "enum":
            chosen = draw(st.lists(_enum_values, min_size=1, max_size=3, unique=True))
            return pg.TypeExpr("enum", nullable, values=tuple(chosen))
        case _:
            return pg.TypeExpr("vector", nullable, dimension=draw(st.integers(1, 16)))


_opaque = st.builds(
    pg.Annotation,
    st.sampled_from(["default", "unit", "ui"]),
    st.lists(schema_literals, min_size=1, max_size=1).map(tuple),
    st.lists(
        st.tuples(names(st.sampled_from(["k", "m"])), schema_literals), max_size=2, unique_by=lambda pair: pair[0].text
    ).map(tuple),
)
_readable = st.text(string.ascii_letters + ' "\\\n\té', min_size=1, max_size=6).filter(str.strip)


def text_annotation(name: str, text: str) -> pg.Annotation:
    return pg.Annotation(name, (pg.Value(text, text),))


def _texts(name: str) -> st.SearchStrategy[list[pg.Annotation]]:
    return st.lists(_readable.map(lambda text: text_annotation(name, text)), max_size=1)


def is_plain(type_: pg.TypeExpr) -> bool:
    """Whether values of a type have an order and a spelling."""
    return type_.form == "enum" or (type_.form == "scalar" and type_.name != "Blob")


@st.composite
def valid_properties(draw: st.DrawFn, name: str, *, embed_from: str | None = None, unique: bool = True) -> pg.Property:
    """A property with annotations that it may have; never a key."""
    type_ = draw(valid_types())
    chosen: list[pg.Annotation] = [*draw(_texts("description"))]
    if draw(st.booleans()) and (is_plain(type_) or type_.form == "vector"):
        chosen.append(pg.Annotation("index"))
    if unique and is_plain(type_) and draw(st.integers(0, 3)) == 0:
        chosen.append(pg.Annotation("unique"))
    if type_.form == "vector" and embed_from and draw(st.booleans()):
        source = pg.Value(embed_from, embed_from, draw(st.booleans()))
        model = ((pg.Name("model"), pg.Value("m-1", "m-1")),) if draw(st.booleans()) else ()
        chosen.append(pg.Annotation("embed", (source,), model))
    if draw(st.integers(0, 4)) == 0:
        chosen.append(draw(_opaque))
    return pg.Property(pg.Name(name), type_, tuple(draw(st.permutations(chosen))))


def bare(name: str) -> pg.Value:
    return pg.Value(name, name, True)


@st.composite
def _member_lists(draw: st.DrawFn, kind: str, candidates: list[str]) -> list[pg.MemberConstraint]:
    if not candidates or draw(st.integers(0, 2)):
        return []
    chosen = draw(st.lists(st.sampled_from(candidates), min_size=1, max_size=3, unique=True))
    return [pg.MemberConstraint(kind, tuple(map(bare, chosen)))]  # type: ignore[arg-type]  # drawn from the words of the enum


_PROPERTY_NAMES = ("alpha", "beta", "gammaRay", "delta_1", "node", "enum", "match", "implements")


@st.composite
def _valid_nodes(draw: st.DrawFn, name: str, interfaces: list[pg.InterfaceDecl]) -> pg.NodeDecl:
    label = pg.Property(pg.Name("label"), pg.TypeExpr("scalar", draw(st.booleans()), "String"))
    chosen = draw(st.lists(st.sampled_from(_PROPERTY_NAMES), max_size=4, unique=True))
    declared = [label, *(draw(valid_properties(item, embed_from="label")) for item in chosen)]
    key_forms = ["none", "property", "body"]
    key_candidates = [p for p in declared if is_plain(p.type) and not p.type.nullable]
    constraints: list[pg.Constraint] = []
    if key_candidates:
        match draw(st.sampled_from(key_forms)):
            case "property":
                target = draw(st.sampled_from(key_candidates))
                with_key = replace(target, annotations=(*target.annotations, pg.Annotation("key")))
                declared[declared.index(target)] = with_key
            case "body":
                members = draw(
                    st.lists(
                        st.sampled_from([p.name.text for p in key_candidates]), min_size=1, max_size=3, unique=True
                    )
                )
                constraints.append(pg.MemberConstraint("key", tuple(map(bare, members))))
    plain = [p.name.text for p in declared if is_plain(p.type)]
    constraints += draw(_member_lists("unique", plain))
    constraints += draw(_member_lists("index", plain))
    for prop in declared:
        if prop.type.form != "scalar" or draw(st.integers(0, 3)):
            continue
        if prop.type.name in _NUMBER_WORDS:
            low, high = draw(st.sampled_from([("0", "9"), ("-1.5", None), (None, "7")]))
            constraints.append(
                pg.RangeConstraint(prop.name, pg.Number(low) if low else None, pg.Number(high) if high else None)
            )
        elif prop.type.name == "String":
            constraints.append(pg.CheckConstraint(prop.name, draw(st.sampled_from(["^a", "[.]"]))))
    implemented = draw(
        st.lists(st.sampled_from(interfaces), max_size=2, unique_by=lambda i: i.name.text)
        if interfaces
        else st.just([])
    )
    headers = [*draw(_texts("description")), *draw(_texts("instruction"))]
    if draw(st.integers(0, 4)) == 0:
        headers.append(draw(_opaque))
    return pg.NodeDecl(
        pg.Name(name),
        tuple(draw(st.permutations(headers))),
        tuple(item.name for item in implemented),
        tuple(draw(st.permutations([*declared, *constraints]))),
    )


@st.composite
def _valid_edges(draw: st.DrawFn, name: str, nodes: list[str]) -> pg.EdgeDecl:
    chosen = draw(st.lists(st.sampled_from(_PROPERTY_NAMES), max_size=2, unique=True))
    declared = [draw(valid_properties(item)) for item in chosen]
    plain = [*(p.name.text for p in declared if is_plain(p.type)), "src", "dst"]
    constraints = [*draw(_member_lists("unique", plain)), *draw(_member_lists("index", plain))]
    if draw(st.booleans()):
        known = [p.name.text for p in declared if is_plain(p.type) and not p.type.nullable]
        constraints.append(pg.MemberConstraint("key", tuple(map(bare, draw(st.permutations(["src", "dst", *known]))))))
    low, high = draw(st.sampled_from([("0", "1"), ("1", None), ("2", "4"), ("", None)]))
    card = pg.Card(pg.Number(low), pg.Number(high) if high else None) if low else None
    headers = [*draw(_texts("description")), *draw(_texts("instruction"))]
    return pg.EdgeDecl(
        pg.Name(name),
        pg.Name(draw(st.sampled_from(nodes))),
        pg.Name(draw(st.sampled_from(nodes))),
        card,
        tuple(headers),
        tuple([*declared, *constraints]),
    )


@st.composite
def valid_schemas(draw: st.DrawFn) -> pg.Schema:
    """A schema that compiles, as a syntax tree."""
    interfaces: list[pg.InterfaceDecl] = []
    for name, own in (("Titled", "title"), ("Stamped", "stamp")):
        if draw(st.booleans()):
            members = [draw(valid_properties(own))]
            if draw(st.booleans()):
                members.append(pg.Property(pg.Name("shared"), pg.TypeExpr("scalar", True, "String")))
            interfaces.append(pg.InterfaceDecl(pg.Name(name), tuple(members)))
    count = draw(st.integers(1, 3))
    nodes = [draw(_valid_nodes(f"Node{index}", interfaces)) for index in range(count)]
    node_names = [node.name.text for node in nodes]
    edges = [
        draw(_valid_edges(name, node_names))
        for name in draw(st.lists(st.sampled_from(["Cites", "Wrote", "Node0"]), max_size=3, unique=True))
    ]
    return pg.Schema(tuple(draw(st.permutations([*interfaces, *nodes, *edges]))))


# ---- the same schema, written differently


def _shuffled(draw: st.DrawFn, items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(draw(st.permutations(list(items))))


def _reordered_member(draw: st.DrawFn, member: pg.Member) -> pg.Member:
    match member:
        case pg.Property(name, type_, marks):
            type_ = replace(type_, values=_shuffled(draw, type_.values))
            marks = tuple(replace(m, keywords=_shuffled(draw, m.keywords)) for m in marks)
            return pg.Property(name, type_, _shuffled(draw, marks))
        case pg.MemberConstraint(kind, members):
            return pg.MemberConstraint(kind, _shuffled(draw, members))
        case _:
            return member


@st.composite
def reorderings(draw: st.DrawFn, schema: pg.Schema) -> pg.Schema:
    """Everything in another order that never means anything."""
    declared: list[pg.Declaration] = []
    for item in schema.declarations:
        match item:
            case pg.InterfaceDecl(name, members):
                new = [_reordered_member(draw, member) for member in members]
                declared.append(pg.InterfaceDecl(name, _shuffled(draw, new)))
            case pg.NodeDecl(name, headers, implements, members):
                new = [_reordered_member(draw, member) for member in members]
                declared.append(
                    pg.NodeDecl(name, _shuffled(draw, headers), _shuffled(draw, implements), _shuffled(draw, new))
                )
            case pg.EdgeDecl(name, source, target, card, headers, members):
                new = [_reordered_member(draw, member) for member in members]
                declared.append(pg.EdgeDecl(name, source, target, card, _shuffled(draw, headers), _shuffled(draw, new)))
    return pg.Schema(_shuffled(draw, declared))


# ---- migrations


@dataclass(frozen=True)
class Migration:
    """One change of a schema: the new tree, and the kind of step (or refusal code) that it has to give."""

    schema: pg.Schema
    step: str
    code: str | None = None


def without_hints(schema: pg.Schema) -> pg.Schema:
    """The schema without rename hints, as a person would clean it up after a migration."""

    def clean(marks: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(m for m in marks if not (isinstance(m, pg.Annotation) and m.name == "rename_from"))

    def members(items: Iterable[pg.Member]) -> tuple[pg.Member, ...]:
        return tuple(replace(m, annotations=clean(m.annotations)) if isinstance(m, pg.Property) else m for m in items)

    declared: list[pg.Declaration] = []
    for item in schema.declarations:
        if isinstance(item, pg.InterfaceDecl):
            declared.append(replace(item, properties=members(item.properties)))
        else:
            declared.append(replace(item, headers=clean(item.headers), members=members(item.members)))
    return pg.Schema(tuple(declared))


def put(schema: pg.Schema, old: pg.Declaration, new: pg.Declaration | None) -> pg.Schema:
    """The schema with one declaration exchanged or removed."""
    items = [new if item is old else item for item in schema.declarations]
    return pg.Schema(tuple(item for item in items if item is not None))


def _swap_member(owner: Any, old: pg.Member, new: pg.Member | None) -> Any:
    items = [new if item is old else item for item in owner.members]
    return replace(owner, members=tuple(item for item in items if item is not None))


def _renamed_in(member: pg.Member, old: str, new: str) -> pg.Member:
    match member:
        case pg.MemberConstraint(kind, members):
            return pg.MemberConstraint(kind, tuple(bare(new) if m.value == old else m for m in members))
        case pg.RangeConstraint(name) | pg.CheckConstraint(name) if name.text == old:
            return replace(member, property=pg.Name(new))
        case pg.Property():
            marks = tuple(
                replace(m, values=(bare(new),)) if m.name == "embed" and m.values[0].value == old else m
                for m in member.annotations
            )
            return replace(member, annotations=marks)
    return member


def _used(owner: Any) -> set[str]:
    """Properties that something else of the declaration depends on."""
    used: set[str] = set()
    for member in owner.members:
        match member:
            case pg.MemberConstraint(_, members):
                used |= {str(m.value) for m in members}
            case pg.Property(name, _, marks):
                used |= {name.text for m in marks if m.name == "key"}
                used |= {str(m.values[0].value) for m in marks if m.name == "embed"}
    return used


def _fresh(schema: pg.Schema, stem: str) -> str:
    taken = {item.name.text.casefold() for item in schema.declarations}
    for item in schema.declarations:
        members = item.properties if isinstance(item, pg.InterfaceDecl) else item.members
        taken |= {m.name.text.casefold() for m in members if isinstance(m, pg.Property)}
    index = 0
    while f"{stem}{index}".casefold() in taken:
        index += 1
    return f"{stem}{index}"


def _owners(schema: pg.Schema) -> list[Any]:
    return [d for d in schema.declarations if not isinstance(d, pg.InterfaceDecl)]


def _pairs(schema: pg.Schema, wanted: Callable[[Any, pg.Property], bool]) -> list[tuple[Any, pg.Property]]:
    return [
        (owner, prop) for owner in _owners(schema) for prop in pg.properties_of(owner.members) if wanted(owner, prop)
    ]


#: Properties with their owners, what a change makes of one of them, the kind of step, and the code of a refusal.
PropertyChange = tuple[list[tuple[Any, pg.Property]], Callable[[pg.Property], pg.Property], str, str | None]


def _with_type(**changes: Any) -> Callable[[pg.Property], pg.Property]:
    return lambda prop: replace(prop, type=replace(prop.type, **changes))


def _with_mark(name: str) -> Callable[[pg.Property], pg.Property]:
    return lambda prop: replace(prop, annotations=(*prop.annotations, pg.Annotation(name)))


def _one_of(draw: st.DrawFn, schema: pg.Schema, options: dict[str, Any], changes: list[PropertyChange]) -> Migration:
    """One of the options, or one of the changes of properties that this schema has."""

    def changed(pairs: Any, edit: Any, step: str, code: str | None) -> Migration:
        holder, prop = draw(st.sampled_from(pairs))
        return Migration(put(schema, holder, _swap_member(holder, prop, edit(prop))), step, code)

    choices = [*options.values(), *(partial(changed, *change) for change in changes if change[0])]
    return draw(st.sampled_from(choices))()


def _is_free(owner: Any, prop: pg.Property) -> bool:
    """Whether nothing else of the declaration depends on a property."""
    return prop.name.text not in _used(owner) and not any(m.name == "embed" for m in prop.annotations)


@st.composite
def supported_migrations(draw: st.DrawFn, schema: pg.Schema) -> Migration:
    """A change that a plan can carry out."""
    schema = without_hints(schema)
    owner = draw(st.sampled_from(_owners(schema)))
    options: dict[str, Callable[[], Migration]] = {}

    def offer(change: Callable[[], Migration]) -> None:
        options[change.__name__] = change

    @offer
    def add_property() -> Migration:
        prop = _with_type(nullable=True)(draw(valid_properties(_fresh(schema, "added"), unique=False)))
        return Migration(put(schema, owner, replace(owner, members=(*owner.members, prop))), "add_property")

    @offer
    def add_node() -> Migration:
        new = draw(_valid_nodes(_fresh(schema, "Added"), []))
        return Migration(pg.Schema((*schema.declarations, new)), "add_type")

    @offer
    def add_edge() -> Migration:
        nodes = [d.name.text for d in schema.declarations if isinstance(d, pg.NodeDecl)]
        new = draw(_valid_edges(_fresh(schema, "Added"), nodes))
        return Migration(pg.Schema((new, *schema.declarations)), "add_type")

    @offer
    def describe() -> Migration:
        text = draw(_readable) + "!"
        kept = [h for h in owner.headers if getattr(h, "name", "") != "description"]
        had = {h.values[0].value for h in owner.headers if getattr(h, "name", "") == "description"}
        new = replace(owner, headers=(*kept, text_annotation("description", text + "!" * len(had))))
        if had == {text + "!" * len(had)}:
            new = replace(owner, headers=tuple(kept))
        return Migration(put(schema, owner, new), "update_type_metadata")

    @offer
    def rename_type() -> Migration:
        name = _fresh(schema, "Renamed")
        hint = text_annotation("rename_from", owner.name.text)
        result = put(schema, owner, replace(owner, name=pg.Name(name), headers=(*owner.headers, hint)))
        if isinstance(owner, pg.NodeDecl):
            swap = {owner.name.text: pg.Name(name)}
            result = pg.Schema(
                tuple(
                    replace(d, source=swap.get(d.source.text, d.source), target=swap.get(d.target.text, d.target))
                    if isinstance(d, pg.EdgeDecl)
                    else d
                    for d in result.declarations
                )
            )
        return Migration(result, "rename_type")

    if droppable := _pairs(schema, lambda o, p: p.name.text not in _used(o)):

        @offer
        def drop_property() -> Migration:
            holder, prop = draw(st.sampled_from(droppable))
            gone = [
                m
                for m in holder.members
                if m is prop
                or (isinstance(m, pg.RangeConstraint | pg.CheckConstraint) and m.property.text == prop.name.text)
            ]
            new = replace(holder, members=tuple(m for m in holder.members if m not in gone))
            return Migration(put(schema, holder, new), "drop_property")

    if every := _pairs(schema, lambda o, p: True):

        @offer
        def rename_property() -> Migration:
            holder, prop = draw(st.sampled_from(every))
            name = _fresh(schema, "renamed")
            hint = text_annotation("rename_from", prop.name.text)
            renamed = replace(prop, name=pg.Name(name), annotations=(*prop.annotations, hint))
            new = _swap_member(holder, prop, renamed)
            members = tuple(_renamed_in(m, prop.name.text, name) for m in new.members)
            return Migration(put(schema, holder, replace(new, members=members)), "rename_property")

    def lacks_index(holder: Any, prop: pg.Property) -> bool:
        named = any(m.name == "index" for m in prop.annotations)
        listed = any(
            isinstance(m, pg.MemberConstraint)
            and m.kind == "index"
            and [v.value for v in m.members] == [prop.name.text]
            for m in holder.members
        )
        return is_plain(prop.type) and not named and not listed

    if unindexed := _pairs(schema, lacks_index):

        @offer
        def add_body_index() -> Migration:
            holder, prop = draw(st.sampled_from(unindexed))
            index = pg.MemberConstraint("index", (bare(prop.name.text),))
            return Migration(put(schema, holder, replace(holder, members=(*holder.members, index))), "add_constraint")

    if loose := [d for d in _owners(schema) if isinstance(d, pg.EdgeDecl) and d.card is None]:

        @offer
        def add_card() -> Migration:
            edge = draw(st.sampled_from(loose))
            new = replace(edge, card=pg.Card(pg.Number("3"), pg.Number("77")))
            return Migration(put(schema, edge, new), "add_constraint")

    edges = [d for d in schema.declarations if isinstance(d, pg.EdgeDecl)]
    ends = {end.text for edge in edges for end in (edge.source, edge.target)}
    free = [d for d in schema.declarations if isinstance(d, pg.NodeDecl) and d.name.text not in ends]
    if removable := [*edges, *free[1:]]:

        @offer
        def drop_type() -> Migration:
            return Migration(put(schema, draw(st.sampled_from(removable)), None), "drop_type")

    def extended(prop: pg.Property) -> pg.Property:
        known = prop.type.values
        value = f"zz-{len(known)}-more" if "zz-new-value" in known else "zz-new-value"
        return _with_type(values=(*known, value))(prop)

    enums = _pairs(schema, lambda o, p: p.type.form == "enum")
    nullable = _pairs(schema, lambda o, p: _is_free(o, p) and p.type.nullable)
    wider = {"I32": "I64", "F32": "F64"}
    narrow = _pairs(schema, lambda o, p: _is_free(o, p) and p.type.form == "scalar" and p.type.name in wider)
    changes: list[PropertyChange] = [
        (enums, extended, "extend_enum", None),
        (unindexed, _with_mark("index"), "add_constraint", None),
        (nullable, _with_type(nullable=False), "tighten_nullability", None),
        (narrow, lambda prop: _with_type(name=wider[prop.type.name])(prop), "widen_property", None),
    ]
    return _one_of(draw, schema, options, changes)


@st.composite
def refused_migrations(draw: st.DrawFn, schema: pg.Schema) -> Migration:
    """A change that no plan may carry out."""
    schema = without_hints(schema)
    owner = draw(st.sampled_from(_owners(schema)))
    refusal = "unsupported_change"

    def of_owner(code: str | None = None, **changes: Any) -> Callable[[], Migration]:
        return lambda: Migration(put(schema, owner, replace(owner, **changes)), refusal, code)

    def beside(other: pg.Declaration, **changes: Any) -> Callable[[], Migration]:
        changed = (*put(schema, owner, replace(owner, **changes)).declarations, other)
        return lambda: Migration(pg.Schema(changed), refusal)

    required = pg.Property(pg.Name(_fresh(schema, "required")), replace(draw(valid_types()), nullable=False))
    options: dict[str, Callable[[], Migration]] = {
        "add required property": of_owner("OG-MF-103", members=(*owner.members, required)),
        "annotate": of_owner(headers=(*owner.headers, pg.Annotation("added_mark"))),
    }
    interfaces = [d for d in schema.declarations if isinstance(d, pg.InterfaceDecl)]
    used = {name.text for d in schema.declarations if isinstance(d, pg.NodeDecl) for name in d.implements}
    if idle := [d for d in interfaces if d.name.text not in used]:
        options["drop interface"] = lambda: Migration(put(schema, idle[0], None), refusal)
    if isinstance(owner, pg.NodeDecl):
        name = pg.Name(_fresh(schema, "Contract"))
        options["implement"] = beside(pg.InterfaceDecl(name, ()), implements=(*owner.implements, name))
    if isinstance(owner, pg.EdgeDecl):
        name = pg.Name(_fresh(schema, "Elsewhere"))
        options["change endpoint"] = beside(pg.NodeDecl(name, (), (), ()), target=name)
        if owner.card is not None and (owner.card.low.value or owner.card.high is not None):
            options["relax card"] = of_owner(card=None)
    if ruled := [(o, c) for o in _owners(schema) for c in pg.constraints_of(o.members)]:

        def remove_body_constraint() -> Migration:
            holder, rule = draw(st.sampled_from(ruled))
            return Migration(put(schema, holder, _swap_member(holder, rule, None)), refusal)

        options["remove body constraint"] = remove_body_constraint

    def unmarked(prop: pg.Property) -> pg.Property:
        gone = next(m for m in prop.annotations if m.name in ("index", "unique"))
        return replace(prop, annotations=tuple(m for m in prop.annotations if m is not gone))

    free = _pairs(schema, _is_free)
    marked = _pairs(schema, lambda o, p: any(m.name in ("index", "unique") for m in p.annotations))
    many = _pairs(schema, lambda o, p: p.type.form == "enum" and len(p.type.values) > 1)
    changes: list[PropertyChange] = [
        ([pair for pair in free if not pair[1].type.nullable], _with_type(nullable=True), refusal, "OG-MF-106"),
        (free, _with_mark("added_mark"), refusal, None),
        (marked, unmarked, refusal, None),
        (many, lambda prop: _with_type(values=prop.type.values[1:])(prop), refusal, "OG-MF-106"),
    ]
    return _one_of(draw, schema, options, changes)


# ---- values

_MIN_DAY, _MAX_DAY = -719_162, 2_932_896
f32_values = st.floats(width=32, allow_nan=False, allow_infinity=False)
f64_values = st.floats(allow_nan=False, allow_infinity=False)
_texts_of_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def stored_scalars(scalar: Scalar) -> st.SearchStrategy[Any]:
    """Stored values of a scalar type."""
    match scalar:
        case Scalar.STRING:
            return _texts_of_values
        case Scalar.BLOB:
            return st.binary(max_size=12)
        case Scalar.BOOL:
            return st.booleans()
        case Scalar.F32:
            return f32_values
        case Scalar.F64:
            return f64_values
        case Scalar.DATE:
            return st.integers(_MIN_DAY, _MAX_DAY)
        case Scalar.DATETIME:
            return st.integers(_MIN_DAY * 86_400_000, (_MAX_DAY + 1) * 86_400_000 - 1)
        case _:
            return st.integers(*integer_range(scalar))


KEY_SCALARS = tuple(scalar for scalar in Scalar if scalar is not Scalar.BLOB)


@st.composite
def base_types(draw: st.DrawFn) -> Any:
    """Any value type but Blob."""
    match draw(st.sampled_from(["scalar", "scalar", "enum", "list", "vector"])):
        case "scalar":
            return ScalarType(draw(st.sampled_from(KEY_SCALARS)))
        case "enum":
            chosen = draw(st.sets(_enum_values, min_size=1, max_size=4))
            return EnumType(tuple(sorted(chosen)))
        case "list":
            return ListType(draw(st.sampled_from(KEY_SCALARS)))
        case _:
            return VectorType(draw(st.integers(1, 8)))


def stored_values(base: Any) -> st.SearchStrategy[Any]:
    """Stored values of a base type, without null."""
    match base:
        case ScalarType(scalar):
            return stored_scalars(scalar)
        case EnumType(chosen):
            return st.sampled_from(chosen)
        case ListType(item):
            return st.lists(st.none() | stored_scalars(item), max_size=4).map(tuple)
        case VectorType(dimension):
            return st.lists(f32_values, min_size=dimension, max_size=dimension).map(tuple)
        case _:
            raise TypeError(base)


@st.composite
def typed_values(draw: st.DrawFn) -> tuple[PropertyType, Any]:
    """A property type and a stored value of it."""
    base, nullable = draw(base_types()), draw(st.booleans())
    value = draw(st.none() | stored_values(base) if nullable else stored_values(base))
    return PropertyType(base, nullable), value


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[Any], list[Any], list[Any]]:
    """The member types of a key and two value tuples for it."""
    bases = draw(
        st.lists(
            st.sampled_from(KEY_SCALARS).map(ScalarType) | st.just(EnumType(("1", "a", "b", "true"))),
            min_size=1,
            max_size=3,
        )
    )
    first = [draw(stored_values(base)) for base in bases]
    second = [draw(st.just(old) | stored_values(base)) for base, old in zip(bases, first, strict=True)]
    return bases, first, second


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**31, 2**53, -(2**53) - 1, 2**63, 2**64, 10**400, -1, 0])
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["2024-05-01", "2024-02-30", "2024-05-01T12:00:00Z", "0", "-7", "9" * 30, "1e3", "base64:"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


# ---- queries that type-check against the reading graph

_FIELDS = {
    "Paper": {
        "doi": "String",
        "title": "String",
        "abstract": "String",
        "year": "I32",
        "pages": "U32",
        "score": "F64",
        "open": "Bool",
        "stage": "enum",
        "topics": "[String]",
        "counts": "[I64]",
        "released": "Date",
        "submitted": "DateTime",
    },
    "Venue": {"series": "String", "edition": "I32", "city": "String"},
    "Author": {"full_name": "String", "orcid": "String"},
}
_EDGES = {"cites": ("Paper", "Paper"), "wrote": ("Author", "Paper"), "appearsAt": ("Paper", "Venue")}
_EDGE_FIELDS = {"cites": {"context": "String", "weight": "F32"}, "wrote": {"position": "I32"}}
_LITERALS = {
    "String": ['"a"', '"x%_\\n"', "$s", "$n"],
    "enum": ['"preprint"', '"accepted"', "$s"],
    "I32": ["0", "2024", "$i", "2.5", "$f"],
    "U32": ["7", "$i"],
    "F64": ["1.5", "3", "$f"],
    "F32": ["0.5", "$f"],
    "Bool": ["true", "false", "$b"],
    "Date": ['date("2024-05-01")', "$d"],
    "DateTime": ['datetime("2024-05-01T12:00:00Z")', "now()", "$t"],
}
_ITEMS = {"[String]": ['"a"', "$s"], "[I64]": ["3", "$i", "1.5"]}
_PARAMS = "$s: String, $n: String?, $i: I64, $f: F64, $b: Bool?, $d: Date, $t: DateTime, $v: Vector(8)"


class _Pattern:
    """Writes one block of clauses and remembers which variables it bound."""

    def __init__(self, draw: st.DrawFn, bound: dict[str, str], edges: dict[str, str], depth: int):
        self.draw = draw
        self.bound = dict(bound)
        self.edges = dict(edges)
        self.outer = dict(bound)
        self.depth = depth
        self.lines: list[str] = []

    def fresh(self, stem: str) -> str:
        return f"{stem}{self.depth}_{len(self.bound) + len(self.edges)}"

    def binding(self) -> None:
        type_name = self.draw(st.sampled_from(sorted(_FIELDS)))
        again = [name for name, known in self.bound.items() if known == type_name]
        name = self.draw(st.sampled_from([*again, self.fresh("v")]))
        self.bound[name] = type_name
        matches = ""
        if self.draw(st.booleans()):
            field, kind = self.draw(st.sampled_from(sorted(_FIELDS[type_name].items())))
            value = self.draw(st.sampled_from(_ITEMS.get(kind) or _LITERALS[kind]))
            if kind != "enum" or value.startswith(('"', "$")):
                matches = f" {{ {field}: {value} }}"
        self.lines.append(f"${name}: {type_name}{matches}")

    def traversal(self) -> None:
        word = self.draw(st.sampled_from(sorted(_EDGES)))
        source, target = _EDGES[word]
        if self.draw(st.booleans()):
            source, target = target, source
        left = self.end(source)
        right = self.end(target)
        hop, edge = word, ""
        form = self.draw(st.sampled_from(["plain", "bounds", "edge", "undirected"]))
        if form == "bounds":
            low = self.draw(st.integers(1, 3))
            hop = f"{word}{{{low},{low + self.draw(st.integers(0, 2))}}}"
        elif form == "undirected" and source == target:
            hop = f"<{word}>"
        elif form == "edge" and word in _EDGE_FIELDS:
            name = self.fresh("e")
            self.edges[name] = word
            edge = f"${name}:"
        for name, type_name in ((left, source), (right, target)):
            if name != "_":
                self.bound[name] = type_name
        self.lines.append(f"${left} {edge}{hop} ${right}")

    def end(self, type_name: str) -> str:
        known = [name for name, bound in self.bound.items() if bound == type_name]
        # Only ends whose type is known already, so that the direction is the one meant here.
        if self.draw(st.integers(0, 4)) == 0 and known:
            return "_"
        if known:
            return self.draw(st.sampled_from(known))
        name = self.fresh("v")
        self.lines.append(f"${name}: {type_name}")
        self.bound[name] = type_name
        return name

    def field(self) -> tuple[str, str] | None:
        choices = [
            (f"${name}.{field}", kind)
            for name, type_name in self.bound.items()
            for field, kind in _FIELDS[type_name].items()
        ]
        choices += [
            (f"${name}.{field}", kind)
            for name, word in self.edges.items()
            for field, kind in _EDGE_FIELDS[word].items()
        ]
        return self.draw(st.sampled_from(choices)) if choices else None

    def filter(self) -> None:
        chosen = self.field()
        if chosen is None:
            return
        text, kind = chosen
        if kind in _ITEMS:
            self.lines.append(f"{text} contains {self.draw(st.sampled_from(_ITEMS[kind]))}")
            return
        other = self.field()
        right = self.draw(st.sampled_from(_LITERALS[kind]))
        if other and other[1] == kind and self.draw(st.booleans()):
            right = other[0]
        words = ["=", "!=", "<", "<=", ">", ">="]
        if kind == "String":
            words += ["contains", "starts_with"]
        self.lines.append(f"{text} {self.draw(st.sampled_from(words))} {right}")

    def search(self) -> None:
        papers = [name for name, type_name in self.bound.items() if type_name == "Paper"]
        if papers:
            name = self.draw(st.sampled_from(papers))
            call = self.draw(st.sampled_from(["search", "match_text", "fuzzy"]))
            self.lines.append(f"{call}(${name}.title, {self.draw(st.sampled_from(['$s', chr(34) * 2]))})")

    def negation(self) -> None:
        if not self.bound or self.depth >= 3:
            return
        inner = _Pattern(self.draw, self.bound, self.edges, self.depth + 1)
        anchor = self.draw(st.sampled_from(sorted(self.bound)))
        field, kind = self.draw(st.sampled_from(sorted(_FIELDS[self.bound[anchor]].items())))
        value = (_ITEMS.get(kind) or _LITERALS[kind])[0]
        inner.lines.append(f"${anchor}.{field} {'contains' if kind in _ITEMS else '='} {value}")
        inner.fill(self.draw(st.integers(0, 3)))
        self.lines.append(f"not {{ {' '.join(inner.lines)} }}")

    def fill(self, count: int) -> None:
        steps = [self.binding, self.traversal, self.filter, self.search, self.negation]
        for _ in range(count):
            self.draw(st.sampled_from(steps))()


@st.composite
def typed_queries(draw: st.DrawFn) -> str:
    """A read query that compiles against the reading graph."""
    pattern = _Pattern(draw, {}, {}, 1)
    pattern.binding()
    pattern.fill(draw(st.integers(0, 6)))
    # The order of clauses never matters.
    lines = draw(st.permutations(pattern.lines))
    columns = [f"${name}" for name in sorted(pattern.bound)]
    order, limit = "", ""
    if draw(st.booleans()) and (chosen := pattern.field()) is not None:
        columns.append(f"{chosen[0]} as column")
        if chosen[1] not in _ITEMS:
            order = f" order {{ column {draw(st.sampled_from(['', 'asc', 'desc']))} }}"
    elif draw(st.booleans()):
        columns.append(f"count({columns[0]})")
    papers = [name for name, type_name in pattern.bound.items() if type_name == "Paper"]
    if not order and papers and "count" not in columns[-1] and draw(st.booleans()):
        name = draw(st.sampled_from(papers))
        nearest, bm25 = f"nearest(${name}.vec, $v)", f"bm25(${name}.title, $s)"
        rank = draw(st.sampled_from([nearest, bm25, f"rrf({nearest}, {bm25}, 30)"]))
        order, limit = f" order {{ {rank} }}", " limit 5"
    return (
        f"query q({_PARAMS}) {{\n  match {{\n    " + "\n    ".join(lines) + "\n  }\n"
        f"  return {{ {', '.join(columns)} }}{order}{limit}\n}}\n"
    )
