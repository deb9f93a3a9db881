"""What becomes a node and what an edge, by keys and references between small tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import BadRequestError
from omnigraph.inference.proposal import Proposal, propose_for_files
from omnigraph.inference.roles import Wishes
from support.subtests import named_cases

#: Table → its columns, and per row its values; rows may be made by a function of their number.
Tables = dict[str, tuple[str, Any]]


def lines(count: int, row: Any) -> str:
    return "".join(f"{row(number)}\n" for number in range(count))


PEOPLE = ("id,name", lines(30, lambda n: f"{n + 1},P{n}"))
MOVIES = ("id,title", lines(20, lambda n: f"{n + 101},M{n}"))
AIRPORTS = ("airport_id,name,iata", lines(30, lambda n: f"{n * 3 + 1},Airport {n},A{chr(65 + n % 26)}{n % 10}"))

#: Tables, and the types that they make: nodes with their keys, edges with their ends and the columns of these.
CASES: dict[str, tuple[Tables, dict[str, str], dict[str, str]]] = {
    "a table with an id": ({"movies": MOVIES}, {"Movie": "movie_id"}, {}),
    "a table without any key": (
        {"visits": ("day,count", lines(8, lambda n: f"2024-01-0{n % 4 + 1},{n % 3}"))},
        {"Visit": ""},
        {},
    ),
    "a table of two references": (
        {
            "people": PEOPLE,
            "movies": MOVIES,
            "roles": ("movie_id,person_id,part", lines(40, lambda n: f"{n % 20 + 101},{n % 30 + 1},x")),
        },
        {"Movie": "movie_id", "Person": "person_id"},
        {"Role": "Person -> Movie (person_id; movie_id)"},
    ),
    "a table of two references that numbers its rows": (
        {
            "people": PEOPLE,
            "movies": MOVIES,
            "roles": ("id,movie_id,person_id", lines(40, lambda n: f"{n + 1},{n % 20 + 101},{n % 30 + 1}")),
        },
        {"Movie": "movie_id", "Person": "person_id"},
        {"Role": "Person -> Movie (person_id; movie_id)"},
    ),
    "a thing that refers to others": (
        {
            "people": PEOPLE,
            "movies": (
                "id,title,director_id,producer_id",
                lines(20, lambda n: f"{n + 101},M{n},{n % 30 + 1},{n % 7 + 1}"),
            ),
        },
        {"Movie": "movie_id", "Person": "person_id"},
        {"HasDirector": "Movie -> Person (id; director_id)", "HasProducer": "Movie -> Person (id; producer_id)"},
    ),
    "a tree": (
        {"people": ("id,name,manager_id", lines(30, lambda n: f"{n + 1},P{n},{n // 3 or ''}"))},
        {"Person": "person_id"},
        {"HasManager": "Person -> Person (id; manager_id)"},
    ),
    "references by another unique column": (
        {
            "airports": AIRPORTS,
            "routes": (
                "from,to",
                lines(
                    40,
                    lambda n: (
                        f"A{chr(65 + n % 26)}{n % 10},A{chr(65 + (n + 3) % 26)}{(n + 3) % 10}" if n < 23 else "AA0,AB1"
                    ),
                ),
            ),
        },
        {"Airport": "iata"},
        {"Route": "Airport -> Airport (from; to)"},
    ),
    "two ends, of which each has values that are no keys": (
        {
            "people": ("id,name", lines(9, lambda n: f"p{n},P{n}")),
            "knows": ("from,to", lines(9, lambda n: f"p{n + 1},p{(n + 3) % 10}")),
        },
        {"Person": "person_id"},
        {"Knows": "Person -> Person (from; to)"},
    ),
    "references by an id and by a code": (
        {
            "airports": AIRPORTS,
            "routes": (
                "source_airport_id,source_airport,dest_airport_id,dest_airport",
                lines(
                    23,
                    lambda n: f"{n * 3 + 1},A{chr(65 + n)}{n % 10},{n * 3 + 4},A{chr(65 + (n + 1) % 26)}{(n + 1) % 10}",
                ),
            ),
        },
        {"Airport": "airport_id"},
        {"Route": "Airport -> Airport (source_airport_id; dest_airport_id)"},
    ),
    "a version of a package": (
        {
            "packages": ("name", lines(10, lambda n: f"lib{n}")),
            "versions": ("package,version", lines(30, lambda n: f"lib{n % 10},1.{n // 10}")),
            "dependencies": (
                "package,version,depends_on",
                lines(30, lambda n: f"lib{n % 10},1.{n // 10},lib{(n + 1) % 10}"),
            ),
        },
        {"Package": "name", "Version": "package version"},
        {
            "HasPackage": "Version -> Package (package version; package)",
            "Dependency": "Version -> Package (package version; depends_on)",
        },
    ),
    "an attribute with many values": (
        {
            "movies": MOVIES,
            "movie_genres": ("movie_id,genre", lines(40, lambda n: f"{n % 20 + 101},{['war', 'drama'][n // 20]}")),
        },
        {"Movie": "movie_id", "Genre": "genre"},
        {"MovieGenre": "Movie -> Genre (movie_id; genre)"},
    ),
    "a thing that a table of references is called after": (
        {
            "movies": MOVIES,
            "critics": ("movie_id,critic,mail", lines(40, lambda n: f"{n % 20 + 101},C{n % 5},c{n % 5}@x.org")),
        },
        {"Movie": "movie_id", "Critic": "critic"},
        {"MovieCritic": "Movie -> Critic (movie_id; critic)"},
    ),
    "users that are not there": (
        {
            "movies": MOVIES,
            "ratings": ("userId,movieId,rating", lines(60, lambda n: f"{n % 9 + 1},{n % 20 + 101},{n % 5}")),
        },
        {"Movie": "movie_id", "User": "userId"},
        {"Rating": "User -> Movie (userId; movieId)"},
    ),
    "edges alone": (
        {"follows": ("source,target", lines(30, lambda n: f"{n % 7},{n % 11}"))},
        {"Node": "node_id"},
        {"Follows": "Node -> Node (source; target)"},
    ),
    "edges alone, called after what they join": (
        {"links": ("from_page,to_page", lines(30, lambda n: f"p{n % 7},p{n % 11}"))},
        {"Page": "page"},
        {"Link": "Page -> Page (from_page; to_page)"},
    ),
    "dependencies alone": (
        {"dependencies": ("package,depends_on,range", lines(30, lambda n: f"lib{n % 7},lib{n % 11},^1"))},
        {"Package": "package"},
        {"Dependency": "Package -> Package (package; depends_on)"},
    ),
    "columns without names": (
        {
            "airports": ("", lines(30, lambda n: f"{n * 7 + 1},Airport {n}")),
            "routes": ("", lines(60, lambda n: f"X{n % 3},{n % 30 * 7 + 1},{(n + 7) % 30 * 7 + 1}")),
        },
        {"Airport": "airport_id"},
        {"Route": "Airport -> Airport (source_airport_id; target_airport_id)"},
    ),
    "numbers that are keys by chance": (
        {"people": PEOPLE, "games": ("game_id,score", lines(20, lambda n: f"g{n},{n % 9 + 1}"))},
        {"Person": "person_id", "Game": "game_id"},
        {},
    ),
    "one table beside another of the same things": (
        {"movies": MOVIES, "links": ("movie_id,imdb", lines(20, lambda n: f"{n + 101},00{n}"))},
        {"Movie": "movie_id", "Link": "movie_id"},
        {"HasMovie": "Link -> Movie (movie_id; movie_id)"},
    ),
    "two tables that refer to a third": (
        {
            "customers": ("id,name", lines(20, lambda n: f"{n + 1},C{n}")),
            "orders": ("order_id,customer_id,total", lines(30, lambda n: f"{n + 1},{n % 20 + 1},{n}.5")),
            "tickets": ("ticket_id,customer_id,title", lines(30, lambda n: f"{n + 1},{n % 20 + 1},T{n}")),
        },
        {"Customer": "customer_id", "Order": "order_id", "Ticket": "ticket_id"},
        {
            "OrderCustomer": "Order -> Customer (order_id; customer_id)",
            "TicketCustomer": "Ticket -> Customer (ticket_id; customer_id)",
        },
    ),
    "a reference with some values that are not there": (
        {
            "people": PEOPLE,
            "movies": MOVIES,
            "roles": ("movie_id,person_id", lines(40, lambda n: f"{n % 20 + 101},{n % 33 + 1}")),
        },
        {"Movie": "movie_id", "Person": "person_id"},
        {"Role": "Person -> Movie (person_id; movie_id)"},
    ),
    "other ids, not those of the table that is there": (
        {"people": PEOPLE, "movies": ("id,title,director_id", lines(20, lambda n: f"{n + 101},M{n},{n + 5000}"))},
        {"Movie": "movie_id", "Person": "person_id"},
        {},
    ),
}


def proposal(folder: Path, tables: Tables, wishes: Wishes | None = None) -> Proposal:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (header, rows) in tables.items():
        (folder / f"{name}.csv").write_text(f"{header}\n{rows}" if header else rows, encoding="utf-8")
    return propose_for_files([folder], wishes)


def nodes_of(found: Proposal) -> dict[str, str]:
    return {guess.name: " ".join(guess.key) for guess in found.types if guess.kind == "node"}


def edges_of(found: Proposal) -> dict[str, str]:
    edges = {}
    for guess in found.types:
        if guess.kind == "edge":
            source, target = guess.ends
            columns = "; ".join(" ".join(end.columns) for end in guess.ends)
            edges[guess.name] = f"{source.node} -> {target.node} ({columns})"
    return edges


@named_cases(("tables", "nodes", "edges"), CASES)
def test_the_types_of_some_tables(tmp_path: Path, tables: Tables, nodes: dict[str, str], edges: dict[str, str]) -> None:
    found = proposal(tmp_path / str(len(list(tmp_path.iterdir()))), tables)
    assert (nodes_of(found), edges_of(found)) == (nodes, edges)


LIKES = {"people": PEOPLE, "likes": ("who,what,note", lines(20, lambda n: f"{n % 30 + 1},t{n % 4},x"))}


def test_a_caller_knows_the_key_and_the_ends_better(tmp_path: Path) -> None:
    assert edges_of(proposal(tmp_path / "a", LIKES)) == {}
    wishes = Wishes(keys={"Person": ("name",)}, edges={"Likes": {"who": "Person", "what": "Topic"}})
    with pytest.raises(AssertionError):
        assert nodes_of(proposal(tmp_path / "b", LIKES, wishes))["Person"] == "person_id"
    found = proposal(tmp_path / "c", LIKES, Wishes(edges={"Likes": {"who": "Person", "what": "Topic"}}))
    assert nodes_of(found) == {"Person": "person_id", "Topic": "what"}
    assert edges_of(found) == {"Likes": "Person -> Topic (who; what)"}


def test_a_caller_says_that_rows_are_nodes(tmp_path: Path) -> None:
    tables, *_ = CASES["edges alone"]
    found = proposal(tmp_path, tables, Wishes(edges={"Follows": None}))
    assert (nodes_of(found), edges_of(found)) == ({"Follows": ""}, {})


WRONG: dict[str, tuple[Wishes, str]] = {
    "a type": (Wishes(keys={"Persn": ("id",)}), "no table makes the type `Persn`: did you mean `Person`"),
    "a column": (Wishes(keys={"Person": ("nme",)}), r"people\.csv has no column `nme`: did you mean `name`"),
    "one end": (Wishes(edges={"Likes": {"who": "Person"}}), "`Likes`: an edge has two ends"),
    "an end without a key": (
        Wishes(keys={"Person": ()}, edges={"Likes": {"who": "Person", "what": "Topic"}}),
        "Person has no key of one column",
    ),
}


@named_cases(("wishes", "text"), WRONG)
def test_a_wish_that_cannot_be_met(tmp_path: Path, wishes: Wishes, text: str) -> None:
    with pytest.raises(BadRequestError, match=text):
        proposal(tmp_path, LIKES, wishes)
