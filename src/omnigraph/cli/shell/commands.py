"""The commands of the shell, which begin with a dot: one table for running, help and completion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from itertools import dropwhile, islice
from pathlib import Path

from click.exceptions import Exit

from omnigraph.cli.console import print_lines, print_text
from omnigraph.cli.input import STDIN, assignments
from omnigraph.cli.rendering import commit_line, commit_text, diff_lines
from omnigraph.cli.rows import RowFormat
from omnigraph.cli.shell.pieces import DOT, Piece, cut
from omnigraph.cli.shell.session import Session
from omnigraph.cli.tables import text_table
from omnigraph.core.source import with_hint
from omnigraph.errors import BadRequestError
from omnigraph.frozen import frozen
from omnigraph.lang.query.compiler import read_queries
from omnigraph.lang.schema.catalog import Catalog, EdgeDef

_Run = Callable[[Session, str], None]


@frozen
class Command:
    """One command."""

    name: str
    #: What stands behind it.
    usage: str
    help: str
    run: _Run
    #: The words that may stand behind it.
    words: Callable[[Session], Iterable[str]]

    @property
    def spelling(self) -> str:
        """The command as it is typed."""
        return f"{DOT}{self.name} {self.usage}".rstrip()


#: All of them, in the order of the help.
COMMANDS: dict[str, Command] = {}
#: Other words for some.
_ALIASES = {"exit": "quit", "parameter": "param", "tables": "schema"}


def _nothing(_session: Session) -> Iterable[str]:
    return ()


def _command(
    name: str, usage: str = "", words: Callable[[Session], Iterable[str]] = _nothing
) -> Callable[[_Run], _Run]:
    """Make a function a command; its docstring is the help."""

    def decorate(run: _Run) -> _Run:
        COMMANDS[name] = Command(name, usage, (run.__doc__ or "").strip().rstrip("."), run, words)
        return run

    return decorate


def command_of(word: str) -> Command | None:
    """The command of a word that begins with a dot."""
    name = word.removeprefix(DOT)
    return COMMANDS.get(_ALIASES.get(name, name))


def run_command(session: Session, piece: Piece) -> None:
    """Run a command.

    Raises:
        BadRequestError: there is no such command, or it is used in another way.
        OmniError: it fails.
    """
    word, _, rest = piece.command.partition(" ")
    command = command_of(word)
    if command is None:
        message = with_hint(f"there is no command `{word}`", word, [f"{DOT}{name}" for name in COMMANDS])
        raise BadRequestError(f"{message}; `.help` lists them")
    command.run(session, f"{rest.strip()} {piece.text}".strip())


# ---- Looking around


@_command("help", "[COMMAND]", lambda _: COMMANDS)
def _help(_session: Session, word: str) -> None:
    """Show the commands, or one of them."""
    if word:
        command = command_of(word)
        if command is None:
            raise BadRequestError(with_hint(f"there is no command `{word}`", word.removeprefix(DOT), COMMANDS))
        print_lines([command.spelling, f"  {command.help}"])
        return
    width = max(len(command.spelling) for command in COMMANDS.values())
    print_lines(f"{command.spelling:<{width}}  {command.help}" for command in COMMANDS.values())
    print_lines(
        [
            "",
            "Everything else is a query or a mutation. It runs when it is complete; `;` or an empty line ends it too.",
            "Tab completes, Alt-Enter begins a new line, Ctrl-C cancels, Ctrl-D leaves.",
        ]
    )


def _type_names(session: Session) -> list[str]:
    catalog = session.catalog
    return [] if catalog is None else [*catalog.nodes, *catalog.edges]


def _catalog(session: Session) -> Catalog:
    return session.graph.catalog(**session.place.keywords)


@_command("schema", "[TYPE]", _type_names)
def _schema(session: Session, name: str) -> None:
    """Show the schema, or one type with its properties."""
    if not name:
        is_head = session.place.commit is None
        session.print(iter((session.graph.schema if is_head else repr(_catalog(session))).splitlines()))
        return
    catalog = _catalog(session)
    keys = catalog.keys_named(name)
    if not keys:
        raise BadRequestError(with_hint(f"there is no type `{name}`", name, _type_names(session)))
    for key in keys:
        found = catalog.types[key]
        ends = f": {found.source} -> {found.target}" if isinstance(found, EdgeDef) else ""
        print_text(f"{key.kind} {found.name}{ends}")
        rows = [(item.name, str(item.type), item.description or "") for item in found.properties.values()]
        print_lines(f"  {line}" for line in text_table(("property", "type", "description"), rows))


@_command("branches")
def _branches(session: Session, _rest: str) -> None:
    """List the branches; a star marks the one in use."""
    place = session.place
    used = place.branch if place.commit is None else None
    session.print(f"{'*' if name == used else ' '} {name}" for name in session.graph.branches())


@_command("use", "[BRANCH|COMMIT]", lambda session: session.graph.branches())
def _use(session: Session, name: str) -> None:
    """Read and write a branch from now on, or read a commit; alone it says where you are."""
    if name:
        session.use(name)
    snapshot = session.graph.snapshot(**session.place.keywords)
    where = f"branch {session.place.branch} at commit" if session.place.commit is None else "commit"
    print_text(f"{where} {commit_text(snapshot.commit_id)}, graph version {snapshot.graph_version}")


@_command("log", "[N]")
def _log(session: Session, count: str) -> None:
    """Show the commits of the branch, or up to the commit, newest first; N is how many."""
    limit = _whole_number(count, "`.log`") if count else None
    place = session.place
    if place.commit is None:
        commits = iter(session.graph.commits(place.branch))
    else:
        found = session.graph.commit(place.commit)
        commits = dropwhile(lambda item: item.commit_id != found.commit_id, session.graph.commits(found.branch))
    session.print(map(commit_line, islice(commits, limit)))


@_command("diff", "[FROM [TO]]", lambda session: session.graph.branches())
def _diff(session: Session, rest: str) -> None:
    """Show the changes between two branches or commits: from main, to where you are."""
    names = rest.split()
    if len(names) > 2:
        raise BadRequestError("`.diff` takes two branches or commits at most")
    one, other = [*names, *("main", session.place.reference)[len(names) :]]
    with session.graph.diff(one, other, timeout_s=session.timeout_s) as found:
        session.print(diff_lines(found, one, other))


@_command("explain", "[--analyze] [TEXT]")
def _explain(session: Session, rest: str) -> None:
    """Show the plan of a query, of the last one without TEXT; --analyze runs it, with rows and times."""
    flag, _, text = rest.partition(" ") if rest.startswith("--") else ("", "", rest)
    if flag not in ("", "--analyze"):
        raise BadRequestError(f"`.explain` takes --analyze, not {flag}")
    text = text.strip() or session.last_text
    if not text:
        raise BadRequestError("there was no query yet: give one behind `.explain`")
    session.print(session.explain(text, analyze=bool(flag)))


# ---- Settings


@_command("param", "[NAME=VALUE | clear [NAME]]", lambda session: ["clear", *session.parameters])
def _param(session: Session, rest: str) -> None:
    """Set the parameter `$NAME` of the queries that follow; alone it lists them, `clear` forgets one or all."""
    if not rest:
        print_lines(f"${name} = {text}" for name, text in sorted(session.parameters.items()))
        return
    word, _, name = rest.partition(" ")
    if word != "clear":
        session.parameters |= assignments([rest])
        return
    name = name.strip().removeprefix("$")
    if not name:
        session.parameters.clear()
    elif session.parameters.pop(name, None) is None:
        raise BadRequestError(f"the parameter `{name}` is not set")


@_command("mode", "[table|kv|csv|jsonl|json]", lambda _: [*RowFormat])
def _mode(session: Session, word: str) -> None:
    """Choose how rows are printed."""
    if not word:
        print_text(session.form.format)
        return
    chosen = RowFormat(_one_of(word, [*RowFormat], "`.mode`"))
    session.form = replace(session.form, format=chosen, csv_safe=False, has_envelope=False)


@_command("limit", "[N]")
def _limit(session: Session, count: str) -> None:
    """Print the first N rows of a result, 0 for all of them; alone it goes back to what the output suits."""
    session.form = replace(session.form, limit=_whole_number(count, "`.limit`") if count else None)


@_command("timing", "on|off", lambda _: ["on", "off"])
def _timing(session: Session, word: str) -> None:
    """Print how long each query and command took."""
    session.shows_time = _one_of(word, ["on", "off"], "`.timing`") == "on"


# ---- Running and leaving


@_command("read", "FILE")
def _read(session: Session, name: str) -> None:
    """Run the commands and texts of a file; stops at the first that fails."""
    if not name or name == STDIN:
        raise BadRequestError("give a file behind `.read`")
    path = Path(name).expanduser()
    place = path.resolve()
    if place in session.reading:
        raise BadRequestError(f"{name} is being read already: it would read itself without end")
    pieces = cut(read_queries(path).text)
    session.reading.append(place)
    try:
        code = session.run_all(pieces, name)
    finally:
        session.reading.pop()
    if code:
        raise Exit(code)


@_command("quit")
def _quit(session: Session, _rest: str) -> None:
    """Leave."""
    session.is_over = True


def _one_of(word: str, words: Collection[str], what: str) -> str:
    if word not in words:
        raise BadRequestError(f"{what} is one of {', '.join(words)}, not `{word}`")
    return word


def _whole_number(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise BadRequestError(f"{what} takes a whole number, not `{text}`")
    return int(text)
