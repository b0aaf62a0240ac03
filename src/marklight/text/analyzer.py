"""Analyzer: text to index terms by case and accent folding, stop words, stemming by language, CJK bigrams and identifier splitting; phrase matching."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate, chain, islice
from pathlib import Path
from threading import local
from typing import TypeVar

from marklight.lazy import lazy_pattern
from marklight.model import bounded_key, digest

ENGLISH = "en"
"""The language of texts whose language is not known."""
STEMMERS = {
    **{"ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german"},
    **{"el": "greek", "es": "spanish", "et": "estonian", "fa": "persian", "fi": "finnish"},
    **{"fr": "french", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian"},
    **{"it": "italian", "lt": "lithuanian", "nl": "dutch", "no": "norwegian", "pl": "polish"},
    **{"pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish"},
    **{"ta": "tamil", "tr": "turkish"},
}
"""Snowball stemmers of languages other than English. Words of other languages are indexed as written."""

_LATIN = frozenset((*STEMMERS, ENGLISH, "vi")).difference("ar el fa hi hy ru sr ta".split())
"""Languages in Latin script."""

MAX_WORD = 64
"""Characters of the longest word that is indexed. Longer runs are hashes or encoded data: nobody types
them, and they bloat the index. Hand-set; not measured."""
MAX_QUERY_TERMS = 36
"""Terms of a query that are examined one by one: enough for the topic of a pasted text. Hand-set; not measured."""
MAX_QUERY_WORDS, MAX_QUERY_CHARACTERS = 512, 8_192
"""Beginning of a query that is searched: as many words as the model reads tokens. A query of 8,000 different words takes 80 times
as long as one of 100, and 150 MB."""
MAX_CACHED = 50_000
"""Entries of each cache of analyzed words, which bounds its memory: some 10 MB. The Kubernetes pages have 35,000 different words."""

_CJK = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0002ffff\U00030000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
"""Characters of scripts without spaces: Chinese, Japanese and Korean (which has few), then Thai, Lao, Burmese and Khmer."""
_LETTER = r"[\w\u0900-\u0963\u0966-\u0df4]"
"""In the scripts of India vowels are marks, which are no letters to `\\w`."""
_CONTRACTION = r"['’](?:s|t|re|ve|ll|d|m)\b"
_SUFFIX = rf"(?:{_CONTRACTION}|\+\+(?!\w)|#(?!\w))?"
_TOKEN = lazy_pattern(rf"{_LETTER}+{_SUFFIX}|\.net\b")
_TOKEN_OR_CJK = lazy_pattern(rf"[{_CJK}]+|(?:(?![{_CJK}]){_LETTER})+{_SUFFIX}|\.net\b")
"""Slower than `_TOKEN`, so used only for words that contain CJK characters."""
_BREAKS = {ord(character): " " for character in '!"$%&()*,-./:;<=>?@[\\]^`{|}~'}
_UNBROKEN = lazy_pattern(rf"\.[nN][eE][tT]\b|[^\s{re.escape(''.join(map(chr, _BREAKS)))}]+")
_CONTRACTED = lazy_pattern(r"'(?:s|re|ve|ll|d|m)$")
"""Without `'t`: a negation is not a stop word."""
_CJK_CHARACTER = lazy_pattern(f"[{_CJK}]")
_CJK_CHARACTER_OR_WORD = lazy_pattern(rf"[{_CJK}]|(?:(?![{_CJK}])\w)+")
_ACCENTS = lazy_pattern(
    "[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0640\u064b-\u065f\u0670](?<![\u0438\u0443\u0456][\u0300-\u036f])"
)
"""Combining marks of Latin, Greek and Cyrillic, but not of the letters й, ў and ї; vowel marks of Hebrew and Arabic,
which are seldom written. In other scripts a mark changes the letter."""
_IZE = lazy_pattern(r"(?<=[a-z]{3})iz(?=(?:es?|ed|ers?|ing|ations?|able)$)")
"""Only before these endings and after three letters: `size` and `prize` have no other spelling."""

_CODE_TOKEN = lazy_pattern(r"c\+\+|[A-Za-z_$][\w$]*|::|\d+(?:\.\d+)*|[^\W\d_]+", re.IGNORECASE)
_PART = lazy_pattern(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_]+")
_WORD = lazy_pattern(r"\w+")
_RUN = lazy_pattern(r"[^\W_]+")
_ASCII_WORD = lazy_pattern(r"\w+", re.ASCII)
_PART_BOUNDARY = lazy_pattern(r"[a-z0-9][A-Z]|[A-Z][A-Z][a-z]|[^\W_]_+[^\W_]")
"""A boundary between the words of an identifier: `getUser`, `HTTPError`, `user_id`."""
_QUERY_WORD = lazy_pattern(r"\W*(\w+)(?:['’]\w+)?\W*")
"""A whitespace-separated word with punctuation and a contraction: `what's`."""

_DEFINITION_QUESTION = lazy_pattern(
    r"\s*(?:(?:what|who)(?:['’]s|\s+(?:is|are))\s+(?:(?:an?|the)\s+)?(.+?)"
    r"|what\s+do(?:es)?\s+(?:(?:an?|the)\s+)?(.+?)\s+(?:mean|stand\s+for)"
    r"|define\s+(.+?)|(?:the\s+)?(?:meaning|definition)\s+of\s+(?:(?:an?|the)\s+)?(.+?))[\s?.!]*",
    re.IGNORECASE,
)
MAX_DEFINED_WORDS = 3
"""Words of a term up to which a question for its definition is searched as the term. Of 163 terms of Kubernetes' glossary the right
page is first for 122 typed alone; for 94 as "what is …" and 82 as "what does … mean" without this, for 122 with it."""

MIN_TERM_LETTERS = 3
MAX_TERM_LETTERS = 30
"""Length of vocabulary terms; longer runs of letters are class names or encoded data. Hand-set; not measured."""
_LETTERS = lazy_pattern(rf"[^\W\d_]{{{MIN_TERM_LETTERS},}}(?:{_CONTRACTION})?")
_BLANK = lazy_pattern(r"[ \n]")
_PART_CHARS = 500_000
"""Characters that are split into words at once: a list of all words takes nine times the memory of a text."""
_UNSPACED = lazy_pattern(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
)
"""Scripts written without spaces: a run of their characters is a sentence, not a word."""

Value = TypeVar("Value")


class _Cache(dict[str, Value]):
    """Bounded memo of a function of one string; a hit costs one dictionary lookup."""

    def __init__(self, function: Callable[[str], Value]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: str) -> Value:
        value = self._function(key)
        if len(key) <= MAX_WORD:  # a longer run is encoded data, or a sentence without spaces
            if len(self) >= MAX_CACHED:
                self.clear()
            self[key] = value
        return value


class _WordCache(_Cache[tuple[str, ...]]):
    """Memo of the terms of words. A text has the terms of its words, most of which are frequent."""

    def terms(self, words: Iterable[str]) -> Iterator[str]:
        """Return the terms of words, in order."""
        return chain.from_iterable(map(self.__getitem__, words))


@lru_cache(maxsize=2)
def _words(text: str) -> Sequence[str]:
    """Split a text at white space and at ASCII punctuation that no token contains; the same text is often analyzed again."""
    if text.isascii() and ".net" not in text.lower():
        return text.translate(_BREAKS).split()
    return _UNBROKEN.findall(text)


def analyze(text: str, language: str = ENGLISH) -> list[str]:
    """Return the index terms of prose in this language: folded, stemmed, without stop words.

    Chinese, Japanese, Korean and Thai text becomes character bigrams; `C++`, `C#` and `.NET` stay whole.
    """
    return list(_analyzed(language, language).terms(_words(text)))


def _analyze(terms_by_token: _Cache[str], word: str) -> tuple[str, ...]:
    if word.isascii() and word.isalnum():  # as most words: one token
        return (term,) if (term := terms_by_token[word.lower()]) else ()
    terms: list[str] = []
    for token in tokenize(fold(word)):
        if is_cjk(token):
            terms.extend(bigrams(token))
        elif term := terms_by_token[token]:
            terms.append(term)
    return tuple(terms)


def code_terms(text: str) -> list[str]:
    """Return the index terms of code: each identifier whole and split, so `getUserById` matches `get_user_by_id`."""
    return list(_code_terms.terms(text.split()))


def identifier_parts(text: str) -> list[str]:
    """Return the analyzed words of compound identifiers in prose: of `getUserById`, get, user and id.

    Single letters are dropped, and so are words that are not compound.
    """
    return list(_identifier_parts.terms(_words(text)))


def query_terms(text: str, *respelled: str, languages: Sequence[str] = (ENGLISH,)) -> list[str]:
    """Return the terms of a query with those of its identifiers' parts; never empty, as a query of stop words keeps them.

    `languages` are that of the query, then others, such as English. Words are stemmed by the rules of each; stop words
    of the query's language are dropped in all. Other spellings of the query add the terms that are new.
    """
    first, *others = query_analyses(text, languages)
    terms = first + identifier_parts(text)
    for analysis in others:
        terms += [term for term in analysis if term not in terms]
    terms = terms or [token for token in tokenize(fold(text)) if len(token) <= MAX_WORD]
    for other in respelled:
        terms += [term for term in query_terms(other, languages=languages) if term not in terms]
    return terms


def query_analyses(text: str, languages: Sequence[str] = (ENGLISH,)) -> list[list[str]]:
    """Return the terms of a query by the rules of each language, without the stop words of the first; equal ones once."""
    query_language = languages[0] if languages else ENGLISH
    words = _words(text)
    analyses = [
        list(_analyzed(language, query_language).terms(words))
        for language in languages or (ENGLISH,)
    ]
    return [terms for index, terms in enumerate(analyses) if terms not in analyses[:index]]


def first_words(text: str) -> str:
    """Return the beginning of a query that is searched; each character of a script without spaces counts as a word."""
    if len(text) <= MAX_QUERY_WORDS:
        return text
    text = text[:MAX_QUERY_CHARACTERS]
    words = _CJK_CHARACTER_OR_WORD.finditer(text)
    beyond = next(islice(words, MAX_QUERY_WORDS, None), None)
    return text[: beyond.start()].rstrip() if beyond else text


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the folded runs of letters and digits of some texts."""
    return frozenset(_RUN.findall(fold("\n".join(texts))))


