"""Plans without a graph: a schema, statistics over it, and plans as text."""

from __future__ import annotations

from functools import cache

from omnigraph.engine.plan.estimates import Model, rows_behind
from omnigraph.engine.plan.planner import plan_read
from omnigraph.engine.plan.statistics import EdgeStatistics, PropertyStatistics, Statistics
from omnigraph.lang.query import ir
from omnigraph.lang.query.compiler import compile_query
from omnigraph.lang.query.describe.explain import explain_ir
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.schema.compiler import compile_schema

SCHEMA = """
node Person { name: String @key  age: I64?  active: Bool?  bio: String? @index  vec: Vector(2)? }
node City { name: String @key  size: I64? }
node Country { name: String @key }
node Forum { title: String @key }
node Post { number: I64 @key  text: String? @index  made: I64? }
node Comment { number: I64 @key  made: I64? }
node Tag { name: String @key }
edge Knows: Person -> Person { since: I64? }
edge LivesIn: Person -> City
edge CityIn: City -> Country
edge HasMember: Forum -> Person
edge ContainerOf: Forum -> Post
edge PostCreator: Post -> Person
edge CommentCreator: Comment -> Person
edge ReplyToPost: Comment -> Post
edge ReplyToComment: Comment -> Comment
edge PostTag: Post -> Tag
edge CommentTag: Comment -> Tag
edge LikesPost: Person -> Post
edge LikesComment: Person -> Comment
edge HasInterest: Person -> Tag
"""
ROWS = {
    "Person": 100_000,
    "City": 1_000,
    "Country": 100,
    "Forum": 20_000,
    "Post": 200_000,
    "Comment": 600_000,
    "Tag": 2_000,
}
EDGES = {
    "Knows": 2_000_000,
    "LivesIn": 100_000,
    "CityIn": 1_000,
    "HasMember": 800_000,
    "ContainerOf": 200_000,
    "PostCreator": 200_000,
    "CommentCreator": 600_000,
    "ReplyToPost": 300_000,
    "ReplyToComment": 300_000,
    "PostTag": 400_000,
    "CommentTag": 900_000,
    "LikesPost": 700_000,
    "LikesComment": 1_000_000,
    "HasInterest": 500_000,
}
_BOUNDS = tuple(float(value) for value in range(18, 98, 5))


@cache
def catalog() -> Catalog:
    """The schema of a social network."""
    return compile_schema(SCHEMA).catalog


@cache
def statistics() -> Statistics:
    """A network of 100,000 persons: keys are different everywhere, ages and years are known, texts are not."""
    keys = {
        (f"node:{node.name}", node.key.members[0]): PropertyStatistics(ROWS[node.name])
        for node in catalog().nodes.values()
        if node.key is not None
    }
    known = {
        ("node:Person", "age"): PropertyStatistics(80, 0.1, 18.0, 97.0, _BOUNDS),
        ("node:Person", "active"): PropertyStatistics(2),
        ("edge:Knows", "since"): PropertyStatistics(20, 0.0, 2000.0, 2020.0, (2000.0, 2005.0, 2010.0, 2015.0, 2020.0)),
    }
    return Statistics.of(ROWS, {name: EdgeStatistics(count) for name, count in EDGES.items()}, keys | known)


def written(text: str) -> ir.ReadIR:
    """A read as it is written."""
    found = compile_query(text, catalog()).ir
    assert isinstance(found, ir.ReadIR), "a read"
    return found


def planned(text: str, numbers: Statistics | None = None) -> ir.ReadIR:
    """A read in the order of its plan."""
    return plan_read(written(text), statistics() if numbers is None else numbers)


def plan_text(text: str) -> str:
    """A plan with its estimates."""
    plan = planned(text)
    rows = rows_behind(Model.of(statistics(), plan.pipeline, {}), plan.pipeline)
    numbers = " · ".join(f"{count:.3g}" for count in rows)
    return f"{explain_ir(plan)}  estimates: {numbers}\n"
