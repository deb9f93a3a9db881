"""The state that requests share: graphs, authority, tokens, kept diffs, and hidden paths."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
import re
import stat
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit

import anyio

from omnigraph.branches.diffs import Diff
from omnigraph.core.cache import LruCache
from omnigraph.core.env_settings import Variable
from omnigraph.core.extras import need
from omnigraph.errors import BadRequestError, InputFileError, TooManyRequestsError, without_credentials
from omnigraph.frozen import frozen
from omnigraph.graph.graph import Graph
from omnigraph.policy.policy import PolicyGate
from omnigraph.server.admission import Admission, BodyMemory, Metrics, StreamSlots
from omnigraph.server.config import ServerConfig
from omnigraph.server.settings import ServerSettings
from omnigraph.server.stored_queries import StoredQueries
from omnigraph.storage.store_variables import ENDPOINTS

# ---- Bearer tokens
#
# Only digests are kept. Which token matched decides the actor, and nothing else in a request does.


_AWS_SECRET = Variable(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET",
    "A secret of AWS Secrets Manager that holds actors and tokens as JSON. The first of the four sources that is set "
    "is used.",
    values="an id",
)
_TOKENS_FILE = Variable(
    "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE", "A file that holds actors and tokens as JSON.", values="a path"
)
_JSON = Variable("OMNIGRAPH_SERVER_BEARER_TOKENS_JSON", "Actors and tokens themselves.", values='`{"actor": "token"}`')
_SINGLE = Variable("OMNIGRAPH_SERVER_BEARER_TOKEN", "The token of the one actor `default`.", values="a token")
_SINGLE_ACTOR = "default"
#: Characters of a token that cannot be guessed: 96 bits when they are chosen at random.
_LONG_ENOUGH = 16
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Tokens:
    """The digests of all tokens, each with its actor. Immutable and thread-safe."""

    def __init__(self, tokens: Mapping[str, str], origin: str) -> None:
        """Hash the tokens of a map from actor to token.

        Raises:
            BadRequestError: an actor or token is blank, or two actors share a token.
        """
        digests: dict[bytes, str] = {}
        for actor, token in tokens.items():
            if not actor.strip() or not token.strip():
                raise BadRequestError(f"{origin}: an actor and its token must not be blank")
            digest = _digest(token)
            if digest in digests:
                raise BadRequestError(f"{origin}: actors {digests[digest]!r} and {actor!r} have the same token")
            digests[digest] = actor
        if not digests:
            raise BadRequestError(f"{origin}: there is no token in it")
        self._digests = tuple(digests.items())
        #: Actors whose token could be guessed.
        self.short = tuple(actor for actor, token in tokens.items() if len(token) < _LONG_ENOUGH)

    def __len__(self) -> int:
        return len(self._digests)

    def actor_of(self, token: str) -> str | None:
        """Whose token it is, or None. Takes as long for every token: all digests are compared."""
        offered = _digest(token)
        found = None
        for digest, actor in self._digests:
            if hmac.compare_digest(digest, offered):
                found = actor
        return found


def read_tokens(environment: Mapping[str, str] = os.environ) -> Tokens | None:
    """The tokens of the first source that is set; None when none is.

    Raises:
        InputFileError: the file cannot be read.
        BadRequestError: a source holds something else than actors with tokens.
    """
    if secret := environment.get(_AWS_SECRET):
        return Tokens(_parsed(_from_secret_manager(secret), _AWS_SECRET), _AWS_SECRET)
    if name := environment.get(_TOKENS_FILE):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InputFileError(name, reason or str(error)) from error
        return Tokens(_parsed(text, name), name)
    if given := environment.get(_JSON):
        return Tokens(_parsed(given, _JSON), _JSON)
    if token := environment.get(_SINGLE):
        return Tokens({_SINGLE_ACTOR: token}, _SINGLE)
    return None


def token_warnings(tokens: Tokens, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Warnings about tokens that are easy to obtain; no warning contains a token."""
    found = [
        f"the token of {actor!r} has fewer than {_LONG_ENOUGH} characters: choose a longer one, at random"
        for actor in tokens.short
    ]
    name = environment.get(_TOKENS_FILE)
    if name and not environment.get(_AWS_SECRET) and _is_open_to_others(name):
        found.append(f"others than its owner may use {name}: run `chmod 600 {name}`")
    return found


def _is_open_to_others(name: str) -> bool:
    try:
        return bool(os.stat(name).st_mode & _OTHERS)
    except OSError:
        return False  # it was read a moment ago and is gone: there is nothing to protect


