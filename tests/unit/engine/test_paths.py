"""The rule that chooses how edges are followed, branch by branch."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.core.budget import Budget
from omnigraph.core.types import PropertyType, Scalar, ScalarType
from omnigraph.engine.tables.settings import (
    ADJACENCY_COST_FACTOR,
    EngineSettings,
    TraversalFacts,
    TraversalMode,
    TraversalPath,
    choose_path,
    followed_edges,
)
from omnigraph.engine.tables.text_analysis import (
    MAX_QUERY_TERMS,
    STOP_WORDS,
    Term,
    analyse_query,
    analyse_run,
    query_terms,
    stem,
    words_of,
)
from omnigraph.engine.tables.text_columns import (
    LiveSegment,
    TextColumn,
    build_segment,
    pack_segments,
    split_runs,
    unpack_segments,
)
from omnigraph.engine.tables.wanted_indexes import (
    VECTOR_INDEX_MIN_ROWS,
    WantedIndex,
    index_spec,
    indexed_texts,
    scalar_index_name,
    vector_index_name,
    wanted_indexes,
)
from omnigraph.errors import BadRequestError
from omnigraph.lang.schema.catalog import EdgeDef, IndexKind, MemberSet, NodeDef, PropertyDef, Provenance
from omnigraph.lang.schema.compiler import compile_schema
from omnigraph.storage.datasets.indexes import PhysicalIndex
from support.subtests import each_case, named_cases

INDEXED, ADJACENCY, SCAN = (TraversalPath.INDEXED, TraversalPath.ADJACENCY, TraversalPath.EDGE_SCAN)
SETTINGS = EngineSettings()

#: One node asked about one hop in a table of 10,000 edges, ten per node, everything indexed, nothing built.
SMALL = TraversalFacts(frontier=1, hops=1, edges=10_000, sources=1_000, is_indexed=True, is_ready=False, debt=0.0)


@each_case(
    ("changes", "expected"),
    [
        # An index that exists is always taken, however small or large the walk is.
        ({"is_ready": True}, ADJACENCY),
        ({"is_ready": True, "is_indexed": False}, ADJACENCY),
        ({"is_ready": True, "frontier": 1_000, "hops": 9, "debt": 1e9}, ADJACENCY),
        # A small walk probes.
        ({}, INDEXED),
        ({"hops": 2}, INDEXED),
        ({"frontier": 1_000}, INDEXED),
        # The largest frontier and number of hops that are probed, and one more.
        ({"frontier": 1_024, "sources": 10**9}, INDEXED),
        ({"frontier": 1_025, "sources": 10**9}, ADJACENCY),
        ({"hops": 6, "sources": 10**9}, INDEXED),
        ({"hops": 7, "sources": 10**9}, ADJACENCY),
        # A walk may follow as many edges as building has left, and no more: 15,000 = 1.5 × 15,000 - 7,500.
        ({"frontier": 1_000, "edges": 15_000, "debt": 7_500.0}, INDEXED),
        ({"frontier": 1_000, "edges": 15_000, "debt": 7_501.0}, ADJACENCY),
        ({"frontier": 2, "hops": 3}, INDEXED),
        ({"frontier": 100, "hops": 3}, ADJACENCY),
        # Debt uses the budget up, until even one probe is too much.
        ({"debt": 14_990.0}, INDEXED),
        ({"debt": 14_991.0}, ADJACENCY),
        ({"debt": 1e9}, ADJACENCY),
        # Too dear to probe, but only one hop and the first question: one scan is cheaper than building.
        ({"edges": 10**6, "sources": 1, "frontier": 2}, SCAN),
        ({"edges": 10**6, "sources": 1, "frontier": 2, "hops": 2}, ADJACENCY),
        ({"edges": 10**6, "sources": 1, "frontier": 2, "debt": 1.0}, ADJACENCY),
        # Without an index on the column, one hop from few nodes is a scan, once.
        ({"is_indexed": False}, SCAN),
        ({"is_indexed": False, "frontier": 1_024}, SCAN),
        ({"is_indexed": False, "frontier": 1_025}, ADJACENCY),
        ({"is_indexed": False, "hops": 2}, ADJACENCY),
        ({"is_indexed": False, "debt": 0.5}, ADJACENCY),
        # Tables without edges or nodes.
        ({"edges": 0}, INDEXED),
        ({"edges": 0, "sources": 0}, INDEXED),
        ({"edges": 0, "is_indexed": False}, SCAN),
        ({"frontier": 0}, INDEXED),
    ],
)
def test_the_cheapest_path_is_chosen(changes: dict, expected: TraversalPath) -> None:
    assert choose_path(replace(SMALL, **changes), SETTINGS) is expected


@each_case(
    ("mode", "expected"), [(TraversalMode.INDEXED, INDEXED), (TraversalMode.CSR, ADJACENCY), (TraversalMode.SCAN, SCAN)]
)
@each_case("is_ready", [False, True])
@each_case("is_indexed", [False, True])
@each_case("frontier", [1, 10**6])
@each_case("debt", [0.0, 1e12])
def test_a_forced_mode_wins_over_every_fact(mode, expected, is_ready, is_indexed, frontier, debt) -> None:
    facts = replace(SMALL, is_ready=is_ready, is_indexed=is_indexed, frontier=frontier, hops=9, debt=debt)
    assert choose_path(facts, EngineSettings(traversal_mode=mode)) is expected


def test_the_ceilings_come_from_the_settings() -> None:
    tight = EngineSettings(indexed_max_frontier=3, indexed_max_hops=2)
    assert choose_path(replace(SMALL, frontier=3, hops=2), tight) is INDEXED
    assert choose_path(replace(SMALL, frontier=4, hops=2), tight) is ADJACENCY
    assert choose_path(replace(SMALL, frontier=3, hops=3), tight) is ADJACENCY
    assert choose_path(replace(SMALL, frontier=3, is_indexed=False), tight) is SCAN
    assert choose_path(replace(SMALL, frontier=4, is_indexed=False), tight) is ADJACENCY


@each_case(
    ("frontier", "hops", "edges", "sources", "expected"),
    [
        (1, 1, 10_000, 1_000, 10),
        (3, 1, 10_000, 1_000, 30),
        (1, 2, 10_000, 1_000, 10 + 100),
        (1, 3, 10_000, 1_000, 10 + 100 + 1_000),
        # One walk follows every edge at most once.
        (1, 4, 10_000, 1_000, 10_000),
        (1, 9, 10_000, 1_000, 10_000),
        (1, 2**63 - 1, 10_000, 1_000, 10_000),
        (2, 9, 10_000, 1_000, 20_000),
        # Half an edge per node: the walk dies out.
        (1, 2, 500, 1_000, 0.5 + 0.25),
        (5, 3, 0, 1_000, 0),
        (0, 3, 10_000, 1_000, 0),
        (4, 1, 7, 0, 28),
    ],
)
def test_the_estimate_is_the_mean_degree_hop_by_hop(frontier, hops, edges, sources, expected) -> None:
    facts = replace(SMALL, frontier=frontier, hops=hops, edges=edges, sources=sources)
    assert followed_edges(facts) == pytest.approx(expected)


FACTS = st.builds(
    TraversalFacts,
    frontier=st.integers(0, 5_000),
    hops=st.integers(1, 12) | st.sampled_from([33, 10**6, 2**63 - 1]),
    edges=st.integers(0, 10**7),
    sources=st.integers(0, 10**6),
    is_indexed=st.booleans(),
    is_ready=st.booleans(),
    debt=st.floats(0, 1e9),
)


@pytest.mark.parametrize("field", ["frontier", "hops", "edges"])
@given(facts=FACTS, more=st.integers(1, 3_000))
def test_more_to_do_is_never_estimated_as_less(field: str, facts, more: int) -> None:
    more = min(more, 5) if field == "hops" else more
    larger = replace(facts, **{field: getattr(facts, field) + more})
    before, after = followed_edges(facts), followed_edges(larger)
    assert after >= before * (1 - 1e-9)


@given(FACTS)
def test_a_walk_follows_no_edge_twice_per_node_of_the_frontier(facts) -> None:
    assert 0 <= followed_edges(facts) <= facts.edges * facts.frontier


@given(FACTS, st.floats(0, 1e9))
def test_debt_never_leads_back_from_the_index(facts, more: float) -> None:
    """Work that was done without the index only ever speaks for building it."""
    indebted = replace(facts, debt=facts.debt + more)
    if choose_path(facts, SETTINGS) is ADJACENCY:
        assert choose_path(indebted, SETTINGS) is ADJACENCY
    enough = replace(facts, debt=facts.edges * ADJACENCY_COST_FACTOR + 1)
    assert choose_path(enough, SETTINGS) is ADJACENCY


# ---- Which physical indexes a schema asks for, type by type


BTREE, VECTOR = IndexKind.BTREE, IndexKind.VECTOR
ID = ("id", BTREE)


def node(body: str) -> NodeDef:
    return compile_schema(f"node Thing {{ {body} }}").catalog.nodes["Thing"]


def edge(body: str) -> EdgeDef:
    text = f"node Thing {{ name: String @key }} edge Likes: Thing -> Thing {{ {body} }}"
    return compile_schema(text).catalog.edges["Likes"]


def wanted(definition: NodeDef | EdgeDef) -> list[tuple[str, IndexKind]]:
    return [(item.column, item.kind) for item in wanted_indexes(definition)]


@each_case(
    ("type_", "kinds"),
    [
        ("String", [BTREE]),
        ("String?", [BTREE]),
        ("enum(draft, final)", [BTREE]),
        ("Bool", [BTREE]),
        ("I32", [BTREE]),
        ("I64?", [BTREE]),
        ("U32", [BTREE]),
        ("U64", [BTREE]),
        ("F32", [BTREE]),
        ("F64", [BTREE]),
        ("Date", [BTREE]),
        ("DateTime", [BTREE]),
        ("Vector(4)", [VECTOR]),
        ("[String]", []),
        ("[I64]?", []),
    ],
)
def test_an_index_on_one_property_follows_its_type(type_: str, kinds: list[IndexKind]) -> None:
    definition = node(f"x: {type_} y: {type_} @index(x)")
    assert wanted(definition) == [ID, *(("x", kind) for kind in kinds)]


@each_case(
    ("body", "expected"),
    [
        ("x: I32", []),
        ("x: String @unique", []),
        ("x: Blob?", []),
        ("x: I32 @key", [("x", BTREE)]),
        ("x: String @key", [("x", BTREE)]),
        # The same intent twice is one index, however it is spelled.
        ("x: I32 @key @index", [("x", BTREE)]),
        ("x: I32 @key @index(x)", [("x", BTREE)]),
        ("x: String @index @key", [("x", BTREE)]),
        # Several properties in one annotation declare, and build nothing.
        ("x: I32 y: I32 @index(x, y)", []),
        ("x: I32 y: I32 @key(x, y)", []),
        ("x: I32 @index y: I32 @index(x, y)", [("x", BTREE)]),
        ("x: I32 y: I32 @index @key(x, y)", [("y", BTREE)]),
        ("x: I32 @key y: String @index z: Vector(2)? @index", [("y", BTREE), ("z", VECTOR), ("x", BTREE)]),
    ],
)
def test_a_node_type_wants_the_indexes_it_declares(body: str, expected: list[tuple[str, IndexKind]]) -> None:
    found = wanted(node(body))
    assert found[0] == ID
    assert sorted(found[1:]) == sorted(expected)
    assert len(set(found)) == len(found), "none twice"


def test_a_blob_wants_none_even_where_a_schema_would_ask() -> None:
    """The language refuses the annotation; the rule does not lean on that."""
    blob = PropertyDef(name="x", type=PropertyType(ScalarType(Scalar.BLOB)))
    asked = MemberSet(members=("x",), provenance=Provenance.PROPERTY)
    assert wanted(NodeDef(name="Thing", properties={"x": blob}, indexes=(asked,))) == [ID]


@each_case("body", ["", "weight: F64?", "weight: F64? @index", "note: String @index"])
def test_an_edge_type_wants_its_id_and_its_ends_and_nothing_else(body: str) -> None:
    assert wanted(edge(body)) == [ID, ("src", BTREE), ("dst", BTREE)]


def test_properties_of_interfaces_count_as_their_own() -> None:
    text = """
    interface Named { name: String @index }
    node Thing implements Named { size: I32 @index }
    """
    definition = compile_schema(text).catalog.nodes["Thing"]
    assert sorted(wanted(definition)[1:]) == [("name", BTREE), ("size", BTREE)]


def test_names_of_indexes_tell_column_and_kind() -> None:
    assert scalar_index_name("src") == WantedIndex(column="src", kind=BTREE).name == "src_btree"
    assert vector_index_name("v") == WantedIndex(column="v", kind=VECTOR).name == "v_vector"


@pytest.mark.parametrize("count", [0, 1, 1_000_000])
def test_a_scalar_index_is_built_with_the_defaults_of_the_library(count: int) -> None:
    spec = index_spec(WantedIndex(column="x", kind=BTREE), count)
    assert spec is not None
    assert (spec.name, spec.column, spec.kind) == ("x_btree", "x", PhysicalIndex.BTREE)
    assert spec.settings == ()


@each_case(
    ("body", "expected"),
    [
        ("x: String", []),
        ("x: String @key y: String? @index", ["y"]),
        ("x: String @key @index(x)", ["x"]),
        ("x: I32 @key y: String z: String @index(y, z)", []),
        ("x: I32 @index y: enum(a, b) @index w: Vector(2)? @index", []),
    ],
)
def test_terms_are_kept_of_single_texts_with_an_index(body: str, expected: list[str]) -> None:
    assert list(indexed_texts(node(body))) == expected


@pytest.mark.parametrize("count", [0, 1, 9_999])
def test_few_vectors_are_scanned_exactly(count: int) -> None:
    assert index_spec(WantedIndex(column="v", kind=VECTOR), count) is None


@each_case(
    ("count", "partitions"), [(10_000, 100), (10_200, 100), (10_201, 101), (1_000_000, 1_000), (10**8 - 1, 9_999)]
)
def test_many_vectors_have_as_many_partitions_as_their_root(count: int, partitions: int) -> None:
    spec = index_spec(WantedIndex(column="v", kind=VECTOR), count)
    assert spec is not None
    assert (spec.name, spec.column, spec.kind) == ("v_vector", "v", PhysicalIndex.IVF_FLAT)
    assert dict(spec.settings) == {"num_partitions": partitions, "metric": "l2"}


def test_the_limit_is_the_one_that_users_read_about() -> None:
    assert VECTOR_INDEX_MIN_ROWS == 10_000


# ---- Segments of texts: cut, analysed, packed, and asked


TEXTS = st.lists(
    st.one_of(
        st.none(),
        st.text(alphabet="ab B-é東京 1", max_size=12),
        st.text(alphabet=st.characters(codec="utf-8"), max_size=8),
    ),
    max_size=12,
)


def lowered(run: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in run)


@given(TEXTS, st.integers(0, 3))
def test_runs_are_cut_at_ascii_separators_and_belong_to_their_text(texts: list[str | None], skipped: int):
    runs = split_runs(pa.array(texts, pa.string()).slice(skipped))
    got = [(int(text), runs.distinct[code]) for text, code in zip(runs.texts, runs.codes, strict=True)]
    expected = [
        (number, lowered(run))
        for number, text in enumerate(texts[skipped:])
        for run in re.findall("[0-9A-Za-z\x80-\U0010ffff]+", text or "")
    ]
    assert got == expected
    assert len(set(runs.distinct)) == len(runs.distinct)


@given(TEXTS)
def test_postings_are_the_terms_of_each_text(texts: list[str | None]):
    segment = build_segment(pa.array(texts, pa.string()))
    expected: dict[str, list[tuple[int, int]]] = {}
    for number, text in enumerate(texts):
        at = 0
        length = 0
        for run in re.findall("[0-9A-Za-z\x80-\U0010ffff]+", text or ""):
            analysed = analyse_run(lowered(run))
            for term in analysed.terms:
                expected.setdefault(term.text, []).append((number, at + term.position))
                length += term.is_counted
            at += analysed.width
        assert segment.lengths[number] == length
    assert len(segment.term_ends) == len(expected)
    for term, occurrences in expected.items():
        postings = segment.postings(term.encode())
        owners, positions = segment.occurrences(postings)
        assert list(zip(owners.tolist(), positions.tolist(), strict=True)) == occurrences
        assert segment.texts[postings].tolist() == sorted({number for number, _ in occurrences})
        counts = segment.frequencies(postings).tolist()
        assert sum(counts) == len(occurrences)
        assert all(counts)
    for absent in (b"", b"zzz", "\U0010ffff".encode()):
        if absent.decode() not in expected:
            assert segment.postings(absent) == slice(0, 0)


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_packed_segments_are_the_same_segments(groups: list[list[str | None]]):
    segments = [build_segment(pa.array(texts, pa.string())) for texts in groups]
    again = unpack_segments(pack_segments(segments))
    assert again is not None
    assert len(again) == len(segments)
    for one, other in zip(segments, again, strict=True):
        for name in one.__slots__:
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_arrays_of_something_else_are_no_segments():
    packed = pack_segments([build_segment(pa.array(["a b", "c"]))])
    for name in packed:
        assert unpack_segments({key: packed[key] for key in packed if key != name}) is None
    assert unpack_segments(packed | {"texts-ends": np.array([1, 2, 3])}) is None


@each_case("name", ["term_ends", "posting_ends", "texts", "position_ends", "lengths", "texts-ends"])
@each_case("value", [-1, 1 << 30])
def test_numbers_that_lead_nowhere_are_no_segments(name: str, value: int):
    packed = pack_segments([build_segment(pa.array(["a b", "c d"]))])
    forged = packed[name].copy()
    forged[-1] = value
    if (name, value) != ("lengths", 1 << 30):
        assert unpack_segments(packed | {name: forged}) is None
    assert unpack_segments(packed | {name: packed[name].astype(np.float64)}) is None


def column(texts: list[str | None], width: int, dead: frozenset[int] = frozenset()) -> TextColumn:
    """Texts in segments of a width; the row id of a text is 100 minus its number."""
    segments = []
    for start in range(0, len(texts), width):
        part = texts[start : start + width]
        row_ids = [-1 if start + at in dead else 100 - start - at for at in range(len(part))]
        segments.append(LiveSegment(build_segment(pa.array(part, pa.string())), np.array(row_ids)))
    return TextColumn(segments)


@each_case("query", ["red", "red fox", "red fox lake", "the", "nothing", "fox 東"])
def test_borders_of_segments_and_deleted_texts_change_no_score(query: str):
    alive = ["red fox", "red red lake", None, "", "fox", "the red", "東京 fox lake", "red fox"]
    texts: list[str | None] = []
    dead = set()
    for text in alive:
        texts += [text, "red fox lake 東京 dead"]
        dead.add(len(texts) - 1)
    terms = query_terms(query)
    expected = column(alive, 100).relevance(terms, Budget())
    by_text = {100 - int(row): score for row, score in zip(expected.row_ids, expected.scores, strict=True)}
    for width in (1, 3, 100):
        got = column(texts, width, frozenset(dead)).relevance(terms, Budget())
        found = {(100 - int(row)) // 2: score for row, score in zip(got.row_ids, got.scores, strict=True)}
        assert found == by_text, "to the last bit"
    assert by_text.get(0) == by_text.get(7)


def test_the_same_parts_make_the_same_sum_whatever_their_terms():
    texts: list[str | None] = ["one two three x", "three one two x", "two three one x", "y"]
    texts += ["one one one two two three", "two two two three three one", "three three three one one two"]
    scores = column(texts, 2).relevance(query_terms("one two three"), Budget()).scores
    assert len(set(scores[:3].tolist())) == 1
    assert len(set(scores[3:].tolist())) == 1


def test_a_phrase_is_found_at_any_place_and_over_stop_words():
    texts: list[str | None] = ["art of war", "war of art", "the art and a war", "art art of war", "東京都庁"]
    asked = column(texts, 2)
    assert asked.rows_with_phrase(analyse_query("art of war"), Budget()).tolist() == [97, 100]
    assert asked.rows_with_phrase(analyse_query("of the war of"), Budget()).tolist() == [97, 98, 99, 100]
    assert asked.rows_with_phrase(analyse_query("京都"), Budget()).tolist() == [96]
    assert asked.rows_with_phrase(analyse_query("東都"), Budget()).tolist() == []
    assert asked.rows_with_phrase(analyse_query("of"), Budget()).tolist() == []


# ---- What texts become: folding, words, pairs of characters, stems


SAME = {
    "accents": ("résumé", "resume"),
    "accents that are characters of their own": ("re\u0301sume\u0301", "résumé"),
    "case": ("ΕΛΛΗΝΙΚΆ", "ελληνικα"),
    "a final letter of another form": ("ΟΔΟΣ", "οδος"),
    "letters that become two": ("Straße", "STRASSE"),
    "letters that have no accent to lose": ("Łódź Ærø", "lodz aero"),
    "a letter with a dot in upper case": ("İstanbul", "istanbul"),
    "wide letters and digits": ("ＡＢＣ１２３", "abc123"),
    "narrow katakana": ("ﾃﾞｰﾀ", "データ"),
    "voiced kana in two characters": ("か\u3099", "が"),
    "ligatures": ("ﬁle", "file"),
    "Hangul in single letters": ("\u1112\u1161\u11ab", "한"),
    "Cyrillic": ("ёлка", "ЕЛКА"),
}


@named_cases(("left", "right"), SAME)
def test_spellings_of_one_word_are_the_same_words(left: str, right: str):
    assert words_of(left) == words_of(right) != []
    assert analyse_query(left) == analyse_query(right)


@each_case(
    ("text", "expected"),
    [
        ("e-mail me: don't; 3.14", ["e", "mail", "me", "don", "t", "3", "14"]),
        ("snake_case/path\\x", ["snake", "case", "path", "x"]),
        ("tower東京2024", ["tower", "東京", "2024"]),
        ("—“quoted”…", ["quoted"]),
        ("❤️ ok \u0301", ["ok"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("", []),
        ("?! \n\t", []),
    ],
)
def test_words_are_runs_of_letters_digits_and_marks(text: str, expected: list[str]):
    assert words_of(text) == expected


def test_scripts_without_blanks_become_overlapping_pairs_and_single_characters():
    stored = analyse_run("東京都")
    assert stored.terms == (
        Term("東京", 0),
        Term("京都", 1),
        Term("東", 0, is_counted=False),
        Term("京", 1, is_counted=False),
        Term("都", 2, is_counted=False),
    )
    assert stored.width == 3
    assert analyse_query("東京都").terms == stored.terms[:2]
    assert analyse_query("東 京").terms == (Term("東", 0), Term("京", 1))
    assert analyse_run("東").terms == (Term("東", 0),)


@each_case("length", [1, 39, 40, 41, 64, 65, 500])
def test_a_word_of_any_length_is_a_term(length: int):
    assert query_terms("x" * length) == ["x" * length]
    assert len(query_terms("東京" * length)) == (1 if length == 1 else 2)


def test_stop_words_take_a_position_and_are_no_terms():
    assert analyse_query("the art of war").terms == (Term("art", 1), Term("war", 3))
    assert analyse_query("the art of war").width == 4
    assert query_terms(" ".join(STOP_WORDS)) == []


def test_a_query_has_a_bounded_number_of_terms():
    assert len(analyse_query("x " * MAX_QUERY_TERMS).terms) == MAX_QUERY_TERMS
    with pytest.raises(BadRequestError, match="fewer words"):
        query_terms("x " * (MAX_QUERY_TERMS + 1))


def test_terms_of_a_query_are_distinct_and_in_a_fixed_order():
    assert query_terms("Graphs of graph, vector graphing") == ["graph", "vector"]


STEMS = {
    "caresses": "caress", "ponies": "poni", "ties": "tie", "cries": "cri", "gas": "gas", "gaps": "gap",
    "agreed": "agre", "feed": "feed", "hopping": "hop", "hoping": "hope", "added": "add",
    "luxuriated": "luxuri", "happy": "happi", "say": "say", "by": "by", "generation": "generat",
    "generous": "generous", "relational": "relat", "rationalize": "ration", "databases": "databas",
    "database": "databas", "hopefulness": "hope", "controlling": "control", "running": "run",
    "skies": "sky", "news": "news", "dying": "die", "inning": "inning", "proceeds": "proceed",
    "knightly": "knight", "analogies": "analog", "quickly": "quick", "yes": "yes", "a1b": "a1b",
    "naïve": "naïve", "be": "be", "rate": "rate", "controll": "control",
}  # fmt: skip


@each_case(("word", "expected"), STEMS.items())
def test_forms_of_an_english_word_have_one_stem(word: str, expected: str):
    assert stem(word) == expected


@given(st.text(max_size=12), st.text(max_size=12))
def test_what_stands_in_a_text_is_found_there(left: str, right: str):
    """The terms of a text are those of its runs, so a query finds every text that begins or ends with it."""
    both = analyse_query(f"{left} {right}")
    first = analyse_query(left)
    assert both.terms[: len(first.terms)] == first.terms
    assert both.width == first.width + analyse_query(right).width


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=20))
def test_folding_again_changes_nothing(text: str):
    words = words_of(text)
    assert words_of(" ".join(words)) == words
