"""Language identification: the script of the letters, then naive Bayes over character trigrams (Cavnar and Trenkle 1994)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import repeat
from math import inf, log
from typing import NamedTuple

from marklight.lazy import lazy_pattern
from marklight.text.analyzer import ENGLISH, STEMMERS, data_lines, fold, stop_words

SAMPLE_CHARACTERS = 1_200
"""Characters of a document that are examined, in three parts: its beginning, middle and end."""
MAX_CHARACTERS = 100_000
"""Characters of a document in which code is searched, which bounds the time."""
MIN_LETTERS = 40
"""Letters of a document in Latin, Cyrillic or Arabic script below which nothing is decided."""
MARGIN = 4.0
"""Logarithm of the odds by which the language of a document must be more probable than every other one."""
FOREIGN_MARGIN = 12.0
"""Logarithm of the odds by which the language of a document must be more probable than English, and that of a query if no
document has it. Names, code and short texts look foreign. Chosen among 8, 12, 16, 20 and 30 on link texts of the Kubernetes
pages and on questions in four languages. On other queries: of 2,855 English ones 17 are mistaken with 8, 3 with 12 and 1
with 16; of 2,240 headings in German, French and Spanish 72 %, 64 % and 55 % are recognised. On documents: of 34,553 English
ones 62 are mistaken, and 115 with a margin of 4; of 765 paragraphs in these languages 680 are recognised, and 681 with 4."""
STOP_WORD_GAIN = 3.0
"""Increase of that logarithm for each stop word of the language. Chosen on the same queries."""
MAX_COUNTED = 10_000
"""Documents up to which those of a language are counted, which bounds the time: enough to tell a few from many."""
CHARACTERS_PER_WORD = 2.0
"""Characters of Chinese, Japanese or Korean that count as a word, where scripts are mixed."""

LATIN = "ca cs da de en es fi fr hu id it nl no pl pt ro sv tr vi"
CYRILLIC = "bg ru sr uk"
ARABIC = "ar fa"
"""Languages that are told apart by their trigrams."""

_SCRIPTS = {
    "latin": "A-Za-z\u00aa-\u024f\u1e00-\u1eff",
    "cyrillic": "\u0400-\u04ff",
    "arabic": "\u0600-\u06ff",
    "ja": "\u3040-\u30ff",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "ko": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "th": "\u0e00-\u0e7f",
    "lo": "\u0e80-\u0eff",
    "km": "\u1780-\u17ff",
    "my": "\u1000-\u109f",
    "el": "\u0370-\u03ff\u1f00-\u1fff",
    "he": "\u0590-\u05ff",
    "hy": "\u0530-\u058f",
    "ka": "\u10a0-\u10ff",
    "hi": "\u0900-\u097f",
    "bn": "\u0980-\u09ff",
    "ta": "\u0b80-\u0bff",
    "te": "\u0c00-\u0c7f",
}
"""Characters of each script, under the language that nearly all documents in it have; the first three have several."""
CODES = frozenset((*list(_SCRIPTS)[3:], *f"{LATIN} {CYRILLIC} {ARABIC} et lt".split()))
"""Languages that have a stemmer or can be detected."""
NAMES = {"bg": "Bulgarian", "en": "English", "he": "Hebrew", "ja": "Japanese", "ko": "Korean"} | {
    "th": "Thai",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
"""English names of languages without a stemmer of this name."""
_RUN = lazy_pattern("|".join(f"(?P<{name}>[{letters}]+)" for name, letters in _SCRIPTS.items()))
_ASCII_RUN = lazy_pattern("[A-Za-z]+")
_BY_CHARACTER = ("ja", "zh", "ko", "th", "lo", "km", "my")
"""Scripts written without spaces, or nearly so."""
_MIN_KANA = 0.05
"""Share of kana among the characters of Japanese text; Chinese text quotes a few at most."""
_FENCED = lazy_pattern(r"\n[ >]*(?P<fence>```+|~~~+).*?(?:\n[ >]*(?P=fence)|\Z)", re.DOTALL)
_MARKUP = lazy_pattern(r"`[^`\n]*`|https?://\S+|<[^<>\n]*>|\]\([^()\s]*\)")
"""Inline code, tags and targets of links in Markdown; none spans lines, so fenced code can be removed before."""


_FIELD_BITS = 32
"""Bits of a packed number: sums over a sample stay far below."""


class Profiles(NamedTuple):
    """Trigrams and stop words of the languages of one script.

    The numbers of all languages are packed into one integer, a field for each language in the order of `unseen` and a
    last one that counts trigrams: adding integers sums all of them at once, in a tenth of the time.
    """

    trigrams: dict[str, int]
    """By how many tenths of a nat a trigram is less surprising in a language than an unseen one."""
    stop_words: dict[str, int]
    """By how many tenths of a nat a stop word makes its languages more probable."""
    unseen: dict[str, int]
    """Surprisal of a trigram that the profile of a language does not contain, in tenths of a nat."""


def detect(text: str, min_letters: int = MIN_LETTERS) -> str:
    """Return the language of a text as ISO 639-1 code; empty if the text is too short or it is not clear.

    Code in Markdown is ignored. The time is bounded: of a long text, three parts are read.
    """
    words = _words(_sample(text))
    script = _script(words)
    if script not in ("latin", "cyrillic", "arabic"):
        return script
    odds = log_odds(words[script], script)
    best = max(odds, key=lambda language: odds[language])
    over_english = FOREIGN_MARGIN if best == ENGLISH else -odds.get(ENGLISH, -FOREIGN_MARGIN)
    is_clear = odds[best] >= MARGIN and over_english >= FOREIGN_MARGIN
    return best if is_clear and sum(map(len, words[script])) >= min_letters else ""


def documents_by_language(detected: Mapping[str, int], total: int) -> dict[str, int]:
    """Return the number of documents by language, with those without a language counted as English."""
    counts = {language: count for language, count in detected.items() if language in CODES}
    english = total - sum(count for language, count in counts.items() if language != ENGLISH)
    if english > 0:
        counts[ENGLISH] = min(english, MAX_COUNTED)
    return counts


def query_languages(text: str, of_documents: Mapping[str, int]) -> tuple[str, ...]:
    """Return the languages by whose rules a query is analyzed: its own, English, and others of documents that it may be in.

    Every document is also indexed by the rules of English. `of_documents` has the number of documents by language.
    """
    language, *others = _possible_languages(text, of_documents)
    return tuple(dict.fromkeys((language, ENGLISH, *others)))


def _possible_languages(text: str, of_documents: Mapping[str, int]) -> list[str]:
    """Return the most probable language, then the main ones of documents that are nearly as probable.

    Before the words are seen, a language is as probable as it is frequent among the documents.
    """
    words = _words(_sample(text))
    script = _script(words)
    if script not in ("latin", "cyrillic", "arabic"):
        return [script or ENGLISH]
    counts = {
        ENGLISH: 1,
        **{language: of_documents[language] for language in of_documents if language in CODES},
    }
    if script == "latin" and [*counts] == [ENGLISH] and _is_clearly_english(words[script]):
        return [ENGLISH]  # as most queries: no profile is read
    odds = log_odds(words[script], script)
    most = max((counts[language] for language in odds if language in counts), default=1)
    prior = {language: max(log(counts[language] / most), -FOREIGN_MARGIN) for language in counts}
    probable = {
        language: min(odds[language], 0.0) + prior.get(language, -FOREIGN_MARGIN)
        for language in odds
    }
    best = max(probable, key=lambda language: probable[language])
    lowest = probable[best] - MARGIN
    main = main_languages(counts)
    return [best, *(language for language in main if probable.get(language, -inf) >= lowest)]


def main_languages(of_documents: Mapping[str, int]) -> list[str]:
    """Return the languages of at least one document in a hundred; where fewer have a language, most of them are mistaken."""
    total = sum(of_documents.values())
    return [language for language, count in of_documents.items() if 100 * count >= total]


def _is_clearly_english(words: Sequence[str]) -> bool:
    """Return true if a text has a stop word of English that is none of another language."""
    return not _english_stop_words().isdisjoint(map(fold, words))


@cache
def _english_stop_words() -> frozenset[str]:
    """Return the stop words of English that are none of another language with Latin letters."""
    return stop_words().difference(*map(stop_words, LATIN.replace(ENGLISH, "").split()))


def log_odds(words: Sequence[str], script: str = "latin") -> dict[str, float]:
    """Return for each language of a script the logarithm of its odds against the most probable other one."""
    profiles = _profiles()[script]
    # A trigram across two words has a space in the middle and is in no profile.
    text = f" {' '.join(words).lower()} "
    trigrams = map("".join, zip(text, text[1:], text[2:], strict=False))
    packed = sum(map(profiles.trigrams.get, trigrams, repeat(0)))
    seen = packed >> _FIELD_BITS * len(profiles.unseen)
    folded = text.split() if text.isascii() else map(fold, words)
    packed += sum(map(profiles.stop_words.get, folded, repeat(0)))
    scores: dict[str, float] = {}
    for language, unseen in profiles.unseen.items():
        scores[language] = ((packed & (1 << _FIELD_BITS) - 1) - seen * unseen) / 10
        packed >>= _FIELD_BITS
    first, second = sorted(scores.values(), reverse=True)[:2]
    return {
        language: score - (second if score == first else first)
        for language, score in scores.items()
    }


def language_name(code: str) -> str:
    """Return the English name of a language; of one without a stemmer its code."""
    return NAMES.get(code) or STEMMERS.get(code, code).capitalize()


def normalize_code(value: object) -> str:
    """Return the ISO 639-1 code in a frontmatter value such as `de-AT` or `pt_BR`; empty if there is none."""
    code = re.split(r"[-_]", str(value).strip().lower())[0] if isinstance(value, str) else ""
    return code if code in CODES else ""


def _sample(text: str) -> str:
    """Return three parts of a text without its code."""
    prose = _FENCED.sub("\n ", f"\n{text[:MAX_CHARACTERS]}")[1:]
    prose = _MARKUP.sub(" ", prose)
    if len(prose) <= SAMPLE_CHARACTERS:
        return prose
    part, middle = SAMPLE_CHARACTERS // 3, len(prose) // 2
    return "\n".join((prose[:part], prose[middle : middle + part], prose[-part:]))


def _words(text: str) -> dict[str, list[str]]:
    """Return the words of a text by script."""
    if text.isascii():
        return {"latin": latin} if (latin := _ASCII_RUN.findall(text)) else {}
    words: dict[str, list[str]] = {}
    for run in _RUN.finditer(text):
        words.setdefault(run.lastgroup or "", []).append(run[0])
    return words


def _script(words: Mapping[str, list[str]]) -> str:
    """Return the script of most words, or the language where the script decides it; empty without letters."""
    sizes = {
        script: sum(map(len, runs)) / CHARACTERS_PER_WORD if script in _BY_CHARACTER else len(runs)
        for script, runs in words.items()
    }
    kana, han = sizes.pop("ja", 0.0), sizes.pop("zh", 0.0)
    if kana + han:
        sizes["ja" if kana >= _MIN_KANA * (kana + han) else "zh"] = kana + han
    return max(sizes, key=lambda script: sizes[script], default="")


@cache
def _profiles() -> Mapping[str, Profiles]:
    """Return the profiles of each script. A line has a script, a language, and trigrams after their surprisal in tenths."""
    profiles: dict[str, Profiles] = {}
    for line in data_lines("language_profiles.txt"):
        script, language, *groups = line.split("|")
        profile = profiles.setdefault(script, Profiles({}, {}, {}))
        field = _FIELD_BITS * len(profile.unseen)
        tenths = [int(group.partition(":")[0]) for group in groups]
        unseen = profile.unseen[language] = tenths[-1] + 10
        for surprisal, group in zip(tenths, groups, strict=True):
            trigrams = group.partition(":")[2]
            for index in range(0, len(trigrams), 3):
                _add(profile.trigrams, trigrams[index : index + 3], unseen - surprisal, field)
        for word in stop_words(language):
            _add(profile.stop_words, word, round(10 * STOP_WORD_GAIN), field)
    for profile in profiles.values():
        for trigram in profile.trigrams:  # a trigram in no profile says nothing
            _add(profile.trigrams, trigram, 1, _FIELD_BITS * len(profile.unseen))
    return profiles


def _add(packed: dict[str, int], key: str, value: int, field: int) -> None:
    packed[key] = packed.get(key, 0) + (value << field)
