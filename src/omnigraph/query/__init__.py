"""The query language (`.gq`): text → syntax tree → checked query → intermediate representation.

Owns: the grammar, the type-check, parameters, the representation that every engine executes (`ir`, which states the
semantics), its text form (`explain`), descriptors and lint. Never reads data and never touches storage. Start reading
at `compiler`, then `ir`.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_exports
from omnigraph.query.compiler import (
    CompiledQuery,
    QueryCompiler,
    compile_file,
    compile_query,
    read_queries,
)
from omnigraph.query.descriptor import (
    FieldDescriptor,
    Operation,
    TypeRef,
    ValueKind,
    describe_field,
)
from omnigraph.query.explain import explain_ir
from omnigraph.query.params import bind_params
from omnigraph.query.parser import parse_queries

if TYPE_CHECKING:
    from omnigraph.query.lint import LintReport, LintStatus, lint_queries
    from omnigraph.query.printer import print_queries

__all__ = [
    "CompiledQuery",
    "FieldDescriptor",
    "LintReport",
    "LintStatus",
    "Operation",
    "QueryCompiler",
    "TypeRef",
    "ValueKind",
    "bind_params",
    "compile_file",
    "compile_query",
    "describe_field",
    "explain_ir",
    "lint_queries",
    "parse_queries",
    "print_queries",
    "read_queries",
]

__getattr__ = late_exports(
    __name__,
    {
        "LintReport": "lint",
        "LintStatus": "lint",
        "lint_queries": "lint",
        "print_queries": "printer",
    },
)
