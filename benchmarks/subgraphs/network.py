"""A social network with forums, posts and comments, of the shape that the LSQB queries ask for; deterministic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from graphs.folder import Dataset, DatasetWriter, read_dataset
from graphs.social import acquaintances, skewed_choice, unique_pairs, zipf_choice

if TYPE_CHECKING:
    from pathlib import Path

#: Raised when the same arguments give other rows than before, so that old files are not taken for new ones.
REVISION = 1

#: The ends of every edge type.
EDGES = {
    "CountryIn": ("Country", "Continent"),
    "CityIn": ("City", "Country"),
    "LivesIn": ("Person", "City"),
    "Knows": ("Person", "Person"),
    "HasInterest": ("Person", "Tag"),
    "HasMember": ("Forum", "Person"),
    "ContainerOf": ("Forum", "Post"),
    "PostCreator": ("Post", "Person"),
    "CommentCreator": ("Comment", "Person"),
    "PostTag": ("Post", "Tag"),
    "CommentTag": ("Comment", "Tag"),
    "ReplyToPost": ("Comment", "Post"),
    "ReplyToComment": ("Comment", "Comment"),
    "LikesPost": ("Person", "Post"),
    "LikesComment": ("Person", "Comment"),
    "HasType": ("Tag", "TagClass"),
}
NODES = ("Continent", "Country", "City", "Person", "Forum", "Post", "Comment", "Tag", "TagClass")
SCHEMA = "\n".join(
    [f"node {name} {{ number: I64 @key }}" for name in NODES]
    + [f"edge {name}: {source} -> {target}" for name, (source, target) in EDGES.items()]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The size of a network; everything else grows with its persons."""

    persons: int = 10_000
    #: Mean number of acquaintances drawn per person.
    degree: float = 18.0
    seed: int = 42

    @property
    def stamp(self) -> str:
        """Names this network; other arguments or another generator give another stamp."""
        return f"subgraphs r{REVISION} " + " ".join(f"{name}={value}" for name, value in asdict(self).items())

    @property
    def sizes(self) -> dict[str, int]:
        """The number of nodes of every type."""
        persons = self.persons
        return {
            "Continent": 6,
            "Country": 110,
            "City": max(110, min(1300, persons // 10)),
            "Person": persons,
            "Forum": max(10, persons // 2),
            "Post": 4 * persons,
            "Comment": 8 * persons,
            "Tag": 2000,
            "TagClass": 70,
        }


def ensure(network: Network, path: Path) -> Dataset:
    """The dataset of a network in a folder: the one that is there, or a new one."""
    known = read_dataset(path)
    return known if known is not None and known.stamp == network.stamp else _generate(network, path)


def _generate(network: Network, path: Path) -> Dataset:
    writer = DatasetWriter(path, network.stamp, SCHEMA)
    for name, count in network.sizes.items():
        writer.node(name, pa.table({"number": np.arange(count)}))
    pairs = _pairs(network, np.random.default_rng(network.seed))
    for name, (source, target) in EDGES.items():
        sources, targets = pairs[name]
        writer.edge(name, source, target, pa.table({"from": sources, "to": targets}))
    return writer.close()


def _pairs(network: Network, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    sizes = network.sizes
    persons, posts, comments, tags = (sizes[name] for name in ("Person", "Post", "Comment", "Tag"))
    source, target = acquaintances(rng, persons, network.degree)
    # Two persons know each other once, whichever of them comes first.
    known = unique_pairs(np.minimum(source, target), np.maximum(source, target), persons)
    answers_post = rng.random(comments) < 0.5
    answers_post[0] = True
    to_post, to_comment = np.flatnonzero(answers_post), np.flatnonzero(~answers_post)
    # An earlier comment, recent ones more often.
    parent = np.minimum((to_comment * rng.random(len(to_comment)) ** 0.5).astype(np.int64), to_comment - 1)
    return {
        "CountryIn": _one_each(rng, sizes["Country"], sizes["Continent"]),
        "CityIn": _one_each(rng, sizes["City"], sizes["Country"]),
        "LivesIn": _one_each(rng, persons, sizes["City"]),
        "Knows": known,
        "HasInterest": _some_each(rng, persons, tags, 6.0),
        "HasMember": _some_each(rng, sizes["Forum"], persons, 20.0),
        "ContainerOf": (skewed_choice(rng, sizes["Forum"], posts, 1.5), np.arange(posts)),
        "PostCreator": (np.arange(posts), skewed_choice(rng, persons, posts, 1.5)),
        "CommentCreator": (np.arange(comments), skewed_choice(rng, persons, comments, 1.5)),
        "PostTag": _some_each(rng, posts, tags, 1.0),
        "CommentTag": _some_each(rng, comments, tags, 1.2),
        "ReplyToPost": (to_post, skewed_choice(rng, posts, len(to_post), 1.5)),
        "ReplyToComment": (to_comment, parent),
        "LikesPost": _some_each(rng, persons, posts, 8.0),
        "LikesComment": _some_each(rng, persons, comments, 8.0),
        "HasType": _one_each(rng, tags, sizes["TagClass"]),
    }


def _one_each(rng: np.random.Generator, sources: int, targets: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(sources), rng.integers(0, targets, sources)


def _some_each(rng: np.random.Generator, sources: int, targets: int, mean: float) -> tuple[np.ndarray, np.ndarray]:
    counts = rng.poisson(mean, sources)
    drawn = zipf_choice(rng, targets, int(counts.sum()), 0.6)
    return unique_pairs(np.repeat(np.arange(sources), counts), drawn, targets)
