from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.models import load
from marklight.models.record import BGE_SMALL
from tests.models import tiny

CAT = [1, 3, 4, 5, 6, 7, 8, 2]  # [CLS] the cat sat on a mat [SEP]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_pooling_is_read_from_the_folder(tmp_path: Path, pooling: str) -> None:
    config = {f"pooling_mode_{'cls_token' if pooling == 'cls' else 'mean_tokens'}": True}
    of = tiny.weights()
    model = load(str(tiny.write_folder(tmp_path / "mine", of, pooling=config)))
    each = tiny.tokens(of, CAT)
    expected = tiny.unit(each[0] if pooling == "cls" else each.mean(axis=0))
    np.testing.assert_allclose(model.embed_query("The cat sat on a mat"), expected, atol=1e-5)
    assert (model.name, model.dimension, model.token_limit) == ("mine", tiny.HIDDEN, tiny.PLACES)


def test_prompts_and_limit_come_from_the_sentence_transformers_files(tmp_path: Path) -> None:
    of = tiny.weights()
    folder = tiny.write_folder(
        tmp_path / "m",
        of,
        sentence_bert_config={"max_seq_length": 6},
        config_sentence_transformers={"prompts": {"query": "the ", "passage": "a dog "}},
    )
    model = load(str(folder))
    assert model.token_limit == 6
    assert model.count_tokens(["ran", "the cat sat on a mat"]) == [
        5,
        10,
    ]  # with "a dog", two special
    expected = tiny.unit(tiny.tokens(of, [1, 3, 4, 2]).mean(axis=0))
    np.testing.assert_allclose(model.embed_query("cat"), expected, atol=1e-5)
    # Too long: cut, the closing token kept. [CLS] a dog the cat [SEP]
    cut = tiny.unit(tiny.tokens(of, [1, 7, 9, 3, 4, 2]).mean(axis=0))
    np.testing.assert_allclose(model.embed_passages(["the cat sat"])[0], cut, atol=1e-5)


def test_a_clone_of_bge_small_gets_its_query_prefix(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "bge-small-en-v1.5", tiny.weights())
    bge, prefix = load(str(folder)), BGE_SMALL.query_prefix
    plain = load(str(tiny.write_folder(tmp_path / "other", tiny.weights())))
    np.testing.assert_allclose(bge.embed_query("cat"), plain.embed_query(f"{prefix}cat"), atol=1e-6)
    np.testing.assert_allclose(
        bge.embed_passages(["cat"]), plain.embed_passages(["cat"]), atol=1e-6
    )
    assert bge.fingerprint != plain.fingerprint


def test_our_description_file_overrides_other_files(tmp_path: Path) -> None:
    folder = tiny.write_folder(
        tmp_path / "m", tiny.weights(), pooling={"pooling_mode_mean_tokens": True}
    )
    (folder / "marklight-model.toml").write_text('pooling = "cls"\ntoken_limit = 9\nname = "own"\n')
    model = load(str(folder))
    assert (model.name, model.token_limit) == ("own", 9)
    expected = tiny.unit(tiny.tokens(tiny.weights(), CAT)[0])
    np.testing.assert_allclose(model.embed_query("the cat sat on a mat"), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "reported"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing"),
        ("onnx/model.onnx", None, "no ONNX file"),
        ("config.json", "{", "config.json cannot be read"),
        ("config.json", "{}", "dimension of the vectors"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode_max_tokens": true}',
            "unsupported kind of pooling",
        ),
        ("marklight-model.toml", "colour = 1", "unknown key 'colour'"),
        ("marklight-model.toml", 'pooling = "max"', "unknown pooling 'max'"),
    ],
)
def test_a_folder_without_a_valid_model_is_rejected(
    tmp_path: Path, name: str, content: str | None, reported: str
) -> None:
    folder = tiny.write_folder(tmp_path / "m", tiny.weights())
    (folder / name).parent.mkdir(exist_ok=True)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    with pytest.raises(ModelError, match=reported):
        load(str(folder))


def test_invalid_model_files_are_reported_in_one_line(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m", tiny.weights())
    (folder / "onnx" / "model.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="onnxruntime cannot open the model m"):
        load(str(folder)).embed_query("cat")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="tokenizer of m cannot be read"):
        load(str(folder)).count_tokens(["cat"])


def test_a_wrong_dimension_is_reported(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m", tiny.weights(), config={"hidden_size": 99})
    with pytest.raises(ModelError, match=f"returns {tiny.HIDDEN} numbers per vector, not 99"):
        load(str(folder)).embed_query("cat")
    with pytest.raises(ModelError, match="no model named 'nowhere'"):
        load("nowhere", cache_dir=tmp_path)
