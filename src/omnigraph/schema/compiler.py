"""Schema text → catalog: the one entrance to the schema language."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.schema.build import build_catalog
from omnigraph.schema.checks import check_schema
from omnigraph.schema.parser import SYNTAX_ERROR, parse_schema_all
from omnigraph.syntax.source import SourceText, read_source

if TYPE_CHECKING:
    from omnigraph.errors import Diagnostic
    from omnigraph.schema import ast
    from omnigraph.schema.catalog import Catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSchema:
    """A schema that passed every check."""

    source: SourceText
    tree: ast.Schema
    catalog: Catalog
    #: What the schema says without effect, in the order of the text.
    warnings: tuple[Diagnostic, ...] = ()


def compile_schema(source: SourceText | str, *, accepted: bool = False) -> CompiledSchema:
    """Parse, check and resolve a schema.

    `accepted=True` re-reads the contract of an existing graph, which tolerates one shape that new input may not have.

    >>> compile_schema("node Paper { doi: String @key }").catalog.nodes["Paper"].key.members
    ('doi',)

    Raises:
        CompilerError: with every finding: the first syntax error of each broken declaration, and every rule that the
            other declarations break.
    """
    if isinstance(source, str):
        source = SourceText(source, "<schema>")
    tree, findings = parse_schema_all(source)
    check_schema(tree, findings, complete=not findings.error_count, accepted=accepted)
    findings.items.sort(key=lambda item: (item.line, item.column))
    findings.raise_errors()
    return CompiledSchema(
        source=source, tree=tree, catalog=build_catalog(tree), warnings=findings.warnings
    )


def as_compiled(schema: str | Path | CompiledSchema) -> CompiledSchema:
    """A schema as callers give it: the path of a `.pg` file, schema text, or a compiled schema.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: as `compile_schema`.
    """
    if isinstance(schema, CompiledSchema):
        return schema
    is_path = isinstance(schema, Path) or "{" not in schema
    return compile_schema_file(schema) if is_path else compile_schema(str(schema))


def compile_schema_file(path: str | Path) -> CompiledSchema:
    """Read and compile a `.pg` file.

    Raises:
        InputFileError: the file cannot be read.
        CompilerError: as `compile_schema`, or the file is no UTF-8 text.
    """
    return compile_schema(read_source(path, code=SYNTAX_ERROR))