def trim_stop_words(text: str, language: str = ENGLISH) -> str:
    """Remove the stop words at both ends of a query: `when is the pen test?` becomes `pen test?`."""
    words, dropped = text.split(), stop_words(language)
    matches = map(_QUERY_WORD.fullmatch, words)
    content = [
        index for index, match in enumerate(matches) if not match or fold(match[1]) not in dropped
    ]
    return " ".join(words[content[0] : content[-1] + 1]) if content else text


def defined_term(text: str) -> str:
    """Return the term whose definition a query asks for: `Bouncer` of `what is Bouncer?`; empty for other queries."""
    match = _DEFINITION_QUESTION.fullmatch(text)
    term = next(filter(None, match.groups()), "") if match else ""
    return term if len(term.split()) <= MAX_DEFINED_WORDS else ""


def vocabulary_terms(text: str) -> set[str]:
    """Return the distinct words of a text for the vocabulary: folded but not stemmed, at least three letters, no stop words.

    They can be shown and embedded, unlike stems. A possessive counts without its ending; `don't` does not count.
    """
    words, start = set[str](), 0
    while start < len(text):
        blank = _BLANK.search(text, start + _PART_CHARS)
        end = blank.start() if blank else len(text)
        words.update(_words(text[start:end]))
        start = end
    return set(_vocabulary_terms.terms(words))


