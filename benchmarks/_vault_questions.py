"""Questions about the notes of `_vault.py`, whose right notes are known by construction.

Written together with the notes, independently of the search engine, and kept as it was written.
"""

# fmt: off
# ruff: noqa
# mypy: ignore-errors
from __future__ import annotations

import re

from benchmarks._vault import PERSONS, TOPICS, Vault


class VaultWithQuestions(Vault):
    """A vault that also has questions: kind, text, and pairs of path and useful sentences."""

    def sentence_with(self, path, needle):
        """The sentence of a note's specific text that has the needle (on one line, so that it can be found again)."""
        for line in self.notes[path]["lines"]:
            line = line[2:] if line.startswith("- ") else line
            for s in re.split(r"(?<=[.?!]) (?=[A-Z\[0-9])", line):
                if needle in s:
                    return s
        return None

    def questions(self) -> list[tuple[str, str, list[tuple[str, list[str]]]]]:
        r, out, asked = self.r, [], set()
        by = {}
        for f in self.facts:
            by.setdefault(f[0], []).append(f)
        for v in by.values():
            r.shuffle(v)

        def ask(kind, text, answers):
            if r.random() < .6:
                text = text.lower()
            if kind == "fact" and r.random() < .3:
                text += "?"
            assert text not in [q[1] for q in out], text
            out.append((kind, text, answers))

        def phrase(rel, kind, forms, count, fits=lambda f: True):
            for n in range(count):
                f = next(g for g in by[rel] if fits(g) and (rel != "idea" or g[4]["para"] not in asked))
                asked.add(f[4].get("para"))
                by[rel].remove(f)
                _, key, path, sentence, x = f
                same = [(path, [sentence])]
                if rel in ("moved", "due"):  # a deadline and a postponement of the same thing both answer "when"
                    same += [(g[2], [g[3]]) for g in self.facts if g[0] in ("moved", "due") and g[1] == key and g[2] != path]
                if rel == "idea":            # some ideas occur in two or three books
                    same += [(g[2], [g[3]]) for g in self.facts if g[0] == "idea" and g[4]["para"] == x["para"] and g[2] != path]
                if rel in ("heat", "origin", "trick"):
                    same += [(g[2], [g[3]]) for g in self.facts if g[0] == rel and g[4]["dish"] == x["dish"] and g[2] != path]
                fill = dict(x, key=key, first=x.get("first", ""))
                if "np" in x:
                    fill["short"] = x["np"].replace("the ", "", 1)
                ask(kind, forms[n % len(forms)].format(**fill), same)

        # fact: 42
        phrase("budget", "fact", ["how much can we spend on {para}", "what are we allowed to pay for {np}", "{para} - what was the limit in euros"], 3)
        phrase("owner", "fact", ["who is responsible for {para}", "whom do I ask about {np} now", "who said they would deal with {para}"], 4)
        phrase("vendor", "fact", ["which firm was chosen for {para}", "who did we hire for {np}", "{para}: who got the job"], 4)
        phrase("blocked", "fact", ["what is holding up {para}", "why is there no progress with {np}", "what do we still need for {para}"], 4)
        phrase("done", "fact", ["how do we know that {np} can be closed", "when can I tick off {para}", "criteria for being through with {short}"], 3)
        phrase("idea", "fact", ["which book was it: {para}", "where did I read about {para}", "the author who wrote on {para}"], 4)
        phrase("recommended", "fact", ["who told me to read {key}", "how did I get to know {key} by {author}", "whose idea was it that I read {key}"], 3)
        phrase("job", "fact", ["what does {key} do for work", "{key}'s profession", "how does {first} make money"], 3)
        phrase("met", "fact", ["how do I know {key}", "where did I get to know {first}", "since when and from where do I know {key}"], 3)
        phrase("allergy", "fact", ["what must I not serve {key}", "which food is bad for {first}", "{key} comes for dinner, anything to avoid"], 3)
        phrase("origin", "fact", ["who gave me the recipe for {dish}", "where is our {dish} from", "whose recipe is the {dish}"], 3)
        phrase("trick", "fact", ["{dish}, {para}", "{para}, for the {dish}", "making {dish}: {para}"], 3)
        phrase("event", "fact", ["{para}", "my diary on this: {para}"], 2, lambda f: not f[4]["para"].startswith("when"))
        # short: 24
        phrase("budget", "short", ["{short} cost", "{short} maximum", "money for {short}"], 3)
        phrase("vendor", "short", ["{short} supplier", "{short} contractor", "{short} firm"], 3)
        phrase("gift", "short", ["{first} present", "gift {key}", "{first} christmas idea"], 3)
        phrase("pet", "short", ["{first} animals", "{key} pet", "{first} pets"], 3)
        phrase("heat", "short", ["{dish} how long", "{dish} time", "{dish} minutes"], 3)
        phrase("event", "short", ["{words}", "{words}", "{words} day"], 6)
        phrase("blocked", "short", ["{short} stuck", "{short} waiting for", "{short} blocker"], 3)
        # date: 20
        phrase("event", "date", ["{para}", "i need the date, {para}", "{para}, which day exactly"], 8, lambda f: f[4]["para"].startswith("when"))
        phrase("birthday", "date", ["when is {key}'s birthday", "{first} date of birth", "which day do we celebrate {first}"], 4)
        phrase("moved", "date", ["{para}: moved to when", "new date for {np}", "until when was {np} postponed"], 4)
        phrase("due", "date", ["deadline {short}", "by when do we need {para}", "{short} due date"], 4)

        # broad: 14, with many answers
        people = sorted(PERSONS, key=lambda p: -sum(1 for n in self.notes if self.sentence_with(n, p)))
        for p, form in zip(people, ["everything about {p}", "what did I do with {p}", "notes that mention {p}", "{p}", "all I have on {p}"]):
            answers = []
            for n in sorted(self.notes):
                found = [x for x in (self.sentence_with(n, p), f"- [[{p}]]" if f"\n- [[{p}]]" in self.notes[n]["text"] and n != "Index.md" else None) if x]
                if found:
                    answers.append((n, found))
            answers += [(f"People/{p}.md", [])]
            ask("broad", form.format(p=p), answers)
        for topic, form in zip(r.sample(TOPICS, 3), ["books on {0}", "what have I read about {1}", "reading list {0}"]):
            answers = [(f[2], [f"topic: {topic[0]}"]) for f in self.facts if f[0] == "idea" and f[4]["topic"] == topic]
            ask("broad", form.format(*topic), answers)
        mains = {}
        for f in self.facts:
            if f[0] == "heat":
                mains.setdefault(f[4]["main"], []).append(f)
        best = sorted(mains, key=lambda m: (-len(mains[m]), m))[:3]
        for m, form in zip(best, ["what can I cook with {m}", "{m} recipes", "dishes that use up {m}"]):
            ask("broad", form.format(m=m), [(f[2], [f" g {m}", f"# {f[1]}"]) for f in mains[m]])
        subj = {}
        for f in self.facts:
            if f[0] in ("budget", "owner", "moved", "vendor", "blocked", "talk"):
                subj.setdefault(f[1], []).append(f)
        best = sorted(subj, key=lambda s: (-len({f[2] for f in subj[s]}), s))[:3]
        for s, form in zip(best, ["all notes on {np}", "history of {np}", "what was said about {np}"]):
            np = subj[s][0][4]["np"]
            seen = {}
            for f in subj[s]:
                seen.setdefault(f[2], []).append(f[3])
            ask("broad", form.format(np=np), [(k, v[:4]) for k, v in sorted(seen.items())])
        for t in """how to reset the router password;pytorch dataloader workers;train from tokyo to osaka;knee surgery recovery time;who won the 1998 world cup;difference between tcp and udp;
mortgage calculator;best laptop for video editing;how many moons has jupiter;visa for vietnam;rust borrow checker error;crypto wallet seed phrase;golf swing for beginners;
how to tie a bow tie;pension contribution limits;football league table;excel vlookup;sourcing parts for a motorcycle carburettor;minecraft redstone door;drone licence exam questions""".replace("\n", "").split(";"):
            out.append(("off-topic", t, []))
        return out
