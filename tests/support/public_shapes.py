"""Folders of files as people publish them: movies, airline routes, package dependencies; small and a little dirty."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_csv(path: Path, header: Sequence[str] | None, rows: Iterable[Sequence[object]], delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
        if header is not None:
            writer.writerow(header)
        writer.writerows(rows)
    return path


def write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# ---- movies


GENRES = ["Adventure", "Animation", "Children", "Comedy", "Drama", "Fantasy", "Romance", "Thriller"]


def rated_movies(folder: Path) -> Path:
    """Movies with ratings, tags and links; the users are only numbers in the ratings."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    ids = sorted(chance.sample(range(1, 900), 120))
    movies = [
        (n, f'Movie "{n}", The ({1950 + n % 70})', "|".join(sorted(chance.sample(GENRES, chance.randint(1, 3)))))
        for n in ids
    ]
    movies[5] = (*movies[5][:2], "(no genres listed)")
    write_csv(folder / "movies.csv", ["movieId", "title", "genres"], movies)
    pairs = sorted({(chance.randint(1, 40), chance.choice(ids)) for _ in range(900)})
    write_csv(
        folder / "ratings.csv",
        ["userId", "movieId", "rating", "timestamp"],
        [(u, m, chance.randint(1, 10) / 2, 964_982_703 + 977 * n) for n, (u, m) in enumerate(pairs)],
    )
    write_csv(
        folder / "tags.csv",
        ["userId", "movieId", "tag", "timestamp"],
        [
            (u, m, chance.choice(["funny", "boring", "based on a book", "twist"]), 1_445_714_994 + u)
            for u, m in pairs[::9]
        ],
    )
    write_csv(
        folder / "links.csv",
        ["movieId", "imdbId", "tmdbId"],
        [(n, f"{n * 37:07d}", "" if n == ids[3] else n * 11) for n in ids],
    )
    (folder / "README.txt").write_text(
        "Summary\n=======\n\nThis dataset describes ratings, and tags.\n", encoding="utf-8"
    )
    return folder


def credited_movies(folder: Path) -> Path:
    """Movies, people and roles, with a director in the movie; dates, budgets, dirty ends."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(11)
    people = [
        (n, f"Person {n}", "" if n % 9 == 0 else f"{1 + n % 28}.{1 + n % 12}.{1930 + n % 60}") for n in range(1, 81)
    ]
    write_csv(folder / "people.csv", ["id", "name", "born"], people)
    movies = [
        (
            100 + n,
            f"Film {n}",
            1970 + n % 50,
            "" if n % 17 == 0 else chance.randint(1, 80),
            f"{chance.randint(1, 900) * 1000:,}",
            chance.choice(["yes", "no"]),
            chance.choice(["released", "post-production", "rumored"]),
            f"{chance.randint(1, 12)}/{13 + n % 15}/{1990 + n % 30}" if n % 5 else "N/A",
        )
        for n in range(60)
    ]
    header = ["id", "title", "year", "director_id", "budget", "in_color", "status", "Release Date"]
    write_csv(folder / "movies.csv", header, movies)
    roles = [
        (m[0], p, chance.choice(["Hero", "Villain", "Self"]), n)
        for m in movies
        for n, p in enumerate(chance.sample(range(1, 81), 3))
    ]
    # Two rows twice, and two whose person is unknown.
    roles += [*roles[:2], (100, 999, "Ghost", 9), (101, 998, "Ghost", 9)]
    write_csv(folder / "roles.csv", ["movie_id", "person_id", "character", "billing"], roles)
    return folder


# ---- airline routes


def _airports(chance: random.Random, count: int = 90) -> list[tuple[Any, ...]]:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    codes = sorted({"".join(chance.choices(letters, k=3)) for _ in range(count * 2)})
    chance.shuffle(codes)
    return [
        (
            n * 3 + 1,
            f"{codes[n].title()} International Airport",
            codes[n].title(),
            chance.choice(["Papua New Guinea", "Greenland", "Iceland", "Canada"]),
            codes[n] if n % 8 else "\\N",
            f"K{codes[n]}",
            round(chance.uniform(-60, 70), 6),
            round(chance.uniform(-170, 170), 6),
            chance.randint(0, 9000),
            chance.choice([10, -3, 5.5, 0]),
            chance.choice(["U", "E", "A", "\\N"]),
            chance.choice(["Pacific/Port_Moresby", "America/Godthab", "\\N"]),
            "airport",
            "OurAirports",
        )
        for n in range(count)
    ]


def _airlines(chance: random.Random) -> list[tuple[Any, ...]]:
    return [
        (
            n * 2 + 1,
            f"Airline {n}",
            "\\N",
            "-" if n % 3 else f"{chr(65 + n % 26)}{n % 10}",
            f"AL{chr(65 + n % 26)}",
            f"SIGN {n % 7}" if n % 4 else "",
            "Canada",
            chance.choice(["Y", "N"]),
        )
        for n in range(40)
    ]


def _quoted(row: Sequence[Any]) -> str:
    return ",".join(f'"{item}"' if isinstance(item, str) and item != "\\N" else str(item) for item in row)


def open_flights(folder: Path) -> Path:
    """Airports, airlines and routes without a line of names, with `\\N` for null."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(3)
    airports, airlines = _airports(chance), _airlines(chance)
    (folder / "airports.dat").write_text("".join(_quoted(row) + "\n" for row in airports), encoding="utf-8")
    (folder / "airlines.dat").write_text("".join(_quoted(row) + "\n" for row in airlines), encoding="utf-8")
    routes = []
    for _ in range(700):
        airline, a, b = chance.choice(airlines), *chance.sample(airports, 2)
        known = (airline[3], airline[0]) if airline[0] % 11 else ("ZZ", "\\N")
        routes.append(
            (*known, a[4], a[0], b[4], b[0], chance.choice(["", "", "Y"]), 0, chance.choice(["CR2", "A81 738", "320"]))
        )
    write_csv(folder / "routes.dat", None, routes)
    return folder


