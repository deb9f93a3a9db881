"""The nine queries in Ladybug."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ladybug

from subgraphs.network import EDGES, NODES

if TYPE_CHECKING:
    from pathlib import Path

    from comparison.contract import Call
    from graphs.folder import Dataset

_MESSAGE = "MATCH (m:Post:Comment)-[:PostTag|:CommentTag]->(t:Tag)"
_REPLY = "(m)<-[:ReplyToPost|:ReplyToComment]-(r:Comment)"
_LIKER = "(m)<-[:LikesPost|:LikesComment]-(l:Person)"
_CREATOR = "(m)-[:PostCreator|:CommentCreator]->(c:Person)"
_TAGS_OF_REPLIES = f"{_MESSAGE}, {_REPLY}-[:CommentTag]->(o:Tag) WHERE t.number <> o.number"
_TWO_STEPS = (
    "MATCH (a:Person)-[:Knows]-(b:Person)-[:Knows]-(c:Person)-[:HasInterest]->(t:Tag) WHERE a.number <> c.number"
)
_QUERIES = {
    "q1": "MATCH (:Continent)<-[:CountryIn]-(:Country)<-[:CityIn]-(:City)<-[:LivesIn]-(:Person)<-[:HasMember]-(:Forum)"
    "-[:ContainerOf]->(:Post)<-[:ReplyToPost]-(:Comment)-[:CommentTag]->(:Tag)-[:HasType]->(:TagClass)",
    "q2": "MATCH (a:Person)-[:Knows]-(b:Person), (a)<-[:CommentCreator]-(:Comment)-[:ReplyToPost]->(p:Post),"
    " (p)-[:PostCreator]->(b)",
    "q3": "MATCH (n:Country), (n)<-[:CityIn]-(:City)<-[:LivesIn]-(a:Person),"
    " (n)<-[:CityIn]-(:City)<-[:LivesIn]-(b:Person), (n)<-[:CityIn]-(:City)<-[:LivesIn]-(c:Person),"
    " (a)-[:Knows]-(b), (b)-[:Knows]-(c), (c)-[:Knows]-(a)",
    "q4": f"{_MESSAGE}, {_CREATOR}, {_LIKER}, {_REPLY}",
    "q5": _TAGS_OF_REPLIES,
    "q6": _TWO_STEPS,
    "q7": f"{_MESSAGE}, {_CREATOR} OPTIONAL MATCH {_LIKER} OPTIONAL MATCH {_REPLY}",
    "q8": f"{_TAGS_OF_REPLIES} AND NOT EXISTS {{ MATCH (r)-[:CommentTag]->(t) }}",
    "q9": f"{_TWO_STEPS} AND NOT EXISTS {{ MATCH (a)-[:Knows]-(c) }}",
}
#: A query that takes longer has failed.
_TIMEOUT_MS = 120_000


class LadybugStore:
    """A Ladybug database."""

    version = ladybug.__version__

    def __init__(self, store: Path) -> None:
        connection = ladybug.Connection(ladybug.Database(store / "network.lbdb"))
        connection.set_query_timeout(_TIMEOUT_MS)
        self.calls: dict[str, Call] = {
            name: lambda _, text=text: connection.execute(f"{text} RETURN count(*)").get_all()
            for name, text in _QUERIES.items()
        }

    @staticmethod
    def build(dataset: Dataset, store: Path) -> None:
        """Copy all tables; primary keys and adjacency come with them."""
        connection = ladybug.Connection(ladybug.Database(store / "network.lbdb"))
        for name in NODES:
            connection.execute(f"CREATE NODE TABLE {name}(number INT64 PRIMARY KEY)")
            connection.execute(f'COPY {name} FROM "{dataset.node_path(name)}"')
        for name, (source, target) in EDGES.items():
            connection.execute(f"CREATE REL TABLE {name}(FROM {source} TO {target})")
            connection.execute(f'COPY {name} FROM "{dataset.edge_path(name)}"')
        connection.execute("CHECKPOINT")
        connection.close()

    def rows(self, fetched: list[list[object]]) -> list[list[object]]:
        """Rows as they are."""
        return fetched

    def facts(self) -> dict[str, object]:
        """Nothing further."""
        return {}
