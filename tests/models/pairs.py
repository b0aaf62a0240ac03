"""A tiny generated cross-encoder whose scores can be computed by hand."""

from __future__ import annotations

import json
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.models.tiny import SPECIAL, tokenizer

WORDS = "the cat sat on a mat dog ran far how do i undo rollout of app grind coffee beans".split()
PLACES = 512


def likely(found: int, tokens: int) -> float:
    """The score of a pair: one for each word of the question that the passage has, less a tenth for
    each token of the pair, [CLS] and both [SEP] among them; as the logistic function has it."""
    return 1 / (1 + exp(-(found - tokens / 10)))


def graph(gives: str = "one", masked: bool = True) -> bytes:
    """Gives `one` number for a pair, or `two` of which the first is 0, or `three`, or one `each` token."""
    nodes: list[Any] = []
    constants: dict[str, Any] = {}

    def constant(value: Any, kind: type = np.float32) -> str:
        name = f"constant.{len(constants)}"
        constants[name] = numpy_helper.from_array(np.array(value, kind), name)
        return name

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}.{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def number(value: str) -> str:
        return node("Cast", value, to=TensorProto.FLOAT)

    last, middle = constant([2], np.int64), constant([1], np.int64)
    types = number("token_type_ids")
    mask = number(
        "attention_mask" if masked else node("GreaterOrEqual", "input_ids", constant(0, np.int64))
    )
    word = node("Mul", mask, number(node("Greater", "input_ids", constant(2, np.int64))))
    query = node("Mul", word, node("Sub", constant(1), types))
    given = node("Mul", word, types)
    same = node(
        "Equal",
        node("Unsqueeze", "input_ids", last),
        node("Unsqueeze", "input_ids", middle),
    )
    shared = node("Mul", number(same), node("Unsqueeze", given, middle))
    found = node("Mul", query, node("ReduceMax", shared, axes=[2], keepdims=0))
    if gives == "each":
        out = node("Unsqueeze", found, last)
    else:
        counted = node("ReduceSum", found, middle, keepdims=1)
        length = node("ReduceSum", mask, middle, keepdims=1)
        logit = node("Sub", counted, node("Mul", length, constant(0.1)))
        nought = node("Sub", logit, logit)
        columns = {"one": [logit], "two": [nought, logit], "three": [nought, nought, logit]}
        out = node("Concat", *columns[gives], axis=1)
    nodes.append(helper.make_node("Identity", [out], ["logits"]))
    inputs = ["input_ids", "token_type_ids", *(["attention_mask"] if masked else [])]
    made = helper.make_graph(
        nodes,
        "pairs",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
            for name in inputs
        ],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)],
        list(constants.values()),
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def write_folder(
    folder: Path,
    words: list[str] = WORDS,
    *,
    gives: str = "one",
    masked: bool = True,
    **config: Any,
) -> Path:
    """The folder of a cross-encoder as they are published; keywords go into its `config.json`."""
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx" / "model.onnx").write_bytes(graph(gives, masked))
    (folder / "tokenizer.json").write_text(tokenizer([*SPECIAL, *words]))
    reported = {
        "architectures": ["BertForSequenceClassification"],
        "hidden_size": 384,
        "id2label": {"0": "LABEL_0"},
        "max_position_embeddings": PLACES,
    } | config
    (folder / "config.json").write_text(json.dumps(reported))
    return folder
