"""What a client makes of servers that refuse, break off, send elsewhere, or are none."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest

from omnigraph import Graph
from omnigraph.client.addresses import parse_address
from omnigraph.client.connection import Connection, list_graphs
from omnigraph.client.record_files import RecordFiles
from omnigraph.client.remote_graph import RemoteGraph
from omnigraph.client.streams import LineCount
from omnigraph.errors import (
    BadRequestError,
    DirectOnlyError,
    InputFileError,
    LoadKeyConflictError,
    LoadRejectedError,
    LoadReport,
    NotFoundError,
    OmniError,
    ParameterError,
    PolicyDeniedError,
    PreconditionFailedError,
    ResourceLimitError,
    ServerUnreachableError,
    UnauthorizedError,
    UnexpectedAnswerError,
)
from omnigraph.errors.writes import BadRecord
from support.subtests import each_case

URL = "http://127.0.0.1:8080"
TOKEN = "a-secret-token"
COMMIT = "01K0000000000000000000000A"
ADD = 'query add() { insert Paper { doi: "10.1" } }'
ALL = "query all() { match { $p: Paper } return { $p.doi as doi } }"
GATED = PolicyDeniedError("not yours", action="graph_list", actor="act-ivo")


def refusal(error: OmniError) -> httpx.Response:
    return httpx.Response(error.http_status, json=error.to_json())


class Fake:
    """A server that answers what a test tells it to, and remembers what it was asked."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def graph(self, token: str | None = TOKEN, graph: str | None = "papers") -> RemoteGraph:
        return RemoteGraph.connect(URL, token, graph, transport=httpx.MockTransport(self))


def broken(body: bytes, error: Exception) -> httpx.Response:
    def pieces() -> Iterator[bytes]:
        yield body
        raise error

    return httpx.Response(200, content=pieces())


# ---- which graph


def test_the_only_graph_of_a_server_is_meant() -> None:
    fake = Fake(httpx.Response(200, json={"graphs": [{"graph_id": "papers", "uri": "/p"}]}))
    graph = fake.graph(graph=None)
    assert graph.uri == f"{URL}/graphs/papers"
    assert [str(request.url) for request in fake.requests] == [f"{URL}/graphs"]


def test_a_server_that_does_not_tell_its_graphs_means_the_default_one() -> None:
    assert Fake(refusal(GATED)).graph(graph=None).graph_id == "default"


def test_one_of_several_graphs_has_to_be_chosen() -> None:
    graphs = [{"graph_id": name, "uri": f"/{name}"} for name in ("notes", "papers")]
    with pytest.raises(BadRequestError, match=r"several graphs.*: notes, papers"):
        Fake(httpx.Response(200, json={"graphs": graphs})).graph(graph=None)
    with pytest.raises(NotFoundError, match="serves no graph"):
        Fake(httpx.Response(200, json={"graphs": []})).graph(graph=None)


def test_a_wrong_token_is_no_gate() -> None:
    with pytest.raises(UnauthorizedError, match="unknown token"):
        Fake(refusal(UnauthorizedError("unknown token"))).graph(graph=None)


def test_an_address_and_an_argument_must_not_name_two_graphs() -> None:
    with pytest.raises(BadRequestError, match="names the graph papers, and notes is asked for"):
        RemoteGraph.connect(f"{URL}/graphs/papers", graph="notes")
    assert Graph.connect(f"{URL}/graphs/papers", graph="papers").graph_id == "papers"


def test_graphs_are_listed_as_the_server_tells_them() -> None:
    fake = Fake(httpx.Response(200, json={"graphs": [{"graph_id": "a", "uri": "/a", "x": 1}]}))
    listed = list_graphs(URL, TOKEN, transport=httpx.MockTransport(fake))
    assert listed == [{"graph_id": "a", "uri": "/a"}]


# ---- close


