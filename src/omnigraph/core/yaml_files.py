"""YAML files that people write: safe, without repeated keys, and with the place of everything in them.

`yaml_content` gives plain values. `YamlDocument` gives values with places, for files whose mistakes are worth pointing
at: every question about a value records what is wrong and goes on, so that one reading reports everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NoReturn

import yaml

from omnigraph.core.source import Findings, SourceText, Span, did_you_mean, read_source
from omnigraph.core.validation import Problem
from omnigraph.errors import BadRequestError, CompilerError, ConfigurationError, Diagnostic, InputFileError
from omnigraph.frozen import frozen

_STRING = "tag:yaml.org,2002:str"
_INTEGER = "tag:yaml.org,2002:int"
_NULL = "tag:yaml.org,2002:null"
_MERGE = "tag:yaml.org,2002:merge"
#: Scalars that JSON has too, beside texts.
_PLAIN = {_INTEGER, _NULL, "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"}
#: How much of a wrong value a message repeats.
_SHOWN = 60


def yaml_text(path: Path) -> SourceText:
    """The text of a YAML file.

    Raises:
        InputFileError: the file cannot be read.
    """
    try:
        return SourceText(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputFileError(str(path), reason or str(error)) from error


def yaml_content(source: SourceText, *, are_texts: bool = False) -> object:
    """The content of a YAML file; JSON is YAML too.

    With `are_texts` keys and values are the texts that stand there: `yes`, `007` and `null` as a key. Only a value
    that is null, or missing, is None.

    Raises:
        BadRequestError: the file is not valid YAML, or repeats a key.
    """
    try:
        # The loaders are the safe one, made strict: a repeated key would silently hide what it held first.
        return yaml.load(source.text, Loader=_TextLoader if are_texts else _StrictLoader)
    except yaml.YAMLError as bad:
        raise BadRequestError(f"{source.name} is not valid YAML: {' '.join(str(bad).split())}") from bad


def raise_problems(source: SourceText, problems: Iterable[Problem], *, code: str) -> NoReturn:
    """Raise what a model found wrong with the content of a file, each problem with its place.

    Raises:
        ConfigurationError: always.
    """
    try:
        document = YamlDocument(source, code=code)
    except CompilerError as error:
        raise ConfigurationError(error.diagnostics, error.total) from error
    for problem in problems:
        value = document.at(problem.path)
        report = value.key_error if problem.is_about_name else value.error
        report(problem.text("the file"))
    document.raise_errors()
    raise AssertionError("a file without problems is not reported")


class YamlDocument:
    """A YAML file that is read value by value; `findings` collects what is wrong with it.

    >>> document = YamlDocument(SourceText("store: [a]", "serve.yaml"), code="config")
    >>> store = document.root.members("the file", known=["store"])["store"]
    >>> store.text("`store`") is None
    True
    >>> [item.message for item in document.findings.errors]
    ['`store` is a text, not a list']
    """

    def __init__(self, source: SourceText, *, code: str) -> None:
        self.source = source
        self.code = code
        self.findings = Findings(source)
        self.root = YamlValue(self, _composed(source, code))

    @classmethod
    def read(cls, path: str | Path, *, code: str) -> YamlDocument:
        """The document in a file. Every finding carries `code`.

        Raises:
            InputFileError: the file cannot be read.
            ConfigurationError: the file is not valid YAML.
        """
        try:
            return cls(read_source(path, code=code), code=code)
        except CompilerError as error:
            raise ConfigurationError(error.diagnostics, error.total) from error

    def at(self, path: Iterable[str | int]) -> YamlValue:
        """The value at a path, or the innermost one on the way to it."""
        value = self.root
        for part in path:
            inner = value.inside(part)
            if inner is None:
                break
            value = inner
        return value

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """A finding that is not an error, but probably not what was meant."""
        return self.findings.warnings

    def raise_errors(self) -> None:
        """Raise one `ConfigurationError` with everything that was found, if anything was."""
        if errors := self.findings.errors:
            ordered = sorted(errors, key=lambda item: (item.line, item.column))
            raise ConfigurationError(tuple(ordered), self.findings.error_count)


@frozen
class YamlValue:
    """A value and its place. Questions about it answer None, or nothing, when it is of another kind."""

    document: YamlDocument
    _node: yaml.Node
    #: Where its key stands, in a mapping.
    key_span: Span | None = None

    @property
    def span(self) -> Span:
        """The place in the file; of a mapping or a list only the beginning."""
        start, end = self._node.start_mark.index, self._node.end_mark.index
        return Span(start, end if isinstance(self._node, yaml.ScalarNode) else start + 1)

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return isinstance(self._node, yaml.SequenceNode)

    @property
    def is_mapping(self) -> bool:
        """Whether it has keys."""
        return isinstance(self._node, yaml.MappingNode)

    @property
    def is_absent(self) -> bool:
        """Whether nothing stands here, as in an empty file or behind a bare key."""
        return bool(self._node.tag == _NULL)

    def inside(self, part: str | int) -> YamlValue | None:
        """The member of that key or the item of that number; None when there is none."""
        if isinstance(self._node, yaml.SequenceNode) and isinstance(part, int):
            items = self._node.value
            return YamlValue(self.document, items[part]) if part < len(items) else None
        if isinstance(self._node, yaml.MappingNode):
            for key, node in self._node.value:
                if isinstance(key, yaml.ScalarNode) and _name(key) == part:
                    return YamlValue(self.document, node, YamlValue(self.document, key).span)
        return None

    def error(self, message: str, hint: str | None = None) -> None:
        """Record that the value is wrong."""
        self.document.findings.error(self.document.code, self.span, message, hint)

    def key_error(self, message: str, hint: str | None = None) -> None:
        """Record that its key is wrong."""
        place = self.key_span or self.span
        self.document.findings.error(self.document.code, place, message, hint)

    def key_warning(self, message: str, known: Collection[str] = ()) -> None:
        """Record that its key is passed over; `known` are the keys that may have been meant."""
        place = self.key_span or self.span
        name = self.document.source.text[place.start : place.end]
        hint = did_you_mean(name, known)
        self.document.findings.warning(self.document.code, place, message, hint)

    def members(
        self, what: str, *, known: Collection[str] | None = None, required: Collection[str] = ()
    ) -> dict[str, YamlValue]:
        """The members of a mapping by key, in order; `known` closes the set of keys."""
        if not isinstance(self._node, yaml.MappingNode):
            self.error(f"{what} is a mapping, not {_kind(self._node)}")
            return {}
        found: dict[str, YamlValue] = {}
        for key, node in self._node.value:
            place = YamlValue(self.document, key)
            member = YamlValue(self.document, node, place.span)
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                place.error(f"a key in {what} is a plain text, not {_kind(key)}")
            elif key.value in found:
                place.error(f"the key `{key.value}` is given twice")
            elif known is not None and key.value not in known:
                place.error(f"`{key.value}` is not a key of {what}", did_you_mean(str(key.value), known))
            else:
                found[str(key.value)] = member
        for name in required:
            if name not in found:
                self.error(f"{what} has no `{name}`")
        return found

    def items(self, what: str) -> list[YamlValue]:
        """The items of a list."""
        if isinstance(self._node, yaml.SequenceNode):
            return [YamlValue(self.document, node) for node in self._node.value]
        self.error(f"{what} is a list, not {_kind(self._node)}")
        return []

    def text(self, what: str) -> str | None:
        """A text that is not blank."""
        if not isinstance(self._node, yaml.ScalarNode) or self._node.tag != _STRING:
            hint = None
            if isinstance(self._node, yaml.ScalarNode) and not self.is_absent:
                hint = f'write it in quotes: "{self._node.value}"'
            self.error(f"{what} is a text, not {_kind(self._node)}", hint)
            return None
        if not self._node.value.strip():
            self.error(f"{what} is blank")
            return None
        return str(self._node.value)

    def plain(self) -> object:
        """The value as JSON has it; a date and whatever else JSON does not have is the text that stands here."""
        if isinstance(self._node, yaml.MappingNode):
            return {name: item.plain() for name, item in self.members("a value").items()}
        if isinstance(self._node, yaml.SequenceNode):
            return [item.plain() for item in self.items("a value")]
        if self._node.tag not in _PLAIN:
            return self._node.value
        try:
            return yaml.SafeLoader("").construct_object(self._node)
        except (yaml.YAMLError, ValueError) as error:
            self.error(f"the value cannot be read: {error}")
            return None

    def integer(self, what: str) -> int | None:
        """A whole number."""
        text = self._node.value if isinstance(self._node, yaml.ScalarNode) else ""
        if self._node.tag == _INTEGER and text.isascii() and text.isdigit() and len(text) < 19:
            return int(text)
        self.error(f"{what} is a whole number, not {_kind(self._node)}")
        return None


def _composed(source: SourceText, code: str) -> yaml.Node:
    try:
        node = yaml.compose(source.text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        at = len(source.text) if mark is None else mark.index
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        finding = source.diagnostic(code, Span(at, at + 1), f"this is not valid YAML: {problem}")
        raise ConfigurationError((finding,)) from error
    except RecursionError as error:
        finding = source.diagnostic(code, Span(0, 1), "the text nests too deeply to be read")
        raise ConfigurationError((finding,)) from error
    if node is None:
        start = yaml.Mark(source.name, 0, 0, 0, None, None)
        return yaml.ScalarNode(_NULL, "", start, start)
    return node


def _name(key: yaml.ScalarNode) -> str:
    """A key as a loader names it: `Yes` is the text of a true value."""
    return str(yaml.SafeLoader("").construct_object(key)) if key.tag in _PLAIN else str(key.value)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if node.tag == _NULL:
        return "nothing"
    value = str(node.value)
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return f"the {'text' if node.tag == _STRING else 'value'} `{shown}`"


class _StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML without repeated keys."""


def _strict_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[object, object]:
    if isinstance(loader, _TextLoader):
        loader.flatten_mapping(node)
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise yaml.constructor.ConstructorError(None, None, "a key is a list or a mapping", key.start_mark)
        if isinstance(loader, _TextLoader):
            key.tag = _STRING
    pairs = loader.construct_pairs(node, deep=True)
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise yaml.constructor.ConstructorError(None, None, f"the key {twice!r} is given twice", node.start_mark)
    return dict(pairs)


class _TextLoader(_StrictLoader):
    """YAML whose words stay words: no numbers, no dates, nothing that is true or false."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # PyYAML reads it from the class
        first: [item for item in known if item[0] in (_NULL, _MERGE)]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_StrictLoader.add_constructor("tag:yaml.org,2002:map", _strict_mapping)