def _parsed(text: str, origin: str) -> dict[str, str]:
    """A JSON object of actors and tokens. The text is never repeated in a message."""

    def refuse_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("an actor is given twice")
        return found

    try:
        tokens = json.loads(text, object_pairs_hook=refuse_twice)
        if not isinstance(tokens, dict) or not all(isinstance(t, str) for t in tokens.values()):
            raise ValueError("it is not an object of strings")
    except json.JSONDecodeError:
        # Its message would be harmless, and its context would carry the text.
        raise BadRequestError(f'{origin}: not JSON such as {{"actor": "token"}}') from None
    except (ValueError, RecursionError) as problem:
        raise BadRequestError(f'{origin}: not {{"actor": "token"}}: {problem}') from None
    return tokens


def _from_secret_manager(secret: str) -> str:
    need("boto3", str(_AWS_SECRET))
    import boto3

    answer = boto3.client("secretsmanager").get_secret_value(SecretId=secret)
    return str(answer["SecretString"])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


# ---- Refusals of unknown tokens
#
# A known token is never delayed, also not one that comes from such an address: it is compared first.


#: Guesses of an address that are refused at once: a token may have been copied badly.
FREE_GUESSES = 5
#: After this time one guess is forgotten.
FORGET_S = 12.0
_FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 8.0
#: Addresses that are remembered; those that were quiet longest are forgotten first.
MAX_PEERS = 4096
#: Refusals that wait at the same time; each holds its connection and nothing else.
MAX_WAITING = 64
#: One machine has a whole network of addresses in IPv6.
_IPV6_PREFIX = 64


class UnknownTokens:
    """Counts of unknown tokens by address. Used by the event loop alone."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], Awaitable[None]] = anyio.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        #: Guesses that are not forgotten and when the last one was counted, by address.
        self._guesses: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._guesses)

    def count(self, peer: str) -> float:
        """Count an unknown token of an address; gives how long its refusal has to wait."""
        now, key = self._clock(), _network(peer)
        guesses, last = self._guesses.pop(key, (0.0, now))
        guesses = max(0.0, guesses - (now - last) / FORGET_S) + 1
        self._guesses[key] = (guesses, now)
        if len(self._guesses) > MAX_PEERS:
            self._guesses.popitem(last=False)
        beyond = guesses - FREE_GUESSES
        # The exponent is bounded: a number of guesses is not.
        return 0.0 if beyond < 0.5 else min(LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** min(beyond, 10))

    async def wait(self, delay_s: float) -> None:
        """Wait before a refusal. Holds no thread and no place of a write.

        Raises:
            TooManyRequestsError: too many refusals wait already.
        """
        if delay_s <= 0:
            return
        if self._waiting >= MAX_WAITING:
            raise TooManyRequestsError("too many unknown tokens were sent: try again later")
        self._waiting += 1
        try:
            await self._sleep(delay_s)
        finally:
            self._waiting -= 1


def _network(peer: str) -> str:
    """The network that counts as one machine: an IPv4 address, or a network of IPv6."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if address.version == 4:
        return peer
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


# ---- The cache of large diffs


#: Each of them takes space on a disk.
_KEPT = 2


class KeptDiffs:
    """The last differences of a graph that are in files. Thread-safe; files go when no page is read from them."""

    def __init__(self) -> None:
        #: By the commits that are compared, and the filter.
        self._known: LruCache[Diff] = LruCache(_KEPT)

    def get(self, one: str, other: str, filter_digest: str, compare: Callable[[], Diff]) -> Diff:
        """The diff of two commits that is kept, or else what a comparison gives.

        Names of branches, which move, never find one: the pages behind the first ask with its commits.
        """
        found = self._known.get((one, other, filter_digest))
        if found is None:
            found = compare()
            if found.is_in_files:
                self._known.put((found.from_commit_id, found.to_commit_id, filter_digest), found)
        return found

    def clear(self) -> None:
        """Let go of all of them."""
        self._known.clear()


# ---- Removing storage paths from errors


_FILE_SCHEME = "file://"
#: What stands before or after a name that is part of an address.
_SIGNS = r"[/:.`'\"=]"