def flights_with_headers(folder: Path) -> Path:
    """Airports that have an id, and routes that use their codes."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(5)
    airports = [(row[0], row[1], row[2], row[3], f"{row[5][1:]}", row[6], row[7]) for row in _airports(chance)]
    write_csv(folder / "airports.csv", ["id", "name", "city", "country", "iata", "latitude", "longitude"], airports)
    airlines = [(f"{chr(65 + n % 26)}{n}", f"Airline {n}", "active" if n % 5 else "defunct") for n in range(30)]
    write_csv(folder / "airlines.csv", ["code", "name", "status"], airlines)
    routes = []
    for n in range(400):
        a, b = chance.sample(airports, 2)
        routes.append((chance.choice(airlines)[0], a[4], b[4], chance.randint(100, 9000), f"2024-{1 + n % 12:02d}-01"))
    write_csv(
        folder / "routes.csv", ["airline", "source_airport", "destination_airport", "distance_km", "since"], routes
    )
    return folder


def flights_without_some_codes(folder: Path) -> Path:
    """Airports of which some have no code, and routes that know codes only."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(29)
    airports = [(row[0], row[1], row[2], row[4]) for row in _airports(chance)]
    write_csv(folder / "airports.csv", ["id", "name", "city", "iata"], airports)
    codes = [row[3] for row in airports if row[3] != "\\N"]
    routes = [(chance.choice(["LH", "BA"]), *chance.sample(codes, 2), chance.randint(0, 2)) for _ in range(300)]
    write_csv(folder / "routes.csv", ["airline", "from", "to", "stops"], routes)
    return folder


# ---- packages


def _packages(chance: random.Random, count: int = 60) -> list[str]:
    return [
        f"{chance.choice(['lib', 'py', 'fast', 'tiny'])}-{word}{n}"
        for n, word in enumerate(chance.choices(["json", "http", "log", "cache"], k=count))
    ]


