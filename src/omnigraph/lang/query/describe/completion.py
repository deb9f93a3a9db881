"""What may stand at a place of a query that is still typed: keywords by the grammar, names by the schema.

The grammar says which words may follow, the few tokens before the place whose names they are. Both work on a text that
does not parse yet, so variables get their types from the patterns that can be told from tokens alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from omnigraph.core.source import OPAQUE
from omnigraph.errors import CompilerError
from omnigraph.frozen import frozen
from omnigraph.lang.parsing import SCALARS, Progress
from omnigraph.lang.query.check.places import FUNCTIONS
from omnigraph.lang.query.syntax import ast
from omnigraph.lang.query.syntax.parser import keywords, progress_of
from omnigraph.lang.schema.catalog import Catalog, EdgeDef, NodeDef


@dataclass(frozen=True, slots=True, order=True)
class Completion:
    """A word that may stand at a place."""

    word: str
    #: What it is, for people: `keyword`, `Person`, `String?`.
    meaning: str


@frozen
class Completions:
    """The words that may stand at a place, best first."""

    #: Where the word begins that they replace.
    start: int
    items: tuple[Completion, ...] = ()


def completions(
    before: str, after: str = "", catalog: Catalog | None = None, parameters: Iterable[str] = ()
) -> Completions:
    """The words that may stand between two parts of a text; those that begin as the first part ends.

    Without a schema there are only keywords, functions and variables. `parameters` are names that have a value.
    """
    start = len(before) - len(_PARTIAL.search(before)[0])  # type: ignore[index]  # it may be empty
    tokens = list(_tokens(before[:start]))
    if (tokens and tokens[-1].is_open) or before[start : start + 1].isdigit():
        return Completions(start)
    context = _Context(before[:start], tokens, list(_tokens(after)), catalog or _NOTHING, tuple(parameters))
    typed = before[start:].casefold()
    found = {item.word: item for item in context.words() if item.word.casefold().startswith(typed)}
    return Completions(start, tuple(found.values()))


# ---- Tokens of a text that need not parse


_PARTIAL = re.compile(r"[$@]?\w*\Z")
_TOKEN = re.compile(rf"(?P<opaque>{OPAQUE})|\$\w*|@?\w+|[^\w\s]", re.DOTALL)
_WHOLE_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


@frozen
class _Token:
    text: str
    #: Whether what comes behind the text belongs to it: to a string or a comment.
    is_open: bool = False

    @property
    def is_variable(self) -> bool:
        return self.text.startswith("$")

    @property
    def is_word(self) -> bool:
        return self.text[0].isalpha() or self.text[0] == "_"

    @property
    def ends_value(self) -> bool:
        """Whether the next property may begin behind it."""
        return self.text[-1].isalnum() or self.text[-1] in '_")]'


def _tokens(text: str) -> Iterator[_Token]:
    """The tokens of a text, without comments; an open comment is one."""
    for match in _TOKEN.finditer(text):
        found = match[0]
        ends_text = match.end() == len(text)
        if found.startswith("//"):
            if ends_text:
                yield _Token(found, is_open=True)
        elif found.startswith("/*"):
            if not found.endswith("*/") or len(found) < len("/**/"):
                yield _Token(found, is_open=True)
        else:
            yield _Token(found, is_open=found.startswith('"') and not _WHOLE_STRING.fullmatch(found))


# ---- The place


_NOTHING = Catalog(interfaces={}, nodes={}, edges={}, schema_hash="")
#: The blocks whose members are properties of a type.
_OF_PROPERTIES = frozenset({"inline", "insert", "set"})
#: The words that begin a statement of a mutation.
_STATEMENTS = frozenset({"insert", "upsert", "update", "delete"})
_WITHOUT_PATTERNS = _OF_PROPERTIES | {"return", "order", "(", "["}
#: What names something new: there is nothing to choose from.
_NAMING = frozenset({"as", "query"})
_ENDS = (Completion("from", "id of the source"), Completion("to", "id of the target"))
_ID = Completion("id", "String")


@dataclass(slots=True)
class _Block:
    """A pair of brackets that is open at the place."""

    #: `inline`, `insert` and `set` where properties of a type are listed; else the word before it, or its sign.
    kind: str
    type_name: str = ""
    #: The variable before it, whose edges it lists.
    source: str = ""
    names: set[str] = field(default_factory=set)

    @property
    def holds_patterns(self) -> bool:
        """Whether edges may stand in it."""
        return bool(self.kind) and self.kind not in _WITHOUT_PATTERNS


@dataclass(slots=True)
class _Context:
    """A place in a text, and what is known about it."""

    head: str
    before: Sequence[_Token]
    after: Sequence[_Token]
    catalog: Catalog
    parameters: Sequence[str]

    def words(self) -> Iterator[Completion]:
        """The words that may stand here, best first."""
        last = self._back(1)
        block = self._block()
        if last == "." and self._back(2).startswith("$"):
            yield from self._properties_of(self._back(2))
        elif last in _NAMING:
            return
        elif last in _STATEMENTS:
            yield from self._types(nodes=True, edges=last != "update")
            if "VAR" in self._progress().expected:
                yield from self._variables()
        elif block.kind in _OF_PROPERTIES and self._begins_member(last):
            yield from self._members(block)
        elif last == ":" and self._back(2).startswith("$"):
            yield from self._annotated(block)
        elif last == "|" and self._back(2)[:1].isupper():
            yield from self._types(nodes=True, edges=False)
        elif last in ("(", "|") and block.source:
            yield from self._edges_from(block.source)
        elif block.holds_patterns and (source := self._source()) is not None:
            yield from self._edges_from(source)
            yield from self._expected()
        else:
            yield from self._expected()

    def _back(self, count: int) -> str:
        """The text of a token before the place, counted back from it."""
        return self.before[-count].text if count <= len(self.before) else ""

    # ---- by the grammar

    def _expected(self) -> Iterator[Completion]:
        """What the grammar expects: variables, keywords, functions, and columns where they can be named."""
        progress = self._progress()
        # Behind a mistake anything may follow: it may be the place that is being mended.
        expected = progress.expected if progress.failed_at is None else frozenset({*keywords(), "VAR", "NAME"})
        is_value = "NAME" in expected
        if self._block().kind == "order":
            yield from self._columns()
        if is_value and not self._back(1).startswith("$"):
            yield from self._properties_of_row()
        if "VAR" in expected or is_value:
            yield from self._variables()
        yield from self._keywords(expected)
        if is_value and not self._back(1).startswith("$"):
            yield from (Completion(name, "function") for name in sorted(FUNCTIONS))

    def _progress(self) -> Progress:
        try:
            return progress_of(self.head)
        except CompilerError:
            return Progress(failed_at=0)

    def _keywords(self, expected: frozenset[str]) -> Iterator[Completion]:
        known = keywords()
        return (Completion(known[name], "keyword") for name in sorted(expected & known.keys()))

    # ---- by the schema

    def _properties_of(self, variable: str) -> Iterator[Completion]:
        types = [item for name in self._types_of().get(variable, ()) if (item := self._type(name)) is not None]
        for found in types or [*self.catalog.nodes.values(), *self.catalog.edges.values()]:
            yield from _properties(found)
            if isinstance(found, NodeDef):
                yield _ID

    def _members(self, block: _Block) -> Iterator[Completion]:
        names = self._assignable(block.type_name) if block.kind != "inline" else self._matched(block.type_name)
        yield from (item for item in names if item.word not in block.names)

    def _matched(self, type_name: str) -> Iterator[Completion]:
        if (found := self._type(type_name)) is not None:
            yield from _properties(found)

    def _assignable(self, type_name: str) -> Iterator[Completion]:
        """The properties of a type in a mutation, with the ends of an edge."""
        found = self._type(type_name)
        if isinstance(found, EdgeDef):
            yield from _ENDS
        yield from self._matched(type_name)

    def _annotated(self, block: _Block) -> Iterator[Completion]:
        """What stands behind `$name:`: an edge, the type of a node, or that of a parameter."""
        if self._back(3).startswith("$"):
            yield from self._edges_from(self._back(3))
        elif block.kind == "(":
            yield from (Completion(name, "scalar") for name in SCALARS)
            yield from self._keywords(self._progress().expected)
        else:
            yield from self._types(nodes=True, edges=False)

    def _edges_from(self, variable: str) -> Iterator[Completion]:
        """The edges that may begin at a variable, in the spelling of patterns."""
        types = self._types_of().get(variable, ())
        for edge in self.catalog.edges.values():
            if not types or edge.source in types:
                yield Completion(edge.name[0].lower() + edge.name[1:], f"{edge.source} → {edge.target}")

    def _types(self, *, nodes: bool, edges: bool) -> Iterator[Completion]:
        if nodes:
            yield from (Completion(name, "node type") for name in self.catalog.nodes)
        if edges:
            yield from (Completion(item.name, f"{item.source} → {item.target}") for item in self.catalog.edges.values())

    def _type(self, name: str) -> NodeDef | EdgeDef | None:
        return self.catalog.nodes.get(name) or self.catalog.edges.get(name)

    # ---- by the tokens

    def _source(self) -> str | None:
        """The variable that an edge may follow: right before the place, or before a `<` that may begin one."""
        if self._back(1).startswith("$") and self._back(2) not in _OPERATORS:
            return self._back(1)
        return self._back(2) if self._back(1) == "<" and self._back(2).startswith("$") else None

    def _begins_member(self, last: str) -> bool:
        return last in ("{", ",") or self.before[-1].ends_value

    def _block(self) -> _Block:
        """The innermost open pair of brackets."""
        blocks = [_Block("")]
        for index, token in enumerate(self.before):
            if token.text in "{([":
                blocks.append(self._opened(index))
            elif token.text in "})]":
                if len(blocks) > 1:
                    blocks.pop()
            elif token.text == ":" and index and self.before[index - 1].is_word:
                blocks[-1].names.add(self.before[index - 1].text)
        return blocks[-1]

    def _opened(self, index: int) -> _Block:
        def back(count: int) -> str:
            return self.before[index - count].text if count <= index else ""

        if self.before[index].text != "{":
            return _Block(self.before[index].text, source=back(1) if back(1).startswith("$") else "")
        if back(2) in ("insert", "upsert"):
            return _Block("insert", back(1))
        if back(1) == "set":
            return _Block("set", self._type_name(back(2)))
        if back(2) == ":" and back(3).startswith("$"):
            return _Block("inline", back(1))
        return _Block(back(1))

    def _type_name(self, target: str) -> str:
        """The type of the rows that a statement changes: it is named, or that of a variable."""
        return next(iter(self._types_of().get(target, ())), "") if target.startswith("$") else target

    def _properties_of_row(self) -> Iterator[Completion]:
        """The properties that may stand alone: in the values of `set`, and in the condition of a statement."""
        block = self._block()
        if block.kind == "set":
            yield from self._assignable(block.type_name)
            return
        texts = [token.text for token in self.before]
        words = [index for index, text in enumerate(texts) if text in _STATEMENTS | {"match", "return", "where"}]
        if words and texts[words[-1]] == "where":
            targets = [texts[index + 1] for index in words if texts[index] in ("update", "delete")]
            yield from self._assignable(self._type_name(targets[-1]) if targets else "")

    def _variables(self) -> Iterator[Completion]:
        """Variables of the text, those that were typed last first, and parameters."""
        types = self._types_of()
        seen = dict.fromkeys(token.text for token in [*reversed(self.before), *self.after] if token.is_variable)
        for name in seen:
            if len(name) > 1:
                yield Completion(name, " or ".join(types.get(name, ())) or "variable")
        yield from (Completion(f"${name}", "parameter") for name in self.parameters)

    def _columns(self) -> Iterator[Completion]:
        for token, following in zip(self.before, self.before[1:], strict=False):
            if token.text == "as" and following.is_word:
                yield Completion(following.text, "column")

    def _types_of(self) -> dict[str, tuple[str, ...]]:
        """The types of variables, as far as bindings and edges in the text tell them."""
        bound: dict[str, tuple[str, ...]] = {}
        implied: dict[str, dict[str, None]] = {}
        texts = [token.text for token in [*self.before, *self.after]]
        for index, text in enumerate(texts):
            if not text.startswith("$"):
                continue
            following = texts[index + 1 : index + _LONGEST_HOP]
            if following[:1] == [":"] and following[1:2] and following[1] in self.catalog.nodes:
                bound[text] = (following[1],)
            hop = _hop(following)
            for edge in filter(None, map(self.catalog.edge, hop.words)):
                for name, type_name in ((text, edge.source), (hop.variable, edge.name), (hop.target, edge.target)):
                    if name is not None and name != _ANONYMOUS:
                        implied.setdefault(name, {})[type_name] = None
        return {name: tuple(types) for name, types in implied.items()} | bound


#: It stands for another node each time.
_ANONYMOUS = f"${ast.ANONYMOUS}"
_OPERATORS = frozenset({"=", ">", "<", "!", "contains", "starts_with"})
#: Tokens behind a variable that are looked at for a hop: `$e : ( word | word ) { 1 , 3 } $b`.
_LONGEST_HOP = 40
_NO_WORDS = frozenset({"and", "or", "not", "in", "is"})


@frozen
class _Hop:
    """An edge that leaves a variable, or one of several."""

    words: tuple[str, ...] = ()
    variable: str | None = None
    target: str | None = None


def _hop(texts: Sequence[str]) -> _Hop:
    """The hop that begins right behind a variable; it has no words where there is none."""
    rest, variable = list(texts), None
    if len(rest) > 1 and rest[0].startswith("$") and rest[1] == ":":
        variable, rest = rest[0], rest[2:]
    closing = {"<": ">", "(": ")"}.get(rest[0]) if rest else None
    if closing is not None:
        end = rest.index(closing) if closing in rest else len(rest)
        inner, rest = rest[1:end], rest[end + 1 :]
    else:
        end = next((index for index, text in enumerate(rest) if not _is_edge_word(text) and text != "|"), len(rest))
        inner, rest = rest[:end], rest[end:]
    words = tuple(text for text in inner if _is_edge_word(text))
    if rest[:1] == ["{"] and "}" in rest:
        rest = rest[rest.index("}") + 1 :]
    target = rest[0] if rest and rest[0].startswith("$") else None
    return _Hop(words, variable, target)


def _is_edge_word(text: str) -> bool:
    return text[0].islower() and text not in _NO_WORDS


def _properties(definition: NodeDef | EdgeDef) -> Iterator[Completion]:
    return (Completion(item.name, str(item.type)) for item in definition.properties.values())
