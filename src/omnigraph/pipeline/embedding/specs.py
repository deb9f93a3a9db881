"""What the file pipeline is asked to do: the spec, the seed manifest, selectors and modes (spec: search §7)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omnigraph.errors import BadRequestError
from omnigraph.types.kinds import MAX_VECTOR_DIMENSION
from omnigraph.validation import problems_of
from omnigraph.yaml_files import raise_problems, read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_Body = TypeVar("_Body", bound=BaseModel)

#: Where the output goes when the manifest does not say it, relative to the manifest.
DEFAULT_OUTPUT = "build/seed.embedded.jsonl"


class EmbedMode(StrEnum):
    """What happens to selected records."""

    FILL_MISSING = "fill_missing"
    REEMBED_SELECTED = "reembed_selected"
    REEMBED_ALL = "reembed_all"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSpec:
    """Which field of a type gets the vector, and which fields its text is made of."""

    target: str
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedSpec:
    """Which types are embedded, and how long their vectors are. Names no model: the provider decides."""

    dimension: int
    types: Mapping[str, TypeSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """`[Type:]field=value`."""

    type: str | None
    field: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
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
        raise BadRequestError(f"{text!r} is no selector: write field=value or Type:field=value")
    return Selector(type=type_.strip() or None, field=field.strip(), value=value)


# ---- files


class _TypeBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    target: str = Field(min_length=1)
    fields: list[str] = Field(min_length=1)


class _SpecBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    dimension: int = Field(ge=1, le=MAX_VECTOR_DIMENSION)
    types: dict[str, _TypeBody] = Field(min_length=1)


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
    embeddings: _SpecBody


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedManifest:
    """What a manifest says about embeddings; paths are resolved."""

    input: Path
    output: Path
    spec: EmbedSpec


def read_spec(path: Path) -> EmbedSpec:
    """The spec of a JSON or YAML file.

    Raises:
        InputFileError: the file cannot be read.
        ConfigurationError: it is not a spec; every finding has its place.
    """
    return _spec(_read(path, _SpecBody, code="embedding-spec"))


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
        input=path.parent / source,
        output=path.parent / body.artifacts.embedded_seed,
        spec=_spec(body.embeddings),
    )


def _spec(body: _SpecBody) -> EmbedSpec:
    types = {
        name: TypeSpec(target=item.target, fields=tuple(item.fields))
        for name, item in body.types.items()
    }
    return EmbedSpec(dimension=body.dimension, types=types)


def _read(path: Path, model: type[_Body], *, code: str) -> _Body:
    content = read_yaml(path)
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise_problems(path, problems_of(error, content, mapping="a mapping"), code=code)