def _terms_to_show(word: str) -> tuple[str, ...]:
    plain = word.isascii() and word.isalpha()  # as most words
    runs = {word.lower()} if plain else set(_LETTERS.findall(fold(word)))
    names = {run[:-2] if run.endswith(("'s", "’s")) else run for run in runs}
    return tuple(
        name
        for name in names - stop_words()
        if name.isalpha()
        and MIN_TERM_LETTERS <= len(name) <= MAX_TERM_LETTERS
        and (plain or not _UNSPACED.search(name))
    )


@cache
def vocabulary_fingerprint() -> str:
    """Return a digest that changes with the rules of `vocabulary_terms`, which makes stored term counts obsolete."""
    sample = "The Café's naïve parser don't run_fast 日本語のテキスト 한국어 C++ v1.27 " + "x" * 40
    rules = (_LETTERS.pattern, _UNSPACED.pattern, str(MIN_TERM_LETTERS), str(MAX_TERM_LETTERS))
    return digest(*sorted(vocabulary_terms(sample)), *sorted(stop_words()), *rules, size=6)


def tokenize(folded: str) -> list[str]:
    """Split folded text into runs of letters and digits; a run of CJK characters is a token of its own."""
    return (_TOKEN_OR_CJK if has_cjk(folded) else _TOKEN).findall(folded)


