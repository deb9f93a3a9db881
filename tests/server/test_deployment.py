"""The files that people copy to their machines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from omnigraph.errors import BadRequestError
from omnigraph.server.main import app, parse_bind
from omnigraph.serving import read_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def test_everything_that_the_image_copies_is_there():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    copied = [
        word
        for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []
    included = re.findall(r'"(\w+)" = "omnigraph/', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(included) <= set(copied), "the wheel needs them"


@pytest.mark.parametrize("name", ["Containerfile", "omnigraph-server.service"])
def test_the_server_is_started_with_flags_that_it_has(name):
    text = (DEPLOY / name).read_text(encoding="utf-8")
    known = {flag for item in get_command(app).params for flag in item.opts}
    started = re.findall(r"^(?:ExecStart|CMD)[= ].*config.*$", text, re.MULTILINE)
    assert started
    assert {flag for line in started for flag in re.findall(r"--[a-z-]+", line)} <= known


def test_the_example_configuration_is_read(tmp_path):
    for name in ("papers-policy.yaml", "server-policy.yaml"):
        (tmp_path / name).write_text("version: 1\n", encoding="utf-8")
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "all.gq").write_text(
        "query all() { match { $p: Paper } return { $p.title } }", encoding="utf-8"
    )
    (tmp_path / "server.yaml").write_text(
        (DEPLOY / "server.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (graph,) = read_config(tmp_path / "server.yaml").graphs
    assert (graph.graph_id, graph.store) == ("papers", "/var/lib/omnigraph/papers.omni")


@pytest.mark.parametrize("text", ["", "8080", ":8080", "host:", "host:x", "host:70000", "host:-1"])
def test_an_address_to_listen_at_is_host_and_port(text):
    with pytest.raises(BadRequestError):
        parse_bind(text)
