"""Saved pictures in a browser: nothing is fetched, and what is chosen shows its values, in the theme of a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from omnigraph.display.drawings import Edge, Node
from omnigraph.display.pictures import Picture, picture_of
from surfaces.page.test_explorer_page import ARGUMENTS, BROWSER, pytestmark

__all__ = ["pytestmark"]
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser: Browser = playwright.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield browser.new_page(color_scheme="light", viewport={"width": 900, "height": 600})
        browser.close()


@pytest.fixture(scope="module")
def picture() -> Picture:
    nodes = [
        Node(key=f"A/{name}", type_name="A", label=name, colour=0, details={"value": HOSTILE})
        for name in ("x", "y", "z")
    ]
    edge = Edge(source="A/x", target="A/y", type_name="Knows", details={"since": 1})
    return picture_of(nodes, [edge], title=HOSTILE, note="a note")


def test_a_saved_page_asks_for_nothing_and_shows_what_is_chosen(page: Page, picture: Picture, tmp_path: Path) -> None:
    asked: list[str] = []
    wrong: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    path = picture.save(tmp_path / "picture.html")
    page.goto(path.as_uri())
    expect(page.locator(".node")).to_have_count(3)
    page.locator(".node").first.click()
    expect(page.locator("aside")).to_contain_text(HOSTILE)
    expect(page.locator(".node.dim")).to_have_count(1)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Close").click()
    expect(page.locator("aside")).to_be_hidden()
    assert asked == [path.as_uri()]
    assert wrong == []


def test_a_picture_in_a_notebook_has_its_theme(page: Page, picture: Picture, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    for colours, theme in (("background:#111;color:#eee", "dark"), ("background:#fff;color:#111", "light")):
        notebook.write_text(f'<!doctype html><body style="{colours}">{picture._repr_html_()}', encoding="utf-8")
        page.goto(notebook.as_uri())
        frame = page.frame_locator("iframe")
        expect(frame.locator(".node")).to_have_count(3)
        expect(frame.locator("html")).to_have_attribute("data-theme", theme)