def strip_marks(token: str) -> str:
    """Remove emphasis (`_so_`) and trailing `+` and `#` from a token, except from `C++`, `C#` and `F#`."""
    token = token.strip("_").lstrip("'’_")
    letters = token.rstrip("+#").rstrip("_") if token and token[-1] in "+#" else token
    return token if len(letters) == 1 else letters


def has_cjk(folded: str) -> bool:
    """Return true if a text contains CJK characters, which are written without spaces."""
    return not folded.isascii() and bool(_CJK_CHARACTER.search(folded))


def is_cjk(token: str) -> bool:
    """Return true if a token is a run of CJK characters."""
    return bool(_CJK_CHARACTER.match(token))


def bigrams(token: str) -> list[str]:
    """Return the overlapping character bigrams of a token; of a single character, itself."""
    return [token[index : index + 2] for index in range(max(1, len(token) - 1))]


def normalize(text: str) -> str:
    """Fold a text and collapse its white space, so that names and texts can be compared."""
    return " ".join(fold(text).split())


@lru_cache(maxsize=4096)
def title_key(title: str) -> str:
    """Return a title as it is stored and looked up: normalised, and not too long."""
    return bounded_key(normalize(title))


def fold(text: str) -> str:
    """Convert to lower case without accents and compatibility forms, so that `Café` matches `cafe`."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    # Letters such as 𝙱 have no lower case, but decompose to a letter that has one.
    decomposed = unicodedata.normalize("NFKD", lowered).lower()
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


def base_form(word: str) -> str:
    """Return the base form of an irregular word or British spelling; most words are returned unchanged."""
    if base := variant_forms().get(word.removesuffix("'s")):
        return base
    if "our" in word:
        return _our_pattern().sub("or", word)
    return _IZE.sub("is", word) if "iz" in word else word


VARIABLE_ENDINGS = "ie"
"""Last letters of a stem that the word may lack: `happi` of happy, `hope` of hoping."""


@lru_cache(maxsize=4096)
def surface_prefixes(term: str) -> tuple[str, ...]:
    """Return how words that are reduced to this term may begin in a folded text; some other words begin so as well."""
    stem = term[:-1] if term[-1] in VARIABLE_ENDINGS or term.endswith("bl") else term  # -bility
    forms = (form for form, base in _forms_by_letter().get(stem[:1], ()) if base.startswith(stem))
    return (stem, stem.replace("or", "our"), "iz".join(stem.rsplit("is", 1)), *forms)


@cache
def _forms_by_letter() -> dict[str, list[tuple[str, str]]]:
    """Return variant forms and their base forms by the first letter of the base form; all for the empty one."""
    forms = {"": list(variant_forms().items())}
    for form, base in forms[""]:
        forms.setdefault(base[0], []).append((form, base))
    return forms


@cache
def _our_pattern() -> re.Pattern[str]:
    """Return the pattern of -our in British spellings of words in -or."""
    return re.compile("|".join(f"(?<={stem})our" for stem in data_lines("our_stems.txt")))


def _term(language: str, stops: str, token: str) -> str:
    """Return the term of a token; empty for stop words, also with a contraction: `what's` is `what is`."""
    word = strip_marks(token).replace("’", "'")
    if language not in _LATIN and word.isascii():
        language = ENGLISH  # as nearly all Latin words in texts of other scripts
    if (
        not word
        or len(word) > MAX_WORD
        or word in stop_words(language)
        or word in stop_words(stops)
    ):
        return ""
    if language == ENGLISH:
        contracted = "'" in word and _CONTRACTED.sub("", word) in stop_words()
        return "" if contracted else _stem("english", base_form(word))
    return _stem(STEMMERS[language], word) if language in STEMMERS else word


def _stem(algorithm: str, word: str) -> str:
    """Reduce a word to its stem by a Snowball stemmer."""
    stemmer = _stemmers.__dict__.get(algorithm)
    if stemmer is None:
        from Stemmer import Stemmer

        stemmer = _stemmers.__dict__[algorithm] = Stemmer(algorithm, 0)
    return str(stemmer.stemWord(word))


def _split_identifiers(word: str) -> tuple[str, ...]:
    terms: list[str] = []
    for token in _CODE_TOKEN.findall(word):
        whole = token.lower()
        parts = () if token[-1] == "+" else (part.lower() for part in _PART.findall(token))
        terms += (whole, *(part for part in parts if part != whole))
    return tuple(term for term in terms if len(term) <= MAX_WORD)


def _analyzed_parts(word: str) -> tuple[str, ...]:
    if (word.islower() and "_" not in word) or not _PART_BOUNDARY.search(word):
        return ()
    compounds = (
        name
        for name in _WORD.findall(word)
        if len(name) <= MAX_WORD and _PART_BOUNDARY.search(name)
    )
    parts = (part for name in compounds for part in _PART.findall(name) if len(part) > 1)
    return tuple(analyze(" ".join(parts)))


@cache
def _analyzed(language: str, stops: str) -> _WordCache:
    """Return the memo of terms by word in one language, without its stop words and those of the query's language."""
    terms_by_token = _Cache(partial(_term, language or ENGLISH, stops or ENGLISH))
    return _WordCache(partial(_analyze, terms_by_token))


