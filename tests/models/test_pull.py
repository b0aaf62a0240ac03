from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from marklight.errors import ModelError, UsageError
from marklight.models import load
from marklight.models.pull import Hub, pull
from marklight.models.record import BGE_SMALL
from marklight.models.store import list_models, stored_folder, verify
from tests.models import tiny
from tests.models.hub import Behaviour, serving

NAME = "someone/tiny"


@pytest.fixture
def does(tmp_path: Path) -> Behaviour:
    folder = tiny.write_folder(
        tmp_path / "published", tiny.weights(), pooling={"pooling_mode_cls_token": True}
    )
    return Behaviour(
        {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        | {"README.md": b"not wanted", "pytorch_model.bin": b"not wanted"}
    )


def fetch(does: Behaviour, tmp_path: Path, name: str = NAME, attempts: int = 3) -> None:
    with serving(does) as address:
        hub = Hub(address, timeout_seconds=0.5, attempts=attempts, pause_seconds=0.01)
        pull(name, cache_dir=tmp_path / "cache", hub=hub)


def works(tmp_path: Path, name: str = NAME) -> bool:
    assert verify(name, tmp_path / "cache") == []
    model = load(name, cache_dir=tmp_path / "cache")
    expected = tiny.unit(tiny.tokens(tiny.weights(), [1, 4, 2])[0])
    return bool(np.allclose(model.embed_passages(["cat"])[0], expected, atol=1e-5))


def test_a_pulled_model_works_by_its_name(does: Behaviour, tmp_path: Path) -> None:
    fetch(does, tmp_path)
    assert works(tmp_path)
    folder = stored_folder(NAME, tmp_path / "cache")
    assert folder is not None
    assert not (folder / "README.md").exists()
    assert json.loads((folder / "marklight-manifest.json").read_text())["revision"] == "c0ffee"
    row = next(row for row in list_models(tmp_path / "cache") if row.name == NAME)
    assert (row.state, row.usable) == ("pulled", True)


def test_bge_small_is_pulled_with_its_built_in_record(does: Behaviour, tmp_path: Path) -> None:
    del does.files["1_Pooling/config.json"]
    does.files["marklight-model.toml"] = f"dimension = {tiny.HIDDEN}".encode()
    with pytest.raises(ModelError, match=r"marklight models pull BAAI/bge-small-en-v1.5"):
        load(BGE_SMALL.name, cache_dir=tmp_path / "cache")
    fetch(does, tmp_path, BGE_SMALL.name)
    model = load(BGE_SMALL.name, cache_dir=tmp_path / "cache")
    assert model.token_limit == 512
    plain = load(str(tmp_path / "published"))
    query = plain.embed_query(f"{BGE_SMALL.query_prefix}cat")
    np.testing.assert_allclose(model.embed_query("cat"), query, atol=1e-6)


@pytest.mark.parametrize("resumes", [True, False])
def test_an_interrupted_download_is_resumed_or_restarted(
    does: Behaviour, tmp_path: Path, resumes: bool
) -> None:
    does.cut_at, does.resumes = [1000, 1000], resumes
    fetch(does, tmp_path)
    assert works(tmp_path)
    assert does.ranges == (["bytes=1000-", "bytes=2000-"] if resumes else ["bytes=1000-"] * 2)


def test_a_stalled_connection_times_out_and_is_retried(does: Behaviour, tmp_path: Path) -> None:
    does.stall_at = [500]
    fetch(does, tmp_path)
    assert works(tmp_path)
    assert does.ranges == ["bytes=500-"]


def test_a_partial_download_is_kept_for_the_next_call(does: Behaviour, tmp_path: Path) -> None:
    does.cut_at = [1000]
    with pytest.raises(ModelError, match="Run the command again"):
        fetch(does, tmp_path, attempts=1)
    with pytest.raises(ModelError, match="There is no model named"):
        load(NAME, cache_dir=tmp_path / "cache")
    fetch(does, tmp_path)
    assert works(tmp_path)
    assert does.ranges == ["bytes=1000-"]


def test_damaged_downloads_are_deleted(does: Behaviour, tmp_path: Path) -> None:
    does.wrong = True
    with pytest.raises(ModelError, match="damaged in transit"):
        fetch(does, tmp_path)
    assert not list((tmp_path / "cache").rglob("*.onnx*"))
    does.wrong = False
    fetch(does, tmp_path)
    assert works(tmp_path)


def test_without_hub_digests_the_first_pull_defines_them(does: Behaviour, tmp_path: Path) -> None:
    does.tells_digests = False
    fetch(does, tmp_path)
    assert works(tmp_path)


def test_a_resumed_pull_does_not_mix_revisions(does: Behaviour, tmp_path: Path) -> None:
    does.git_only, does.cut_at = True, [1000]
    first = dict(does.files)
    does.files |= {"modules.json": b"[]", "sentence_bert_config.json": b'{"max_seq_length": 7}'}
    with pytest.raises(ModelError, match="Run the command again"):
        fetch(does, tmp_path, attempts=1)
    does.files = first | {"sentence_bert_config.json": b'{"max_seq_length": 9}'}
    fetch(does, tmp_path)
    assert works(tmp_path)
    assert load(NAME, cache_dir=tmp_path / "cache").token_limit == 9
    folder = stored_folder(NAME, tmp_path / "cache")
    assert folder is not None
    assert not (folder / "modules.json").exists(), "the second revision has none"


@pytest.mark.parametrize(
    "path", ["onnx/model.onnx/../../../../escaped.data", "onnx/model.onnx\\..\\data"]
)
def test_paths_outside_of_the_model_folder_are_rejected(
    does: Behaviour, tmp_path: Path, path: str
) -> None:
    does.files[path] = b"x"
    with pytest.raises(ModelError, match="outside of its folder"):
        fetch(does, tmp_path)
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize("busy", [429, 503])
def test_a_busy_hub_is_retried(does: Behaviour, tmp_path: Path, busy: int) -> None:
    does.statuses = [busy, busy]
    fetch(does, tmp_path)
    assert works(tmp_path)


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        (404, "has no"),
        (401, "requires a login"),
        (403, "requires a login"),
        (429, "too many"),
        (500, "500"),
    ],
)
def test_an_http_error_is_reported(
    does: Behaviour, tmp_path: Path, status: int, reported: str
) -> None:
    does.listing_status = status
    with pytest.raises(ModelError, match=reported):
        fetch(does, tmp_path)
    assert does.requests == (1 if status in (401, 403, 404) else 3)


def test_a_repository_without_onnx_is_reported(does: Behaviour, tmp_path: Path) -> None:
    del does.files["onnx/model.onnx"]
    with pytest.raises(ModelError, match="no ONNX model"):
        fetch(does, tmp_path)


def test_an_unreachable_hub_is_reported_with_an_alternative(tmp_path: Path) -> None:
    hub = Hub("http://127.0.0.1:9", timeout_seconds=0.5, attempts=1)
    with pytest.raises(ModelError, match="marklight models import FOLDER"):
        pull(NAME, cache_dir=tmp_path, hub=hub)


@pytest.mark.parametrize("name", ["../up", "a/b/c", "fake", "", "granite-embedding-30m-english"])
def test_invalid_names_are_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        pull(name, cache_dir=tmp_path)


def test_the_endpoint_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Hub().address == "https://huggingface.co"
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.example/")
    assert Hub().address == "http://mirror.example"
