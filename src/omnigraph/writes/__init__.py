"""Small writes in process: a mutation is prepared in memory, validated as a whole, and staged once per table.

Owns: the accumulator with read-your-writes, statements, integrity rules and their local interpreter, staging. Never
makes anything visible: that is the commit protocol. Start reading at `mutation`, then `rules` and `validate`.
"""

from omnigraph.writes.columns import blob_columns, table_schema
from omnigraph.writes.external import ExternalIntake
from omnigraph.writes.mutation import (
    MutationOutcome,
    PreparedMutation,
    prepare_mutation,
    stage_mutation,
)
from omnigraph.writes.rules import TableRules, derive_rules

__all__ = [
    "ExternalIntake",
    "MutationOutcome",
    "PreparedMutation",
    "TableRules",
    "blob_columns",
    "derive_rules",
    "prepare_mutation",
    "stage_mutation",
    "table_schema",
]
