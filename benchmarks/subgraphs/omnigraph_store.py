"""The nine queries in OmniGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import omnigraph
from comparison.engines.omnigraph_load import fill
from omnigraph import Graph

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call
    from graphs.folder import Dataset

_MESSAGE = "$m: Post | Comment  $m (postTag | commentTag) $tag"
_CREATOR = "$m (postCreator | commentCreator) $creator"
_LIKER = "$liker (likesPost | likesComment) $m"
_REPLY = "$reply (replyToPost | replyToComment) $m"
_TWO_STEPS = "$a <knows> $b  $b <knows> $c  $c hasInterest $tag  $a != $c"
CLAUSES = {
    "q1": "$country countryIn $continent  $city cityIn $country  $person livesIn $city  $forum hasMember $person "
    "$forum containerOf $post  $comment replyToPost $post  $comment commentTag $tag  $tag hasType $class",
    "q2": "$a <knows> $b  $comment commentCreator $a  $comment replyToPost $post  $post postCreator $b",
    "q3": "$country: Country  $u cityIn $country  $v cityIn $country  $w cityIn $country "
    "$a livesIn $u  $b livesIn $v  $c livesIn $w  $a <knows> $b  $b <knows> $c  $c <knows> $a",
    "q4": f"{_MESSAGE}  {_CREATOR}  {_LIKER}  {_REPLY}",
    "q5": f"{_MESSAGE}  {_REPLY}  $reply commentTag $other  $tag != $other",
    "q6": _TWO_STEPS,
    "q7": f"{_MESSAGE}  {_CREATOR}  optional {{ {_LIKER} }}  optional {{ {_REPLY} }}",
    "q8": f"{_MESSAGE}  {_REPLY}  $reply commentTag $other  $tag != $other  not {{ $reply commentTag $tag }}",
    "q9": f"{_TWO_STEPS}  not {{ $a <knows> $c }}",
}


class OmniGraphStore:
    """A graph with all its indexes built."""

    version = omnigraph.__version__

    def __init__(self, store: Path) -> None:
        graph = Graph.open(store / "network.omni")
        texts = {name: f"match {{ {clauses} }} return {{ count(*) as n }}" for name, clauses in CLAUSES.items()}
        self.calls: dict[str, Call] = {
            name: lambda _, text=text: graph.query(text).to_pylist() for name, text in texts.items()
        }

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """One commit with all rows, then the indexes."""
        with Graph.init(store / "network.omni", dataset.schema_path) as graph:
            fill(graph, dataset)
            graph.ensure_indices()

    def rows(self, fetched: list[dict[str, object]]) -> list[list[object]]:
        """Values in projection order."""
        return [list(row.values()) for row in fetched]

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}
