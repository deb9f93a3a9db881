"""Tables, layouts and drawings: bounded, escaped, and the same for the same input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from omnigraph.display.drawings import Edge, EdgeType, Node, NodeType, draw_schema
from omnigraph.display.layout import arrange
from omnigraph.display.pictures import MOST_NODES, Picture, check_limit, picture_of
from omnigraph.display.tables import Column, Table
from omnigraph.display.text import fitted, short_text
from omnigraph.errors import BadRequestError
from support.subtests import each_case

HOSTILE = "</script><script>alert(1)</script>\"'<b>&\x00\x1b[31m\u202e"
SVG = "{http://www.w3.org/2000/svg}"


@each_case(
    ("value", "shown"),
    [
        ("x", "x"),
        (None, "null"),
        ("a" * 10_000_000, "a" * 120 + "… (10,000,000 characters)"),
        ([0.5] * 1536, "[0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … 1,530 more]"),
        (['"', "b"], '["\\"", "b"]'),
        ([["a" * 500]], None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_value_is_short_whatever_its_size(value: object, shown: str | None) -> None:
    text = short_text(value)
    assert text == shown if shown is not None else len(text) < 300


def test_a_table_of_text_fits_its_width_and_names_what_does_not() -> None:
    columns = [Column(name=f"column {n}", values=["知" * 100, "b\n\x1b"], is_number=n == 1) for n in range(9)]
    lines = list(Table(columns=columns, title="T", note="2 rows").lines(60))
    assert lines[0] == "T"
    assert lines[-2].startswith("… ")
    assert lines[-2].count("column") == int(lines[-2].split()[1]) + 1
    assert lines[-1] == "2 rows"
    assert all(len(line) + line.count("知") <= 60 for line in lines[:-2])
    assert "b\\n\\x1b" in lines[4]
    assert fitted("知识图谱", 5) == "知识…"


def test_a_table_of_html_holds_no_markup_of_its_values() -> None:
    html = Table(columns=[Column(name=HOSTILE, values=[HOSTILE, None], kind=HOSTILE)], title=HOSTILE).html()
    assert "<script" not in html
    assert html.count("<b>") == 0
    assert "http" not in html


def graph(count: int, links: list[tuple[int, int]]) -> np.ndarray:
    return arrange(np.full((count, 2), (60.0, 40.0)), links, gap=(10, 10), length=80)


@each_case(
    ("count", "links"),
    [
        (0, []),
        (1, [(0, 0)]),
        (7, []),
        (3, [(0, 1), (1, 2), (2, 0)]),
        (26, [(0, n) for n in range(1, 26)]),
        (60, [(n, n // 2) for n in range(1, 60)] + [(n, (7 * n) % 60) for n in range(0, 60, 3)]),
        (12, [(n, n + 1) for n in range(11)]),
    ],
    ids=["nothing", "one", "apart", "triangle", "star", "tangle", "line"],
)
def test_boxes_have_places_of_their_own_and_always_the_same(count: int, links: list[tuple[int, int]]) -> None:
    places = graph(count, links)
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    assert np.array_equal(places, graph(count, links))
    apart = np.abs(places[:, None] - places[None, :])
    overlaps = (apart[..., 0] < 60) & (apart[..., 1] < 40) & ~np.eye(count, dtype=bool)
    assert not overlaps.any()


def nodes(count: int, **more: object) -> list[Node]:
    return [Node(key=f"A/{n}", type_name="A", label=f"{HOSTILE} {n}", colour=n, **more) for n in range(count)]  # type: ignore[arg-type]


def test_a_drawing_is_valid_and_holds_every_node_and_edge() -> None:
    edges = [
        Edge(source="A/0", target="A/1", type_name=HOSTILE, mark="inserted"),
        Edge(source="A/0", target="A/1", type_name="K", mark="deleted"),
        Edge(source="A/1", target="A/1", type_name="Loop", is_directed=False, is_path=True),
    ]
    picture = picture_of(nodes(3), edges, title=HOSTILE, note=HOSTILE)
    root = ElementTree.fromstring(picture.to_svg())
    groups = [item.get("class", "") for item in root.iter(f"{SVG}g")]
    assert sum(name.startswith("node") for name in groups) == 3
    assert {"edge inserted", "edge deleted", "edge path"} <= set(groups)
    # Parallel lines do not lie on each other.
    paths = [item.get("d") for item in root.iter(f"{SVG}path") if item.get("class") == "reach"]
    assert len(set(paths)) == 3
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", picture.to_svg())


def test_a_picture_is_bounded_and_says_so() -> None:
    edges = [Edge(source="A/0", target=f"A/{n}", type_name="K") for n in range(1, 30)]
    details = {f"p{n}": "x" * 10_000_000 for n in range(2)} | {f"q{n}": [1.0] * 10_000 for n in range(40)}
    picture = picture_of(nodes(30, details=details), edges, title="t", limit=10)
    assert picture.note == "the first 10 nodes of 30"
    assert len(picture.to_html()) < 400_000
    with pytest.raises(BadRequestError, match=f"1 to {MOST_NODES} nodes, not 0"):
        check_limit(0)


def test_a_page_has_no_markup_of_values_and_may_fetch_nothing() -> None:
    picture = picture_of(nodes(2, details={HOSTILE: HOSTILE}), [], title=HOSTILE)
    page = picture.to_html()
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert "default-src 'none'" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|import \{", page)
    data = re.search(r'id="details">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    assert json.loads(data[1])["A/0"]["facts"][0][0] == HOSTILE
    frame = picture._repr_html_()
    assert frame.startswith("<iframe ")
    assert frame.count("<") == 2


def test_a_picture_is_saved_by_the_ending_of_its_path(tmp_path: Path) -> None:
    picture = Picture(title="s", drawing=draw_schema([], [], title="s"))
    assert picture.save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert picture.save(str(tmp_path / "A.HTML")).read_text(encoding="utf-8").startswith("<!doctype html>")
    for name in ("a.png", "a"):
        with pytest.raises(BadRequestError, match=r"give a path that ends in \.html or \.svg"):
            picture.save(tmp_path / name)
    with pytest.raises(BadRequestError, match="cannot be written"):
        picture.save(tmp_path / "nowhere" / "a.svg")
    assert {path.name for path in tmp_path.iterdir()} == {"a.svg", "A.HTML"}


def test_a_schema_is_drawn_with_its_first_properties() -> None:
    types = [
        NodeType(name="Wide", colour=0, properties=[(f"p{n}", "String") for n in range(20)], count=1234),
        NodeType(name="Other", colour=1, properties=[]),
    ]
    edges = [
        EdgeType(name="To", source="Wide", target="Other", count=5),
        EdgeType(name="Self", source="Wide", target="Wide"),
    ]
    text = "".join(ElementTree.fromstring(draw_schema(types, edges, title="s").svg()).itertext())
    for shown in ("Wide", "1,234", "p0", "… 13 more", "To 5", "Self"):
        assert shown in text
