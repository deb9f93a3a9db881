"""Spellings of other query languages: the error says what to write here, and suggests a name only when it is near."""

from __future__ import annotations

import pytest

from omnigraph.core.source import did_you_mean
from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

CATALOG = compile_schema(
    "node Package { name: String @key  year: I32?  day: Date? } edge Depends: Package -> Package"
).catalog

#: The body of a query → words of the hint of its first error.
HINTS = {
    "match { $p: Package $p depends* $q } return { $q }": "`$a depends{1,5} $b` follows one to five",
    "match { $p: Package $p depends*1..3 $q } return { $q }": "`$a depends{1,5} $b` follows one to five",
    "match { $p: Package $p -> $q } return { $q }": "`$a knows $b`",
    "match { $p: Package $p -[depends]-> $q } return { $q }": "`$a knows $b`",
    "match (p:Package)-[:DEPENDS]->(q) return q": "`match { $p: Person  $p.age > 40 } return { $p.name }`",
    "MATCH (p:Package) RETURN p": "keywords are written in lower case: `match`",
    "select name from Package": "`match { $p: Person  $p.age > 40 } return { $p.name }`",
    "match { $p: Package $p DEPENDS $q } return { $q }": "begins in lower case: `depends`",
    "match { $p: package } return { $p }": "begins in upper case: `Package`",
    "match { p: Package } return { p }": "begins with `$`: `$p`",
    "match { $p: Package } return { $p.* }": "there is no `.*`: name the properties",
    "match { $p: Package } return { * }": "there is no `*`: name what is returned",
    "match { $p: Package } return { $p.name, * }": "there is no `*`: name what is returned",
    "match { $p: Package } return { count(*) }": "count a variable instead: `count($p)`",
    "match { $p: Package } return { count(distinct $p) }": "there is no `distinct`",
    "match { $p: Package } return { distinct $p.name }": "there is no `distinct`",
    "match { $p: Package } return { case when true then 1 }": "there is no `case`",
    "match { $p: Package } return { $p.year - 1 }": "there is no arithmetic",
    "match { $p: Package } return { $p.year * 2 }": "there is no arithmetic",
    "match { $p: Package $p.year + 1 = 2 } return { $p }": "there is no arithmetic",
    "match { $p: Package $p.year = -1 } return { $p }": "there are no negative literals",
    "match { $p: Package } where { $p.year > 2000 } return { $p }": "a condition stands among the patterns",
    "match { $p: Package where $p.year > 2000 } return { $p }": "a condition stands among the patterns",
    "match { $p: Package $p.year <> 2000 } return { $p }": "inequality is written `!=`",
    "match { $p: Package $p.year in [1, 2] } return { $p }": "`[1999, 2000] contains $p.year`",
    "match { $p: Package $p.year = 1 or $p.year = 2 } return { $p }": "`[1999, 2000] contains $p.year`",
    "match { $p: Package $p.year = 1 || $p.year = 2 } return { $p }": "`[1999, 2000] contains $p.year`",
    "match { $p: Package $p.year = 1 && $p.year = 2 } return { $p }": "there is no `and`",
    "match { $p: Package $p.year is null } return { $p }": "there is no test for null",
    'match { $p: Package $p.name like "a%" } return { $p }': "`contains` and `starts_with`",
    'match { $p: Package $p.name =~ "a" } return { $p }': "`contains` and `starts_with`",
    "match { $p: Package } return { $p.name } order by $p.name": "write `order { $p.name }`",
    "match { $p: Package } return { $p.name as n } order { n DESC }": "in lower case: `desc`",
    "match { $p: Package } return { $p.name } group by $p.name": "groups by the other columns",
    "match { $p: Package } return { $p.name } skip 3 limit 5": "there is no `skip`",
    "match { $p: Package exists { $p depends $q } } return { $p }": "`not { … }` asks for what is not there",
    "match { $p: Package } return { year($p.day) }": '`$p.day >= date("2024-01-01")',
    "match { $p: Package year($p.day) = 2000 } return { $p }": '`$p.day >= date("2024-01-01")',
    "match { $p: Package } return { toLower($p.name) }": "functions are `avg`, ",
    "match { $p: Package } return { lower($p.name) }": "there are no functions of single values",
    "match { $p: Package } return { collect($p.name) }": "return the values as rows",
    "match { $p: Package } return { shortestPath($p) }": "`$a knows{1,5} $b`",
    "match { $p: Package } return { cuont($p) }": "did you mean `count`?",
}


@each_case(("body", "words"), list(HINTS.items()))
def test_what_another_language_writes_gets_the_spelling_of_this_one(body: str, words: str) -> None:
    with pytest.raises(CompilerError) as refused:
        compile_query(f"query q() {{ {body} }}", CATALOG)
    assert words in (refused.value.diagnostics[0].hint or "")


@each_case(
    ("name", "near"),
    [("persn", "Person"), ("Persons", "Person"), ("nmae", "name"), ("serch", "search"), ("year", None), ("xyz", None)],
)
def test_a_name_is_suggested_only_when_it_is_near(name: str, near: str | None) -> None:
    known = [f"Other{number}" for number in range(9)] + ["Person", "name", "search"]
    assert did_you_mean(name, known) == (None if near is None else f"did you mean `{near}`?")
