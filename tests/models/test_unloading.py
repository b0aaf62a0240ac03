"""Unloading a model to free memory."""

from __future__ import annotations

import numpy as np

from marklight import models
from marklight.models import CachingEmbedder


def test_an_unloaded_model_is_opened_again_on_use() -> None:
    model = models.load()
    assert hasattr(model, "unload")
    before = model.embed_query("how do tokens expire")
    assert "session" in vars(model)
    model.unload()
    assert not {"session", "tokenizer"} & set(vars(model))
    assert np.array_equal(model.embed_query("how do tokens expire"), before)


def test_the_query_cache_unloads_the_wrapped_model() -> None:
    model = models.load()
    query = CachingEmbedder(model)
    query.embed_query("how do tokens expire")
    query.unload()
    assert "session" not in vars(model)
