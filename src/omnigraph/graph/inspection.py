"""What the checks of a graph's health read, each thing once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from omnigraph.errors import OmniError
from omnigraph.manifest.pins import open_pin
from omnigraph.recovery.retention import type_keys
from omnigraph.storage.retention import list_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.graph.diagnosis import DiskUse
    from omnigraph.manifest.rows import TablePin
    from omnigraph.manifest.snapshot import History
    from omnigraph.manifest.state import ManifestState
    from omnigraph.recovery.environment import GraphEnvironment
    from omnigraph.storage.retention import DatasetListing
    from omnigraph.storage.tables import Table


@dataclass
class Inspection:
    """What several checks need, read once; what fails fails for each of them."""

    environment: GraphEnvironment

    def __post_init__(self) -> None:
        self.disk: list[DiskUse] = []
        self.size_bytes = 0
        self.derived_bytes = 0

    @cached_property
    def state(self) -> ManifestState:
        """The branches and what they read."""
        return self.environment.manifest.state()

    @cached_property
    def history(self) -> History:
        """All commits."""
        return self.environment.manifest.history()

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The types by the datasets that hold them."""
        return type_keys(self.history)

    @cached_property
    def listings(self) -> Mapping[str, DatasetListing]:
        """The datasets that live branches read; those that cannot be listed are told by the check of heads."""
        paths = {pin.location for head in self.state.heads.values() for pin in head.pins.values()}
        found = {}
        for path in sorted(paths):
            try:
                found[path] = list_versions(self.environment.location, path)
            except OmniError:
                continue
        return found

    def open(self, pin: TablePin) -> Table:
        """The table at a pin."""
        return open_pin(self.environment.tables, pin)

    def run(self, command: str, options: str = "") -> str:
        """A command for this graph, to be copied."""
        words = ["omnigraph", command, self.environment.location.uri, options]
        return " ".join(word for word in words if word)
