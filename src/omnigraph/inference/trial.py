"""A proposal tried on the beginning of its files with the reader of loads, without a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.core.ids import new_ulid
from omnigraph.lang.schema.accepted import fresh_identities
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.lang.schema.rules import derive_rules
from omnigraph.pipeline.keys import new_id_prefix
from omnigraph.pipeline.shape.plan import Grammar, LoadPlan, shapes_of
from omnigraph.pipeline.shape.shaping import Shaped, shape_records
from omnigraph.pipeline.sources.mapping import read_mapping
from omnigraph.pipeline.sources.parts import cut_mapped_files
from omnigraph.pipeline.sources.reading import PartReader
from omnigraph.pipeline.violations import ViolationCounts

#: Records of a part that are tried.
_TRIED = 50_000
#: Records that are named.
_NAMED = 5


def refused_records(schema: str, mapping: Mapping[str, object]) -> Iterator[str]:
    """What a load would refuse in the files of a mapping, a sentence for each of the first records.

    Raises:
        CompilerError: the schema is wrong.
        BadRequestError: the mapping does not fit it.
    """
    violations = ViolationCounts()
    for shaped in read_rows(schema, mapping, violations):
        violations.merge(shaped.violations)
    if violations:
        report = violations.report(relations_checked=False)
        for record in report.examples[:_NAMED]:
            place = record.source if record.line is None else f"{record.source}:{record.line}"
            yield f"{place}: {record.message}"
        if report.total > _NAMED:
            left = report.total - _NAMED
            yield f"{left:,} more {'record is' if left == 1 else 'records are'} refused"


def read_rows(schema: str, mapping: Mapping[str, object], violations: ViolationCounts) -> Iterator[Shaped]:
    """The rows that a load would make of the first records of every file; `violations` gets what cannot be read."""
    compiled = compile_schema(schema)
    catalog = compiled.catalog
    identities = fresh_identities(catalog, new_ulid(), compiled.source).identities
    plan = LoadPlan(
        shapes=shapes_of(catalog, identities, derive_rules(catalog)),
        edge_words={name.casefold(): edge.table_key for name, edge in catalog.edges.items()},
        grammar=Grammar.STRICT,
        id_prefix=new_id_prefix(),
    )
    for part in cut_mapped_files(read_mapping(mapping, catalog, with_frames=True).types, 1):
        tried = 0
        for raw in PartReader(part, plan, violations).records():
            yield shape_records(raw, plan, source=part.file.path, part=part.number, first_row=tried)
            tried += raw.count
            if tried >= _TRIED:
                break
