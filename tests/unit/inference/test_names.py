"""Names of types and properties from names of files and columns."""

from __future__ import annotations

import doctest

from omnigraph.inference import design, names
from omnigraph.inference.names import file_words, property_name, singular, type_name, words_of
from support.subtests import named_cases


def test_the_examples_of_the_modules_hold() -> None:
    assert [doctest.testmod(module).failed for module in (names, design)] == [0, 0]


PLURALS = """
    movies movie; people person; dependencies dependency; countries country; boxes box; buses bus; classes class;
    licenses license; releases release; purchases purchase; houses house; heroes hero; statuses status; churches church;
    analyses analysis; leaves leaf; archives archive; caches cache; series series; news news; data data; gas gas;
    keys key; ties tie; cookies cookie; children child; is is; as as; address address; cast cast
"""


def test_singulars() -> None:
    pairs = [pair.split() for pair in PLURALS.split(";")]
    assert [singular(plural) for plural, _ in pairs] == [one for _, one in pairs]


WORDS = {
    "camel case": ("movieId", "movie id"),
    "capitals before words": ("IMDBRating", "imdb rating"),
    "signs and spaces": ("Release Date (UTC)", "release date utc"),
    "digits": ("line2text", "line 2 text"),
    "accents": ("Straße Café", "strasse cafe"),
    "another alphabet": ("电影", ""),
}


@named_cases(("name", "words"), WORDS)
def test_the_words_of_a_name(name: str, words: str) -> None:
    assert " ".join(words_of(name)) == words


STEMS = {
    "one file": (["movies"], ["movies"]),
    "what all begin and end with": (["olist_orders_dataset", "olist_sellers_dataset"], ["orders", "sellers"]),
    "only some begin with it": (
        ["title.basics", "title.crew", "name.basics"],
        ["title basics", "title crew", "name basics"],
    ),
    "words that say nothing": (["tbl_users", "raw_orders_export"], ["users", "orders"]),
    "nothing is left out that leaves nothing": (["data", "data_full"], ["data", "full"]),
}


@named_cases(("stems", "words"), STEMS)
def test_the_words_that_tell_files_apart(stems: list[str], words: list[str]) -> None:
    assert [" ".join(found) for found in file_words(stems)] == words


def test_names_of_types() -> None:
    assert type_name(("order", "items"), "Row") == "OrderItem"
    assert type_name((), "Row") == "Row"
    assert type_name(("2019", "sales"), "Row") == "T2019Sale"


PROPERTIES = {
    "a name that may be": ("movieId", "movieId"),
    "capitals": ("IATA", "iata"),
    "spaces": ("Tz database timezone", "tz_database_timezone"),
    "a digit first": ("2019", "_2019"),
    "the id of the row": ("ID", "movie_id"),
    "a name of storage": ("_rowid", "_rowid_value"),
    "an end in a node": ("from", "from"),
    "no letters": ("电影", "column_4"),
    "a path": ("address.city", "address_city"),
}


@named_cases(("column", "name"), PROPERTIES)
def test_names_of_properties(column: str, name: str) -> None:
    assert property_name(column, number=4, owner="Movie") == name


def test_an_edge_has_ends_of_its_own() -> None:
    assert [property_name(name, number=1, owner="E", is_edge=True) for name in ("from", "src")] == [
        "from_value",
        "src_value",
    ]
