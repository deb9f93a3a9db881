"""Names of types and properties from names of files and columns."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PROPERTY = re.compile(r"[a-z_][A-Za-z0-9_]*")


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


#: Names of properties that storage has taken.
RESERVED = word_set("id _rowid _rowaddr _rowoffset _row_created_at_version _row_last_updated_at_version")
#: Names that edges have taken besides.
ENDS = word_set("src dst from to")
#: Beginnings and ends of names of files that say nothing about what is inside.
_NOISE = word_set("tbl dim fact stg raw dataset data table export dump full all")

# ---- Words


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, without accents.

    >>> words_of("movieId"), words_of("Release Date (UTC)")
    (('movie', 'id'), ('release', 'date', 'utc'))
    """
    plain = unicodedata.normalize("NFKD", name.replace("ß", "ss")).encode("ascii", "ignore").decode()
    return tuple(word.lower() for word in _WORD.findall(plain))


#: Plurals that no ending tells.
_IRREGULAR = {
    "people": "person",
    "persons": "person",
    "children": "child",
    "men": "man",
    "women": "woman",
    "mice": "mouse",
    "geese": "goose",
    "feet": "foot",
    "teeth": "tooth",
    "indices": "index",
    "vertices": "vertex",
    "matrices": "matrix",
    "appendices": "appendix",
    "analyses": "analysis",
    "hypotheses": "hypothesis",
    "crises": "crisis",
    "criteria": "criterion",
    "phenomena": "phenomenon",
    "leaves": "leaf",
    "lives": "life",
    "knives": "knife",
    "wives": "wife",
    "wolves": "wolf",
    "shelves": "shelf",
    "halves": "half",
    "thieves": "thief",
    "quizzes": "quiz",
    "shoes": "shoe",
    "caches": "cache",
    "niches": "niche",
    "aches": "ache",
    "axes": "axis",
}
#: Words that end like plurals and are not.
_SINGULAR = word_set(
    "series species news means lens gas bias atlas canvas alias media data metadata physics mathematics economics "
    "politics athletics diabetes"
)
#: Words in -ie: the plural of others in -ies has a y.
_IE = word_set("movie cookie zombie selfie rookie calorie genie tie pie lie die")
#: Endings of plurals and what the singular has instead; the first that fits counts.
_PLURALS = (("sses", "ss"), ("uses", "us"), ("xes", "x"), ("ches", "ch"), ("shes", "sh"), ("oes", "o"), ("s", ""))
#: Words in -use, whose plural is not that of a word in -us.
_USE = word_set("house warehouse use cause clause pause spouse excuse mouse")


def singular(word: str) -> str:
    """The singular of an English noun in lower case; a word that is not a plural stays.

    >>> [singular(word) for word in ("movies", "people", "dependencies", "status", "addresses", "houses", "boxes")]
    ['movie', 'person', 'dependency', 'status', 'address', 'house', 'box']
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word in _SINGULAR or len(word) < 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word[:-1] in _IE | _USE:
        return word[:-1]
    if word.endswith("ies"):
        return f"{word[:-3]}y" if len(word) > 4 else word[:-1]
    for ending, instead in _PLURALS:
        if word.endswith(ending):
            return word.removesuffix(ending) + instead
    return word


# ---- Types


def type_name(words: Sequence[str], otherwise: str) -> str:
    """The name of a type from words, the last one in the singular.

    >>> type_name(("movie", "ratings"), "Table")
    'MovieRating'
    """
    some = [*words[:-1], singular(words[-1])] if words else []
    found = "".join(word.capitalize() for word in some)
    if not found:
        return otherwise
    return found if found[0].isalpha() else f"T{found}"


def file_words(stems: Sequence[str]) -> list[tuple[str, ...]]:
    """The words of names of files that tell them apart: what all of them begin or end with is left out.

    >>> file_words(["olist_orders_dataset", "olist_order_items_dataset"])
    [('orders',), ('order', 'items')]
    """
    found = [list(words_of(stem)) for stem in stems]
    for cut in (0, -1):
        while len(found) > 1 and all(len(words) > 1 for words in found) and len({words[cut] for words in found}) == 1:
            for words in found:
                del words[cut]
    for words in found:
        while len(words) > 1 and words[0] in _NOISE:
            del words[0]
        while len(words) > 1 and words[-1] in _NOISE:
            del words[-1]
    return [tuple(words) for words in found]


# ---- Properties


def property_name(column: str, *, number: int, owner: str, is_edge: bool = False) -> str:
    """The name of a property from that of a column: as it is where it may be, else its words.

    The column `id` of a type is its name with `_id`, because each row has an `id` already; without words `number` is
    the name.

    >>> property_name("movieId", number=1, owner="Rating"), property_name("Full Name", number=2, owner="Person")
    ('movieId', 'full_name')
    >>> property_name("id", number=1, owner="OrderItem"), property_name("2019", number=3, owner="Sale")
    ('order_item_id', '_2019')
    """
    found = column if _PROPERTY.fullmatch(column) else "_".join(words_of(column))
    if not found:
        return f"column_{number}"
    if found == "id":
        return f"{snake(owner)}_id"
    if found in RESERVED or (is_edge and found in ENDS):
        return f"{found}_value"
    return found if not found[0].isdigit() else f"_{found}"


def snake(name: str) -> str:
    """A name of a type as words with underscores."""
    return "_".join(words_of(name))


def unused(name: str, is_taken: Callable[[str], bool]) -> str:
    """The name, or the same with the first number that makes it a new one."""
    found, number = name, 1
    while is_taken(found):
        number += 1
        found = f"{name}_{number}" if name[:1].islower() or name[:1] == "_" else f"{name}{number}"
    return found


def distinct_names(names: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Names that are all different, also from those that are taken."""
    found: list[str] = []
    for name in names:
        found.append(unused(name, lambda it: it in found or it in taken))
    return found