class Watched(httpx.MockTransport):
    """A transport that says whether it was closed, as connections are."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_connections_are_closed_with_the_last_answer_that_is_read_from_them() -> None:
    transport = Watched(Fake(*(httpx.Response(200, content=iter([b"one\n", b"two\n"])) for _ in range(3))))
    connection = Connection(parse_address(URL), None, transport=transport)
    connection.close()
    first, other = connection.open("POST", "/x"), connection.open("POST", "/x")
    connection.close()
    assert next(connection.pieces(first)) == b"one\n"
    first.close()
    assert not transport.is_closed
    assert b"".join(connection.pieces(other)) == b"one\ntwo\n"
    assert transport.is_closed
    transport.is_closed = False
    assert b"".join(connection.pieces(connection.open("POST", "/x"))) == b"one\ntwo\n"
    assert not transport.is_closed
    connection.close()
    assert transport.is_closed


def test_a_request_without_an_answer_keeps_no_connection() -> None:
    transport = Watched(Fake(httpx.ConnectError("no")))
    graph = RemoteGraph.connect(URL, None, "papers", transport=transport)
    with pytest.raises(ServerUnreachableError):
        graph.branches()
    graph.close()
    assert transport.is_closed


# ---- the token


def test_the_token_is_sent_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    fake = Fake(httpx.Response(200, json={"branches": ["main"]}), httpx.ConnectError("refused"))
    graph = fake.graph()
    assert graph.branches() == ["main"]
    assert fake.requests[0].headers["Authorization"] == f"Bearer {TOKEN}"
    with pytest.raises(ServerUnreachableError) as caught:
        graph.branches()
    shown = [repr(graph), str(vars(graph)), repr(caught.value), caplog.text]
    assert TOKEN not in "".join(shown)


def test_without_a_token_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_BEARER_TOKEN", raising=False)
    fake = Fake(httpx.Response(200, json={"branches": []}))
    fake.graph(token=None).branches()
    assert "Authorization" not in fake.requests[0].headers


@each_case("status", [301, 302, 307, 308])
def test_nobody_is_followed_to_another_place(status: int) -> None:
    elsewhere = {"Location": "https://user:pass@elsewhere.example/graphs/papers/branches"}
    fake = Fake(httpx.Response(status, headers=elsewhere))
    with pytest.raises(UnexpectedAnswerError, match="connect to the address of the server itself"):
        fake.graph().branches()
    assert len(fake.requests) == 1


# ---- the way


@each_case("error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow"), httpx.PoolTimeout("full")])
@each_case("call", ["branches", "mutate"])
def test_a_server_that_cannot_be_reached_has_done_nothing(error: Exception, call: str) -> None:
    fake = Fake(error)
    arguments = [ADD] if call == "mutate" else []
    with pytest.raises(ServerUnreachableError, match="no server answers at") as caught:
        getattr(fake.graph(), call)(*arguments)
    assert not caught.value.outcome_unknown


LOST = [
    httpx.RemoteProtocolError("Server disconnected without sending a response."),
    httpx.ReadError("reset"),
    httpx.ReadTimeout("slow"),
    httpx.WriteError("reset"),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_a_write_whose_answer_is_lost_is_not_sent_again_and_its_outcome_is_unknown(
    error: Exception, tmp_path: Path
) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("{}\n")
    writes: list[Callable[[RemoteGraph], object]] = [
        lambda graph: graph.mutate(ADD),
        lambda graph: graph.load(lines, mode="merge"),
        lambda graph: graph.merge("draft"),
        lambda graph: graph.create_branch("draft"),
        lambda graph: graph.delete_branch("draft"),
        lambda graph: graph.apply_schema("node A { a: String @key }"),
        lambda graph: graph.run("add"),
    ]
    for write in writes:
        fake = Fake(error)
        with pytest.raises(ServerUnreachableError, match="whether the write happened") as caught:
            write(fake.graph())
        assert caught.value.outcome_unknown
        assert len(fake.requests) == 1


def test_a_read_is_asked_again_once_when_its_connection_broke() -> None:
    fake = Fake(LOST[0], httpx.Response(200, json={"branches": ["main"]}))
    assert fake.graph().branches() == ["main"]
    fake = Fake(LOST[0], LOST[1])
    with pytest.raises(ServerUnreachableError, match="try again") as caught:
        fake.graph().branches()
    assert not caught.value.outcome_unknown
    assert len(fake.requests) == 2


def test_a_write_whose_answer_breaks_off_has_an_unknown_outcome() -> None:
    with pytest.raises(ServerUnreachableError) as caught:
        Fake(broken(b'{"branch":', httpx.ReadError("reset"))).graph().mutate(ADD)
    assert caught.value.outcome_unknown


@each_case(
    "answer",
    [
        httpx.Response(200, html="<h1>welcome</h1>"),
        httpx.Response(200, json=["main"]),
        httpx.Response(404, html="<h1>not here</h1>"),
        httpx.Response(502, text="bad gateway"),
        httpx.Response(500, json={"detail": "odd"}),
    ],
)
def test_something_that_is_no_omnigraph_server_is_recognised(answer: httpx.Response) -> None:
    with pytest.raises(UnexpectedAnswerError, match="not an answer of an OmniGraph server"):
        Fake(answer).graph().branches()


def test_a_write_that_something_else_answered_has_an_unknown_outcome() -> None:
    with pytest.raises(UnexpectedAnswerError, match="whether the write happened is unknown"):
        Fake(httpx.Response(504, text="gateway timeout")).graph().mutate(ADD)


@each_case(
    "body",
    [
        b'{"error": "x", "kind": ["a"]}',
        b'{"error": "x", "kind": "key_conflict", "key_conflict": "s"}',
        b'{"error": {"x": 1}, "kind": null}',
        b"[" * 100_000,
        b'{"error": ' + b"[" * 100_000,
    ],
    ids=lambda body: body[:40].decode(),
)
def test_an_odd_refusal_is_a_typed_failure(body: bytes) -> None:
    with pytest.raises(OmniError):
        Fake(httpx.Response(500, content=body)).graph().branches()


@each_case(
    "call",
    [
        lambda graph: graph.branches(),
        lambda graph: graph.schema,
        lambda graph: graph.commits(),
        lambda graph: graph.commit(COMMIT),
        lambda graph: graph.changes(COMMIT),
        lambda graph: graph.feed(),
        lambda graph: graph.diff("a", "b"),
        lambda graph: graph.snapshot(),
        lambda graph: graph.entity_at("node:A", "a"),
        lambda graph: graph.mutate(ADD),
        lambda graph: graph.merge("draft"),
        lambda graph: graph.queries(),
        lambda graph: graph.stat_blob("node:A", "a", "b"),
        lambda graph: graph.query(ALL),
    ],
)
def test_an_answer_of_another_shape_is_a_typed_failure(call: Callable[[RemoteGraph], Any]) -> None:
    with pytest.raises(UnexpectedAnswerError):
        call(Fake(httpx.Response(200, json={"something": "else"})).graph())


# ---- requests


def test_the_actor_comes_from_the_token_alone(tmp_path: Path) -> None:
    graph = Fake().graph()
    for write in (
        lambda: graph.mutate(ADD, actor="me"),
        lambda: graph.load(tmp_path, mode="merge", actor="me"),
        lambda: graph.create_branch("draft", actor="me"),
        lambda: graph.delete_branch("draft", actor="me"),
        lambda: graph.merge("draft", actor="me"),
        lambda: graph.apply_schema("node A {}", actor="me"),
    ):
        with pytest.raises(BadRequestError, match="takes the actor from the token"):
            write()


def test_a_session_cannot_be_sent() -> None:
    graph = Fake().graph()
    for call in (
        lambda: graph.diff("a", "b", spark=object()),
        lambda: graph.merge("a", spark=object()),
        lambda: graph.export(io.StringIO(), spark=object()),
    ):
        with pytest.raises(BadRequestError, match="Spark session"):
            call()


def test_what_belongs_beside_the_storage_is_refused_with_the_way_there(tmp_path: Path) -> None:
    graph = Fake().graph()
    for call in (
        graph.optimize,
        lambda: graph.load(mapping=tmp_path / "m.yaml", mode="merge"),
        lambda: graph.load(frames={"A": object()}, mode="merge"),
        lambda: graph.load(tmp_path / "a.jsonl", mode="merge", quarantine=tmp_path / "bad"),
        lambda: graph.export(tmp_path / "out", format="parquet"),
        lambda: graph.export(tmp_path / "out", parts=True),
        lambda: graph.apply_schema("node A {}", validate=print),
    ):
        with pytest.raises(DirectOnlyError, match=r"Graph\.open"):
            call()
    with pytest.raises(BadRequestError, match="give one input"):
        graph.load(mode="merge")


def test_a_condition_has_a_path_and_a_header_of_its_own() -> None:
    lost = PreconditionFailedError("main", COMMIT, None)
    fake = Fake(refusal(lost), refusal(lost))
    graph = fake.graph()
    for call in (lambda: graph.mutate(ADD, if_commit=COMMIT), lambda: graph.run("add", if_commit=COMMIT)):
        with pytest.raises(PreconditionFailedError) as caught:
            call()
        assert caught.value.exit_code == 4
    paths = [request.url.path for request in fake.requests]
    assert paths == ["/graphs/papers/mutate/if-graph-commit", "/graphs/papers/queries/add/if-graph-commit"]
    assert {request.headers["Omnigraph-If-Graph-Commit"] for request in fake.requests} == {COMMIT}


def test_a_value_that_json_does_not_have_is_refused_before_it_is_sent() -> None:
    fake = Fake()
    with pytest.raises(BadRequestError, match="JSON does not have"):
        fake.graph().query(ALL, {"x": "\ud800"})
    assert fake.requests == []


def test_values_that_are_not_json_are_sent_with_their_type() -> None:
    fake = Fake(refusal(ParameterError("all", {"x": "`x` is not declared"})))
    with pytest.raises(ParameterError):
        fake.graph().query(ALL, {"x": [b"\x00", date(2024, 2, 29), float("nan")], "y": object()})
    sent = json.loads(fake.requests[0].content)["params"]
    assert sent["x"] == [{"$bytes": "AA=="}, {"$date": "2024-02-29"}, {"$float": "nan"}]
    assert sent["y"] == {"$unfit": "an object of type `object` is not a value"}


def test_the_name_of_a_branch_is_one_segment_of_the_path() -> None:
    fake = Fake(httpx.Response(200, json={"name": "a/b", "actor_id": None}))
    fake.graph().delete_branch("a/b")
    assert fake.requests[0].url.raw_path == b"/graphs/papers/branches/a%2Fb"
    with pytest.raises(BadRequestError, match="is not a branch name"):
        fake.graph().delete_branch("..")


@each_case("name", ["..", "a/b", "", "a b"])
def test_no_path_is_made_of_what_names_nothing(name: str) -> None:
    graph = Fake().graph()
    with pytest.raises(NotFoundError):
        graph.commit(name)
    with pytest.raises(NotFoundError):
        graph.changes(name)
    with pytest.raises(NotFoundError):
        graph.run(name)


# ---- loads


def rejected(*lines: int | None) -> LoadRejectedError:
    examples = tuple(
        BadRecord(
            source="<records>",
            line=line,
            type_key=None,
            field=None,
            value=None,
            rule="odd",
            message=f"odd: as in <records>:{line}",
        )
        for line in lines
    )
    return LoadRejectedError(LoadReport(totals={"odd": len(lines)}, examples=examples))


def test_several_files_are_one_body_and_reports_name_their_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf1\n2")
    (tmp_path / "b.jsonl").write_bytes(b"")
    (tmp_path / "c.jsonl").write_bytes(b"3\n\n5\n")
    fake = Fake(refusal(rejected(1, 2, 3, 5)))
    with pytest.raises(LoadRejectedError) as caught:
        fake.graph().load(tmp_path, mode="merge")
    assert fake.requests[0].content == b"1\n2\n3\n\n5\n"
    places = [item.location for item in caught.value.report.examples]
    a, c = str(tmp_path / "a.jsonl"), str(tmp_path / "c.jsonl")
    assert places == [f"{a}:1", f"{a}:2", f"{c}:1", f"{c}:3"]
    assert f"{c}:3: odd: as in {c}:3" in caught.value.message
    assert "<records>" not in caught.value.message


def test_reports_about_old_files_count_objects(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a":\n1} {"a": 2}')
    (tmp_path / "b.json").write_text('\n\n{"a": 3}')
    fake = Fake(refusal(rejected(2, 3)))
    with pytest.raises(LoadRejectedError) as caught:
        fake.graph().load(tmp_path, mode="merge", grammar="compatible")
    places = [item.location for item in caught.value.report.examples]
    assert places == [f"{tmp_path / 'a.json'}:2", f"{tmp_path / 'b.json'}:1"]


def test_a_key_conflict_of_a_load_names_the_file_too(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("1\n")
    refused = LoadKeyConflictError("node", "Paper", "10.1", rejected(1).report)
    with pytest.raises(LoadKeyConflictError) as caught:
        Fake(refusal(refused)).graph().load(lines, mode="append")
    assert caught.value.report.examples[0].location == f"{lines}:1"
    assert caught.value.entity_id == "10.1"


def test_packed_files_are_sent_unpacked(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"1\n"))
    fake = Fake(refusal(BadRequestError("enough")))
    with pytest.raises(BadRequestError, match="enough"):
        fake.graph().load(tmp_path / "a.jsonl.gz", mode="merge", branch="b", base="main")
    request = fake.requests[0]
    assert request.content == b"1\n"
    assert request.headers["Content-Type"] == "application/x-ndjson"
    sent = dict(request.url.params)
    assert sent == {
        "branch": "b",
        "from": "main",
        "mode": "merge",
        "grammar": "strict",
        "dry_run": "false",
        "upsert": "false",
        "check_minimum": "false",
        "source": "<records>",
    }


def test_plain_files_say_how_large_they_are(tmp_path: Path) -> None:
    """A server sets aside what a body announces, and the most it takes for one that announces nothing."""
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf1\n2")
    (tmp_path / "b.jsonl").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "c.jsonl").write_bytes(b"3\n")
    fake = Fake(refusal(BadRequestError("enough")))
    with pytest.raises(BadRequestError, match="enough"):
        fake.graph().load(tmp_path, mode="merge")
    request = fake.requests[0]
    assert request.content == b"1\n2\n3\n"
    assert request.headers["Content-Length"] == "6"
    assert "Transfer-Encoding" not in request.headers


def test_of_packed_files_nobody_knows_the_size_before_they_are_read(tmp_path: Path) -> None:
    import gzip

    (tmp_path / "a.jsonl").write_bytes(b"1\n")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"2\n"))
    fake = Fake(refusal(BadRequestError("enough")))
    with pytest.raises(BadRequestError, match="enough"):
        fake.graph().load(tmp_path, mode="merge")
    request = fake.requests[0]
    assert (request.content, request.headers["Transfer-Encoding"]) == (b"1\n2\n", "chunked")
    assert "Content-Length" not in request.headers


@pytest.mark.parametrize("now", [b"1\n", b"1\n2\n3\n", b"1\n2\n" * 200_000])
def test_a_file_that_changes_meanwhile_is_never_sent_to_its_end(now: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n2\n")
    files = RecordFiles(path, are_lines=True)
    assert files.size == 4
    path.write_bytes(now)
    sent = bytearray()
    with pytest.raises(InputFileError, match="changed while it was read"):
        sent.extend(chain.from_iterable(files.body()))
    assert len(sent) < 4


def test_files_that_cannot_be_loaded_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    fake = Fake()
    with pytest.raises(InputFileError, match="no such file"):
        fake.graph().load(tmp_path / "nothing.jsonl", mode="merge")
    (tmp_path / "table.csv").write_text("a,b\n")
    with pytest.raises(BadRequestError, match="is a table"):
        fake.graph().load(tmp_path / "table.csv", mode="merge")
    assert fake.requests == []


def test_a_damaged_file_breaks_the_upload_off(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(b"\x1f\x8bdamaged")
    with pytest.raises(InputFileError, match="cannot read"):
        Fake().graph().load(tmp_path / "a.jsonl.gz", mode="merge")


def test_too_large_a_load_gets_advice(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n")
    limit = ResourceLimitError("http_request_bytes", 1, 2, "send less at once")
    with pytest.raises(ResourceLimitError, match="open the storage of the graph") as caught:
        Fake(refusal(limit)).graph().load(tmp_path, mode="merge")
    assert (caught.value.limit, caught.value.actual) == (1, 2)


# ---- streams of lines

LINE = b'{"type":"Paper","data":{"id":"\xc3\xa4"}}\n{"edge":"Cites","from":"a","to":"b"}\n'


def exported(content: bytes | httpx.Response) -> httpx.Response:
    if isinstance(content, httpx.Response):
        return content
    headers = {"Omnigraph-Snapshot-Id": COMMIT, "Omnigraph-Types": "edge:Cites node:Note node:Paper"}
    return httpx.Response(200, headers=headers, content=iter([content[:31], content[31:]]))


class Piece(bytes):
    """A piece that must not be appended with `+` to what has come before it."""

    def __radd__(self, other: bytes) -> bytes:
        pytest.fail("the begun line is copied for every piece: quadratic in its length")


def test_a_line_in_many_pieces_is_put_together_once() -> None:
    pieces = [Piece(b'{"type":"Paper",'), Piece(b'"data":'), Piece(b""), Piece(b"{}}\n{"), Piece(b"}\n")]
    count = LineCount()
    assert list(count.whole_lines(pieces)) == [b'{"type":"Paper","data":{}}\n', b"{}\n"]
    assert count.entities == {"node:Paper": 1}


@each_case("width", [1, 2, 7, 1000])
def test_lines_are_the_same_however_they_are_cut(width: int) -> None:
    pieces = (LINE[at : at + width] for at in range(0, len(LINE), width))
    count = LineCount()
    blocks = list(count.whole_lines(pieces))
    assert b"".join(blocks) == LINE
    assert all(block.endswith(b"\n") for block in blocks)
    assert count.entities == {"node:Paper": 1, "edge:Cites": 1}


def test_an_export_counts_what_passes(tmp_path: Path) -> None:
    out = io.StringIO()
    result = Fake(exported(LINE)).graph().export(out, types=["Paper"])
    assert out.getvalue() == LINE.decode()
    assert result.nodes == {"Note": 0, "Paper": 1}
    assert result.edges == {"Cites": 1}
    assert (result.target, result.files, result.commit_id) == ("-", (), COMMIT)
    path = tmp_path / "out.jsonl"
    written = Fake(exported(LINE)).graph().export(path)
    assert path.read_bytes() == LINE
    assert written.files == (str(path),)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (broken(LINE, httpx.ReadError("reset")), ServerUnreachableError),
        (httpx.Response(200, content=LINE[:-5]), UnexpectedAnswerError),
        (refusal(NotFoundError("there is no branch")), NotFoundError),
    ],
    ids=["broken off", "half a line", "refused"],
)
def test_an_export_that_fails_leaves_no_file(answer: httpx.Response, expected: type[OmniError], tmp_path: Path) -> None:
    with pytest.raises(expected):
        Fake(answer).graph().export(tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_an_export_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("mine")
    fake = Fake()
    with pytest.raises(BadRequestError, match="an export replaces nothing"):
        fake.graph().export(tmp_path / "out.jsonl")
    with pytest.raises(BadRequestError, match="list of names"):
        fake.graph().export(tmp_path / "other.jsonl", types="Paper")
    assert fake.requests == []


HANDSHAKE = {"baseline": {"snapshot_commit_id": COMMIT, "resume_cursor": "cursor"}}


def test_a_baseline_ends_with_its_handshake(tmp_path: Path) -> None:
    tail = json.dumps(HANDSHAKE).encode() + b"\n"
    out = io.StringIO()
    result = Fake(exported(LINE + tail)).graph().baseline(out=out)
    assert out.getvalue() == LINE.decode()
    assert (result.entities, result.resume_cursor) == (2, "cursor")
    result = Fake(exported(tail)).graph().baseline(out=tmp_path / "empty.jsonl")
    assert result.entities == 0
    assert (tmp_path / "empty.jsonl").read_bytes() == b""


@pytest.mark.parametrize("content", [LINE, b""])
def test_a_baseline_without_handshake_leaves_no_file(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnexpectedAnswerError):
        Fake(exported(content)).graph().baseline(out=tmp_path / "out.jsonl")
    assert list(tmp_path.iterdir()) == []


# ---- blobs


def test_a_server_that_ignores_a_range_is_not_believed() -> None:
    with pytest.raises(UnexpectedAnswerError, match="another range"):
        Fake(httpx.Response(200, content=b"Hello")).graph().read_blob("node:A", "a", "b", offset=1)


def test_a_cell_needs_a_table_key() -> None:
    with pytest.raises(BadRequestError, match="names no type"):
        Fake().graph().read_blob("Paper", "a", "b")
