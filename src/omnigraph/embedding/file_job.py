"""Embeds files: JSON lines in, the same with vectors out."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omnigraph.codec import Document, Json, Through
from omnigraph.core.types import MAX_VECTOR_DIMENSION
from omnigraph.core.validation import problems_of
from omnigraph.core.yaml_files import raise_problems, yaml_content, yaml_text
from omnigraph.embedding.client import EmbeddingClient
from omnigraph.embedding.providers import EmbedPurpose
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.errors.text import size_text
from omnigraph.frozen import frozen
from omnigraph.pipeline.sources.records import MAX_LINE_BYTES
from omnigraph.pipeline.workers import Progress, Silent, StageProgress

# ---- The spec, the seed manifest, selectors and modes


_Body = TypeVar("_Body", bound=BaseModel)

#: Where the output goes when the manifest does not say it, relative to the manifest.
DEFAULT_OUTPUT = "build/seed.embedded.jsonl"


class EmbedMode(StrEnum):
    """The action on selected records."""

    FILL_MISSING = "fill_missing"
    REEMBED_SELECTED = "reembed_selected"
    REEMBED_ALL = "reembed_all"
    CLEAN = "clean"


class TypeSpec(BaseModel):
    """The field of a type for the vector, and the fields that its text is made of."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    target: str = Field(min_length=1)
    fields: list[str] = Field(min_length=1)


