"""A scalable LDBC-like social graph with text and vectors, deterministic for a given seed.

    cd benchmarks && python -m graphs.social --persons 100000 --out .data/social-100000      # 2 M Knows

Persons know each other with power-law degrees, half of them inside their own community, and about 3 % know nobody.
Messages carry a text and an embedding; both are drawn around the message's main tag, so text, vector and graph agree
and a hybrid search has a right answer to find.
"""

from __future__ import annotations

import argparse
import datetime as dt
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from graphs.folder import Dataset, DatasetWriter, read_dataset

#: An object array of str.
Words = np.ndarray

#: Raised when the same arguments give other rows than before, so that old files are not taken for new ones.
REVISION = 1


def _words(text: str) -> list[str]:
    return text.split()


FIRST_NAMES = _words(
    "Jan Maria Ivan Chen Aisha Carlos Emma Yuki Omar Priya Lars Sofia Kwame Anna Luis Mei Noah Fatima "
    "Hugo Elena Ravi Clara Ahmed Ines Peter Nadia Jun Olga Diego Freya "  # codespell:ignore ines
    "Abdul Lucia Karl Zoe Hassan Eva"
)
LAST_NAMES = _words(
    "Silva Ivanov Wang Khan Garcia Smith Tanaka Ali Kumar Hansen Rossi Mensah Kowalski Lopez Li Brown "
    "Hassan Dubois Popov Singh Novak Osman Costa Weber Petrov Kim Sokolov Ramos Berg Aziz Moretti Fischer "
    "Reyes"
)
SYLLABLES = _words(
    "ba be bi bo bu da de di do du fa fe fi fo ga ge go ka ke ki ko ku "  # codespell:ignore bu
    "la le li lo lu ma me mi mo mu na ne ni no nu pa pe pi po ra re ri ro ru "
    "sa se si so su ta te ti to tu va ve vi vo za ze zo"  # codespell:ignore te
)
LANGUAGES = ["en", "de", "es", "zh", "ar"]
COUNTRIES = 50
#: Words that belong to one tag; its slice of the vocabulary begins in the second quarter.
WORDS_PER_TAG = 40

