"""Where a typed text ends, and what Enter does."""

from __future__ import annotations

import pytest

from omnigraph.cli.shell.pieces import Piece, Pieces, cut, is_complete

READ = "match { $p: P } return { $p }"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", []),
        ("\n// nothing\n/* nothing\n\n */\n", []),
        (READ, [READ]),
        (f"{READ}\n{READ}", [READ, READ]),
        (f"{READ}\nlimit 3\n{READ}", [f"{READ}\nlimit 3", READ]),
        (f"{READ}\norder {{\n $p.a\n}}\nlimit 3", [f"{READ}\norder {{\n $p.a\n}}\nlimit 3"]),
        (f"{READ}\n\nlimit 3", [READ, "limit 3"]),
        (f"{READ}; {READ};\n;\n;;{READ}", [READ, READ, READ]),
        ("match { $p: P }\nreturn { $p }", ["match { $p: P }\nreturn { $p }"]),
        ("match { $p: P }\n\nreturn { $p }", ["match { $p: P }", "return { $p }"]),
        ("query q() {\n\n match { $p: P }\n return { $p }\n}", ["query q() {\n\n match { $p: P }\n return { $p }\n}"]),
        ("insert A { a: 1 }\ninsert B { b: 1 }", ["insert A { a: 1 }", "insert B { b: 1 }"]),
        (
            "update A set { a: 1 }\nwhere a = 2\ndelete A where a = 1",
            ["update A set { a: 1 }\nwhere a = 2", "delete A where a = 1"],
        ),
        ("insert A { a: 1 } insert B { b: 1 }", ["insert A { a: 1 } insert B { b: 1 }"]),
        ('insert A { a: "x;}\n\n.y" }', ['insert A { a: "x;}\n\n.y" }']),
        ('insert A { a: "\\";" }', ['insert A { a: "\\";" }']),
        ("insert A { // }\n a: 1 }", ["insert A { // }\n a: 1 }"]),
        ("insert A { /* ;\n } */ a: 1 }", ["insert A { /* ;\n } */ a: 1 }"]),
        (f"/* about\n it */ {READ}", [f"/* about\n it */ {READ}"]),
        (f"{READ}\n// then\nlimit 2", [f"{READ}\n// then\nlimit 2"]),
        (f"wrong words\n{READ}", ["wrong words", READ]),
        (f"{READ}\nwrong", [READ, "wrong"]),
        ("match { $p: P", ["match { $p: P"]),
    ],
)
def test_texts_end_where_they_are_complete(text: str, pieces: list[str]) -> None:
    assert [piece.text for piece in cut(text)] == pieces


def test_commands_stand_in_lines_of_their_own_or_behind_a_text_that_ended() -> None:
    found = cut(f".use main\n{READ}\n.mode csv ;\n{READ}; .log 3\n  .quit")
    assert found == [
        Piece(1, ".use main"),
        Piece(2, text=READ),
        Piece(3, ".mode csv"),
        Piece(4, text=READ),
        Piece(4, ".log 3"),
        Piece(5, ".quit"),
    ]


def test_a_command_may_have_a_text_of_several_lines() -> None:
    found = cut(f".explain --analyze match {{ $p: P }}\nreturn {{ $p }}\n.explain\n.explain {READ}")
    assert found == [
        Piece(1, ".explain --analyze", "match { $p: P }\nreturn { $p }"),
        Piece(3, ".explain"),
        Piece(4, ".explain", READ),
    ]


def test_a_text_that_ended_itself_waits_for_no_further_line() -> None:
    pieces = Pieces()
    assert list(pieces.feed(READ)) == [], "the next line may go on with it"
    assert list(pieces.feed("")) == [Piece(1, text=READ)]
    assert list(pieces.feed(f"{READ};")) == [Piece(3, text=READ)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        (".help", True),
        (".explain match", False),
        (READ, True),
        ("match { $p: P }", False),
        ("delete P", False),
        ("delete P\nwhere a = 1", True),
        ("delete P\n", True),
        ("update P set { a: 1 }", False),
        ("match {", False),
        ("match {\n", True),
        ("match { $p: P }\n", True),
        ("match { $p: P };", True),
        ("match { $p: P } retrun { $p }", True),
        ('insert A { a: "', False),
        ('insert A { a: "\n', True),
        ("insert A { a: 1 }\nmatch {", False),
    ],
)
def test_enter_runs_what_is_complete(text: str, expected: bool) -> None:
    assert is_complete(text) is expected
