"""Look for words in the spelling of the library as well, and say what a word may have been meant to be."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marklight.answer import Mode, Query
from marklight.ports import Tools
from marklight.search.seams import MOST_LOOKED, Part, apart, in_parts, joints, known, runs, stands
from marklight.search.slips import meant
from marklight.settings import demand_within


@dataclass(frozen=True, slots=True)
class Spelling:
    """`wifi` finds `Wi-Fi`, `e-mail` finds `email`, `drop down` finds `dropdown`; `kuberntes` gets a proposal.

    A question whose words all stand in the library as they are typed is left as it is, and nothing that
    was typed is ever replaced.
    """

    most: int = 3
    """Words that stand nowhere in the library which another spelling, or a word like them, is looked for."""

    def __post_init__(self) -> None:
        demand_within("search.spelling", self, most=(0, MOST_LOOKED))

    def __call__(self, query: Query, tools: Tools) -> Query:
        if query.mode not in (Mode.HYBRID, Mode.KEYWORD) or not self.most:
            return query
        typed = runs(query.text)
        together = joints(query.text, typed)
        there = known((each.word for each in (*typed, *together)), tools.snapshot)
        written = {
            each: each.word
            for each in apart(each for each in together if each.word in there)
            if not stands(each, tools.snapshot)
        }
        lacking = apart([*written, *(each for each in typed if each.word not in there)])
        for each in lacking[len(written) :][: self.most]:
            if other := in_parts(each.word, tools.snapshot):
                written[each] = other
            elif each.plain and (word := meant(each.word, tools.snapshot)):
                tools.notify(f'no passage has "{each.text}"; did you mean "{word}"?')
        return _respelled(query, written)


def _respelled(query: Query, written: dict[Part, str]) -> Query:
    if not written:
        return query
    text = query.text
    for each in sorted(written, reverse=True):  # from the end, so that places stay what they are
        text = text[: each.start] + written[each] + text[each.end :]
    return replace(
        query, corrected_text=text, corrected_terms=tuple(dict.fromkeys(written.values()))
    )
