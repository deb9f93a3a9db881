"""Counts of labelled subgraphs over a small social network, against the same counts in plain Python.

The nine queries are those of the LSQB benchmark: long chains, triangles, stars, several types of messages, optional
parts and parts that are missing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from omnigraph import Graph
from support.subtests import each_case

NODES = {
    "Continent": 2,
    "Country": 4,
    "City": 7,
    "Person": 24,
    "Forum": 5,
    "Post": 20,
    "Comment": 45,
    "Tag": 9,
    "TagClass": 3,
}
#: The ends of every edge type, and how many targets a source has: exactly one, or up to so many.
EDGES = {
    "CountryIn": ("Country", "Continent", 1),
    "CityIn": ("City", "Country", 1),
    "LivesIn": ("Person", "City", 1),
    "Knows": ("Person", "Person", 5),
    "HasInterest": ("Person", "Tag", 3),
    "HasMember": ("Forum", "Person", 8),
    "ContainerOf": ("Forum", "Post", 6),
    "PostCreator": ("Post", "Person", 1),
    "CommentCreator": ("Comment", "Person", 1),
    "PostTag": ("Post", "Tag", 3),
    "CommentTag": ("Comment", "Tag", 3),
    "ReplyToPost": ("Comment", "Post", 1),
    "ReplyToComment": ("Comment", "Comment", 1),
    "LikesPost": ("Person", "Post", 4),
    "LikesComment": ("Person", "Comment", 4),
    "HasType": ("Tag", "TagClass", 1),
}
Pairs = set[tuple[str, str]]


def _network() -> dict[str, Pairs]:
    """The edges of every type, always the same ones."""
    choice = random.Random(3)
    ids = {type_: [f"{type_}{number}" for number in range(count)] for type_, count in NODES.items()}
    edges: dict[str, Pairs] = {}
    for type_, (source, target, most) in EDGES.items():
        degrees = {end: 1 if most == 1 else choice.randint(0, most) for end in ids[source]}
        edges[type_] = {(end, to) for end, count in degrees.items() for to in choice.sample(ids[target], count)}
    # Two persons know one another once, whoever was asked; a comment replies to a post or to an older comment.
    edges["Knows"] = {(min(pair), max(pair)) for pair in edges["Knows"] if pair[0] != pair[1]}
    older = {(end, to) for end, to in edges["ReplyToComment"] if ids["Comment"].index(to) < ids["Comment"].index(end)}
    edges["ReplyToComment"] = older
    answered = {end for end, _ in older}
    edges["ReplyToPost"] = {pair for pair in edges["ReplyToPost"] if pair[0] not in answered}
    return edges


NETWORK = _network()


class _Links:
    """Edges of some types in one direction, or both ways."""

    def __init__(self, *types: str, backwards: bool = False, both_ways: bool = False) -> None:
        pairs = {pair for type_ in types for pair in NETWORK[type_]}
        turned = {(target, source) for source, target in pairs}
        self._pairs = pairs | turned if both_ways else turned if backwards else pairs
        self._targets: dict[str, list[str]] = {}
        for source, target in self._pairs:
            self._targets.setdefault(source, []).append(target)

    def __getitem__(self, source: str) -> list[str]:
        return self._targets.get(source, [])

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._pairs)

    def __contains__(self, pair: object) -> bool:
        return pair in self._pairs


knows = _Links("Knows", both_ways=True)
tags = _Links("PostTag", "CommentTag")
creators = _Links("PostCreator", "CommentCreator")
likers = _Links("LikesPost", "LikesComment", backwards=True)
replies = _Links("ReplyToPost", "ReplyToComment", backwards=True)
country_of = {person: _Links("CityIn")[city][0] for person, city in _Links("LivesIn")}


def _long_chain() -> int:
    members, posts = _Links("HasMember"), _Links("ContainerOf")
    return sum(
        len(members[forum]) * len(_Links("CommentTag")[comment])
        for forum, post in posts
        for comment in _Links("ReplyToPost", backwards=True)[post]
    )


def _replies_between_acquaintances() -> int:
    return sum(
        (author, other) in knows
        for comment, post in _Links("ReplyToPost")
        for author in _Links("CommentCreator")[comment]
        for other in _Links("PostCreator")[post]
    )


def _triangles_in_a_country() -> int:
    return sum(
        (third, first) in knows and country_of[first] == country_of[second] == country_of[third]
        for first, second in knows
        for third in knows[second]
    )


def _stars_around_messages() -> int:
    return sum(len(creators[message]) * len(likers[message]) * len(replies[message]) for message, _ in tags)


def _tags_of_replies() -> list[tuple[str, str, str]]:
    found = [
        (first, comment, second)
        for message, first in tags
        for comment in replies[message]
        for second in _Links("CommentTag")[comment]
    ]
    return [(first, comment, second) for first, comment, second in found if first != second]


def _two_steps() -> list[tuple[str, str]]:
    interests = _Links("HasInterest")
    return [
        (first, third) for first, second in knows for third in knows[second] if first != third for _ in interests[third]
    ]


def _optional_stars() -> int:
    return sum(
        len(creators[message]) * max(len(likers[message]), 1) * max(len(replies[message]), 1) for message, _ in tags
    )


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [f"node {type_} {{ name: String @key }}" for type_ in NODES]
    edges = [f"edge {type_}: {source} -> {target}" for type_, (source, target, _) in EDGES.items()]
    graph = Graph.init(str(tmp_path_factory.mktemp("network") / "network.omni"), "\n".join([*nodes, *edges]))
    made = [f'insert {type_} {{ name: "{type_}{n}" }}' for type_, count in NODES.items() for n in range(count)]
    joined = [
        f'insert {type_} {{ from: "{source}", to: "{target}" }}'
        for type_, pairs in NETWORK.items()
        for source, target in sorted(pairs)
    ]
    graph.mutate("\n".join([*made, *joined]))
    return graph


@each_case(
    ("clauses", "expected"),
    [
        (
            "$city cityIn $country  $person livesIn $city  $forum hasMember $person  $forum containerOf $post "
            "$comment replyToPost $post  $comment commentTag $tag  $tag hasType $class",
            _long_chain,
        ),
        (
            "$a <knows> $b  $comment commentCreator $a  $comment replyToPost $post  $post postCreator $b",
            _replies_between_acquaintances,
        ),
        (
            "$country: Country  $u cityIn $country  $v cityIn $country  $w cityIn $country "
            "$a livesIn $u  $b livesIn $v  $c livesIn $w  $a <knows> $b  $b <knows> $c  $c <knows> $a",
            _triangles_in_a_country,
        ),
        (
            "$m: Post | Comment  $m (postTag | commentTag) $tag  $m (postCreator | commentCreator) $creator "
            "$liker (likesPost | likesComment) $m  $reply (replyToPost | replyToComment) $m",
            _stars_around_messages,
        ),
        (
            "$m: Post | Comment  $m (postTag | commentTag) $t  $reply (replyToPost | replyToComment) $m "
            "$reply commentTag $u  $t != $u",
            lambda: len(_tags_of_replies()),
        ),
        ("$a <knows> $b  $b <knows> $c  $c hasInterest $tag  $a != $c", lambda: len(_two_steps())),
        (
            "$m: Post | Comment  $m (postTag | commentTag) $tag  $m (postCreator | commentCreator) $creator "
            "optional { $liker (likesPost | likesComment) $m } "
            "optional { $reply (replyToPost | replyToComment) $m }",
            _optional_stars,
        ),
        (
            "$m: Post | Comment  $m (postTag | commentTag) $t  $reply (replyToPost | replyToComment) $m "
            "$reply commentTag $u  $t != $u  not { $reply commentTag $t }",
            lambda: sum((comment, first) not in tags for first, comment, _ in _tags_of_replies()),
        ),
        (
            "$a <knows> $b  $b <knows> $c  $c hasInterest $tag  $a != $c  not { $a <knows> $c }",
            lambda: sum(pair not in knows for pair in _two_steps()),
        ),
    ],
    ids=[f"Q{number}" for number in range(1, 10)],
)
def test_a_subgraph_is_found_as_often_as_it_is_there(network: Graph, clauses: str, expected: Callable[[], int]) -> None:
    count = expected()
    assert count > 0
    assert network.query(f"match {{ {clauses} }} return {{ count(*) as n }}").to_pylist() == [{"n": count}]


def test_pairs_of_a_country_are_counted_per_continent(network: Graph) -> None:
    text = """
    match {
      $country countryIn $continent
      $city cityIn $country
      $p livesIn $city
    }
    return { $continent.name as continent, count(distinct $country) as countries, count($p) as people }
    order { continent }
    """
    continents = {country: continent for country, continent in NETWORK["CountryIn"]}
    expected = [
        {
            "continent": continent,
            "countries": len({c for c in country_of.values() if continents[c] == continent}),
            "people": sum(continents[country] == continent for country in country_of.values()),
        }
        for continent in sorted(set(continents[country] for country in country_of.values()))
    ]
    assert network.query(text).to_pylist() == expected


def test_a_count_of_walks_follows_bound_and_unbound_edges(network: Graph) -> None:
    for hop in ("<knows>", "$e:<knows>"):
        text = f"match {{ $a: Person  $a {hop} $b }} return {{ count(*) as n }}"
        assert network.query(text).to_pylist() == [{"n": 2 * len(NETWORK["Knows"])}]
