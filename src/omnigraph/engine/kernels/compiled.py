"""The loops of `machine_code` as machine code: when they are compiled, and when they are ready."""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable, Mapping
from enum import StrEnum
from importlib import import_module
from threading import Lock, Thread
from typing import Any

import numpy as np

from omnigraph.core.env_settings import Variable
from omnigraph.core.extras import is_installed
from omnigraph.engine.kernels import machine_code

# Compiling takes seconds the first time, and loading what was compiled a good part of one. So nothing is loaded before
# reads have walked so many steps with numpy that it would have paid, and then in the background: numpy goes on until
# the machine code is ready. Both give the same.

#: Steps that are walked with numpy first: about half a second of them.
LOAD_AFTER_STEPS = 40_000_000
#: Work of fewer steps is not counted: reads of a few rows never load anything.
_LEAST_STEPS = 1 << 16

_log = logging.getLogger(__name__)

Loop = Callable[..., Any]


class KernelMode(StrEnum):
    """Which kernels reads take: machine code once it is worth it, never, or always."""

    AUTO = "auto"
    NUMPY = "numpy"
    COMPILED = "compiled"


_MODE = Variable(
    "OMNIGRAPH_KERNELS",
    "The loops over neighbours: `auto` takes machine code once reads have done enough for it to pay, if the extra "
    "`fast` is installed.",
    default="`auto`",
    values="`auto`, `numpy`, `compiled`",
)

#: Of each loop the types of its arguments: `i` 64-bit numbers, `t` neighbours, `b` truth values, `s` stamps, `n` one
#: number; capitals are written to.
_SIGNATURES: Mapping[Loop, str] = {
    machine_code.common_counts: "iitiiitibBI",
    machine_code.common_pairs: "iitiiitibBII",
    machine_code.weighed_ways: "iitiiitiiibII",
    machine_code.are_linked: "iitiiBB",
    machine_code.reached: "iitinnbiSIIIIn",
}


class _Machine:
    """The compiled loops of this process, and how far they are."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._loops: dict[str, Loop] = {}
        self._thread: Thread | None = None
        self._is_off = False
        self._stops = False
        self._walked = 0

    def loop(self, plain: Loop, steps: int) -> Loop | None:
        """A loop as machine code, if it is ready; `steps` are how much work it would do now."""
        found = self._loops.get(plain.__name__)
        mode = _mode()
        if mode is KernelMode.NUMPY:
            return None
        if found is None and mode is KernelMode.COMPILED:
            self.load()
            return self._loops.get(plain.__name__)
        if found is None and steps >= _LEAST_STEPS and not self._is_off:
            self._walked += steps
            if self._walked >= LOAD_AFTER_STEPS:
                self.begin()
        return found

    def begin(self) -> None:
        """Load in the background, unless it was begun before."""
        with self._lock:
            if self._thread is not None or self._is_off:
                return
            if not is_installed("numba"):
                self._is_off = True
                return
            self._thread = Thread(target=self._load, name="omnigraph-compile", daemon=True)
            self._thread.start()

    def load(self) -> None:
        """Load, and wait until it is done."""
        self.begin()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _load(self) -> None:
        try:
            for plain, signature in _SIGNATURES.items():
                if self._stops:
                    return
                self._loops[plain.__name__] = _compiled(plain, signature)
        except Exception:  # noqa: BLE001  # a compiler fails in many ways
            # Reads do not need it: numpy gives the same.
            self._is_off = True
            _log.warning("the extra `fast` does not work here; reads go on with numpy", exc_info=True)

    def stop(self) -> None:
        """Wait for what is being compiled, at the end of the process: a compiler may not outlive it."""
        self._stops = True
        thread = self._thread
        if thread is not None:
            thread.join()

    def after_fork(self) -> None:
        """In a child: a compiler that was at work is not there any more, and its locks are never given back."""
        self._lock = Lock()
        if self._thread is not None and len(self._loops) < len(_SIGNATURES):
            self._is_off = True
            self._thread = None


def _mode() -> KernelMode:
    text = os.environ.get(_MODE)
    if text is None:
        return KernelMode.AUTO
    try:
        return KernelMode(text.strip().lower())
    except ValueError:
        return KernelMode.AUTO


def _compiled(plain: Loop, signature: str) -> Loop:
    # Without types of its own here, so that it may be missing.
    numba: Any = import_module("numba")
    types = numba.types
    of = {"i": types.int64, "t": types.uint32, "b": types.boolean, "s": types.int32}

    def argument(letter: str) -> object:
        if letter == "n":
            return types.int64
        return types.Array(of[letter.lower()], 1, "C", readonly=letter.islower())

    arguments = tuple(map(argument, signature))
    # The global interpreter lock is given back meanwhile. Nothing runs in threads of numba: those end forked processes.
    make = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        loop: Loop = numba.njit(arguments, cache=True, **make)(plain)
    except (RuntimeError, OSError):
        # No folder for what was compiled can be written: it is compiled for this process alone.
        loop = numba.njit(arguments, **make)(plain)
    return loop


_MACHINE = _Machine()
atexit.register(_MACHINE.stop)
os.register_at_fork(after_in_child=_MACHINE.after_fork)


def machine_loop(plain: Loop, steps: int, *neighbours: np.ndarray[Any, Any]) -> Loop | None:
    """A loop of `machine_code` as machine code for arrays of these neighbours, or None where numpy has to do it."""
    if any(targets.dtype != np.uint32 or not targets.flags.c_contiguous for targets in neighbours):
        return None
    return _MACHINE.loop(plain, steps)
