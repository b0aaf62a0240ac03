"""The bundled model's tokenizer, compared with the package `tokenizers`, which reads the published one."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from marklight.errors import ModelError
from marklight.models import onnx as own
from marklight.models.record import GRANITE, package_folder
from marklight.models.store import check_tokenizers
from scripts.build_model import CLASSES_FILE, character_classes, read_weights

FRAGMENTS = (
    "'s 'S 'll 're 'd '' I'm don't  two  spaces\t\ttab\n\n\nlines \r\n end \u00a0 \u2003x \x1c\x85y "
    "<s> </s> <pad> <unk> <mask>   <mask> a<mask>b <s><s> < s> <S> <sup>1</sup> "
    "½ Ⅳ ² 12½ x² 3rd 一二 漢字かな 한국어 ไทย हिन्दी עברית العربية ẞß İı ﬁ e\u0301 👩‍👩‍👧 🇩🇪 "
    "----- ===== ....... ____ `code` C++ C# std::vector getUserById parse_json_data a1b2c3"
).split(" ")


@pytest.fixture(scope="module")
def published() -> Tokenizer:
    return Tokenizer.from_str(read_weights().tokenizer)


@pytest.fixture(scope="module")
def bundled() -> own.BytePairTokenizer:
    path = package_folder(GRANITE) / GRANITE.files[-1].path
    return own.BytePairTokenizer(path.read_bytes())


def test_real_documents_have_the_published_ids(
    eval_root: Path, published: Tokenizer, bundled: own.BytePairTokenizer
) -> None:
    files = sorted(path for path in (eval_root / "corpora").rglob("*.*") if path.is_file())
    texts = [path.read_text("utf-8", "replace")[:20_000] for path in files[::7]]
    assert len(texts) > 100
    for text, encoding in zip(texts, published.encode_batch_fast(texts), strict=True):
        assert bundled.encode(text) == encoding.ids, text[:80]


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8)).map(" ".join) | st.text())
def test_any_text_has_the_published_ids(
    published: Tokenizer, bundled: own.BytePairTokenizer, text: str
) -> None:
    assert bundled.encode(text) == published.encode(text).ids


@given(st.text())
def test_ids_do_not_depend_on_what_was_encoded_before(
    bundled: own.BytePairTokenizer, text: str
) -> None:
    fresh = own.BytePairTokenizer((package_folder(GRANITE) / GRANITE.files[-1].path).read_bytes())
    assert fresh.encode(text) == bundled.encode(text)


def test_a_full_cache_changes_nothing(
    published: Tokenizer, bundled: own.BytePairTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "MAX_CACHED_WORDS", 3)
    text = " ".join(f"word{number}" for number in range(own._MANY_WORDS + 10))
    assert bundled.encode(text) == published.encode(text).ids


@pytest.mark.parametrize("unit", ["語", "-", "ab ", " ", "x", "é"])
def test_the_time_grows_with_the_length(bundled: own.BytePairTokenizer, unit: str) -> None:
    began = time.perf_counter()
    bundled.encode(unit * 50_000)
    assert time.perf_counter() - began < 10


def test_each_character_has_the_published_class() -> None:
    """To make the file anew for another version of `tokenizers`, write `kinds` as ranges."""
    starts = character_classes(CLASSES_FILE.read_text("ascii"))
    kinds = own._CharacterClasses(starts)
    split = ByteLevel(add_prefix_space=False).pre_tokenize_str
    for start in [*(start // 4 for start in starts), *range(0x80, 0x3000)]:
        for point in (start - 1, start):
            if point < 128 or 0xD800 <= point < 0xE000:
                continue
            joined = next((kind for kind in "a0!" if len(split(kind + chr(point))) == 1), "\t")
            assert kinds[point] == joined, hex(point)


def test_the_table_and_the_published_file_have_the_same_special_tokens() -> None:
    added = json.loads(read_weights().tokenizer)["added_tokens"]
    assert {token["content"]: token["id"] for token in added} == own._SPECIAL_IDS


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModelError, match=r"m needs the package tokenizers.*marklight\[models\]"):
        check_tokenizers("m")