class HiddenPlaces:
    """Texts that are replaced by what they mean to a caller. Immutable and thread-safe."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Replace patterns of regular expressions; the longest one that fits wins."""
        self._names = [places[pattern] for pattern in sorted(places, key=len, reverse=True)]
        patterns = "|".join(f"({pattern})" for pattern in sorted(places, key=len, reverse=True))
        self._pattern = re.compile(patterns) if places else None

    @classmethod
    def of(cls, config: ServerConfig) -> HiddenPlaces:
        """The places of a configuration: storage, endpoints, files of stored queries, uploads."""
        places: dict[str, str] = {}
        for graph in config.graphs:
            places |= dict.fromkeys(_storage_patterns(graph.store), graph.graph_id)
            for source in graph.queries:
                places[_path_pattern(str(source.path))] = os.path.basename(source.path)
        uploads = re.escape(os.path.join(tempfile.gettempdir(), "omnigraph-load-"))
        places[uploads + r"[\w.-]*"] = "body"
        for name in ENDPOINTS:
            if endpoint := os.environ.get(name):
                places[re.escape(endpoint.rstrip("/"))] = "storage"
        return cls(places)

    def in_text(self, text: str) -> str:
        """A text without these places."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._names[(found.lastindex or 1) - 1], text)

    def in_document(self, document: Mapping[str, object]) -> dict[str, object]:
        """A document whose texts are without them, at every depth."""
        return {name: self._in_value(value) for name, value in document.items()}

    def _in_value(self, value: object) -> object:
        match value:
            case str():
                return self.in_text(value)
            case dict():
                return self.in_document(value)
            case list() | tuple():
                return [self._in_value(item) for item in value]
            case _:
                return value


def _storage_patterns(store: str) -> Iterator[str]:
    """Every spelling of the root of a graph that a failure may have."""
    parts = urlsplit(store)
    if parts.scheme not in ("", "file"):
        yield re.escape(store.rstrip("/"))
        yield re.escape(without_credentials(store).rstrip("/"))
        if key := parts.path.strip("/"):
            yield _path_pattern(f"{parts.hostname or ''}/{key}")
            yield _path_pattern(key)
        if bucket := re.escape(parts.hostname or ""):
            yield rf"(?<={_SIGNS}){bucket}(?![\w-])"
            yield rf"(?<![\w-]){bucket}(?={_SIGNS})"
            yield rf"(?<=[Bb]ucket ){bucket}(?![\w-])"
        return
    path = store.removeprefix(_FILE_SCHEME).rstrip("/")
    for known in {path, os.path.realpath(path)}:
        for form in {known, quote(known)}:
            # Lance tells paths of files without the slash at their beginning.
            yield rf"(?:{_FILE_SCHEME})?/?{re.escape(form.lstrip('/'))}(?![\w-])"


def _path_pattern(path: str) -> str:
    """A path that is not a part of a longer name."""
    return rf"/?(?<![\w.-]){re.escape(path)}(?![\w-])"


# ---- The service: graphs, policies and shared limits


#: Streams of all graphs at the same time.
STREAMS = 8


@frozen(kw_only=True)
class OpenGraph:
    """One graph that is served."""

    graph_id: str
    graph: Graph
    queries: StoredQueries
    #: Who may do what; None in the open state, where every client may do everything.
    gate: PolicyGate | None
    #: Places for its exports.
    slots: StreamSlots
    diffs: KeptDiffs = field(default_factory=KeptDiffs)

    @property
    def address(self) -> str:
        """The path of the graph on this server; the address of its storage is never sent."""
        return f"/graphs/{self.graph_id}"


@dataclass(slots=True)
class Authority:
    """Tokens, replaced as a whole by a reload; policies live in the gates of the graphs."""

    #: None in the open state.
    tokens: Tokens | None
    #: Who may list graphs; None allows no actor.
    server_gate: PolicyGate | None = None


class Service:
    """Everything that requests share. Made at boot, used by every route."""

    def __init__(
        self,
        *,
        graphs: Mapping[str, OpenGraph],
        quarantined: Mapping[str, str],
        config: ServerConfig,
        authority: Authority,
        settings: ServerSettings,
    ) -> None:
        self.graphs = graphs
        #: Graphs that could not be opened, with the reason; they answer as if they did not exist.
        self.quarantined = quarantined
        self.config = config
        self.authority = authority
        self.settings = settings
        self.admission = Admission(inflight_max=settings.actor_inflight_max, bytes_max=settings.actor_bytes_max)
        #: What no answer tells.
        self.hidden = HiddenPlaces.of(config)
        self.bodies = BodyMemory(settings.bodies_max_bytes)
        self.unknown_tokens = UnknownTokens()
        self.metrics = Metrics(served=len(graphs), quarantined=len(quarantined))
        #: Responses that stream at the same time, over all graphs.
        self.streams = StreamSlots(STREAMS, per_caller=STREAMS // 2)
        self.reloading = threading.Lock()
        self.reads = anyio.CapacityLimiter(settings.read_threads)
        self.writes = anyio.CapacityLimiter(settings.write_threads)
        #: Threads that parse bodies. Two: more would only take turns.
        self.parsers = anyio.CapacityLimiter(2)
        self.producers = anyio.CapacityLimiter(STREAMS)
        #: Set when the server stops; no read goes on after it.
        self.stopping = threading.Event()

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return self.authority.tokens is None

    def close(self) -> None:
        """Close all graphs."""
        for served in self.graphs.values():
            served.diffs.clear()
            served.graph.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
