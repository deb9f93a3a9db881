"""The recorded model guards a search, and the room costs nothing until it is used."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys

import pytest

from omnigraph.embedding import providers
from omnigraph.embedding.client import EmbeddingSettings, ProviderName, create_embedder
from omnigraph.embedding.contract import Embedder, check_model
from omnigraph.errors import BadRequestError

HEAVY = ("httpx", "numpy", "pyarrow", "torch", "transformers", "sentence_transformers")


@pytest.mark.parametrize("recorded", [None, "openai/large"])
def test_no_record_or_the_same_model_is_fine(recorded: str | None) -> None:
    check_model(recorded, "openai/large", "Note.embedding")


@pytest.mark.parametrize("model", ["large", "openai/Large", "openai/large "])
def test_a_model_that_differs_literally_is_refused_and_both_are_named(model: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        check_model("openai/large", model, "Note.embedding")
    for name in ("`openai/large`", f"`{model}`", "Note.embedding"):
        assert name in caught.value.message


def test_the_client_is_an_embedder() -> None:
    embedder: Embedder = create_embedder(EmbeddingSettings(provider=ProviderName.MOCK))
    assert repr(embedder) == "EmbeddingClient(provider='mock', model='mock')"


def test_importing_the_room_imports_no_heavy_library() -> None:
    code = (
        "import json, sys; from omnigraph.embedding.client import EmbeddingSettings, create_embedder; "
        "from omnigraph.embedding.contract import ApiKey; "
        "create_embedder(EmbeddingSettings(api_key=ApiKey('k'))); "
        f"print(json.dumps([m for m in {HEAVY} if m in sys.modules]))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == []


def test_the_example_holds() -> None:
    assert doctest.testmod(providers) == doctest.TestResults(failed=0, attempted=1)