SCHEMA = """
node Country { name: String @key }
node City { cid: I64 @key  name: String }
node Tag { tid: I64 @key  name: String @index }
node Person {
  pid: I64 @key
  first_name: String
  last_name: String
  gender: enum(f, m, x)
  birthday: Date
  created: DateTime
  email: String?
  score: F64 @index
}
node Message {
  mid: I64 @key
  kind: enum(post, comment) @index
  created: DateTime @index
  language: String?
  length: I32
  content: String @index
  embedding: Vector(%(dimension)d) @index
}
edge Knows: Person -> Person { since: Date  weight: F32 }
edge LivesIn: Person -> City @card(1..1)
edge PartOf: City -> Country @card(1..1)
edge HasInterest: Person -> Tag
edge HasCreator: Message -> Person @card(1..1)
edge ReplyOf: Message -> Message @card(0..1)
edge HasTag: Message -> Tag
edge Likes: Person -> Message { created: DateTime }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocialGraph:
    """The size of a social graph; there are as many messages as persons."""

    persons: int = 100_000
    #: Mean number of acquaintances drawn per person, before repeated ones collapse.
    degree: float = 22.0
    tags: int = 2000
    dimension: int = 128
    #: Mean number of words per message.
    words: float = 18.0
    seed: int = 42

    def __post_init__(self) -> None:
        if self.persons < 100:
            raise ValueError("a social graph has at least 100 persons")

    @property
    def stamp(self) -> str:
        """Names this graph; other arguments or another generator give another stamp."""
        return f"social r{REVISION} " + " ".join(f"{k}={v}" for k, v in asdict(self).items())

    @property
    def cities(self) -> int:
        """The number of cities."""
        return max(10, min(2000, self.persons // 100))


def ensure(graph: SocialGraph, path: Path) -> Dataset:
    """The dataset of a graph in a folder: the one that is there, or a new one."""
    known = read_dataset(path)
    return known if known is not None and known.stamp == graph.stamp else generate(graph, path)


def generate(graph: SocialGraph, path: Path) -> Dataset:
    """Write the dataset of a graph, replacing what the folder held."""
    writer = DatasetWriter(path, graph.stamp, SCHEMA % {"dimension": graph.dimension})
    # One stream of random numbers serves all tables: the order of the calls is part of the content.
    rng = np.random.default_rng(graph.seed)
    vocabulary = make_vocabulary(np.random.default_rng(graph.seed + 1), max(50_000, graph.tags * 54))
    _write_places_and_tags(writer, graph, vocabulary)
    _write_persons(writer, graph, rng)
    _write_messages(writer, graph, rng, vocabulary)
    return writer.close()


def _write_places_and_tags(writer: DatasetWriter, graph: SocialGraph, vocabulary: Words) -> None:
    writer.node("Country", pa.table({"name": [f"Country{i:02d}" for i in range(COUNTRIES)]}))
    cities = graph.cities
    names = [f"City{i}" for i in range(cities)]
    writer.node("City", pa.table({"cid": np.arange(cities), "name": names}))
    first = len(vocabulary) // 4
    tags = [f"{vocabulary[(first + i * WORDS_PER_TAG) % len(vocabulary)]}_{i}" for i in range(graph.tags)]
    writer.node("Tag", pa.table({"tid": np.arange(graph.tags), "name": tags}))


def _write_persons(writer: DatasetWriter, graph: SocialGraph, rng: np.random.Generator) -> None:
    count = graph.persons
    first, last = pick(rng, FIRST_NAMES, count), pick(rng, LAST_NAMES, count)
    ids = pa.array(np.arange(count))
    address = pc.binary_join_element_wise(
        pc.binary_join_element_wise(pc.utf8_lower(first), ids.cast(pa.string()), "."), "example.org", "@"
    )
    persons = {
        "pid": ids,
        "first_name": first,
        "last_name": last,
        "email": pc.if_else(pa.array(rng.random(count) < 0.9), address, None),
        "gender": pc.take(pa.array(["f", "m", "x"]), pa.array(np.minimum(rng.integers(0, 41, count) // 20, 2))),
        "birthday": dates(rng, count, "1950-01-01", 20_000),
        "created": stamps(rng, count),
        "score": pa.array(np.round(rng.beta(2, 5, count) * 100, 4)),
    }
    columns = _words("pid first_name last_name gender birthday created email score")
    writer.node("Person", pa.table({name: persons[name] for name in columns}))

    source, target = acquaintances(rng, count, graph.degree)
    known = {
        "from": source,
        "to": target,
        "since": dates(rng, len(source), "2005-01-01", 7000),
        "weight": np.round(rng.random(len(source)), 4).astype(np.float32),
    }
    writer.edge("Knows", "Person", "Person", pa.table(known))

    community = np.minimum(np.arange(count) // max(1, count // COUNTRIES), COUNTRIES - 1)
    per_country = max(1, graph.cities // COUNTRIES)
    home = community * per_country + rng.integers(0, per_country, count)
    lives_in = {"from": ids, "to": np.minimum(home, graph.cities - 1)}
    writer.edge("LivesIn", "Person", "City", pa.table(lives_in))
    country = np.minimum(np.arange(graph.cities) // per_country, COUNTRIES - 1)
    part_of = {"from": np.arange(graph.cities), "to": [f"Country{i:02d}" for i in country]}
    writer.edge("PartOf", "City", "Country", pa.table(part_of))

    interests = rng.poisson(4, count)
    source, target = unique_pairs(
        np.repeat(np.arange(count), interests), zipf_choice(rng, graph.tags, int(interests.sum()), 0.9), graph.tags
    )
    writer.edge("HasInterest", "Person", "Tag", pa.table({"from": source, "to": target}))


def _write_messages(writer: DatasetWriter, graph: SocialGraph, rng: np.random.Generator, vocabulary: Words) -> None:
    count = persons = graph.persons
    ids = np.arange(count)
    main_tag = zipf_choice(rng, graph.tags, count, 0.9)
    is_comment = rng.random(count) < 0.6
    is_comment[0] = False
    content = texts(rng, vocabulary, main_tag, graph.words)
    messages = {
        "mid": pa.array(ids),
        "kind": pc.if_else(pa.array(is_comment), "comment", "post"),
        "created": stamps(rng, count),
        "language": pc.if_else(pa.array(rng.random(count) < 0.8), pick(rng, LANGUAGES, count), None),
        "length": pc.utf8_length(content).cast(pa.int32()),
        "content": content,
        "embedding": embeddings(rng, graph, main_tag),
    }
    writer.node("Message", pa.table(messages))

    popular = rng.permutation(persons)
    creator = popular[skewed_choice(rng, persons, count, 2.2)]
    writer.edge("HasCreator", "Message", "Person", pa.table({"from": ids, "to": creator}))
    comments = ids[is_comment]
    # An earlier message, recent ones more often.
    parent = (comments * rng.random(len(comments)) ** 0.5).astype(np.int64)
    reply_of = {"from": comments, "to": np.minimum(parent, comments - 1)}
    writer.edge("ReplyOf", "Message", "Message", pa.table(reply_of))

    further = rng.poisson(0.7, count)
    source, target = unique_pairs(
        np.concatenate([ids, np.repeat(ids, further)]),
        np.concatenate([main_tag, zipf_choice(rng, graph.tags, int(further.sum()), 0.9)]),
        graph.tags,
    )
    writer.edge("HasTag", "Message", "Tag", pa.table({"from": source, "to": target}))

    likes = 3 * count
    source, target = unique_pairs(rng.integers(0, persons, likes), skewed_choice(rng, count, likes, 2.5), count)
    liked = {"from": source, "to": target, "created": stamps(rng, len(source))}
    writer.edge("Likes", "Person", "Message", pa.table(liked))


# ---- distributions


def zipf_choice(rng: np.random.Generator, n: int, size: int, exponent: float) -> np.ndarray:
    """Numbers below n; number i with a probability proportional to 1 / (i + 1) ** exponent."""
    cumulative = np.cumsum(1.0 / np.arange(1, n + 1) ** exponent)
    return np.searchsorted(cumulative, rng.random(size) * cumulative[-1]).astype(np.int64)


def skewed_choice(rng: np.random.Generator, n: int, size: int, power: float) -> np.ndarray:
    """Numbers below n, small ones more often."""
    return np.minimum((n * rng.random(size) ** power).astype(np.int64), n - 1)


def unique_pairs(source: np.ndarray, target: np.ndarray, targets: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct pairs, sorted."""
    pairs = np.unique(source.astype(np.int64) * targets + target)
    return pairs // targets, pairs % targets