_stemmers = local()
"""Stemmers by algorithm, for each thread, as they are not thread-safe."""
_code_terms = _WordCache(_split_identifiers)
_identifier_parts = _WordCache(_analyzed_parts)
_vocabulary_terms = _WordCache(_terms_to_show)


@cache
def stop_words(language: str = ENGLISH) -> frozenset[str]:
    """Return words too frequent to distinguish passages, folded; a query of nothing else keeps them."""
    if language == ENGLISH:
        return frozenset(word for line in data_lines("stop_words.txt") for word in line.split())
    return _foreign_stop_words().get(language, frozenset())


@cache
def _foreign_stop_words() -> dict[str, frozenset[str]]:
    words: dict[str, set[str]] = {}
    for line in data_lines("foreign_stop_words.txt"):
        language, _, text = line.partition(": ")
        words.setdefault(language, set()).update(map(fold, text.split()))
    return {language: frozenset(folded) for language, folded in words.items()}


@cache
def variant_forms() -> dict[str, str]:
    """Return the base form of each irregular form and British spelling, which no suffix rule covers."""
    forms: dict[str, str] = {}
    for line in data_lines("irregular_forms.txt"):
        base, *others = line.split()
        forms.update(dict.fromkeys(others, base))
    variants = [line.split() for line in data_lines("spelling_variants.txt")]
    forms.update((british, american) for american, british in variants)
    forms.update((f"{british}s", f"{american}s") for american, british in variants)
    return forms


