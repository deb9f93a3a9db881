"""What to write instead of what other query languages have, and of slips that a parser cannot name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from omnigraph.core.source import nearest
from omnigraph.lang.query.functions import table as functions

# ---- Pieces of advice

TRAVERSAL: Final = "an edge is written with its word between two variables: `$a knows $b`"
_READ = "a read is written `match { $p: Person  $p.age > 40 } return { $p.name }`"
_PARTS = "the order is match, return, having, order, offset, limit"
_GROUPING = "an aggregate groups by the other columns: `return { $p.city, count($p) as n }`"
_CONDITION = "a condition stands among the patterns: `match { $p: Person  $p.age > 40 }`"
_TEXTS = "texts are compared with `contains`, `starts_with`, `ends_with` and `matches(text, pattern)`"
_OFFSET = "rows are left out with `offset`: `order { $p.name } offset 20 limit 10`"
_ORDER_BY = "write `order { $p.name desc }`"
_BRACES = "columns stand in braces: `return { $p.name }`"
_DISTINCT = "`distinct` stands before the braces: `return distinct { $p.name }`"
_OPTIONAL = "what may be missing stands inside of `match`: `optional { $p knows $q }`"
_EXISTS = "write `exists { $p knows $q }` for a pattern, or `$p.name is not null` for a property"
_COUNTED = "the number of matches of a pattern is `count { $p knows $q }`"
_PATH = "a path has a name: `path $w = shortest $a knows{1,5} $b`"
_ROW_PROPERTY = "a property of the row stands alone, without its type: `where age > 40`"
_POWER = "a power is `pow(x, y)`"
_MATCHED = "patterns stand in braces: `match { $p: Person }`"
ALONE: Final = "`and`, `or` and comparisons join conditions, not patterns"
_LET = "a value is named with `let $x = …` inside of `match`"
_STAGES = "a second `match` behind `return` is not in this edition"
_UNION = "`union` is not in this edition: run two queries"
_UPSERT = "`upsert Person { … }` inserts a node or updates the one that has its key"
_INSERT = "nodes and edges are made with `insert`: `insert Person { name: $name }`"
_DELETE = "write `delete Person where …`; the edges of a node go with it"
_CASE = "write the conditions out: `case when $p.age < 18 then … else … end`"
BOUNDS: Final = "hops have two bounds: `$a knows{1,3} $b`"
_FLOAT = "a float has digits on both sides of its point"
_BETWEEN = "write two conditions: `$p.year >= 1999 and $p.year <= 2009`"
COMMENT: Final = "comments begin with `//`"
_COMMAS = "patterns and conditions stand one after the other, without commas"
JOINED: Final = "`and` and `or` join conditions, as in `$p.age > 40 and $p.open`; patterns stand one after the other"
_ALTERNATIVES = "conditions are joined with `or`, the words of an edge with `|`: `$a (knows | likes) $b`"
_OF_HOPS = "a condition of every hop stands in parentheses, also inside of `<…>`: `<(knows where since > 2010)>`"
_QUANTIFIED = "what holds for patterns is `exists { … }` or `not { … }`, a value is in a list with `in`"
_LIST_ROWS = "rows from a list are not in this edition: test a value with `$p.name in $names`"
SUBSCRIPT: Final = "the first element of a list is `element(x, 1)`"

#: Words that are no names where a value, a column or an edge is named.
RESERVED: Final = frozenset({"and", "or", "not", "is", "null", "in"})
_INFIX: Final = frozenset({"contains", "starts_with", "ends_with"})

_KEYWORDS: Final = re.compile(
    "query|match|return|distinct|having|order|offset|limit|per|not|and|or|in|is|null|as|asc|desc|optional|let|path|"
    "shortest|all|exists|case|when|then|else|end|insert|upsert|update|delete|set|where|contains|starts_with|ends_with|"
    "true|false|nulls|first|last"
)

#: Bare words in `match` that are operators or clauses of another language.
FOREIGN_WORDS: Final = {
    "where": _CONDITION,
    "like": _TEXTS,
    "ilike": _TEXTS,
    "regexp": _TEXTS,
    "rlike": _TEXTS,
    "between": _BETWEEN,
    "xor": "write `$p.open != $q.open`: two truths that differ",
    "mod": "a remainder is `$p.year % 4`",
    "div": "a quotient of integers is `div($p.year, 4)`",
    "isnull": "write `$p.name is null`",
    "notnull": "write `$p.name is not null`",
}

#: What other languages write behind the words that both have.
_WHOLE: Final = {
    "where": _CONDITION,
    "optional": _OPTIONAL,
    "return": _BRACES,
    "order": _ORDER_BY,
    "is": "write `is null`",
    "in": "write `in [1, 2]`",
}
_DECLARATION: Final = re.compile(r"(?<![\w$.@])query\s+[A-Za-z_]\w*\s*\(")
#: Functions that other languages write in capitals.
_CALLED: Final = frozenset(
    {*functions.names(), "count", "sum", "avg", "min", "max", "collect", "stddev", "median", "now"}
)


# ---- Syntax errors

_COMPARISON: Final = r"(?:!=|<=|>=|[=<>]|\b(?:in|contains|starts_with|ends_with)\b)"

#: Slips by the word or sign that was found, what stands before it, and advice; the first that fits is taken. `\1` is
#: the first group of what stands before, `<found>` the word, `<type>` the word as a type and `<edge>` as an edge.
_SLIPS: Final = (
    # Cypher.
    (r"[(\[]", r"\bmatch", f"{_READ}; {TRAVERSAL}"),
    (r"match", r"\boptional", _OPTIONAL),
    (r"optional", r"\}", _OPTIONAL),
    (r".*", r"\bsize\s*\(\s*\([^{}]*", _COUNTED),
    (r".*", r"\bexists\s*\(\s*\([^{}]*", _EXISTS),
    (r".*", r"\bshortestpath\s*\([^{}]*", _PATH),
    (r"[\[\]>:(]", r"-\s*\[?", TRAVERSAL),
    (r">", r"-\s*\[[^\]]*\]\s*-", TRAVERSAL),
    (
        r"\d+\.|\.|\d+",
        r"\$\w+\s+<?(\w+)>?\s*\*\s*\d*\.?",
        r"many hops have bounds: `$a \1{1,5} $b` follows one to five",
    ),
    (r"\$.*", r"\$\w+\s+(?:\$\w+\s*:\s*)?[^{}$]*\{[\d\s,.]*", f"bounds are numbers, not parameters: {BOUNDS}"),
    (r"\$", r"", "a variable has a name behind its `$`: `$p`"),
    (r"\d+\.|[,.*}-]", r"[\w>)]\s*\{[\d\s,]*(?<!\{)", BOUNDS),
    (r"\d+\.|[,.*-]", r"\$\w+\s+[^{}]*[\w>)]\s*\{\s*", BOUNDS),
    (r"where|\|", r"\b(?:all|any|none|single)\s*\([^(){}]*", _QUANTIFIED),
    # SQL.
    (r"by", r"\bgroup", _GROUPING),
    (r"by", r"", _ORDER_BY),
    # Operators and literals.
    (r"[“”„«»‘’`´]", r"", 'strings are written with straight double quotes: "…"'),
    (r"≥", r"", "write `>=`"),
    (r"≤", r"", "write `<=`"),
    (r"≠", r"", "write `!=`"),
    (r">", r"=", "at least is written `>=`"),
    (r"<", r"=", "at most is written `<=`"),
    (r"\^", r"", _POWER),
    (r"\*", r"\*", _POWER),
    (
        r"\$.*",
        r"(\$\w+)\s+(is|null)",
        r'a value is tested with `is null`; an edge of that name stands in quotes: `\1 "\2" <found>`',
    ),
    (r"[^n].*", r"\bis(?:\s+not)?", "`is` tests for null only: compare with `=`"),
    (r",", r"\bin\s+[^\s\[\]]+", "the values of a list stand in brackets: `in [1, 2]`"),
    (r"=", r"[=<>]", "equality is written `=`"),
    (r">", r"<", "inequality is written `!=`"),
    (
        r"[=<>]|!=|<=|>=",
        rf"(\S+)\s*({_COMPARISON})\s*([^\s{{}}<>=!]+)",
        r"comparisons do not chain: write `\1 \2 \3 and \3 <found> …`",
    ),
    (r"[=<>]|!=|<=|>=", rf"{_COMPARISON}\s*[^{{}}<>=!]+", "comparisons do not chain: write `1 < $x and $x < 3`"),
    (r"!", r"", "write `not` for a negation and `!=` for an inequality"),
    (r"~", r"", _TEXTS),
    (r"&", r"", "conditions are joined with `and`"),
    (r"where|\|", r"\$\w+\s*<\s*\w+(?:\s*\|\s*\w+)*", _OF_HOPS),
    (r"<", r"\$\w+\s+\$\w+\s*:", _OF_HOPS),
    (r"\|", r"", _ALTERNATIVES),
    (r"'", r"", 'strings are written with double quotes: "…"'),
    (r"#", r"", COMMENT),
    (r";", r"", "statements need no `;` between them"),
    (r"\.", r"\$\w+\s*\.\s*\w+", "a property has no parts: name it alone, as in `$p.name`"),
    (r"\.", r"(?<![\w$.])([a-z_]\w*)", r"the name of a variable begins with `$`: `$\1`"),
    (r"\.", r"(?<![\w$.])[A-Z]\w*", _ROW_PROPERTY),
    (r"\.", r"\)", "a call has no properties: name them of a variable, as in `$p.name`"),
    (r"\.", r"", f"{_FLOAT}: `0.5`"),
    (r"\d+\.", r"", f"{_FLOAT}: `<found>0`"),
    (r"0[xXbBoO].*", r"", "numbers are decimal"),
    (r"\d[\d_]*_.*", r"", "the digits of a number are not grouped"),
    (r"\d+[A-Za-z].*", r"", "numbers have no suffix"),
    (r"\d+", r"\d\.", f"{_FLOAT}, and no exponent before the fraction"),
    (r"-", r"\b(?:limit|offset)", "a number of rows is 0 or more"),
    # Names and braces.
    (r"\$.*", r"\bmatch", _MATCHED),
    (r"return", r"\{", _MATCHED),
    (
        r"match|insert|upsert|update|delete",
        r"\bquery\s+\w+\s*\([^()]*\)",
        "the body of a query stands in braces: `query q() { … }`",
    ),
    (r"[a-z]\w*", r"\bquery\s+\w+\s*\((?:[^()]*,)?", "the name of a parameter begins with `$`: `$<found>`"),
    (r"[^=]", r"\blet\s+(\$\w+)", r"write `let \1 = …`"),
    (r"\d+|\$.*|\".*", r"\blet\s+(\$\w+)", r"write `let \1 = …`"),
    (r"as", r"\w\s*\([^(){}]*", "`as` stands behind the call: `lower($p.name) as name`"),
    (r"\{", r"\bupdate\s+\S+", "write `update Person set { age: 40 } where …`"),
    (r"\{", r"\bdelete\s+\S+", _DELETE),
    (r"set", r"\b(insert|upsert)\s+(\w+)", r"write `\1 \2 { age: 40 }`"),
    (r"\w+", r"\bset", "values stand in braces: `set { age: 40 }`"),
    (r"\{", r"\bquery\s+(\w+)", r"parameters stand in parentheses, also where there are none: `query \1() { … }`"),
    (r":", r"\w\s*\([^(){}]*\b[a-z_]\w*", "a call takes its values by place: only `recall` of `nearest` has a name"),
    (r":", r"\breturn\s*\{[^{}]*?\b([a-z_]\w*)", r"a column gets its name behind the value: `$p.name as \1`"),
    (r":", r"(?:^|[\s{(])([a-z_]\w*)", r"the name of a variable begins with `$`: `$\1`"),
    (r"=", r"\b(?:insert|upsert|set)\b[^{}]*\{[^{}]*", "a value is assigned with `:`, as in `{ age: 40 }`"),
    (r"[=<>]|!=|<=|>=", r":\s*\w+\s*\{[^{}]*", "inside of a type a value is matched with `:`, as in `{ age: 40 }`"),
    (r"\(", r"\b(?:insert|upsert)\s+\w+", "values stand in braces: `insert Person { name: $name }`"),
    (r"\}", r"\{", "the braces may not be empty"),
    (r"\{", r"(?:[=<>+*/-]|\bin)", f"{_COUNTED}, and the largest value `max($q.age) {{ $p knows $q }}`"),
    (r"\(", r"\benum", "a parameter for an enum property is a String"),
    (r'".*', r"\bas", "the name of a column is written without quotes"),
    (r"\*", r"\breturn\s*\{(?:[^{}]*,)?", "all properties are `$p.*`: name the variable"),
    (r"\*", r"\breturn", _BRACES),
    (r"[$a-z].*", r"\breturn(?:\s+distinct)?", _BRACES),
    (r"[$a-z].*", r"\b(?:order|having|per)", "conditions and keys stand in braces: `having { n > 1 }`, `order { n }`"),
    # What is joined, and what is separated.
    (r"asc.*|desc.*|up|down", r"\border\s*\{[^{}]+", "write `asc` or `desc` behind a key: `order { $p.year desc }`"),
    (
        r"\$.*",
        r"\border\s*\{(?:[^{}]*,)?\s*(?:asc|desc)",
        "the direction stands behind the key: `order { $p.year desc }`",
    ),
    (r"[$a-z(\[].*|,", r"\bhaving\s*\{[^{}]+", "`having` is one condition: join several with `and`"),
    (r"[$a-z(\[].*", r"\border\s*\{[^{}]+", "order keys are separated by commas: `order { $p.year desc, $p.title }`"),
    (r"[$a-z(\[].*", r"\bper\s*\{[^{}]+", "keys are separated by commas: `per { $p.city, $p.year }`"),
    (r",", r"\bmatch\s*\{(?:[^{}]|\{[^{}]*\})*", _COMMAS),
    (r",", r"\b(?:update|delete)\b.*\bwhere\b[^{}]*", "`where` is one condition: join several with `and`"),
    (
        r"\w+",
        r"\b(?:update|delete)\s+[A-Z]\w*(?:\s*set\s*\{[^{}]*\})?\s*where\s[^{}]*[\w\")\]]",
        "`where` is one condition: join several with `and`",
    ),
    (r",", r"\blimit\s+\d+", _OFFSET),
    # Parts of a query.
    (r"group", r"", _GROUPING),
    (r"having", r"\}", f"`having` stands before `order`: {_PARTS}"),
    (r"offset", r"\blimit\s+\S+", f"`offset` stands before `limit`: {_PARTS}"),
    (r"skip", r"", _OFFSET),
    (r"order", r"\}|\blimit\s+\S+|\boffset\s+\S+", f"{_PARTS}"),
    (r"union", r"", _UNION),
    (r"match", r"\breturn\b.*\}", _STAGES),
    (r"where", r"\bupdate\s+\w+", "`set { … }` stands before `where`"),
    (r"where", r"", _CONDITION),
    (r"and", r"\bmatch\s*\{(?:[^{}]|\{[^{}]*\})*", f"`<found>` is a reserved word: {JOINED}"),
    (r"as", r"\bmatch\s*\{[^{}]*", "`as` names columns of `return`; in `match` write `let $x = …`"),
    (r"with", r"", f"{_LET}, groups are filtered with `having`"),
    (r"unwind|foreach", r"", _LIST_ROWS),
    (r"\w.*", r"\bselect", f"{_COUNTED}, and the largest value `max($q.age) {{ $p knows $q }}`"),
    (r"\)", r"\bdistinct\s*\*", "rows are counted by `count(*)`, different values by `count(distinct $p.name)`"),
    (r"when|then|else|end", r"\bcase\b[^{}]*", _CASE),
    (
        r"[^\w\s]|[a-z]\w*",
        r"\bcase\s+when\b(?:(?!\bend\b).)*",
        "a `case` is closed by `end`: `case when … then … else … end`",
    ),
    (r"\$.*|[a-z]\w*", r"\bpath\s+\$\w+\s*=", "say which path: `shortest $a knows{1,5} $b`, or `all`"),
    # Statements.
    (r"from", r"\bdelete", _DELETE),
    (r"into", r"\binsert", _INSERT),
    (r"detach", r"", _DELETE),
    (r"[a-z]\w*", r"\$\w+\s+\$\w+\s*:", ALONE),
    (r"[a-z]\w*", r"\b(?:insert|upsert|update|delete)|\$\w+\s*:", "the name of a type begins in upper case: `<type>`"),
    (r"mutation", r"", "there is no `mutation`: a query that inserts, updates or deletes is one"),
    (r"merge", r"", _UPSERT),
    (r"create", r"", _INSERT),
    (r"select|from", r"", _READ),
    (r"i?like", r"", _TEXTS),
    (r"between", r"", _BETWEEN),
)


def advise(found: str, before: str, after: str = "") -> str | None:
    """A hint about a syntax error, from the word that was found and the text before and behind it."""
    before = before[_declared(before) :]
    if found[:1].isupper():
        return _capital_advice(found, before, after)
    if found in RESERVED | _INFIX and re.search(r"\bas$", before):
        return f"`{found}` is a reserved word: give the column another name"
    for word, ending, advice in _SLIPS:
        if re.fullmatch(word, found) and (match := re.search(f"(?:{ending})$", before, re.DOTALL)):
            return _filled(match.expand(advice), found)
    if found in RESERVED:
        return (
            f"`{found}` is a reserved word: an edge or a property of that name stands in quotes or behind its variable"
        )
    return None


def _declared(before: str) -> int:
    """Where the query begins that stands last in a text."""
    return max((found.start() for found in _DECLARATION.finditer(before)), default=0)


def _filled(advice: str, found: str) -> str:
    type_name = f"{found[:1].upper()}{found[1:]}"
    return advice.replace("<found>", found).replace("<type>", type_name)


def _capital_advice(found: str, before: str, after: str) -> str | None:
    """A hint about a word in upper case: a keyword, a query, a function, or the word of an edge."""
    lowered = found.lower()
    if re.search(r"\b(?:update|delete)\b.*\bwhere\b[^{}]*$", before) and not found.isupper():
        return _ROW_PROPERTY
    if re.search(r"\$\w+\s*\.$", before):
        name = f"{found[0].lower()}{found[1:]}"
        return f"the name of a property begins in lower case: `{before[before.rindex('$') :]}{name}`"
    if _KEYWORDS.fullmatch(lowered):
        # Lower case alone does not help where the rest is another language too.
        rest = f"; {_WHOLE[lowered]}" if lowered in _WHOLE else ""
        return f"keywords are written in lower case: `{lowered}`{rest}"
    if re.search(r"\bquery\s+\w+\s*\([^()]*\$\w+$", before):
        return f"a type stands behind a colon: `{before[before.rindex('$') :]}: {found}`"
    if lowered in _CALLED:
        return f"names of functions are written in lower case: `{lowered}`"
    if (advice := advise(lowered, before)) is not None and not found[1:].islower():
        return advice
    lowered = lowered if found.isupper() else f"{found[0].lower()}{found[1:]}"
    if re.search(r"\bquery$", before):
        return f"the name of a query begins in lower case: `{lowered}`"
    if re.search(r"\$\w+$|[<:|(]$", before) and not re.search(r":\s*\w+$", before):
        variable = re.search(r"(\$\w+)$", before)
        if variable and not found.isupper() and not after.startswith(("$", "{")):
            return f"a type stands behind a colon: `{variable[1]}: {found}`"
        return f"the word of an edge begins in lower case: `{lowered}`"
    return None


# ---- Names and functions

#: Bare names where a value stands.
_WORDS: Final = {
    "distinct": _DISTINCT,
    "case": _CASE,
    "when": _CASE,
    "let": "the name of a value begins with `$`: `let $x = $p.age`",
    "path": _PATH,
    "shortest": _PATH,
    "all": _PATH,
    "optional": "what may be missing stands in braces: `optional { $p knows $q }`",
    "exists": "what is there stands in braces: `exists { $p knows $q }`",
}


def name_advice(name: str) -> str:
    """A hint about a bare name where a value is expected."""
    return _WORDS.get(name) or f"write the variable too: `$p.{name}`"


_LETTERS: Final = "letters become small with `lower(…)`, capital with `upper(…)`"
_PRESENT: Final = "the present moment is `now()`, its day `date(now())`"
_ELEMENTS: Final = "one element is `element(list, 1)`, the number of all `size(list)`"
_PARTS_OF_MOMENTS: Final = (
    "the parts of a moment are `year(…)`, `month(…)`, `day(…)`, `hour(…)`, `minute(…)`, `second(…)`"
)
#: Names of functions in other languages, as patterns.
_FUNCTIONS: Final = (
    ("(element_?)?id", "the id of a node or edge is `$p.@id`"),
    ("type|labels?", "the type of a node or edge is `$p.@type`"),
    ("start_?node|source", "the ends of an edge are `$e.@src` and `$e.@dst`"),
    ("end_?node|target", "the ends of an edge are `$e.@src` and `$e.@dst`"),
    ("properties|keys|to_?json", "all properties are `$p.*`"),
    ("exists", _EXISTS),
    ("any|all|none|single", _QUANTIFIED),
    ("(all_?)?shortest_?paths?|path", _PATH),
    ("relationships|rels", "the edges of a path are `edges($w)`, its nodes `nodes($w)`"),
    ("to_?(lower|upper)(_?case)?|[lu]case", _LETTERS),
    ("len|char_?length|character_?length|str_?len", "the number of characters is `length(…)`, of elements `size(…)`"),
    ("substr|mid|left|right", "a part of a text is `substring(text, 1, 3)`: positions count from 1"),
    ("[lr]trim", "white space at both ends goes with `trim(…)`"),
    ("concat_ws|textcat|str_?cat", "texts are joined with `concat(a, b, c)`"),
    ("regexp?(_?(matches|match|like))?|rlike", "a text is compared with a pattern by `matches(text, pattern)`"),
    ("to_?str(ing)?|text|varchar|str", "a value becomes a text with `string(…)`"),
    ("to_?int(eger)?|int(eger)?|bigint", "a value becomes a whole number with `i64(…)`"),
    ("to_?float|float|double|to_?number|real|decimal", "a value becomes a number with `f64(…)`"),
    ("cast|convert|to_?boolean", "types change with `string(…)`, `i64(…)`, `f64(…)`, `date(…)` and `datetime(…)`"),
    ("if_?null|nvl|null_?if|is_?null", "`coalesce(a, b)` is the first that is not null; a test is `… is null`"),
    ("i?if|decode|choose", _CASE),
    ("today|current_?(date|time|timestamp)|get_?date|sysdate|timestamp", _PRESENT),
    (r"date_?part|extract|weekday|day_?of_?\w+|quarter", _PARTS_OF_MOMENTS),
    ("date_?trunc|trunc", 'a moment is cut with `truncate(…, "month")`, a number with `floor(…)`'),
    (
        "date_?diff|duration(_?between)?|age",
        "the time between moments is `days_between(a, b)` or `seconds_between(a, b)`",
    ),
    ("date_?add|date_?sub|interval|add_?years?", "moments move with `add_days(d, n)` and `add_months(d, n)`"),
    ("mod|modulo", "a remainder is `x % y`"),
    ("power", "a power is `pow(x, y)`"),
    ("log|log10|log2", "the natural logarithm is `ln(x)`"),
    ("ceiling", "the next whole number above is `ceil(x)`"),
    ("mean|average", "the average is `avg($p.age)`"),
    ("std_?dev_?(p|pop|samp)?|std|variance|var_?samp", "the standard deviation is `stddev($p.age)`"),
    (r"percentile\w*|quantile\w*", "the middle value is `median($p.age)`"),
    (
        "array_?agg|list|group_?concat|string_?agg|collect_?list|collect_?set|listagg",
        "values are listed with `collect(…)`",
    ),
    ("head|last|tail|nth|array_?get", _ELEMENTS),
    ("range|unwind|reduce|filter|map", _LIST_ROWS),
    ("row_?number|rank|lag|lead", "the best rows of every group are `order { … } limit 3 per { $p.city }`"),
    (r"distance|euclidean\w*|l2_?distance", "the distance of vectors is `l2(a, b)`"),
    (r"cosine_?\w+|similarity|dot|inner_?product", "the similarity of vectors is `cosine(a, b)`"),
)


def function_advice(name: str, known: Iterable[str]) -> str:
    """A hint about a function that does not exist: what other languages call so, or the nearest or all that exist."""
    lowered, names = name.lower(), sorted(known)
    for pattern, advice in _FUNCTIONS:
        if re.fullmatch(pattern, lowered):
            return advice
    near = nearest(name, names) or nearest(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower(), names)
    return f"did you mean `{near}`?" if near else f"functions are {', '.join(f'`{item}`' for item in names)}"
