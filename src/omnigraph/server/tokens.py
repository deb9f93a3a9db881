"""Bearer tokens: where they come from, and whose a token is.

Only digests are kept. Which token matched decides the actor, and nothing else in a request does.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import BadRequestError, InputFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

_AWS_SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"
_FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
_JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
_SINGLE = "OMNIGRAPH_SERVER_BEARER_TOKEN"
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
                raise BadRequestError(
                    f"{origin}: actors {digests[digest]!r} and {actor!r} have the same token"
                )
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
    if name := environment.get(_FILE):
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
    """What makes the tokens easier to come by than they should be; no sentence holds one."""
    found = [
        f"the token of {actor!r} has fewer than {_LONG_ENOUGH} characters: choose a longer one, at random"
        for actor in tokens.short
    ]
    name = environment.get(_FILE)
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

    def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("an actor is given twice")
        return found

    try:
        tokens = json.loads(text, object_pairs_hook=refuse_twice)
        if not isinstance(tokens, dict) or not all(isinstance(t, str) for t in tokens.values()):
            raise ValueError("it is no object of texts")
    except json.JSONDecodeError:
        # Its message would be harmless, and its context would carry the text.
        raise BadRequestError(f'{origin}: not JSON such as {{"actor": "token"}}') from None
    except (ValueError, RecursionError) as problem:
        raise BadRequestError(f'{origin}: not {{"actor": "token"}}: {problem}') from None
    return tokens


def _from_secret_manager(secret: str) -> str:
    try:
        import boto3
    except ImportError as error:
        raise BadRequestError(
            f"{_AWS_SECRET} is set, and boto3 is not installed: install it, or use {_FILE}"
        ) from error
    answer = boto3.client("secretsmanager").get_secret_value(SecretId=secret)
    return str(answer["SecretString"])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
