"""The same command on storage and on a server: twin graphs, one of them behind a server on a port of this machine."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.server.boot import open_service
from omnigraph.server.config import read_config
from omnigraph.server.settings import ServerSettings
from support.servers import QUERIES, listening, make_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.cli_graphs import Outcome

    Run = Callable[..., Outcome]

ACTOR, TOKEN = "act-nadia", "nadia-token"
READER, READER_TOKEN = "act-bot", "bot-token"
POLICY = """
version: 1
groups: { all: [act-nadia], readers: [act-bot] }
rules:
  - { id: reads, allow: { actors: { group: readers }, actions: [read, export, invoke_query] } }
  - { id: may, allow: { actors: { group: all }, actions: [read, export, change, invoke_query, schema_apply] } }
  - { id: branches, allow: { actors: { group: all }, actions: [branch_create, branch_delete, branch_merge] } }
"""
SERVER_POLICY = """
version: 1
groups: { all: [act-nadia] }
rules: [{ id: lists, allow: { actors: { group: all }, actions: [graph_list] } }]
"""
CONFIG = """
graphs:
  people: { store: served.omni, queries: queries.gq, policy: policy.yaml }
  twin: { store: second.omni }
policy: server.yaml
"""


@dataclass(frozen=True, slots=True)
class Twins:
    """Two graphs with the same content: one as storage, one behind a server under the name `people`."""

    store: str
    url: str
    folder: Path


@contextmanager
def twins(folder: Path) -> Iterator[Twins]:
    """Make both, and serve the second."""
    store = make_graph(folder)
    for name in ("served", "second"):
        shutil.copytree(store, folder / f"{name}.omni")
    texts = {"queries.gq": QUERIES, "policy.yaml": POLICY, "server.yaml": SERVER_POLICY}
    for name, text in (texts | {"serve.yaml": CONFIG}).items():
        (folder / name).write_text(text, encoding="utf-8")
    tokens = json.dumps({ACTOR: TOKEN, READER: READER_TOKEN})
    service = open_service(
        read_config(folder / "serve.yaml"),
        ServerSettings(),
        environment={"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": tokens},
    )
    with listening(service) as url:
        yield Twins(store, url, folder)


_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
#: In microseconds, or as people read it.
_TIME = re.compile(r"\b1[0-9]{15}\b|[0-9-]{10}[T ][0-9:.]{8,15}Z?")
#: It holds ids too, packed.
_CURSOR = re.compile(r'(?<="cursor": ")[^"]+')


def alike(text: str, *addresses: str) -> str:
    """A text with ids replaced in the order of their appearance, times and addresses by one word."""
    for address in addresses:
        text = text.replace(address, "<graph>")
    seen: dict[str, str] = {}
    text = _CURSOR.sub("<cursor>", text)
    text = _ID.sub(lambda found: seen.setdefault(found[0], f"<{len(seen)}>"), text)
    return _TIME.sub("<time>", text)
