"""The files of the explorer page, without a browser: complete, unchanged, and nothing that its policy forbids."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import omnigraph
from support.subtests import each_case

PAGE = Path(omnigraph.__file__).parent / "display" / "page"
VENDOR = PAGE / "vendor"
OWN = sorted(
    path for path in PAGE.rglob("*") if path.suffix in {".html", ".css", ".js", ".svg"} and VENDOR not in path.parents
)
MODULES = [path for path in OWN if path.suffix == ".js"]
#: The names of the languages of drawings are no addresses: nothing is fetched from there.
NAMESPACES = ("http://www.w3.org/2000/svg",)


class Markup(HTMLParser):
    """What the page refers to, and what a strict policy would not run."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.forbidden: list[str] = []
        self._open: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.forbidden += [name for name in names if name.startswith("on") or name == "style"]
        self.references += [
            value for name in ("src", "href") if (value := names.get(name)) and not value.startswith("#")
        ]
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open in {"script", "style"} and data.strip():
            self.forbidden.append(f"text in <{self._open}>")

    def handle_endtag(self, tag: str) -> None:
        self._open = None


@pytest.fixture(scope="module")
def markup() -> Markup:
    found = Markup()
    found.feed((PAGE / "index.html").read_text(encoding="utf-8"))
    return found


def test_everything_that_the_page_refers_to_is_there(markup: Markup) -> None:
    assert len(markup.references) >= 5
    assert all(name.startswith("page/") for name in markup.references)
    missing = [name for name in markup.references if not (PAGE.parent / name).is_file()]
    assert missing == []


def test_all_modules_are_fetched_at_once(markup: Markup) -> None:
    named = {name.removeprefix("page/js/") for name in markup.references if name.endswith(".js")}
    assert named >= {path.name for path in MODULES}


def test_the_page_holds_no_script_style_or_handler_that_its_policy_forbids(markup: Markup) -> None:
    assert markup.forbidden == []


@each_case("path", MODULES, ids=lambda path: path.name)
def test_a_module_imports_only_modules_that_are_there_and_stays_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    imported = re.findall(r'^(?:import .*|\} )from "(.+)";$', text, re.MULTILINE)
    assert [name for name in imported if not (path.parent / name).is_file()] == []
    assert len(text.splitlines()) <= 300


@each_case("path", OWN, ids=lambda path: path.name)
def test_nothing_is_fetched_from_elsewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for namespace in NAMESPACES:
        text = text.replace(namespace, "")
    assert re.findall(r"""https?://|["'(]//|@import""", text) == []


@each_case("path", MODULES, ids=lambda path: path.name)
def test_no_module_makes_markup_or_code_from_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    assert re.findall(ways, text) == []


def test_what_others_wrote_is_as_they_published_it_and_comes_with_its_licence() -> None:
    listed = (VENDOR / "cytoscape" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {name: digest for digest, name in (line.split() for line in listed)}
    assert set(sums) == {"cytoscape.min.js", "LICENSE"}
    for name, digest in sums.items():
        content = (VENDOR / "cytoscape" / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == digest, name


def test_a_page_that_did_not_change_is_not_sent_again(reader) -> None:
    for path in ("/", "/page/js/main.js"):
        first = reader.get(path)
        again = reader.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
        assert reader.head(path).headers["content-length"] == str(len(first.content))


def test_nothing_but_the_files_of_the_page_can_be_asked_for(reader) -> None:
    for path in ("../app.py", "%2e%2e/app.py", "..%2f..%2f__init__.py", "", "js", "nothing.js"):
        assert reader.get(f"/page/{path}").status_code == 404
