"""The schema that a graph has accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from omnigraph.schema.catalog import Catalog
    from omnigraph.schema.identity import Identities


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSchema:
    """The schema of an existing graph: its catalog and its stable identities."""

    catalog: Catalog
    identities: Identities
