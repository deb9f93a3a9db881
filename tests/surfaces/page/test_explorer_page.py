"""The explorer page in a real browser, against a real server: what a person sees and does there."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from omnigraph import Graph
from support.servers import POLICY_WITH_GUEST, TOKENS, guarded_server, listening

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

#: `make test` provides one beside the Python that runs the tests (tools/browser.py), and prints why when it cannot.
BROWSER = os.environ.get("OMNIGRAPH_TEST_BROWSER") or shutil.which(
    "chromium", path=os.pathsep.join([f"{sys.prefix}/bin", os.environ.get("PATH", "")])
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no browser: run tools/browser.py, install Chromium, or name one in OMNIGRAPH_TEST_BROWSER"
)

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SCHEMA = """
node Person @description("somebody") { name: String @key  age: I32?  bio: String? }
// No key: the page has to find notes again by what they say.
node Note { text: String  stars: I32? }
edge Knows: Person -> Person { since: I32? }
edge Mentions: Note -> Person
"""
EVIL = "<img src=x onerror=\"document.title='hacked'\">"
FRIENDS = 30
#: For a busy machine; nothing waits that long by itself.
TIMEOUT_MS = 30_000
expect.set_options(timeout=TIMEOUT_MS)
VIEWS = ("schema", "query", "explore", "history")
QUERY = "query older($age: I32) {\n  match { $p: Person  $p.age > $age }\n  return { $p, $p.age as age }\n}"


def _rows() -> list[dict[str, object]]:
    people = ["ada", EVIL, *(f"friend {number:02}" for number in range(FRIENDS))]
    nodes = [
        {"type": "Person", "data": {"name": name, "age": 20 + place, "bio": "x" * 400}}
        for place, name in enumerate(people)
    ]
    notes = [{"type": "Note", "data": {"id": f"note-{n}", "text": f"note {n}"}} for n in (1, 2)]
    knows = [{"edge": "Knows", "from": "ada", "to": name, "data": {"since": 1990}} for name in people[2:]]
    mentions = [{"edge": "Mentions", "from": "note-1", "to": "ada", "data": {}}]
    return [*nodes, *notes, *knows, *mentions]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with tokens and a policy, on a graph with two branches."""
    root = tmp_path_factory.mktemp("explorer")
    lines = root / "rows.jsonl"
    lines.write_text("\n".join(map(json.dumps, _rows())), encoding="utf-8")
    uri = str(root / "people.omni")
    with Graph.init(uri, SCHEMA) as graph:
        graph.load(lines, mode="append", engine="local")
        graph.create_branch("draft")
        birthday = 'query b() { update Person set { age: 99 } where name = "ada" }'
        graph.mutate(birthday, branch="draft", actor="act-nadia")
        graph.mutate('query n() { insert Person { name: "newcomer" } }', branch="draft")
    with listening(guarded_server(uri, root, policy=POLICY_WITH_GUEST)) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Kinds of screens, each made once: a tab in one is opened much faster than a new one."""
    made: dict[str, BrowserContext] = {}

    def context(**options: object) -> BrowserContext:
        kind = repr(options)
        if kind not in made:
            made[kind] = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
            made[kind].set_default_timeout(TIMEOUT_MS)
        return made[kind]

    yield context
    for each in made.values():
        each.close()


@pytest.fixture
def visit(contexts: Callable[..., BrowserContext], address: str) -> Iterator[Callable[..., Page]]:
    """Open the page as somebody; in the end, nothing may have broken its security policy or thrown."""
    pages: list[Page] = []
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # Browsers log answers that are refusals, and requests without answer; some stories are about them.
        is_told = "Failed to load resource" in message.text
        if message.type == "error" and not is_told:
            problems.append(message.text)

    def open_(view: str = "schema", *, token: str | None = TOKENS["act-bot"], **options: object) -> Page:
        page = contexts(**options).new_page()
        pages.append(page)
        page.on("console", note)
        page.on("pageerror", lambda error: problems.append(str(error)))
        if token is not None:
            page.add_init_script(f"sessionStorage.setItem('omnigraph.token', {json.dumps(token)})")
        page.goto(f"{address}/#{view}")
        return page

    yield open_
    for page in pages:
        page.close()
    assert problems == []


def _run(page: Page, text: str, **params: str) -> None:
    editor = page.get_by_label("Query", exact=True).last
    # Its suggestion comes with the schema, and must not come between the selection and the input of `fill`.
    expect(editor).not_to_have_value("")
    editor.fill(text)
    for name, value in params.items():
        page.locator(f"input[name={name}]").fill(value)
    page.get_by_role("button", name="Run", exact=True).click()


def test_the_schema_is_a_diagram_whose_types_can_be_chosen(visit: Callable[..., Page]) -> None:
    page = visit("schema")
    diagram = page.get_by_label("Schema diagram")
    expect(diagram.locator(".box")).to_have_count(2)
    expect(diagram.get_by_label("Edge Knows from Person to Person")).to_be_visible()

    diagram.get_by_label("Node type Person").focus()
    page.keyboard.press("Enter")
    panel = page.get_by_label("Type", exact=True)
    expect(panel).to_contain_text("somebody")
    expect(panel.get_by_role("row", name="age")).to_contain_text("I32?")
    expect(panel.get_by_role("row", name="name")).to_contain_text("@key")

    page.get_by_role("button", name="Text").click()
    expect(page.locator("pre.source")).to_contain_text("edge Mentions: Note -> Person")


def test_a_query_runs_with_parameters_and_its_rows_can_be_sorted(visit: Callable[..., Page]) -> None:
    page = visit("query")
    _run(page, QUERY, age="48")
    expect(page.locator(".rows tbody tr")).to_have_count(3)
    expect(page.locator(".outcome .count")).to_have_text("3 rows")
    page.get_by_title("Sort by age").click()
    page.get_by_title("Sort by age").click()
    expect(page.locator(".rows tbody tr").first).to_contain_text("51")
    expect(page.locator("th", has_text="age")).to_have_attribute("aria-sort", "descending")

    page.locator("input[name=age]").fill("many")
    page.get_by_label("Query", exact=True).last.press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="whole number")).to_be_visible()

    page.locator("input[name=age]").fill("1")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("pre.plan")).to_contain_text("Person")


def test_an_error_is_underlined_at_its_column(visit: Callable[..., Page]) -> None:
    page = visit("query")
    _run(page, "query q() {\n  match { $p: Persn }\n  return { $p }\n}")
    expect(page.locator(".findings li")).to_contain_text("no node type `Persn`")
    expect(page.locator(".findings .place")).to_have_text("2:15")
    wrong = page.locator(".editor-colours .wrong")
    expect(wrong).to_have_text("Persn")

    page.locator(".findings .place").click()
    caret = page.evaluate("document.activeElement.selectionStart")
    text = page.get_by_label("Query", exact=True).last.input_value()
    assert text[caret:].startswith("Persn")
    # The underlined copy lies exactly under the text that is edited.
    copy, area = (page.locator(".editor-colours").bounding_box(), page.locator(".editor-text").bounding_box())
    assert (copy["x"], copy["y"]) == (area["x"], area["y"])

    page.keyboard.type("x")
    expect(wrong).to_have_count(0)


def test_the_nodes_of_a_result_are_drawn_and_opened(visit: Callable[..., Page]) -> None:
    page = visit("query")
    _run(page, 'query q() { match { $a: Person { name: "ada" }  $a knows $b } return { $a, $b } }')
    page.get_by_role("button", name="Graph", exact=True).click()
    expect(page.locator(".bar [role=status]").filter(has_text="31 nodes, 30 edges")).to_be_visible()
    page.get_by_role("button", name="Table", exact=True).click()
    page.get_by_title("Show this Person").first.click()
    expect(page).to_have_url(re.compile("#explore$"))
    expect(page.locator("#view-explore .details h2")).to_have_text("ada")


def test_a_stored_query_runs_and_one_that_changes_the_graph_does_not(visit: Callable[..., Page]) -> None:
    page = visit("query")
    page.locator("#stored-query").select_option("older_than")
    page.locator("input[name=age]").fill("50")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".rows tbody tr")).to_have_count(1)
    page.locator("#stored-query").select_option("add_person")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    expect(page.get_by_role("alert").filter(has_text="only reads")).to_be_visible()


def test_a_node_is_found_and_its_neighbours_come_25_at_a_time(visit: Callable[..., Page]) -> None:
    page = visit("explore")
    view = page.locator("#view-explore")
    page.locator("#explore-type").select_option("Person")
    page.locator("#explore-text").fill("ada")
    page.get_by_role("button", name="Find").click()
    view.locator(".chip").get_by_text("ada", exact=True).click()
    expect(view.locator(".details h2")).to_have_text("ada")
    expect(view.get_by_role("row", name="bio")).to_contain_text("…")

    view.get_by_role("button", name="Expand", exact=True).click()
    expect(view.locator(".bar [role=status]")).to_have_text("27 nodes, 26 edges")
    expect(view.get_by_label("Types")).to_contain_text("Note 1")
    view.get_by_role("button", name="Knows → Person: more").click()
    expect(view.locator(".bar [role=status]")).to_have_text("32 nodes, 31 edges")

    view.get_by_text("Nodes on the canvas").click()
    view.locator(".node-list").get_by_text("note 1").click()
    expect(view.locator(".details .kind")).to_have_text("Note")
    view.get_by_role("button", name="Mentions → Person").click()
    expect(view.get_by_label("Neighbours")).to_contain_text("1")
    view.get_by_role("button", name="Pin", exact=True).click()
    expect(view.locator(".node-list")).to_contain_text("note 1 (pinned)")
    view.get_by_role("button", name="Hide").click()
    expect(view.locator(".bar [role=status]")).to_have_text("31 nodes, 30 edges")


def test_a_double_click_on_the_canvas_expands_a_node(visit: Callable[..., Page]) -> None:
    page = visit("explore")
    view = page.locator("#view-explore")
    page.locator("#explore-type").select_option("Note")
    view.locator(".chip").get_by_text("note 1").click()
    expect(view.locator(".details h2")).to_have_text("note 1")
    # The only node of a canvas is in its middle; its name below it moves it up a little.
    view.locator(".canvas").scroll_into_view_if_needed()
    frame = view.locator(".canvas").bounding_box()
    page.mouse.dblclick(frame["x"] + frame["width"] / 2, frame["y"] + frame["height"] / 2 - 10)
    expect(view.locator(".bar [role=status]")).to_have_text("2 nodes, 1 edge")


def test_the_history_shows_branches_changes_and_differences(visit: Callable[..., Page]) -> None:
    page = visit("history")
    commits = page.locator(".commit-item")
    expect(commits).to_have_count(4)
    expect(commits.nth(0).locator(".branch-label")).to_have_text("draft")
    expect(commits.nth(2).locator(".branch-label")).to_have_text("main")
    expect(page.locator(".commit-dot")).to_have_count(4)

    commits.nth(0).click()
    page.keyboard.press("ArrowDown")
    changes = page.get_by_label("Changes", exact=True)
    expect(changes.locator(".change")).to_have_count(1)
    changes.locator("summary").click()
    expect(changes.get_by_role("row", name="age")).to_contain_text("2099")

    page.get_by_label("From").fill("main")
    page.get_by_label("To", exact=True).fill("draft")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(changes).to_contain_text("1 insert, 1 update, 0 deletes")
    changes.locator(".change.update summary").click()
    row = changes.get_by_role("row", name="age")
    expect(row.locator(".before")).to_have_text("20")
    expect(row.locator(".after")).to_have_text("99")

    commits.nth(3).click()
    expect(changes).to_contain_text("The first commit")


def test_thousands_of_commits_are_drawn_as_far_as_they_are_seen(visit: Callable[..., Page]) -> None:
    commits = [
        {
            "graph_commit_id": f"c{n}",
            "graph_branch": "main",
            "parent_commit_id": f"c{n + 1}" if n < 4999 else None,
            "merged_parent_commit_id": f"c{n + 3}" if n % 7 == 0 and n < 4990 else None,
            "created_at": 0,
        }
        for n in range(5000)
    ]
    page = visit("schema")
    page.route("**/log", lambda route: route.fulfill(json={"commits": commits, "heads": {"main": "c0"}}))
    page.goto(f"{page.url.partition('#')[0]}#history")
    rows = page.locator(".commit-item")
    expect(rows.first).to_have_attribute("data-commit", "c0")
    rows.first.click()
    page.keyboard.press("End")
    expect(rows.last).to_have_attribute("data-commit", "c4999")
    expect(rows.last).to_be_focused()
    assert 5 < rows.count() < 80


def test_lanes_lead_from_every_commit_to_its_parents(visit: Callable[..., Page]) -> None:
    page = visit("schema")
    laid = page.evaluate(
        """async () => {
          const { layLanes } = await import(new URL("page/js/lanes.js", document.baseURI));
          const commit = (id, parent, merged = null) =>
            ({ graph_commit_id: id, parent_commit_id: parent, merged_parent_commit_id: merged });
          return layLanes([commit("tip", "side"), commit("merge", "trunk", "side"), commit("side", "root"),
                           commit("trunk", "root"), commit("root", "elsewhere")], "merge");
        }"""
    )
    assert [row["column"] for row in laid["rows"]] == [1, 0, 1, 0, 0]
    lines = [sorted((line["from"], line["to"]) for line in row["lines"]) for row in laid["rows"]]
    assert lines == [[(1, 1)], [(0, 0), (0, 1), (1, 1)], [(0, 0), (1, 1)], [(0, 0), (1, 0)], [(0, 0)]]
    assert laid["rows"][-1]["lines"][0]["isCut"]


def test_a_phone_needs_no_sideways_scrolling(visit: Callable[..., Page]) -> None:
    page = visit("schema", viewport={"width": 360, "height": 740}, has_touch=True)
    for view in VIEWS:
        page.goto(f"{page.url.partition('#')[0]}#{view}")
        expect(page.locator(f"#view-{view}")).to_be_visible()
        expect(page.locator(f"#view-{view} .spinner")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
    page.locator(".commit-item").first.click()
    expect(page.locator(".change")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_page_is_dark_where_the_system_is_and_when_it_is_asked_to_be(visit: Callable[..., Page]) -> None:
    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return max(map(int, re.findall(r"\d+", colour)[:3]))

    page = visit("schema", color_scheme="dark")
    assert brightness() < 60
    page.get_by_role("button", name="Switch to light colours").click()
    assert brightness() > 200
    page.reload()
    assert brightness() > 200


def test_text_of_the_graph_never_becomes_markup(visit: Callable[..., Page]) -> None:
    page = visit("explore")
    page.locator("#explore-type").select_option("Person")
    page.locator("#explore-text").fill("<img")
    page.get_by_role("button", name="Find").click()
    page.locator("#view-explore .chip").click()
    expect(page.locator("#view-explore .details h2")).to_have_text(EVIL)

    page.goto(f"{page.url.partition('#')[0]}#query")
    _run(page, 'query q() { match { $p: Person  $p.name starts_with "<" } return { $p, $p.name } }')
    expect(page.locator(".rows tbody td").first).to_have_text(EVIL)
    assert page.locator("main img").count() == 0
    assert page.title() == "OmniGraph explorer"


def test_a_wrong_token_is_asked_for_again_and_never_seen_in_an_address(
    visit: Callable[..., Page], address: str
) -> None:
    page = visit("schema", token=None)
    seen: list[str] = []
    page.on("request", lambda request: seen.append(request.url))
    dialog = page.get_by_role("dialog", name="Access token")
    dialog.get_by_label("Token", exact=True).fill("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#view-schema")).to_contain_text("This server wants a token")
    page.get_by_role("button", name="Enter a token").click()
    expect(dialog).to_contain_text("does not know this token")
    dialog.get_by_label("Token", exact=True).fill(TOKENS["act-bot"])
    dialog.get_by_role("button", name="Use token").click()
    expect(page.locator(".box")).to_have_count(2)
    expect(page.locator("#connection")).to_have_text("connected")
    assert not [url for url in [*seen, page.url] if TOKENS["act-bot"] in url]
    assert page.evaluate("Object.keys(localStorage)") == []


def test_a_token_that_may_not_read_is_told_so(visit: Callable[..., Page]) -> None:
    page = visit("history", token=TOKENS["act-stranger"])
    expect(page.locator("#view-history")).to_contain_text("Your token does not allow this")
    # A graph that it may not see at all answers as one that does not exist.
    page.get_by_label("Graph", exact=True).fill("other")
    page.keyboard.press("Enter")
    expect(page.locator("#view-history")).to_contain_text("not visible with your token")
    page.get_by_role("button", name="Enter another token").first.click()
    expect(page.get_by_role("dialog", name="Access token")).to_be_visible()


def test_the_chosen_tab_takes_no_other_room(visit: Callable[..., Page]) -> None:
    page = visit("schema")
    tab = page.get_by_role("link", name="Schema")
    chosen = tab.bounding_box()
    page.get_by_role("link", name="Query").click()
    expect(tab).not_to_have_attribute("aria-current", "page")
    assert tab.bounding_box() == chosen


def test_a_server_that_goes_away_is_told_and_comes_back(visit: Callable[..., Page]) -> None:
    page = visit("schema")
    expect(page.locator(".box")).to_have_count(2)
    page.route("**/graphs/**", lambda route: route.abort())
    page.goto(f"{page.url.partition('#')[0]}#history")
    expect(page.locator("#view-history")).to_contain_text("The server does not answer")
    expect(page.locator("#banner")).to_be_visible()
    page.unroute("**/graphs/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".commit-item")).to_have_count(4)
    expect(page.locator("#banner")).to_be_hidden()


def test_a_query_that_takes_too_long_is_told_with_what_helps(visit: Callable[..., Page]) -> None:
    page = visit("query")
    stopped = {
        "error": "look at the plan with `explain`, or use --timeout",
        "kind": "query_timeout",
        "query_timeout": {"timeout_s": 60, "operator": "Expand"},
    }
    page.route("**/graphs/*/query", lambda route: route.fulfill(status=504, json=stopped))
    _run(page, "query q() { match { $p: Person } return { $p.name } }")
    shown = page.locator("#view-query .state.error")
    expect(shown).to_contain_text("The query took too long")
    expect(shown).to_contain_text("stopped it after 60 s. Add a filter or a limit")
    expect(shown).not_to_contain_text("--timeout")


def test_another_branch_is_shown_everywhere(visit: Callable[..., Page]) -> None:
    page = visit("query")
    _run(page, QUERY, age="98")
    expect(page.locator("#view-query")).to_contain_text("No rows")
    page.locator("#branch").select_option("draft")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".rows tbody tr")).to_have_count(1)
    assert "branch=draft" in page.url