def data_lines(name: str) -> list[str]:
    """Return the lines of a data file of this package, without comments."""
    text = Path(__file__).with_name("data").joinpath(name).read_text("utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


CACHED_PHRASES = 256
"""Compiled phrases that are kept; a query has a few. Hand-set; not measured."""


class _Phrase:
    """A compiled phrase; two regular expressions decide for most texts without tokenizing them."""

    def __init__(self, phrase: str) -> None:
        self.tokens = _tokens(_folded(phrase))
        self.needle = _joined(self.tokens)
        # Necessary: no letter between the words or beside them; only `.net` may follow letters.
        # Sufficient: nothing but white space between the words.
        gaps = (
            "" if not index else r"[\W_]*" if token[0] == "." else r"[\W_]+"
            for index, token in enumerate(self.tokens)
        )
        spread = "".join(
            gap + re.escape(token) for gap, token in zip(gaps, self.tokens, strict=True)
        )
        plain = all(_ASCII_WORD.fullmatch(token) for token in self.tokens)
        close = r"\s+".join(map(re.escape, self.tokens))
        self.necessary = re.compile(rf"{spread}(?![^\W_])")
        self.sufficient = re.compile(rf"(?<![\w'+#.]){close}(?![\w'+#])") if plain else None

    def occurs_in(self, text: str) -> bool:
        folded = _folded(text)
        if not all(token in folded for token in self.tokens):
            return False
        if not has_cjk(folded):
            if not self.necessary.search(folded):
                return False
            if self.sufficient and self.sufficient.search(folded):
                return True
        return self.needle in _joined(_tokens(folded), whole=True)


_phrase = lru_cache(maxsize=CACHED_PHRASES)(_Phrase)


def matches_phrases(phrases: Iterable[str], excluded: Iterable[str], texts: Sequence[str]) -> bool:
    """Return true if every phrase, and no excluded one, occurs within one of the texts.

    Stop words and inflections count, case and accents do not. Of CJK text any substring matches. A phrase
    without words matches everything.
    """
    return all(_occurs(phrase, texts) for phrase in phrases if _phrase(phrase).tokens) and not any(
        _occurs(phrase, texts) for phrase in excluded if _phrase(phrase).tokens
    )


def lines_with_phrase(phrase: str, lines: Sequence[str]) -> list[int]:
    """Return the indexes of the lines in which an occurrence of a phrase begins; it may end in a later line."""
    parsed = _phrase(phrase)
    folded = _folded("\n".join(lines))
    if not parsed.tokens or not all(token in folded for token in parsed.tokens):
        return []
    joined = [
        f"{' '.join(tokens)} " if (tokens := _tokens(line)) else "" for line in folded.split("\n")
    ]
    starts = [*accumulate(map(len, joined), initial=1)]
    text, found = f" {''.join(joined)}", set[int]()
    skipped = int(parsed.needle.startswith(" "))
    offset = text.find(parsed.needle)
    while offset >= 0:
        found.add(bisect_right(starts, offset + skipped) - 1)
        offset = text.find(parsed.needle, offset + 1)
    return sorted(found)


def contains_sequence(phrase: str, text: str) -> bool:
    """Return true if a lower-case text contains the words of a phrase with only punctuation, but no NUL, between them.

    Less exact than `matches_phrases`, as accents count, but much faster: nothing is compiled.
    """
    first, *others = _WORD.findall(phrase.lower()) or [""]
    if not all(word in text for word in others):
        return False
    offset = text.find(first) if first else -1
    while offset >= 0:
        end = offset + len(first)
        for word in others:
            start = _next_word(text, end)
            end = start + len(word) if start > end and text.startswith(word, start) else -1
            if end < 0:
                break
        if (
            end >= 0
            and not _is_word_character(text, offset - 1)
            and not _is_word_character(text, end)
        ):
            return True
        offset = text.find(first, offset + 1)
    return False


def _next_word(text: str, offset: int) -> int:
    while offset < len(text) and text[offset] != "\0" and not _is_word_character(text, offset):
        offset += 1
    return offset


def _is_word_character(text: str, offset: int) -> bool:
    return 0 <= offset < len(text) and (text[offset].isalnum() or text[offset] == "_")


def phrase_terms(phrase: str, language: str = ENGLISH) -> list[str]:
    """Return index terms that every text in this language with this phrase has; may be empty."""
    terms: list[str] = []
    for token in _phrase(phrase).tokens:
        if is_cjk(token):
            terms += bigrams(token) if len(token) > 1 else []
        else:
            terms += analyze(token, language)
    return list(dict.fromkeys(terms))


def has_words(text: str) -> bool:
    """Return true if a text contains any word."""
    return bool(_phrase(text).tokens)


def _occurs(phrase: str, texts: Sequence[str]) -> bool:
    return any(_phrase(phrase).occurs_in(text) for text in texts)


def _folded(text: str) -> str:
    folded = fold(text)
    return folded.replace("’", "'") if "’" in folded else folded


def _tokens(folded: str) -> list[str]:
    return [word for token in tokenize(folded) if (word := strip_marks(token))]


def _joined(tokens: list[str], whole: bool = False) -> str:
    """Join tokens with a space on each side, so that no part of a word matches; CJK text may match in part."""
    if not tokens:
        return ""
    before = " " if whole or not is_cjk(tokens[0]) else ""
    after = " " if whole or not is_cjk(tokens[-1]) else ""
    return before + " ".join(tokens) + after
