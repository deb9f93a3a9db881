"""A schema and a mapping for tables: sampled, guessed, tried with the reader of loads, and written with the evidence.

files, frames → samples → columns → keys and references → roles → types → two texts
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from omnigraph.codec import HIDDEN, OMIT_EMPTY, Document
from omnigraph.core.arrow import Rows as ArrowRows
from omnigraph.errors import BadRequestError, InputFileError
from omnigraph.frozen import frozen
from omnigraph.inference.columns import Column, SampledColumn, look_at
from omnigraph.inference.design import Design, EdgeType, NodeType, counted, design_of
from omnigraph.inference.frames import of_single_frames
from omnigraph.inference.inner import inner_table
from omnigraph.inference.names import file_words, singular
from omnigraph.inference.relations import InnerTable, Profile
from omnigraph.inference.roles import Wishes
from omnigraph.inference.samples import Table, arrow_table, read_table
from omnigraph.inference.tables import LeftOut, find_tables
from omnigraph.inference.texts import end_evidence, mapping_content, mapping_text, property_evidence, schema_text
from omnigraph.inference.trial import refused_records
from omnigraph.pipeline.shape.columns import is_list_type

# ---- What is proposed


@frozen(kw_only=True)
class PropertyGuess(Document):
    """A property, the column that feeds it, and what the guess rests on."""

    name: str
    type: str
    column: str
    evidence: str


@frozen(kw_only=True)
class EndGuess(Document):
    """One end of edges: its columns, the type of its nodes, and what the guess rests on."""

    node: str
    columns: tuple[str, ...]
    evidence: str


@frozen(kw_only=True)
class TypeGuess(Document):
    """A node or an edge type, the tables that feed it, and what the guess rests on."""

    kind: str
    name: str
    sources: tuple[str, ...]
    #: Of nodes: the properties of the key.
    key: Annotated[tuple[str, ...], OMIT_EMPTY] = ()
    #: Of edges: where they begin and end.
    ends: Annotated[tuple[EndGuess, ...], OMIT_EMPTY] = ()
    properties: tuple[PropertyGuess, ...]
    evidence: str


@frozen(kw_only=True)
class Proposal(Document):
    """A schema and a mapping for data, with what every guess rests on.

    `str()` gives both texts. `write` makes files of them, which `init` and `load` take.
    """

    schema: str
    #: As a file in the working directory.
    mapping: str
    types: tuple[TypeGuess, ...]
    left_out: tuple[LeftOut, ...]
    #: What a person should know before loading.
    notes: tuple[str, ...]
    design: Annotated[Design, HIDDEN]
    #: What the mapping says: of frames, nodes that others only name have one frame of their own.
    mapped: Annotated[Design, HIDDEN]

    def __str__(self) -> str:
        return f"{self.schema}\n{self.mapping}"

    def mapping_in(self, folder: str | os.PathLike[str]) -> str:
        """The mapping as a file in a folder, to which its sources are relative."""
        return mapping_text(self.mapped, os.path.abspath(os.fspath(folder)))

    def mapping_content(self) -> dict[str, object]:
        """The mapping as `load` takes it in Python; the sources of files are absolute, those of frames are left out."""
        return mapping_content(self.mapped)

    def write(self, schema: str | os.PathLike[str], mapping: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write both texts to files; without `force` none of them may exist.

        Raises:
            BadRequestError: a file exists. Nothing was written.
            InputFileError: a file cannot be written.
        """
        texts = {Path(schema): self.schema, Path(mapping): self.mapping_in(Path(mapping).parent)}
        write_texts(texts, force=force)


def write_texts(texts: Mapping[Path, str], *, force: bool, dry_run: bool = False) -> None:
    """Write some files; without `force` none of them may exist. `dry_run` only looks whether they may be written.

    Raises:
        BadRequestError: a file exists. Nothing was written.
        InputFileError: a file cannot be written.
    """
    for path in () if force else texts:
        if path.exists():
            raise BadRequestError(f"{path} exists: choose another name, or replace it with --force (force=True)")
    for path, text in () if dry_run else texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputFileError(str(path), f"it cannot be written: {error.strerror or error}") from error


# ---- Proposing


def propose_for_files(sources: Iterable[str | os.PathLike[str]], wishes: Wishes | None = None) -> Proposal:
    """A proposal for the tables in files, folders and patterns.

    Raises:
        InputFileError: a source does not exist or cannot be read.
        BadRequestError: a source is not a table, or a wish names something that is not there.
    """
    found, left_out = find_tables(sources)
    design = _design((read_table(item) for item in found), [item.stem for item in found], wishes)
    schema = schema_text(design)
    bad = [
        f"{p.table.shown}: {counted(p.table.bad_records, 'record')} cannot be read, such as lines with too many values"
        for p in design.profiles
        if p.table.bad_records
    ]
    refused = list(refused_records(schema, mapping_content(design)))
    return _proposal(design, design, left_out, [*bad, *refused])