class EmbedSpec(BaseModel):
    """The embedded types and the dimension of their vectors. Names no model: the provider decides."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    dimension: int = Field(ge=1, le=MAX_VECTOR_DIMENSION)
    types: Mapping[str, TypeSpec] = Field(min_length=1)


@frozen(kw_only=True)
class Selector:
    """`[Type:]field=value`."""

    type: str | None
    field: str
    value: str


@frozen(kw_only=True)
class EmbedFiles:
    """One run over files: everything that a caller chooses."""

    input: Path
    output: Path
    spec: EmbedSpec
    mode: EmbedMode = EmbedMode.FILL_MISSING
    #: Only these types; empty means all of the spec.
    types: frozenset[str] = frozenset()
    #: Only records that one of these matches; empty means all.
    selectors: tuple[Selector, ...] = ()

    def __post_init__(self) -> None:
        named = self.types | {item.type for item in self.selectors if item.type is not None}
        if unknown := sorted(named - self.spec.types.keys()):
            known = ", ".join(sorted(self.spec.types))
            raise BadRequestError(f"the spec has no type {unknown[0]}; it has {known}")


def choose_mode(*, clean: bool, reembed_all: bool, selectors: Sequence[Selector] = ()) -> EmbedMode:
    """The mode that some flags mean: selectors alone embed what they select again.

    Raises:
        BadRequestError: two modes at once.
    """
    if clean and reembed_all:
        raise BadRequestError("give one of clean and reembed_all")
    if clean:
        return EmbedMode.CLEAN
    if reembed_all:
        return EmbedMode.REEMBED_ALL
    return EmbedMode.REEMBED_SELECTED if selectors else EmbedMode.FILL_MISSING


def parse_selector(text: str) -> Selector:
    """A selector as people write it.

    >>> parse_selector("Note:slug=a=b")
    Selector(type='Note', field='slug', value='a=b')

    Raises:
        BadRequestError: it does not have the form `[Type:]field=value`.
    """
    name, equals, value = text.partition("=")
    type_, colon, field = name.rpartition(":")
    if not equals or not field.strip() or (colon and not type_.strip()):
        raise BadRequestError(f"{text!r} is not a selector: write field=value or Type:field=value")
    return Selector(type=type_.strip() or None, field=field.strip(), value=value)


# ---- files


class _Sources(BaseModel):
    raw_seed: str | None = None


class _Artifacts(BaseModel):
    embedded_seed: str = DEFAULT_OUTPUT


class _LegacySeed(BaseModel):
    data: str | None = None


class _ManifestBody(BaseModel):
    """A seed manifest describes more than embeddings: what is not about them is left alone."""

    sources: _Sources = _Sources()
    seed: _LegacySeed = _LegacySeed()
    artifacts: _Artifacts = _Artifacts()
    embeddings: EmbedSpec


@frozen(kw_only=True)
class SeedManifest:
    """The embedding part of a seed manifest; paths are resolved."""

    input: Path
    output: Path
    spec: EmbedSpec


def read_spec(path: Path) -> EmbedSpec:
    """The spec of a JSON or YAML file.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: it is not a spec; every finding has its place.
    """
    return _read(path, EmbedSpec, code="embedding-spec")


def read_seed_manifest(path: Path) -> SeedManifest:
    """The manifest of a YAML file; its paths are relative to it.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: it says nothing usable about embeddings; every finding has its place.
        BadRequestError: it names no input.
    """
    body = _read(path, _ManifestBody, code="seed-manifest")
    source = body.sources.raw_seed or body.seed.data
    if source is None:
        raise BadRequestError(f"{path} names no input: give sources.raw_seed")
    return SeedManifest(
        input=path.parent / source, output=path.parent / body.artifacts.embedded_seed, spec=body.embeddings
    )


def _read(path: Path, model: type[_Body], *, code: str) -> _Body:
    source = yaml_text(path)
    content = yaml_content(source)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise_problems(source, problems_of(error, content, mapping="a mapping"), code=code)


# ---- Records of a file and their texts


def text_of(type_name: str, data: Mapping[str, object], fields: Sequence[str]) -> str:
    r"""The text that a record is embedded by: its type, then one line per field that has a value.

    >>> text_of("Note", {"title": " Graphs ", "tags": ["a", "b"], "body": None}, ["title", "body", "tags"])
    'type: Note\ntitle: Graphs\ntags: a, b'
    """
    lines = [f"type: {type_name}"]
    for name in fields:
        if value := value_text(data.get(name)):
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


def value_text(value: object) -> str:
    """A value as one text: strings trimmed, lists joined, null empty, everything else as JSON spells it."""
    match value:
        case None:
            return ""
        case str():
            return value.strip()
        case list():
            return ", ".join(text for item in value if (text := value_text(item)))
        case _:
            return json.dumps(value, ensure_ascii=False)


def is_missing(vector: object) -> bool:
    """Whether a field counts as having no vector: absent, null or an empty list."""
    return vector is None or vector == []


def is_selected(type_name: str, data: Mapping[str, object], selectors: Sequence[Selector]) -> bool:
    """Whether any selector matches; none at all select everything. A list matches by any of its items."""
    return not selectors or any(_matches(item, type_name, data) for item in selectors)


def _matches(selector: Selector, type_name: str, data: Mapping[str, object]) -> bool:
    if selector.type not in (None, type_name) or selector.field not in data:
        return False
    value = data[selector.field]
    items = value if isinstance(value, list) else [value]
    return any(_spelling(item) == selector.value for item in items)


def _spelling(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- The file pipeline
#
# Lines keep their order. Records wait in memory until their texts fill one batch for the provider, so a batch bounds
# memory whatever the size of the file. The output appears when it is complete: a failure leaves the old one as it
# was.


#: Texts that go to the client at once, and what waits for them at most.
_BATCH_TEXTS = 256
_WAITING_LINES = 4_096
_WAITING_BYTES = 64 * 1024 * 1024


@frozen(kw_only=True)
class EmbedFilesResult(Document):
    """The result of a run."""

    input: Annotated[Path, Through(str, str, Path)]
    output: Annotated[Path, Through(str, str, Path)]
    records: int
    selected_records: int
    embedded_records: int
    cleaned_records: int
    mode: EmbedMode
    dimension: int
    #: Empty when no text had to be embedded.
    model: str


@dataclass(slots=True, kw_only=True)
class _Line:
    """One line on its way: its bytes, or the record that gets a vector."""

    content: bytes
    record: Json = field(default_factory=dict)
    data: Json = field(default_factory=dict)
    target: str = ""
    text: str | None = None


@dataclass(slots=True)
class _Counts:
    records: int = 0
    selected: int = 0
    embedded: int = 0
    cleaned: int = 0


def embed_files(
    call: EmbedFiles, embedder: EmbeddingClient | None, progress: Progress | None = None
) -> EmbedFilesResult:
    """Embed the records of a file into another one, which may be the same.

    Args:
        call: which files, which records, which mode.
        embedder: makes the vectors; None in the mode `clean`, which needs none.
        progress: shows records as they are done.

    Raises:
        InputFileError: a file cannot be read or written.
        BadRequestError: a line is not a record; the message has its number.
        EmbeddingError: the provider failed. The output is as it was.
    """
    if embedder is None and call.mode is not EmbedMode.CLEAN:
        raise BadRequestError(f"the mode {call.mode} needs an embedder")
    draft = call.output.with_name(f"{call.output.name}.tmp")
    counts = _Counts()
    with (progress or Silent()).stage("embed", 1) as stage:
        try:
            with _opened(call.input, "rb") as source:
                call.output.parent.mkdir(parents=True, exist_ok=True)
                with _opened(draft, "wb") as target:
                    _Run(call, embedder, counts, stage).copy(source, target)
                    target.flush()
                    os.fsync(target.fileno())
            draft.replace(call.output)
        except OSError as error:
            raise InputFileError(str(error.filename or call.output), error.strerror or str(error)) from error
        finally:
            draft.unlink(missing_ok=True)
        stage.update(1, counts.records)
    return EmbedFilesResult(
        input=call.input,
        output=call.output,
        records=counts.records,
        selected_records=counts.selected,
        embedded_records=counts.embedded,
        cleaned_records=counts.cleaned,
        mode=call.mode,
        dimension=call.spec.dimension,
        model="" if embedder is None else embedder.model,
    )


def _opened(path: Path, mode: str) -> BinaryIO:
    try:
        return path.open(mode)  # type: ignore[return-value]  # both modes are binary
    except OSError as error:
        raise InputFileError(str(path), error.strerror or str(error)) from error


class _Run:
    """One pass over the lines of a file."""

    def __init__(
        self, call: EmbedFiles, embedder: EmbeddingClient | None, counts: _Counts, stage: StageProgress
    ) -> None:
        self._call = call
        self._embedder = embedder
        self._counts = counts
        self._stage = stage

    def copy(self, source: BinaryIO, target: BinaryIO) -> None:
        """Write every line, in order."""
        waiting: list[_Line] = []
        texts = size = 0
        for number, content in _lines(source, self._call.input):
            line = self._decide(number, content)
            waiting.append(line)
            texts += line.text is not None
            size += len(content)
            is_full = len(waiting) == _WAITING_LINES or size >= _WAITING_BYTES
            if texts == _BATCH_TEXTS or is_full:
                self._write(waiting, target)
                waiting, texts, size = [], 0, 0
        self._write(waiting, target)

    def _decide(self, number: int, content: bytes) -> _Line:
        """Decide about a line."""
        call, counts = self._call, self._counts
        if not content.strip():
            return _Line(content=content)
        record = _record(number, content, call.input)
        counts.records += 1
        name = record.get("type")
        if name is None:
            return _Line(content=content)
        data = record.get("data")
        if not isinstance(name, str) or not isinstance(data, dict):
            what = "`data` is not an object" if isinstance(name, str) else "`type` is not a string"
            _refuse(call.input, number, what)
        spec = call.spec.types.get(name)
        if spec is None or (call.types and name not in call.types):
            return _Line(content=content)
        if not is_selected(name, data, call.selectors):
            return _Line(content=content)
        counts.selected += 1
        if call.mode is EmbedMode.CLEAN:
            if spec.target not in data:
                return _Line(content=content)
            del data[spec.target]
            counts.cleaned += 1
            return _Line(content=_encoded(record))
        if call.mode is EmbedMode.FILL_MISSING and not is_missing(data.get(spec.target)):
            return _Line(content=content)
        text = text_of(name, data, spec.fields)
        return _Line(content=content, record=record, data=data, target=spec.target, text=text)

    def _write(self, lines: Sequence[_Line], target: BinaryIO) -> None:
        pending = [line for line in lines if line.text is not None]
        if pending:
            assert self._embedder is not None, "checked before anything was read"
            vectors = self._embedder.embed(
                [str(line.text) for line in pending], dimension=self._call.spec.dimension, purpose=EmbedPurpose.DOCUMENT
            )
            for line, vector in zip(pending, vectors, strict=True):
                line.data[line.target] = _short(vector)
                line.content = _encoded(line.record)
        for line in lines:
            target.write(line.content + b"\n")
        self._counts.embedded += len(pending)
        self._stage.update(0, self._counts.records)


def _lines(source: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """All lines with their numbers, without the line feed at their end."""
    number = 0
    while content := source.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(content) > MAX_LINE_BYTES:
            _refuse(path, number, f"it is longer than {size_text(MAX_LINE_BYTES)}")
        if number == 1:
            content = content.removeprefix(b"\xef\xbb\xbf")
        yield number, content.removesuffix(b"\n")


def _record(number: int, content: bytes, path: Path) -> Json:
    try:
        record = json.loads(content, object_pairs_hook=_strict, parse_float=_finite, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        _refuse(path, number, f"it is not JSON ({error})")
    if not isinstance(record, dict):
        _refuse(path, number, "it is not a JSON object")
    return record


def _strict(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _no_number(text)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _refuse(path: Path, number: int, what: str) -> NoReturn:
    raise BadRequestError(f"{path}, line {number}: {what}; nothing was written")


def _encoded(record: Json) -> bytes:
    try:
        return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        # Half a surrogate pair is legal in JSON as an escape only.
        return json.dumps(record, separators=(",", ":")).encode()


def _short(vector: Sequence[float]) -> list[float]:
    """32-bit floats with as many digits as they have: a load reads the same bits back."""
    import numpy as np

    return [float(str(component)) for component in np.array(vector, np.float32)]
