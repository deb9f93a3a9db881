"""What to write instead of what other query languages have, and of slips that a parser cannot name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from omnigraph.core.source import nearest

_NO_NEGATIVES = "there are no negative literals: pass the number as a parameter"
_NO_NULL = "there is no null literal: pass null through a nullable parameter"
_NO_ARITHMETIC = "there is no arithmetic: return the values, and compute outside of the query"
_TRAVERSAL = "an edge is written with its word between two variables: `$a knows $b`"
_READ = "a read is written `match { $p: Person  $p.age > 40 } return { $p.name }`"
_PAGES = "filter on the last value of the previous page instead"
_ORDER_OF_PARTS = "the order is match, return, order, limit"
_GROUPING = "an aggregate groups by the other columns: `return { $p.city, count($p) }`"
_NO_DISTINCT = f"there is no `distinct`: {_GROUPING}"
_TEXTS = "texts are compared with `=`, `contains` and `starts_with`, or searched with `match_text`"
_SEVERAL = "ask for several values with a list: `[1999, 2000] contains $p.year`"
_CONDITION = "a condition stands among the patterns: `match { $p: Person  $p.age > 40 }`"
_NO_OR = f"there is no `or`: {_SEVERAL}; or run two queries"
_NO_AND = "there is no `and`: conditions that stand one after the other all have to hold"

#: Words and signs, found where the parser stopped understanding.
_FOUND: Final = {
    "-": _NO_NEGATIVES,
    "+": _NO_ARITHMETIC,
    "/": _NO_ARITHMETIC,
    "%": _NO_ARITHMETIC,
    "#": "comments begin with `//`",
    ";": "statements need no `;` between them",
    "'": 'strings are written with double quotes: "…"',
    "~": _TEXTS,
    "|": _NO_OR,
    "&": _NO_AND,
    "like": _TEXTS,
    "ilike": _TEXTS,
    "matches": _TEXTS,
    "ends_with": _TEXTS,
    "in": _SEVERAL,
    "is": "there is no test for null: a null never compares as true",
    "between": "write two conditions: `$p.year >= 1999  $p.year <= 2009`",
    "by": "write `order { $p.name }`",
    "group": _GROUPING,
    "having": _GROUPING,
    "offset": f"there is no `offset`: {_PAGES}",
    "skip": f"there is no `skip`: {_PAGES}",
    "union": "there is no `union`: run two queries",
    "mutation": "there is no `mutation`: a query that inserts, updates or deletes is one",
    "order": _ORDER_OF_PARTS,
    "return": _ORDER_OF_PARTS,
    "select": _READ,
    "from": _READ,
    "with": _READ,
    "merge": "there is no `merge`: an `insert` of a node with a key replaces the node",
    "create": "nodes and edges are made with `insert`: `insert Person { name: $name }`",
    "null": _NO_NULL,
    "exists": "what has to be there is a pattern of its own; `not { … }` asks for what is not there",
}

#: What the text before the mistake ends with, and what it was probably meant to be.
_BEFORE: Final = (
    (
        r"\b(update|delete)\s+\w+(\s+set\s*\{[^{}]*\})?\s+where",
        "a `where` begins with a property: `where name = $name`",
    ),
    (r"\bwhere", _CONDITION),
    (r"\bor", _NO_OR),
    (r"\band", _NO_AND),
    (r"\boptional", "there is no `optional`: run a second query for what may be missing"),
    (r"\bexists", _FOUND["exists"]),
    (r"\bdistinct", _NO_DISTINCT),
    (r"\benum", "a parameter for an enum property is a String"),
    (r"\bnull", _NO_NULL),
)
_STARS: Final = (
    (r"\bcount\s*\(", "count a variable instead: `count($p)`"),
    (r"\$\w+\s*\.", "there is no `.*`: name the properties, as in `$p.name`; `$p` alone is the id"),
    (r"\breturn\s*\{(?:[^{}]*,)?", "there is no `*`: name what is returned, as in `$p.name`; `$p` alone is the id"),
)
_KEYWORDS: Final = re.compile(
    "query|match|return|order|limit|not|as|asc|desc|insert|update|delete|set|where|contains|starts_with|true|false"
)
#: A hop that a star shall repeat: a variable and the word of an edge.
_STARRED_HOP = re.compile(r"\$\w+\s+<?(\w+)>?$")


def advise(found: str, before: str) -> str | None:
    """A hint about a syntax error, from the word that was found and the text before it."""
    for look in (_sign_advice, _word_advice):
        if (advice := look(found, before)) is not None:
            return advice
    return next((advice for ending, advice in _BEFORE if re.search(rf"(?:{ending})$", before)), None)


def name_advice(name: str) -> str:
    """A hint about a bare name where a value is expected."""
    if name == "distinct":
        return _NO_DISTINCT
    if name in ("case", "when"):
        return "there is no `case`: return the values, and decide outside of the query"
    return f"write the variable too: `$p.{name}`"


def _sign_advice(found: str, before: str) -> str | None:
    if found == "*":
        return _star_advice(before)
    if found.startswith("-") or found[:1].isdigit():
        return _number_advice(found, before)
    if found == "=" and before.endswith(("=", "<", ">")):
        return "equality is written `=`"
    if found == ">" and before.endswith("<"):
        return "inequality is written `!=`"
    if found == ":" and (word := re.search(r"(?:^|[\s{(])([a-z_]\w*)$", before)):
        return f"the name of a variable begins with `$`: `${word[1]}`"
    if found == "(" and re.search(r"\bmatch$", before):
        return f"{_READ}; {_TRAVERSAL}"
    if found == "}" and before.endswith("{"):
        return "the braces may not be empty"
    return None


def _star_advice(before: str) -> str:
    if hop := _STARRED_HOP.search(before):
        return f"many hops have bounds: `$a {hop[1]}{{1,5}} $b` follows one to five"
    return next((advice for ending, advice in _STARS if re.search(f"{ending}$", before)), _NO_ARITHMETIC)


def _number_advice(found: str, before: str) -> str | None:
    if found.startswith("-"):
        if re.search(r"\blimit$", before):
            return "a limit is 0 or more"
        if re.search(r"\$\w+$|[)<]$", before):
            return _TRAVERSAL
        return _NO_ARITHMETIC if re.search(r"\.\w+$", before) else _NO_NEGATIVES
    if found.endswith("."):
        return f"a float has digits on both sides of its point: `{found}0`"
    return "numbers have no exponent and no suffix" if re.search("[A-Za-z_]", found) else None


def _word_advice(found: str, before: str) -> str | None:
    if found in ("contains", "starts_with") and re.search(r"\bwhere\s+\w+$", before):
        return "`where` compares with = != < <= > >= only"
    if found == "and" and re.search(r"\bwhere\b[^{}]*$", before):
        return "a `where` holds exactly one comparison"
    if found == "where":
        return _CONDITION
    if found.startswith("$") and re.search(r"\blimit$", before):
        return "a limit is a number, not a parameter"
    if found[:1].isupper():
        return _case_advice(found, before)
    if re.search(r"\$\w+\s*:$", before) and found[:1].islower():
        return f"the name of a type begins in upper case: `{found[0].upper()}{found[1:]}`"
    return _FOUND.get(found)


def _case_advice(found: str, before: str) -> str | None:
    if _KEYWORDS.fullmatch(found.lower()):
        return f"keywords are written in lower case: `{found.lower()}`"
    if advice := _FOUND.get(found.lower()):
        return advice
    lowered = found.lower() if found.isupper() else f"{found[0].lower()}{found[1:]}"
    if re.search(r"\bquery$", before):
        return f"the name of a query begins in lower case: `{lowered}`"
    if re.search(r"\$\w+$|[<:]$", before) and not re.search(r":\s*\w+$", before):
        return f"the word of an edge begins in lower case: `{lowered}`"
    return None


# ---- Functions


_PARTS_OF_TIMES = 'compare with the bounds instead: `$p.day >= date("2024-01-01")  $p.day < date("2025-01-01")`'
_OUTSIDE = "there are no functions of single values: return the property, and compute outside of the query"
_PATHS = "follow many hops with bounds: `$a knows{1,5} $b` reaches each node at its shortest distance"
#: Names of functions in other languages, as patterns.
_FUNCTIONS: Final = (
    ("year|month|day|hour|date_part|date_trunc|extract", _PARTS_OF_TIMES),
    ("abs|ceil|floor|round|sqrt|upper|lower|trim|length|size|len|substring|substr|concat|replace|split", _OUTSIDE),
    ("to_?string|to_?int(eger)?|to_?float|cast|coalesce|ifnull|nullif|if|labels|type|keys|properties", _OUTSIDE),
    ("(all)?shortest_?paths?|path", _PATHS),
    ("collect|array_agg|group_concat|string_agg", "return the values as rows"),
    ("(element_?)?id", "the id of a node is the variable itself: `$p`"),
    ("mean|average", "the average is `avg($p.age)`"),
    ("today|current_date|(current_)?timestamp", "the present moment is `now()`"),
    ("exists", _FOUND["exists"]),
)


def function_advice(name: str, known: Iterable[str]) -> str:
    """A hint about a function that does not exist: what other languages call so, or the nearest or all that exist."""
    for pattern, advice in _FUNCTIONS:
        if re.fullmatch(pattern, name.lower()):
            return advice
    names = sorted(known)
    near = nearest(name, names)
    return f"did you mean `{near}`?" if near else f"functions are {', '.join(f'`{item}`' for item in names)}"
