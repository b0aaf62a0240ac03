"""English words that no rule of endings makes one: bought and buy, children and child, colour and color."""

from __future__ import annotations

import re
from collections.abc import Iterator

_VERBS = """
arise arose arisen, awake awoke awoken, become became, begin began begun, bend bent, bleed bled, blow blew blown,
break broke broken, breed bred, bring brought, build built, burn burnt, buy bought, catch caught, choose chose chosen,
come came, creep crept, deal dealt, dig dug, draw drew drawn, dream dreamt, drink drank drunk, drive drove driven,
eat ate eaten, fall fell fallen, feed fed, feel felt, fight fought, find found, flee fled, fly flew flown,
forbid forbade forbidden, foresee foresaw foreseen, forget forgot forgotten, forgive forgave forgiven,
freeze froze frozen, get got gotten, give gave given, go went gone, grow grew grown, hang hung, hear heard,
hide hid hidden, hold held, keep kept, kneel knelt, know knew known, lean leant, leap leapt, learn learnt, lend lent,
lose lost, make made, mean meant, meet met, mistake mistook mistaken, mow mown, overcome overcame,
override overrode overridden, overwrite overwrote overwritten, pay paid, prove proven, rebuild rebuilt,
repay repaid, resell resold, rewrite rewrote rewritten, ride rode ridden, run ran, say said, see seen, seek sought,
sell sold, send sent, sew sewn, shake shook shaken, shine shone, show shown, shrink shrank shrunk, sing sang sung,
sink sank sunk, sit sat, sleep slept, slide slid, smell smelt, sow sown, speak spoken, spell spelt, spend spent,
spill spilt, spin spun, spoil spoilt, stand stood, steal stole stolen, stick stuck, sting stung, strike struck,
swear swore sworn, sweep swept, swim swam swum, swing swung, take took taken, teach taught, tear tore torn,
tell told, think thought, throw threw thrown, undergo underwent undergone, understand understood, undo undid undone,
wake woke woken, wear wore worn, weave wove woven, weep wept, win won, withdraw withdrew withdrawn, write wrote written
"""
"""Left out is what mostly is another word: left, saw, rose, ground, wound, bound, bore, lay, bit, led, shot, spoke."""
_NOUNS = """
analysis analyses, child children, crisis crises, criterion criteria, diagnosis diagnoses, foot feet, goose geese,
half halves, hypothesis hypotheses, index indices, knife knives, loaf loaves, man men, matrix matrices, mouse mice,
phenomenon phenomena, shelf shelves, thesis theses, thief thieves, tooth teeth, vertex vertices, wife wives,
wolf wolves, woman women
"""
_ALIKE = """
analog analogue, catalog catalogue, center centre, defense defence, dialog dialogue, fiber fibre,
gray grey, license licence, liter litre, meter metre, offense offence, plow plough, practice practise,
program programme, pajamas pyjamas, skeptical sceptical, theater theatre, tire tyre
"""


def _read(table: str, ending: str = "") -> Iterator[tuple[str, str]]:
    for each in table.split(","):
        first, *others = each.split()
        yield from ((form + ending, first + ending) for form in others)


FORMS = dict([*_read(_VERBS), *_read(_NOUNS), *_read(_ALIKE), *_read(_ALIKE, "s")])
"""Each with the one that stands for it."""
_OR = re.compile(
    r"(?<=col)our|(?<=behavi)our|(?<=fav)our|(?<=flav)our|(?<=hon)our|(?<=lab)our|(?<=neighb)our"
    r"|(?<=rum)our|(?<=harb)our|(?<=^hum)our|(?<=vap)our|(?<=^arm)our|(?<=^od)our|(?<=^tum)our"
)
_IZE = re.compile(r"(?<=[a-z]{3})iz(?=(?:es?|ed|ers?|ing|ations?|able)$)")
"""Before endings only, and after three letters: `size` and `prize` are no spellings of others."""


def one_form(word: str) -> str:
    """The word that stands for this one and for all its forms; most words are their own."""
    if first := FORMS.get(word.removesuffix("'s")):
        return first
    if "our" in word:
        return _OR.sub("or", word)
    return _IZE.sub("is", word) if "iz" in word else word


def beginnings(start: str) -> list[str]:
    """How words may begin in a text whose one form begins so; some that do are other words."""
    others = (form for form, first in FORMS.items() if first.startswith(start))
    return [start, start.replace("or", "our"), start.replace("is", "iz"), *others]
