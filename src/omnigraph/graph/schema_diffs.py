"""How two schemas differ that one graph has accepted."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.schema.plan import plan_between

if TYPE_CHECKING:
    from omnigraph.graph.schemas import GraphSchema
    from omnigraph.schema.plan import MigrationPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDiff:
    """Two schema texts, and the steps between them."""

    old: str
    new: str
    plan: MigrationPlan

    def lines(self, old_name: str, new_name: str) -> list[str]:
        """A unified diff of the texts."""
        old, new = self.old.splitlines(), self.new.splitlines()
        return list(difflib.unified_diff(old, new, old_name, new_name, lineterm=""))


def diff_schemas(old: GraphSchema, new: GraphSchema) -> SchemaDiff:
    """What happened between two accepted schemas; renames are recognised by the stable ids."""
    plan = plan_between(old.accepted, new.accepted)
    return SchemaDiff(old=old.source, new=new.source, plan=plan)