def package_tables(folder: Path) -> Path:
    """Packages, their versions, what versions depend on, and who maintains them."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(13)
    names = _packages(chance)
    write_csv(
        folder / "packages.csv",
        ["name", "summary", "license", "homepage", "downloads", "keywords", "deprecated"],
        [
            (
                n,
                f"The {n} library",
                chance.choice(["MIT", "Apache-2.0", ""]),
                f"https://example.org/{n}",
                chance.randint(10, 90_000),
                ", ".join(chance.sample(["cli", "web", "fast", "async"], 2)),
                chance.choice(["true", "false"]),
            )
            for n in names
        ],
    )
    versions = [
        (n, f"{major}.{minor}.0", f"2023-{1 + minor:02d}-1{major}T10:00:00Z", 1 if minor == 3 else 0)
        for n in names
        for major in (1, 2)
        for minor in range(chance.randint(1, 4))
    ]
    write_csv(folder / "versions.csv", ["package", "version", "released_at", "is_yanked"], versions)
    dependencies = []
    for package, version, *_ in versions:
        for other in chance.sample(names, 2):
            if other != package:
                dependencies.append(
                    (package, version, other, chance.choice([">=1.0", "^2", "*"]), chance.choice(["runtime", "dev"]))
                )
    dependencies.append((names[0], versions[0][1], "not-published", "*", "dev"))
    write_csv(folder / "dependencies.csv", ["package", "version", "depends_on", "constraint", "kind"], dependencies)
    emails = [f"dev{n}@example.org" for n in range(20)]
    write_csv(
        folder / "maintainers.csv",
        ["package", "maintainer", "email"],
        sorted({(n, f"Dev {k}", emails[k]) for n in names for k in chance.sample(range(20), 2)}),
    )
    return folder


def package_lines(folder: Path) -> Path:
    """Packages as lines of JSON, and a list of who depends on whom."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(17)
    names = _packages(chance)
    write_json_lines(
        folder / "packages.jsonl",
        (
            {
                "name": n,
                "version": f"1.{k}.0",
                "author": {"name": f"Dev {k % 9}", "email": f"dev{k % 9}@example.org"} if k % 7 else None,
                "keywords": chance.sample(["cli", "web", "fast"], k % 3),
                "published": f"2024-0{1 + k % 9}-11",
                "stars": k * 17 if k % 5 else None,
                "private": False,
            }
            for k, n in enumerate(names)
        ),
    )
    write_json_lines(
        folder / "dependencies.jsonl",
        ({"package": a, "depends_on": b, "range": "^1.0"} for a in names for b in chance.sample(names, 2) if a != b),
    )
    return folder


def nested_packages(folder: Path) -> Path:
    """Packages whose lines hold what they depend on and who maintains them."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(23)
    names = _packages(chance)
    write_json_lines(
        folder / "packages.jsonl",
        (
            {
                "name": name,
                "version": f"1.{n}.0",
                "dependencies": dict.fromkeys(chance.sample(names, 2), f"^{n % 3}"),
                "related": [chance.choice(names)],
                "maintainers": [{"name": f"Dev {n % 7}", "email": f"dev{n % 7}@example.org"}],
                "keywords": ["cli", "web"][: n % 3],
                "dist": {"size": n * 100, "unpacked": n * 300},
            }
            for n, name in enumerate(names)
        ),
    )
    return folder


def edge_list(folder: Path) -> Path:
    """Nothing but who points to whom, packed."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(19)
    rows = sorted({(chance.randint(1, 60), chance.randint(1, 60)) for _ in range(300)})
    text = "source\ttarget\tweight\n" + "".join(f"{a}\t{b}\t0.{a}\n" for a, b in rows)
    with gzip.open(folder / "follows.tsv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    return folder


def company(folder: Path) -> Path:
    """Employees with a department and a manager, in Parquet of several parts."""
    (folder / "employees").mkdir(parents=True, exist_ok=True)
    rows = [
        {"id": n, "name": f"E {n}", "dept": f"D{n % 5}", "manager_id": None if n < 3 else n // 3, "salary": 1000.5 + n}
        for n in range(1, 61)
    ]
    for part in (0, 1):
        pq.write_table(pa.Table.from_pylist(rows[part::2]), folder / "employees" / f"part-{part:05d}.parquet")
    departments = [(f"D{n}", f"Department {n}") for n in range(5)]
    write_csv(folder / "departments.csv", ["code", "name"], departments, delimiter=";")
    return folder


SHAPES = {
    "rated movies": rated_movies,
    "credited movies": credited_movies,
    "open flights": open_flights,
    "flights with headers": flights_with_headers,
    "flights without some codes": flights_without_some_codes,
    "package tables": package_tables,
    "package lines": package_lines,
    "nested packages": nested_packages,
    "edge list": edge_list,
    "company": company,
}