def acquaintances(rng: np.random.Generator, count: int, mean_degree: float) -> tuple[np.ndarray, np.ndarray]:
    """Directed pairs: Pareto out-degrees, half the targets in the own community, half by global popularity."""
    isolated = rng.random(count) < 0.03
    degree = np.floor((rng.pareto(1.6, count) + 1) * mean_degree * 0.40).astype(np.int64)
    degree = np.minimum(degree, max(50, count // 20))
    degree[isolated] = 0
    degree = (degree * (mean_degree * count / max(1, degree.sum()))).round().astype(np.int64)
    source = np.repeat(np.arange(count), degree)
    draws = len(source)
    popular = rng.permutation(count)
    size = max(1, count // COUNTRIES)
    is_local = rng.random(draws) < 0.5
    far = popular[skewed_choice(rng, count, draws, 3.0)]
    near = (source // size) * size + skewed_choice(rng, size, draws, 1.5)
    target = np.minimum(np.where(is_local, near, far), count - 1)
    keep = (source != target) & ~isolated[target]
    return unique_pairs(source[keep], target[keep], count)


# ---- columns


def make_vocabulary(rng: np.random.Generator, size: int) -> Words:
    """Distinct pronounceable words."""
    words: dict[str, None] = {}
    while len(words) < size:
        for syllables in rng.integers(2, 5, size=4096):
            chosen = rng.integers(0, len(SYLLABLES), size=syllables)
            words["".join(SYLLABLES[i] for i in chosen)] = None
    return np.array(list(words)[:size], dtype=object)


def pick(rng: np.random.Generator, words: list[str], count: int) -> pa.Array:
    """Words, each equally often."""
    return pc.take(pa.array(words), pa.array(rng.integers(0, len(words), count)))


def dates(rng: np.random.Generator, count: int, start: str, days: int) -> pa.Array:
    """Days in a range, in no order."""
    base = (dt.date.fromisoformat(start) - dt.date(1970, 1, 1)).days
    return pa.array((base + rng.integers(0, days, count)).astype(np.int32)).cast(pa.date32())


def stamps(rng: np.random.Generator, count: int) -> pa.Array:
    """Ascending instants of about five years from 2019 on."""
    base_s = int(dt.datetime(2019, 1, 1, tzinfo=dt.UTC).timestamp())
    milliseconds = np.sort((base_s + rng.integers(0, 2000 * 86_400, count)) * 1000)
    return pa.array(milliseconds).cast(pa.timestamp("ms"))


def texts(rng: np.random.Generator, vocabulary: Words, main_tag: np.ndarray, mean_words: float) -> pa.Array:
    """One text per message: 60 % common words by Zipf's law, 40 % words of its main tag."""
    lengths = np.maximum(3, rng.poisson(mean_words, len(main_tag)))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    total = int(offsets[-1])
    common = zipf_choice(rng, len(vocabulary), total, 1.05)
    first = len(vocabulary) // 4 + np.repeat(main_tag, lengths) * WORDS_PER_TAG
    own = (first + zipf_choice(rng, WORDS_PER_TAG, total, 0.8)) % len(vocabulary)
    chosen = np.where(rng.random(total) < 0.6, common, own)
    words = pc.take(pa.array(vocabulary, pa.string()), pa.array(chosen))
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), words), " ")


def embeddings(rng: np.random.Generator, graph: SocialGraph, main_tag: np.ndarray) -> pa.Array:
    """Unit vectors around the centre of each message's main tag."""
    shape = (graph.tags, graph.dimension)
    centres = np.random.default_rng(graph.seed + 2).standard_normal(shape).astype(np.float32)
    vectors = np.empty((len(main_tag), graph.dimension), np.float32)
    for begin in range(0, len(main_tag), 100_000):
        tags = main_tag[begin : begin + 100_000]
        noise = rng.standard_normal((len(tags), graph.dimension), dtype=np.float32)
        vectors[begin : begin + len(tags)] = centres[tags] + 0.8 * noise
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), graph.dimension)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--persons", type=int, default=SocialGraph().persons)
    parser.add_argument("--seed", type=int, default=SocialGraph().seed)
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    options = parser.parse_args()
    dataset = generate(SocialGraph(persons=options.persons, seed=options.seed), options.out)
    for kind, tables in (("node", dataset.nodes), ("edge", dataset.edges)):
        for name, rows in tables.items():
            print(f"{kind} {name:<12} {rows:>10,} rows")


if __name__ == "__main__":
    main()
