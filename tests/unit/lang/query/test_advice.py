"""Spellings of other query languages: the error says what to write here, and suggests a name only when it is near."""

from __future__ import annotations

import pytest

from omnigraph.core.source import did_you_mean
from omnigraph.errors import CompilerError
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.schema.compiler import compile_schema
from support.subtests import each_case

CATALOG = compile_schema(
    """
    node Package { name: String @key  year: I32?  day: Date?  open: Bool?  tags: [String]? }
    edge Depends: Package -> Package
    """
).catalog

#: The body of a query → words of the hint of its first error.
HINTS = {
    # Cypher.
    "match { $p: Package $p depends* $q } return { $q }": "`$p depends{1,5} $q`",
    "match { $p: Package $p depends*1..3 $q } return { $q }": "`$a depends{1,5} $b` follows one to five",
    "match { $p: Package $p depends{3} $q } return { $q }": "hops have two bounds",
    "match { $p: Package $p depends{1..3} $q } return { $q }": "hops have two bounds",
    "match { $p: Package $p depends{1,$n} $q } return { $q }": "bounds are numbers, not parameters",
    "match { $p: Package $p -> $q } return { $q }": "`$a knows $b`",
    "match { $p: Package $p <- $q } return { $q }": "`$a knows $b`",
    "match { $p: Package $p -[depends]-> $q } return { $q }": "`$a knows $b`",
    "match { $p: Package $p -[:DEPENDS]-> $q } return { $q }": "`$a knows $b`",
    "match { $p: Package $p <-[:DEPENDS]- $q } return { $q }": "`$a knows $b`",
    "match (p:Package)-[:DEPENDS]->(q) return q": "`match { $p: Person  $p.age > 40 } return { $p.name }`",
    "match { (p: Package) } return { $p }": "begins with `$`: `$p`",
    "MATCH (p:Package) RETURN p": "keywords are written in lower case: `match`",
    "match { $p: Package } OPTIONAL MATCH { $p depends $q } return { $q }": "`optional { $p knows $q }`",
    "match { $p: Package } optional match { $p depends $q } return { $q }": "`optional { $p knows $q }`",
    "match { $p: Package optional match { $p depends $q } } return { $q }": "`optional { $p knows $q }`",
    "match { $p: Package } WITH $p return { $p }": "named with `let $x = …`",
    "match { $p: Package $p.year as y } return { y }": "in `match` write `let $x = …`",
    "match { $p: Package let y = $p.year } return { $p }": "`let $x = $p.age`",
    "UNWIND [1, 2] as x": "rows from a list are not in this edition",
    "MERGE (p:Package)": "`upsert Person { … }`",
    "create (p:Package)": "made with `insert`",
    "detach delete $p": "the edges of a node go with it",
    "match { $p: Package } RETURN p.name": "in lower case: `return`",
    "match { $p: Package } return p.name": "columns stand in braces",
    "match { $p: Package } return $p.name": "columns stand in braces",
    "match { $p: Package } return distinct $p": "columns stand in braces",
    "match { $p: Package } return *": "columns stand in braces",
    "match { $p: Package } return { distinct $p.name }": "`return distinct { $p.name }`",
    "match { $p: Package } return { $p.name } skip 3 limit 5": "`order { $p.name } offset 20 limit 10`",
    "match { $p: Package exists((p)-[:DEPENDS]->()) } return { $p }": "`exists { $p knows $q }`",
    "match { $p: Package exists($p.name) } return { $p }": "`$p.name is not null`",
    "match { $p: Package size((p)-[:DEPENDS]->()) > 1 } return { $p }": "`count { $p knows $q }`",
    "match { $p: Package id($p) = 3 } return { $p }": "`$p.@id`",
    "match { $p: Package $p $e:depends $q } return { type($e) }": "`$p.@type`",
    "match { $p: Package } return { labels($p) }": "`$p.@type`",
    "match { $p: Package } return { properties($p) }": "`$p.*`",
    "match { $p: Package } return { shortestPath($p) }": "`path $w = shortest $a knows{1,5} $b`",
    "match { $p: Package path $w = shortestPath((p)-[*]->(q)) } return { $p }": "`shortest $a knows{1,5} $b`, or `all`",
    "match { $p: Package path $w = $p depends{1,3} $q } return { $p }": "say which path",
    "match { $p: Package $p DEPENDS $q } return { $q }": "begins in lower case: `depends`",
    "match { $p: Package $p $e:Depends $q } return { $q }": "`$p $e:depends $q`",
    "match { $p: Package $p depends q } return { $p }": "`$p depends $q`",
    "match { $p: Package not $p depends $q } return { $p }": "`not { $p depends $q }`",
    "match { $p: Package $p not $q } return { $p }": "`not { $p knows $q }`",
    'match { $p: Package $p.name =~ "a" } return { $p }': "`matches(text, pattern)`",
    'match { $p: Package $p.tags[0] = "a" } return { $p }': "`element(x, 1)`",
    "match { $p: Package } return { $p.tags[0] as t }": "`element(x, 1)`",
    "match { $p: Package } return { toLower($p.name) }": "`lower(…)`",
    "match { $p: Package } return { head($p.tags) }": "`element(list, 1)`",
    "match { $p: Package all(x in $p.tags where x = 1) } return { $p }": "`exists { … }`",
    # SQL.
    "select name from Package": "`match { $p: Person  $p.age > 40 } return { $p.name }`",
    "SELECT name FROM Package": "`match { $p: Person  $p.age > 40 } return { $p.name }`",
    "match { $p: Package } where { $p.year > 2000 } return { $p }": "a condition stands among the patterns",
    "match { $p: Package } WHERE $p.year > 2000 return { $p }": "a condition stands among the patterns",
    "match { $p: Package where $p.year > 2000 } return { $p }": "a condition stands among the patterns",
    "match { $p: Package $p.year <> 2000 } return { $p }": "inequality is written `!=`",
    "match { $p: Package $p.year == 2000 } return { $p }": "equality is written `=`",
    "match { $p: Package $p.year = 1 || $p.year = 2 } return { $p }": "conditions are joined with `or`",
    "match { $p: Package $p.year = 1 && $p.year = 2 } return { $p }": "conditions are joined with `and`",
    "match { $p: Package $p.year = 1 AND $p.year = 2 } return { $p }": "in lower case: `and`",
    "match { $p: Package $p.year = 1 OR $p.year = 2 } return { $p }": "in lower case: `or`",
    "match { $p: Package NOT { $p depends $q } } return { $p }": "in lower case: `not`",
    "match { $p: Package $p.year IN [1, 2] } return { $p }": "in lower case: `in`",
    "match { $p: Package $p.year IS NULL } return { $p }": "in lower case: `is`",
    "match { $p: Package $p.year is NULL } return { $p }": "in lower case: `null`",
    "match { $p: Package $p.open = TRUE } return { $p }": "in lower case: `true`",
    "match { $p: Package $p.year = null } return { $p }": "write `is null`",
    "match { $p: Package $p.year != null } return { $p }": "write `is not null`",
    "match { $p: Package !$p.open } return { $p }": "write `not` for a negation",
    "match { $p: Package 1 < $p.year < 3 } return { $p }": "do not chain: write `1 < $p.year and $p.year < …`",
    "match { $p: Package $p.year = 1 = 2 } return { $p }": "comparisons do not chain",
    'match { $p: Package $p.name like "a%" } return { $p }': "`contains`, `starts_with`",
    'match { $p: Package $p.name not like "a%" } return { $p }': "`contains`, `starts_with`",
    'match { $p: Package $p.name LIKE "a%" } return { $p }': "`contains`, `starts_with`",
    "match { $p: Package $p.year between 1 and 2 } return { $p }": "write two conditions",
    "match { $p: Package $p.name = 'text' } return { $p }": "double quotes",
    "match { $p: Package -- a comment\n } return { $p }": "comments begin with `//`",
    "match { $p: Package # a comment\n } return { $p }": "comments begin with `//`",
    "match { $p: Package p.year > 3 } return { $p }": "begins with `$`: `$p`",
    "match { $p: Package } return { p.year }": "begins with `$`: `$p`",
    "match { $p: Package $p.Year > 3 } return { $p }": "`$p.year`",
    "match { $p: package } return { $p }": "begins in upper case: `Package`",
    "match { p: Package } return { p }": "begins with `$`: `$p`",
    "match { $p: Package } return { * }": "all properties are `$p.*`",
    "match { $p: Package } return { $p.name, * }": "all properties are `$p.*`",
    "match { $p: Package } return { name: $p.name }": "behind the value: `$p.name as name`",
    'match { $p: Package } return { $p.name as "n" }': "without quotes",
    "match { $p: Package } return { COUNT(distinct $p) }": "in lower case: `count`",
    "match { $p: Package } return { count(DISTINCT $p) }": "in lower case: `distinct`",
    "match { $p: Package } return { CASE WHEN true THEN 1 END as x }": "in lower case: `case`",
    "match { $p: Package } return { case $p.year when 1 then 2 end as x }": "`case when $p.age < 18 then … else … end`",
    "match { $p: Package } return { case when true then 1 }": "closed by `end`",
    "match { $p: Package } return { $p.name } order by $p.name": "write `order { $p.name desc }`",
    "match { $p: Package } return { $p.name } ORDER BY $p.name": "in lower case: `order`",
    "match { $p: Package } return { $p.name as n } order { n DESC }": "in lower case: `desc`",
    "match { $p: Package } return { $p.name } group by $p.name": "groups by the other columns",
    "match { $p: Package } return { $p.name } GROUP BY $p.name": "groups by the other columns",
    "match { $p: Package } return { $p.name } limit 5 offset 3": "`offset` stands before `limit`",
    "match { $p: Package } return { $p.name } LIMIT 5 OFFSET 3": "in lower case: `limit`",
    "match { $p: Package } return { $p.name } limit 3, 5": "rows are left out with `offset`",
    "match { $p: Package } return { $p.name as n } order { n } having { n > 1 }": "`having` stands before `order`",
    'match { $p: Package } return { $p.name as n } having { n > "a" n < "b" }': "join several with `and`",
    'match { $p: Package } return { $p.name as n } having { n > "a", n < "b" }': "join several with `and`",
    "match { $p: Package } return { $p.name } having n > 1": "stand in braces",
    "match { $p: Package } return { $p } union match { $p: Package } return { $p }": "`union` is not in this edition",
    "match { $p: Package } return { $p.name } match { $q: Package } return { $q }": "a second `match`",
    "match { $p: Package and $p.year > 3 } return { $p }": "patterns stand one after the other",
    "match { $p: Package, $p.year > 3 } return { $p }": "without commas",
    'match { $p: Package $p.name contains ("a") } return { $p }': 'write `$p.name contains "a"`',
    "match { $p: Package count($p) > 1 } return { $p }": "write `count { … }`",
    'match { $p: Package } return { $p.name + "a" as x }': "`concat(…)` joins texts",
    'match { $p: Package } return { $p.name || "a" as x }': "conditions are joined with `or`",
    "match { $p: Package } return { $p.year + 1 }": "write `$p.year + 1 as year`",
    "match { $p: Package $p.name  -$p.year < 1 } return { $p }": "needs parentheses or a comma before it: `(-$p.year)`",
    "match { $p: Package } return { $p.name  -$p.year as n }": "needs parentheses or a comma before it: `(-$p.year)`",
    "match { $p: Package } return { if($p.year > 3, 1, 2) as x }": "`case when",
    "match { $p: Package } return { ifnull($p.year, 3) as x }": "`coalesce(a, b)`",
    'match { $p: Package } return { date_trunc("month", $p.day) as x }': '`truncate(…, "month")`',
    "match { $p: Package } return { cuont($p) }": "did you mean `count`?",
    "match { $p: Package } return { string_agg($p.name) }": "`collect(…)`",
    "match { $p: Package } return { row_number() as n }": "`order { … } limit 3 per { $p.city }`",
    # Statements.
    'delete from Package where name = "a"': "write `delete Person where …`",
    'insert into Package { name: "a" }': "made with `insert`",
    'insert Package (name) values ("a")': "values stand in braces",
    'insert Package { name = "a" }': "a value is assigned with `:`",
    'insert package { name: "a" }': "begins in upper case: `Package`",
    'update Package where name = "a" set { year: 1 }': "`set { … }` stands before `where`",
    "delete Package where Package.year > 1": "stands alone, without its type: `where age > 40`",
    "delete Package where $p.year > 1": "stands alone: `where year = …`",
    "delete Package": "`where true`",
    'delete Package where year > 1 name = "a"': "join several with `and`",
    'delete Package where year > 1, name = "a"': "join several with `and`",
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
