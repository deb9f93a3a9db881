"""The shape of the source tree: public names exist, rooms explain themselves, modules stay small."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import omnigraph
from omnigraph import errors
from omnigraph.errors.requests import _RESOURCES
from support.subtests import each_case

SOURCES = Path(omnigraph.__file__).parent
ROOMS = sorted(path.parent.name for path in SOURCES.glob("*/__init__.py"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages([str(SOURCES)], prefix="omnigraph.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("door", ["omnigraph", "omnigraph.errors", "omnigraph.spark"])
def test_the_names_of_a_door_exist_once(door: str) -> None:
    module = importlib.import_module(door)
    assert all(hasattr(module, name) for name in module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)


def test_rooms_have_no_other_doors() -> None:
    """Modules are imported where they are: a door that repeats every name costs more than it protects."""
    doors = [
        path.parent.name
        for path in SOURCES.rglob("__init__.py")
        if re.search(r"^(from|import) .*import|^__all__", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert sorted(doors) == ["errors", "ir", "omnigraph", "spark"]


@each_case("room", [room for room in ROOMS if room != "errors"])
def test_a_room_says_what_it_owns_and_where_to_start(room: str) -> None:
    text = importlib.import_module(f"omnigraph.{room}").__doc__ or ""
    assert 3 <= len(text.strip().splitlines()) <= 10
    assert "Owns" in text
    assert "Start reading" in " ".join(text.split())


@each_case("name", MODULES)
def test_a_module_has_a_docstring_and_is_one_idea(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) <= 600


def test_no_scan_lets_lance_read_blobs_by_itself() -> None:
    """It would open external addresses and hold whole batches of blobs."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    assert [str(path) for path, text in texts.items() if "all_binary" in text] == []


def test_datasets_are_opened_through_one_door() -> None:
    """It reads forks inside their graph: `lance.dataset` by itself follows whatever address they recorded."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    found = [path.name for path, text in texts.items() if "lance.dataset(" in text]
    assert found == ["opening.py"]


def test_a_commit_that_follows_a_head_is_made_in_one_place() -> None:
    """Parent, version, time and tables follow from the head and the changes, whatever publishes."""
    rooms = (SOURCES / "commit", SOURCES / "graph", SOURCES / "maintenance")
    texts = {path: path.read_text(encoding="utf-8") for room in rooms for path in room.rglob("*.py")}
    found = sorted(path.name for path, text in texts.items() if re.search(r"\bGraphCommit\((?:\n|\*\*)", text))
    # The first commit has no parent; rows of commits are read back.
    assert found == ["environment.py", "initialize.py", "rows.py"]


def test_the_words_of_pydantic_are_translated_in_one_place() -> None:
    """`Input should be a valid string` does not say which field is wrong: `omnigraph.core.validation` does."""
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")}
    found = [path.name for path, text in texts.items() if "error.errors(" in text]
    assert found == ["validation.py"]


def test_every_bounded_resource_has_words_for_people() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    raised = {name for text in texts for name in re.findall(r'ResourceLimitError\(\s*"([^"]+)"', text)}
    raised |= {name for text in texts for name in re.findall(r'_RESOURCE = "([^"]+)"', text)}
    assert raised == set(_RESOURCES)


def _tree(cls: type) -> list[type]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]


@each_case("cls", _tree(errors.OmniError), ids=lambda cls: cls.__name__)
def test_every_error_is_mapped_to_a_status_and_an_exit_code(cls: type[errors.OmniError]) -> None:
    assert 400 <= cls.http_status <= 599
    assert cls.exit_code in (1, 4, 75)
    assert cls.kind
    assert cls.__name__ in (errors.__doc__ or "")


def test_the_storage_format_is_the_same_everywhere() -> None:
    from omnigraph.commit.rows import INTERNAL_SCHEMA_VERSION

    assert omnigraph.INTERNAL_SCHEMA_VERSION == INTERNAL_SCHEMA_VERSION


def test_the_public_surface_of_the_package() -> None:
    from omnigraph.graph.graph import Graph

    assert sorted(omnigraph.__all__) == [
        "Action",
        "Graph",
        "GraphApi",
        "INTERNAL_SCHEMA_VERSION",
        "OmniGraphDataSource",
        "Policy",
        "PolicyGate",
        "PolicyRequest",
        "__version__",
        "compile_query",
        "compile_schema",
        "infer",
        "mock_vector",
        "spark_frame",
        "spark_session",
    ]
    assert omnigraph.Graph is Graph
    assert omnigraph.OmniGraphDataSource.name() == "omnigraph"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = omnigraph.nothing
