"""Texts that are no queries: statements about branches, `explain`, and settings that other engines know."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NoReturn

from omnigraph.core.source import Findings, SourceText, Span, query_source
from omnigraph.frozen import frozen

_SYNTAX = "Q000"
_SPACE = r"[ \t\r\n]"
#: White space or one comment.
_BLANK = re.compile(r"[ \t\r\n]++|//[^\n]*+|/\*(?s:.*?)\*/")
#: Settings of other engines: they change how a query runs there, never what it returns.
_SETTINGS = ("ann_nprobes", "engine", "merge_lineage", "traversal_work_limit")
_SETTING = re.compile(
    rf"(?:set{_SPACE}+(?P<set>[a-z_]\w*){_SPACE}*={_SPACE}*(?:\"[^\"\n]*\"|[^\s;\"]+)"
    rf"|reset{_SPACE}+(?P<reset>[a-z_]\w*)){_SPACE}*;"
)
_SHOW = re.compile(rf"show{_SPACE}")
_END = re.compile(rf";{_SPACE}*\Z")


def without_settings(source: SourceText) -> SourceText:
    """A text without settings at its head and `;` at its end, which are accepted and do nothing; places stay the same.

    Raises:
        CompilerError: there is no such setting, or it is asked for.
    """
    if ";" not in source.text and "show" not in source.text:
        return source
    place = _behind_blank(source.text, 0)
    while (found := _SETTING.match(source.text, place)) is not None:
        name = found["set"] or found["reset"]
        if name not in _SETTINGS:
            span = Span(found.start(found.lastgroup or 0), found.end(found.lastgroup or 0))
            _refuse(source, span, f"there is no setting `{name}`", f"there are {', '.join(_SETTINGS)}; they do nothing")
        place = _behind_blank(source.text, found.end())
    if _SHOW.match(source.text, place):
        hint = "settings at the head of a text are accepted and do nothing; leave `show` out"
        _refuse(source, Span(place, place + len("show")), "`show` is no statement", hint)
    text = _blanked(source.text[:place]) + source.text[place:]
    end = _END.search(text)
    if end is not None:
        text = text[: end.start()] + _blanked(text[end.start() :])
    return SourceText(text, source.name)


def _behind_blank(text: str, place: int) -> int:
    while (found := _BLANK.match(text, place)) is not None:
        place = found.end()
    return place


def _blanked(text: str) -> str:
    return re.sub(r"[^\r\n]", " ", text)


def _refuse(source: SourceText, span: Span, message: str, hint: str) -> NoReturn:
    findings = Findings(source)
    findings.error(_SYNTAX, span, message, hint)
    findings.raise_errors()
    raise AssertionError("an error was recorded")


# ---- statements about branches, and explain


class Verb(StrEnum):
    """What a statement does to branches, or about a query."""

    CREATE = "create"
    DELETE = "delete"
    MERGE = "merge"
    LIST = "list"
    EXPLAIN = "explain"

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing."""
        return self in (Verb.LIST, Verb.EXPLAIN)


@frozen
class Command:
    """A text that is one statement about the graph.

    `branch` is created, deleted or merged; `other` is where it begins, or what it is merged into, `main` without one.
    `query` is what is explained.
    """

    verb: Verb
    branch: str = ""
    other: str | None = None
    query: SourceText | None = None

    @property
    def name(self) -> str:
        """How messages and receipts call it."""
        return str(self.verb) if self.verb is Verb.EXPLAIN else f"branch {self.verb}"


_NAME = r"(?:\"[^\"\n]+\"|[A-Za-z0-9_][A-Za-z0-9_./-]*)"
_EXPLAIN = re.compile(rf"explain(?={_SPACE})")
_BRANCH = re.compile(rf"branch(?={_SPACE})")
_FORM = re.compile(
    rf"branch{_SPACE}+(?:(?P<create>create){_SPACE}+(?P<created>{_NAME})(?:{_SPACE}+from{_SPACE}+(?P<base>{_NAME}))?"
    rf"|(?P<delete>delete){_SPACE}+(?P<deleted>{_NAME})"
    rf"|(?P<merge>merge){_SPACE}+(?P<merged>{_NAME})(?:{_SPACE}+into{_SPACE}+(?P<target>{_NAME}))?"
    rf"|(?P<list>list)){_SPACE}*\Z"
)
_FORMS = "`branch create b [from p]`, `branch delete b`, `branch merge s [into t]` and `branch list`"


def command_of(source: SourceText | str) -> Command | None:
    """The statement that a whole text is; None for queries, and for what only their parser can judge.

    Raises:
        CompilerError: it begins as a statement about branches and is none.
        BadRequestError: it is not a text.
    """
    source = query_source(source)
    place = _behind_blank(source.text, 0)
    if not source.text.startswith(("branch", "explain", "set", "reset"), place):
        return None
    source = without_settings(source)
    place = _behind_blank(source.text, 0)
    if _EXPLAIN.match(source.text, place):
        end = place + len("explain")
        return Command(Verb.EXPLAIN, query=SourceText(_blanked(source.text[:end]) + source.text[end:], source.name))
    if not _BRANCH.match(source.text, place):
        return None
    form = _FORM.match(source.text, place)
    if form is None:
        span = Span(place, place + len("branch"))
        _refuse(source, span, "this is no statement about branches", f"there are {_FORMS}")
    verb = next(item for item in Verb if item is not Verb.EXPLAIN and form[item])
    branch = form["created"] or form["deleted"] or form["merged"] or ""
    other = form["base"] or form["target"]
    return Command(verb, branch.strip('"'), None if other is None else other.strip('"'))
