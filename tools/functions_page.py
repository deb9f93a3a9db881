"""The reference of functions, from the table that the checker reads."""

from __future__ import annotations

from itertools import groupby

from omnigraph.lang.query.functions.table import Function, Group, function_named, names

#: The chapter of each group, and what holds for all of its functions.
CHAPTERS = {
    Group.TEXT: (
        "Text",
        "A character is a Unicode code point, positions count from 1, and no function knows a locale.",
    ),
    Group.NUMBERS: ("Numbers", "Functions of a float give F64; what is not a finite number is null."),
    Group.NULL: ("Null", ""),
    Group.TIME: ("Time", "The calendar has the years 1 to 9999, and every moment is in UTC."),
    Group.LISTS: ("Lists", ""),
    Group.CASTS: ("Conversions", ""),
    Group.VECTORS: ("Vectors", "Computed in 64 bits. In the examples `$a` is `[0, 3]` and `$b` is `[4, 3]`."),
}
#: What the words of signatures stand for.
WORDS = {
    "integer": "I32, I64, U32 or U64",
    "number": "an integer, F32 or F64",
    "scalar": "any single value but a Blob",
    "ordered": "any single value but a Blob; all arguments have one common type `T`",
    "any": "any value but a Blob; all arguments have one common type `T`",
    "[E]": "a list whose elements are of type `E`",
    "…": "any number of further arguments",
    "[, x]": "an argument that may be left out",
}


def functions_page(notice: str) -> str:
    """A table for every group of functions."""
    lines = [notice, "", "# Functions", ""]
    lines += [
        "Functions of single values stand wherever a query has an expression, and mean the same on every engine. Where",
        "an argument is null the result is null, except for `coalesce`. Arguments of a wrong type are refused when the",
        "query is compiled; no value makes a query fail, except where integers overflow.",
        "",
        "An enum is a String here. An F32 is widened to F64 exactly. Values of several types that stand side by side",
        "have a common type: different integers are I64, integers and floats F64, and a literal takes the type of the",
        "others where it fits.",
        "",
        "| In a signature | stands for |",
        "|---|---|",
        *(f"| `{word}` | {meaning} |" for word, meaning in WORDS.items()),
    ]
    functions = [function for name in names() if (function := function_named(name)) is not None]
    for group, members in groupby(functions, lambda function: function.group):
        title, common = CHAPTERS[group]
        lines += ["", f"## {title}", "", *([common, ""] if common else [])]
        lines += ["| Function | Value | Null, with no null argument | Example |", "|---|---|---|---|"]
        lines += [_row(function) for function in members]
    return "\n".join(lines) + "\n"


def _row(function: Function) -> str:
    cells = (f"`{function.signature}`", function.summary, f"where {function.null_when}", f"`{function.example}`")
    shown = [cell.replace("|", "\\|") for cell in cells]
    return f"| {shown[0]} | {shown[1]} | {shown[2] if function.null_when else ''} | {shown[3]} |"
