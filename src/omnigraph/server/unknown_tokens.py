"""Refusals of unknown tokens: told to the log, and later and later to an address that goes on guessing.

A known token is never delayed, also not one that comes from such an address: it is compared first.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import anyio

from omnigraph.errors import TooManyRequestsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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
    """How often each address sent an unknown token. Used by the event loop alone."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
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
    """What one machine is taken to have: an address, or a network of IPv6."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if address.version == 4:
        return peer
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