def propose_for_rows(frames: Mapping[str, FrameRows], wishes: Wishes | None = None) -> Proposal:
    """A proposal for frames by the names of their types.

    Raises:
        BadRequestError: a wish names something that is not there.
    """
    tables = []
    for name, given in frames.items():
        table = arrow_table(given.rows, stem=name, shown=f"frame {name}", is_declared=given.is_declared)
        tables.append(
            replace(table, is_named=True, is_whole=not given.sample, sample=given.sample, is_ordered=given.is_ordered)
        )
    design = _design(tables, list(frames), wishes)
    return _proposal(design, of_single_frames(design), [], [])


@frozen(kw_only=True)
class FrameRows:
    """The rows of a frame, or some of them."""

    rows: ArrowRows
    #: Whether its types are meant, as in Parquet; those of pandas are what the values happened to be.
    is_declared: bool
    #: What the rows are a sample of; nothing if they are all.
    sample: str = ""
    #: Whether its rows have an order; those of Spark have none.
    is_ordered: bool = True


def _design(tables: Iterable[Table], stems: Sequence[str], wishes: Wishes | None) -> Design:
    """The types of tables, which are looked at one after the other."""
    profiles = [_profile(table, words) for table, words in zip(tables, file_words(stems), strict=True)]
    return design_of([profile for profile, _ in _with_order(profiles)], wishes)


def _proposal(design: Design, mapped: Design, left_out: Sequence[LeftOut], notes: Sequence[str]) -> Proposal:
    columns = [
        LeftOut(name=f"{p.table.shown}, {it.name}", reason=it.reason)
        for p in design.profiles
        for it in p.table.left_out
    ]
    nodes = (_node_guess(node, design) for node in design.nodes)
    return Proposal(
        schema=schema_text(design),
        mapping=mapping_text(mapped, os.getcwd()),
        types=(*nodes, *(_edge_guess(edge, design) for edge in design.edges)),
        left_out=(*left_out, *columns),
        notes=(*design.notes, *notes),
        design=design,
        mapped=mapped,
    )


#: Columns that are looked at again when others have told whether days or months come first.
_Undecided = list[SampledColumn]


def _profile(table: Table, words: tuple[str, ...]) -> tuple[Profile, _Undecided]:
    if not table.columns and not table.left_out:
        raise BadRequestError(f"{table.shown} has no columns")
    columns: list[Column] = []
    undecided: _Undecided = []
    left_out = list(table.left_out)
    inner: list[InnerTable] = []
    for sampled in table.columns:
        column = look_at(sampled)
        items = inner_table(sampled, column)
        inner += [] if items is None else [items]
        if column is None:
            left_out.append(LeftOut(name=sampled.name, reason=_no_property(sampled)))
            continue
        columns.append(column)
        if column.is_ambiguous:
            undecided.append(sampled)
    # The values themselves are not needed any more.
    slim = replace(table, columns=(), left_out=tuple(left_out))
    last = tuple(singular(word) for word in words[-1:])
    profile = Profile(table=slim, words=(*words[:-1], *last), columns=tuple(columns), inner=tuple(inner))
    return profile, undecided


def _no_property(sampled: SampledColumn) -> str:
    if is_list_type(sampled.values.type):
        return "lists of objects; a property holds one value or a list of values"
    return f"no property holds values of the type {sampled.values.type}"


def _with_order(found: Sequence[tuple[Profile, _Undecided]]) -> list[tuple[Profile, _Undecided]]:
    """The profiles with dates in the order that other columns tell, where these agree."""
    orders = {column.order for profile, _ in found for column in profile.columns if column.order is not None}
    if len(orders) != 1:
        return list(found)
    (order,) = orders
    decided = []
    for profile, undecided in found:
        again = {sampled.name: look_at(sampled, order=order) for sampled in undecided}
        columns = tuple(again.get(column.name) or column for column in profile.columns)
        decided.append((replace(profile, columns=columns), undecided))
    return decided


# ---- The same as data


def _node_guess(node: NodeType, design: Design) -> TypeGuess:
    return TypeGuess(
        kind="node",
        name=node.name,
        sources=tuple(design.profiles[rows.table].table.shown for rows in node.sources),
        key=node.key,
        properties=tuple(
            PropertyGuess(
                name=item.name, type=str(item.type), column=item.column.name, evidence=property_evidence(item)
            )
            for item in node.properties
        ),
        evidence=node.reason,
    )


def _edge_guess(edge: EdgeType, design: Design) -> TypeGuess:
    ends = tuple(
        EndGuess(node=end.node, columns=tuple(column.name for column in end.columns), evidence=end_evidence(end))
        for end in (edge.source, edge.target)
    )
    return TypeGuess(
        kind="edge",
        name=edge.name,
        sources=(design.profiles[edge.rows.table].table.shown,),
        ends=ends,
        properties=tuple(
            PropertyGuess(
                name=item.name, type=str(item.type), column=item.column.name, evidence=property_evidence(item)
            )
            for item in edge.rows.properties
        ),
        evidence="; ".join(edge.notes),
    )
