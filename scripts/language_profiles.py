"""Count the character trigrams of each language in message catalogs, and write the profiles for language identification.

    python scripts/language_profiles.py FOLDER…

The folders hold unpacked packages with `locale/LANGUAGE/LC_MESSAGES/*.po`. The profiles in the project were counted in
the translations of Django 5.2.19 and Sphinx 9.0.4 (both BSD licences); counts of trigrams contain no text of either.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import log
from pathlib import Path

from marklight.text.languages import ARABIC, CYRILLIC, LATIN

LANGUAGES = {
    **dict.fromkeys(LATIN.split(), "latin"),
    **dict.fromkeys(CYRILLIC.split(), "cyrillic"),
    **dict.fromkeys(ARABIC.split(), "arabic"),
}
FOLDERS = {
    "nb": "no",
    "nb_NO": "no",
    "pt_BR": "pt",
    "pt_PT": "pt",
    "uk_UA": "uk",
    "de_DE": "de",
    "fr_FR": "fr",
}
TRIGRAMS = 600
"""Most frequent trigrams of a language that are kept."""
OUTPUT = Path(__file__).parents[1] / "src/marklight/text/data/language_profiles.txt"
_PLACEHOLDER = re.compile(
    r"%\(\w+\)[#.\d]*\w|%[-#.\d]*\w|\{[^{}]*\}|<[^<>]*>|&\w+;|https?://\S+|`[^`]*`|\\\w"
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def main(folders: list[str]) -> None:
    """Write the profiles of all languages."""
    counts = {language: Counter[str]() for language in LANGUAGES}
    for folder in folders:
        for file in sorted(Path(folder).rglob("*.po")):
            name = file.parts[-3]
            language = FOLDERS.get(name, name)
            if language in LANGUAGES and language != "en":
                count(counts[language], messages(file, "msgstr"))
            if name == "de":
                count(counts["en"], messages(file, "msgid"))
    lines = [
        profile(LANGUAGES[language], language, own) for language, own in sorted(counts.items())
    ]
    head = (
        "# Trigrams of words in each language, by surprisal in tenths of a nat: script|language|surprisal:trigrams|…",
        "# Origin: counted by scripts/language_profiles.py in the translations of Django 5.2.19 and Sphinx 9.0.4.",
    )
    OUTPUT.write_text("\n".join((*head, *lines)) + "\n", "utf-8")
    print(f"{OUTPUT}: {OUTPUT.stat().st_size:,} bytes, {len(lines)} languages")


def messages(file: Path, key: str) -> Iterator[str]:
    """Yield the texts of a catalog under `msgid` or `msgstr`."""
    current, parts = "", list[str]()
    for line in file.read_text("utf-8").splitlines():
        if line.startswith('"'):
            parts.append(ast.literal_eval(line))
            continue
        if current.startswith(key):
            yield "".join(parts)
        current, _, text = line.partition(" ") if line.startswith("msg") else ("", "", "")
        parts = [ast.literal_eval(text)] if text.startswith('"') else []
    if current.startswith(key):
        yield "".join(parts)


def count(counts: Counter[str], texts: Iterator[str]) -> None:
    """Count the trigrams of the words of these texts, each word with a blank on either side."""
    for text in set(texts):
        if text.startswith(("Project-Id", "#")) or "\nPOT-Creation" in text:
            continue
        for word in _WORD.findall(_PLACEHOLDER.sub(" ", text)):
            padded = f" {word.lower()} "
            counts.update(padded[at : at + 3] for at in range(len(padded) - 2))


def profile(script: str, language: str, counts: Counter[str]) -> str:
    """Return one line: the most frequent trigrams, grouped by their surprisal."""
    total = counts.total()
    groups: dict[int, list[str]] = defaultdict(list)
    for trigram, number in counts.most_common(TRIGRAMS):
        groups[round(-10 * log(number / total))].append(trigram)
    parts = (f"{value}:{''.join(sorted(trigrams))}" for value, trigrams in sorted(groups.items()))
    return "|".join((script, language, *parts))


if __name__ == "__main__":
    main(sys.argv[1:])
