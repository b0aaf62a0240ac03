"""Write a templated Obsidian vault of 400 notes: six templates, frontmatter, comments, links, footers that all notes share.

Written independently of the search engine, by somebody who did not see it, and kept as it was written; only the word lists were moved to
`questions/vault-words.json`. The same seed gives the same notes. The owner runs a small cultural centre, cooks, reads and keeps a diary.
"""

# fmt: off
# ruff: noqa
# mypy: ignore-errors
from __future__ import annotations

import datetime
import json
import random
from pathlib import Path


def _tuples(value):
    if isinstance(value, dict):
        return {key: _tuples(each) for key, each in value.items()}
    return [tuple(each) if isinstance(each, list) else each for each in value] if isinstance(value, list) else value


_WORDS = json.loads((Path(__file__).parent / "questions" / "vault-words.json").read_text("utf-8"))
globals().update({name: _tuples(value) for name, value in _WORDS.items()})


def spoken(d):
    return f"{d.day} {MONTHS[d.month - 1]} {d.year}"


class Vault:
    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.notes: dict[str, dict] = {}       # path -> {"title", "template", "text", "lines"}
        self.facts = []       # (relation, key, path, sentence, extra)
        self.used_titles = set()
        self.bags = {}

    def deal(self, name, items):
        """Draw from a shuffled bag, refilled when empty: values spread evenly and repeat as late as possible."""
        bag = self.bags.setdefault(name, [])
        if not bag:
            bag.extend(items)
            self.r.shuffle(bag)
        return bag.pop()

    def day(self, start=(2022, 1, 3), span=1200):
        return datetime.date(*start) + datetime.timedelta(self.r.randrange(span))

    def name(self, person):
        return self.r.choice([person, f"[[{person}]]", f"[[{person}]]", f"[[{person}|{person.split()[0]}]]" if self.r.random() < .5 else person])

    def filler(self, template, count, avoid=()):
        out, drawn = [], set()
        for _ in range(count + self.r.choice([0, 0, 0, 0, 3, 6])):
            s = self.deal("fill-" + template, FILL[template])
            if s in drawn:
                continue
            drawn.add(s)
            ps = [p for p in self.r.sample(PERSONS, 6) if p not in avoid]
            s = s.replace("{p2}", ps[1]).replace("{p}", self.name(ps[0])).replace("{c}", self.r.choice(COMPANIES)).replace("{t}", self.r.choice(TOWNS))
            out.append(s)
        return out

    def body(self, facts, fillers):
        """Facts at varying places among the fillers, in one to three paragraphs or a list."""
        parts = list(fillers)
        for f in facts:
            parts.insert(self.r.randrange(len(parts) + 1), f)
        style = self.r.random()
        if style < .2:
            return "\n".join("- " + p for p in parts)
        if style < .6 or len(parts) < 4:
            return " ".join(parts)
        cut = self.r.randrange(2, len(parts) - 1)
        return " ".join(parts[:cut]) + "\n\n" + " ".join(parts[cut:])

    # --- the furniture that all notes of a template share

    def front(self, template, day, tags, aliases=(), extra=()):
        r = self.r
        key = lambda k: k if r.random() < .75 else k.capitalize() if r.random() < .8 else k.upper()
        lines = ["---"]
        if r.random() < .5:
            lines.append(f"{key('tags')}: [{', '.join(tags)}]")
        else:
            lines += [f"{key('tags')}:"] + [f"  - {t}" for t in tags]
        lines.append(f"{key(r.choice(['date', 'created', 'date']))}: {day.isoformat()}")
        if aliases:
            lines.append(f"{key('aliases')}: [{', '.join(chr(34) + a + chr(34) for a in aliases)}]")
        elif r.random() < .4:
            lines.append(f"{key('aliases')}: []")
        lines += [f"{key(k)}: {v}" for k, v in extra]
        lines += [f"template: {template}-v{r.choice([2, 2, 3])}", f"publish: {r.choice(['false', 'false', 'true'])}", "---"]
        return "\n".join(lines)

    def footer(self, template, day):
        r = self.r
        nav = {"meeting": "[[Meetings]]", "book": "[[Library]]", "person": "[[People]]", "project": "[[Projects]]", "recipe": "[[Recipes]]", "daily": "[[Journal]]"}[template]
        review = day + datetime.timedelta(r.randrange(3, 200))
        return "\n".join(["---", f"Back to [[Home]] | [[Index]] | {nav} | [[Templates/{template.capitalize()} template|Template]]", "",
                          f"*Last reviewed: {review.isoformat()}*  ", "*Private notes. Text under CC BY-NC 4.0 unless stated otherwise.*"])

    def save(self, template, folder, title, text, facts):
        path = f"{folder}/{title}.md"
        assert path not in self.notes, path
        self.notes[path] = {"title": title, "template": template, "text": text, "lines": facts}
        return path

    # --- the six templates

    def meeting(self, i, subject, relation):
        r, day = self.r, self.day()
        title, np, para = subject
        p1, p2, p3 = r.sample(PERSONS, 3)
        when = day + datetime.timedelta(r.randrange(20, 150))
        amount = r.randrange(3, 92) * 100 + r.choice([0, 20, 50, 80])
        company = self.deal("company", COMPANIES)
        reason = self.deal("reason-soft", REASONS[:-HARD_REASONS]) if title in NO_SITE else self.deal("reason", REASONS)
        cap = np[0].upper() + np[1:]
        money = f"{amount:,}"
        fact = {
            "budget": r.choice([f"We agreed to cap {np} at {money} euros, tax included.", f"No more than {money} euros may go into {np}, and that is final.",
                                f"For {np} there are {money} euros in the plan, with nothing in reserve."]),
            "owner": r.choice([f"{self.name(p1)} takes over {np} from {p2} at once.", f"From now on {self.name(p1)} looks after {np}, because {p2} has too much on the plate.",
                               f"{self.name(p1)} volunteered for {np} before anybody could ask."]),
            "moved": r.choice([f"{cap} moves to {spoken(when)} because {reason}.", f"Since {reason}, {np} will have to wait until {spoken(when)}.",
                               f"We put off {np} until {spoken(when)}: {reason}."]),
            "vendor": r.choice([f"{company} gets the order for {np}, the others never replied.", f"The offer from {company} for {np} was the only one that came in on time.",
                                f"Three votes to one, {np} goes to {company}."]),
        }[relation]
        name = f"{day.isoformat()} {title}"
        body = self.body([fact], self.filler("meeting", r.randrange(2, 6), (p1, p2)))
        head = r.choice(["## Discussion", "## Notes", "## Discussion"])
        text = "\n\n".join([
            self.front("meeting", day, ["meeting", r.choice(["work", "centre", "board"])], [title] if r.random() < .4 else [], [("attendees", len({p1, p2, p3})), ("status", r.choice(["done", "open", "minutes sent"]))]),
            f"# {name}" if r.random() < .6 else f"# {title}",
            "## Attendees\n%% Link every person, one per line. Guests in italics. %%\n" + "\n".join(f"- [[{p}]]" for p in (p1, p2, p3)),
            "## Agenda\n%% Copy the agenda from the invitation. Delete what was not discussed. %%\n1. Minutes of the last meeting\n2. " + title + "\n3. Any other business",
            head + "\n%% Write full sentences, the others read this too. %%\n\n" + body,
            r.choice(["> [!todo] Action items\n> Every action needs a name and a date.", "> [!info] Decisions\n> Only what was actually decided, no wishes."]) if r.random() < .8 else "",
            "## Action items\n- [ ] Send minutes\n- [ ] Update project page\n- [ ] \n- [ ] ",
            "```dataview\nTABLE status, date FROM #meeting\nWHERE contains(file.outlinks, this.file.link)\nSORT date DESC\n```",
            self.footer("meeting", day)]).replace("\n\n\n\n", "\n\n")
        path = self.save("meeting", "Meetings", name, text, body.replace("\n- ", "\n").split("\n"))
        self.facts.append((relation, title, path, fact, dict(np=np, para=para, p=p1, when=when, company=company)))

    def book(self, i, title, author, topic):
        r, day = self.r, self.day()
        person = r.choice(PERSONS)
        idea, para = self.deal("idea", IDEAS)
        page = r.randrange(20, 340)
        town = self.deal("town", TOWNS)
        occasion = r.choice(["after a long dinner", "on the platform", "with a stern look", "when I had the flu", "as a birthday present", "and wanted it back within a month"])
        f_idea = r.choice([f"The part that stayed with me says that {idea}.", f"On page {page} there is the claim that {idea}.", f"The whole book could be boiled down to this: {idea}."])
        f_rec = r.choice([f"{self.name(person)} pressed it on me {occasion}.", f"I have it from {self.name(person)}, {occasion}.", f"A tip from {self.name(person)}, {occasion}."])
        f_buy = r.choice([f"Found in a second-hand shop in {town} for {r.randrange(2, 15)} euros.", f"My copy is from the stall behind the station in {town}."])
        body = self.body([f_idea, f_rec] + ([f_buy] if r.random() < .5 else []), self.filler("book", r.randrange(1, 5), (person,)))
        text = "\n\n".join([
            self.front("book", day, ["book", topic[0].replace(" ", "-")], [f"{title} ({author.split()[-1]})"], [("author", author), ("rating", r.choice(["", "3/5", "4/5", "5/5"])), ("status", r.choice(["read", "reading", "read"]))]),
            f"# {title}", f"**{author}** · {r.randrange(1962, 2024)} · topic: {topic[0]}",
            "## Summary in three sentences\n%% Write this from memory, one day after finishing. %%\n",
            "## What I take away\n%% Own words only. Quotes go below. %%\n\n" + body,
            "> [!quote] Quotes\n> " + r.choice(["", "(none yet)", "See the pencil marks in the copy."]),
            "## Follow up\n- [ ] Write summary\n- [ ] Make permanent notes\n- [ ] Lend to \n",
            "```dataview\nLIST FROM #book AND #" + topic[0].replace(" ", "-") + "\nWHERE file.name != this.file.name\n```",
            self.footer("book", day)])
        path = self.save("book", "Library", title, text, body.replace("\n- ", "\n").split("\n"))
        self.facts.append(("idea", title, path, f_idea, dict(para=para, topic=topic, author=author, idea=idea)))
        self.facts.append(("recommended", title, path, f_rec, dict(topic=topic, author=author, p=person)))

    def person(self, i, person):
        r, day = self.r, self.day()
        first = person.split()[0]
        (food, kind), pet, job, met, gift, town = self.deal("food", ALLERGIES), self.deal("pet", PETS), self.deal("job", JOBS), self.deal("met", MET), self.deal("gift", GIFTS), self.deal("town", TOWNS)
        born = datetime.date(r.randrange(1951, 1998), r.randrange(1, 13), r.randrange(1, 29))
        facts = {
            "job": r.choice([f"Works as {job} in {town}.", f"By trade {job}, now in {town}.", f"Earns a living as {job}, mostly around {town}."]),
            "met": r.choice([f"We met {met}.", f"Our paths crossed {met}.", f"First talked to each other {met}."]),
            "birthday": r.choice([f"Birthday on {born.day} {MONTHS[born.month - 1]}, born {born.year}.", f"Born on {spoken(born)}.", f"Turns a year older every {born.day} {MONTHS[born.month - 1]}."]),
        }
        optional = {
            "allergy": r.choice([f"Allergic to {food}, seriously so.", f"Gets a rash from {food}.", f"Cannot stand even a trace of {food}, has a pen for emergencies."]),
            "pet": r.choice([f"Keeps {pet}.", f"Lives with {pet}.", f"At home there is {pet}."]),
            "gift": r.choice([f"Would be happy about {gift}.", f"For Christmas: {gift}.", f"Once hinted at {gift}."]),
        }
        for k in r.sample(sorted(optional), 2):
            facts[k] = optional[k]
        body = self.body(list(facts.values()), self.filler("person", r.randrange(1, 4), (person,)))
        text = "\n\n".join([
            self.front("person", day, ["person", r.choice(["friend", "work", "choir", "neighbour"])], [first, f"{first} {person.split()[-1][0]}."], [("phone", ""), ("email", f"{first.lower()}@example.org" if r.random() < .6 else "")]),
            f"# {person}", "## Contact\n%% Phone and mail go into the properties, postal address here. %%\n",
            r.choice(["## About", "## Who is this", "## About"]) + "\n\n" + body,
            "## Keep in touch\n- [ ] Call this quarter\n- [ ] Card at the end of the year\n- [ ] ",
            "> [!tip] Before a meeting\n> Read the last three entries below." if r.random() < .7 else "> [!note]- Family\n> ",
            "## Mentions\n```dataview\nTABLE date FROM [[]]\nSORT date DESC\nLIMIT 10\n```",
            self.footer("person", day)])
        path = self.save("person", "People", person, text, body.replace("\n- ", "\n").split("\n"))
        for k, s in facts.items():
            self.facts.append((k, person, path, s, dict(first=first, kind=kind, born=born)))

    def project(self, i, subject):
        r, day = self.r, self.day()
        title, np, para = subject
        p = self.r.choice(PERSONS)
        soft = title in NO_SITE
        thing = self.deal("thing-soft", THINGS_SOFT) if soft else self.deal("thing", THINGS)
        done = self.deal("done-soft", DONE[:-4]) if soft else self.deal("done", DONE)
        due = day + datetime.timedelta(r.randrange(60, 400))
        f_block = r.choice([f"Nothing moves until {self.name(p)} comes up with {thing}.", f"Stuck for now: {self.name(p)} still owes us {thing}.", f"What is missing is {thing}, and {self.name(p)} is on it."])
        f_due = r.choice([f"Everything has to be ready by {spoken(due)}.", f"The date that counts is {spoken(due)}.", f"We told the board {spoken(due)}, so that is the deadline."])
        f_done = r.choice([f"It is finished when {done}.", f"We can close this once {done}.", f"Definition of done: {done}."])
        body = self.body([f_block, f_due, f_done], self.filler("project", r.randrange(1, 4), (p,)))
        text = "\n\n".join([
            self.front("project", day, ["project", r.choice(["active", "someday", "waiting"])], [np.replace("the ", "").capitalize()], [("status", r.choice(["active", "on hold", "waiting"])), ("due", due.isoformat()), ("area", r.choice(["house", "programme", "office"]))]),
            f"# {title}", "> [!abstract] Why\n> %% One sentence: who is better off when this is done? %%",
            "## Goal\n%% Describe the end, not the way. %%\n", r.choice(["## State of things", "## Where we are", "## State of things"]) + "\n\n" + body,
            "## Milestones\n- [ ] Kick-off\n- [ ] First draft\n- [ ] Approval\n- [ ] Handover",
            "## Risks\n| Risk | Likelihood | Plan |\n| --- | --- | --- |\n|  |  |  |",
            "## Open tasks\n```dataview\nTASK FROM #meeting\nWHERE !completed AND contains(text, this.file.name)\n```",
            self.footer("project", day)])
        path = self.save("project", "Projects", title, text, body.replace("\n- ", "\n").split("\n"))
        extra = dict(np=np, para=para, p=p, when=due)
        self.facts += [("blocked", title, path, f_block, extra), ("due", title, path, f_due, extra), ("done", title, path, f_done, extra)]

    def recipe(self, i, main, form):
        r, day = self.r, self.day()
        adj = r.choice(["", "Winter ", "Quick ", "Sunday ", "Old-fashioned ", ""])
        title = f"{adj}{main} {form}".capitalize()
        p = r.choice(PERSONS)
        baked = form in {"tart", "gratin", "pie", "cake"}
        fits = {"o": baked, "p": form in {"soup", "stew", "curry"}, "c": form in {"salad", "pickle"}}
        kind = next(k for k in "opc" if fits[k]) if any(fits.values()) else "p"
        trick, para, _ = self.deal("trick-" + kind, [t for t in TRICKS if kind in t[2]])
        heat, mins = r.choice([160, 170, 180, 190, 200, 220]), r.choice([12, 18, 25, 35, 40, 55, 75, 90])
        second = r.choice(["thyme", "bay leaves", "smoked paprika", "nutmeg", "cardamom", "dill", "juniper", "ginger"])
        oven = form in {"tart", "gratin", "pie", "cake"}
        f_heat = (r.choice([f"Bake at {heat} degrees for {mins} minutes.", f"Oven at {heat}, middle shelf, {mins} minutes.", f"It takes {mins} minutes at {heat} degrees."]) if oven else
                  r.choice([f"Let it simmer for {mins} minutes with the lid half on.", f"{mins} minutes on the small flame are enough.", f"Give it {mins} minutes and do not look under the lid."])) if form not in {"salad", "pickle"} else f"Leave it in the cold pantry for {r.choice([2, 3, 5, 8])} {'hours' if form == 'salad' else 'weeks'} before serving."
        f_from = r.choice([f"From the grandmother of {self.name(p)}, who wrote it on a tram ticket.", f"{self.name(p)} dictated it to me over the phone.", f"Copied from a card in the kitchen of {self.name(p)}."])
        f_trick = r.choice([f"The trick: {trick}.", f"Important: {trick}.", f"What I learned the hard way: {trick}."])
        body = self.body([f_heat, f_from, f_trick], self.filler("recipe", r.randrange(1, 4), (p,)))
        qty = r.choice([200, 300, 400, 500, 750])
        text = "\n\n".join([
            self.front("recipe", day, ["recipe", "sweet" if main in SWEET or form == "cake" else "savoury"], [f"{main} {form}"] if adj else [], [("servings", r.choice([2, 4, 6])), ("cooked", r.choice([0, 1, 3, 7]))]),
            f"# {title}", "## Ingredients\n%% Grams, not cups. Order of use. %%\n" + f"- {qty} g {main}\n- {second}\n- salt, pepper\n- ",
            r.choice(["## Method", "## How to", "## Method"]) + "\n%% Number the steps only if the order matters. %%\n\n" + body,
            "> [!warning] Allergens\n> %% Check the list under [[People]] before serving to guests. %%",
            "## Next time\n- [ ] Cook once as written\n- [ ] Take a photo\n- [ ] Rate",
            "```dataview\nTABLE servings, cooked FROM #recipe\nWHERE cooked > 2\nSORT cooked DESC\n```",
            self.footer("recipe", day)])
        path = self.save("recipe", "Recipes", title, text, body.replace("\n- ", "\n").split("\n"))
        extra = dict(dish=f"{main} {form}", main=main, para=para, p=p, oven=oven, form=form)
        self.facts += [("heat", title, path, f_heat, extra), ("origin", title, path, f_from, extra), ("trick", title, path, f_trick, extra)]

    def daily(self, i, day, event):
        r = self.r
        facts, meet = [], None
        if event:
            with_p = r.choice(PERSONS)
            tail = r.choice(["", "", f" {self.name(with_p)} saw it too.", f" Told {self.name(with_p)} on the phone.", " Wrote it down at once."])
            sentence = event[0] + "."
            facts.append(sentence + tail)
        else:
            subject, p = self.deal("daily-subject", SUBJECTS), r.choice(PERSONS)
            sentence = r.choice([f"Sat with {self.name(p)} until late over {subject[1]}.", f"An hour with {self.name(p)} about {subject[1]}, and no result.", f"{self.name(p)} rang because of {subject[1]}."])
            facts.append(sentence)
            meet = (subject, p)
        body = self.body(facts, self.filler("daily", r.randrange(2, 6)))
        name = day.isoformat()
        text = "\n\n".join([
            self.front("daily", day, ["daily"], [f"{day:%A} {day.day} {MONTHS[day.month - 1]}"] if r.random() < .4 else [], [("mood", r.choice(["", "+", "++", "-"])), ("weather", r.choice(["", "rain", "clear", "fog", "wind"]))]),
            f"# {day:%A}, {spoken(day)}" if r.random() < .7 else f"# {name}",
            f"<< [[{(day - datetime.timedelta(1)).isoformat()}]] | [[{(day + datetime.timedelta(1)).isoformat()}]] >>",
            "## Plan\n%% Three things, not more. %%\n- [ ] \n- [ ] \n- [ ] ",
            r.choice(["## Log", "## What happened", "## Log"]) + "\n%% Facts first, feelings later. %%\n\n" + body,
            "## Habits\n- [ ] Stretching\n- [ ] No screen after nine\n- [ ] Ten minutes of cello",
            "> [!question] Gratitude\n> %% One line. %%" if r.random() < .8 else "",
            f"```dataview\nLIST WHERE file.cday = date({name})\n```", self.footer("daily", day)]).replace("\n\n\n\n", "\n\n")
        path = self.save("daily", "Journal", name, text, body.replace("\n- ", "\n").split("\n"))
        if event:
            self.facts.append(("event", event[0], path, sentence, dict(para=event[1], words=event[2], day=day)))
        else:
            self.facts.append(("talk", meet[0][0], path, sentence, dict(np=meet[0][1], para=meet[0][2], p=meet[1], day=day)))

    def build(self) -> None:
        r = self.r
        rels = lambda s: ["owner", "moved"] + (["vendor"] if s[0] not in SOFT else []) + (["budget"] if s[0] not in FREE else [])
        pairs = [(s, rel) for s in SUBJECTS for rel in rels(s)]
        # every subject once, some twice or three times, never the same relation of the same subject twice
        first = [(s, r.choice(rels(s))) for s in SUBJECTS]
        rest = [p for p in pairs if p not in first]
        r.shuffle(rest)
        have = lambda rel: sum(1 for p in first if p[1] == rel)
        rest.sort(key=lambda p: have(p[1]) > 12)  # relations that are rare so far first
        for i, (s, rel) in enumerate(first + rest[:20]):
            self.meeting(i, s, rel)
        titles = [f"The {a} {b}" for a in BOOK_A for b in BOOK_B]
        r.shuffle(titles)
        for i in range(70):
            self.book(i, titles[i], r.choice(AUTHORS), TOPICS[i % len(TOPICS)])
        for i, p in enumerate(PERSONS):
            self.person(i, p)
        for i, s in enumerate(SUBJECTS):
            self.project(i, s)
        dishes = [(m, f) for m in MAINS for f in FORMS if not (m in SWEET and f in {"soup", "stew", "curry", "gratin"}) and not (m not in SWEET and f == "cake") and not (m == "trout" and f in {"cake", "pickle"})]
        r.shuffle(dishes)
        for i, (m, f) in enumerate(dishes[:60]):
            self.recipe(i, m, f)
        free = [datetime.date(2022, 1, 3) + datetime.timedelta(d) for d in range(1200)]
        r.shuffle(free)
        events = list(EVENTS) + [None] * (78 - len(EVENTS))
        r.shuffle(events)
        for i, e in enumerate(events):
            months = next((m for k, m in SEASON.items() if e and k in e[0]), range(1, 13))
            day = next(d for d in free if d.month in months)
            free.remove(day)
            self.daily(i, day, e)
        areas = "\n".join(f"- [[{a}]]" for a in ("Meetings", "Library", "People", "Projects", "Recipes", "Journal"))
        self.notes["Home.md"] = {"title": "Home", "template": "", "lines": [], "text": "---\ntags: [moc]\ncssclasses: dashboard\n---\n\n# Home\n\n" + areas + "\n\n```dataview\nTABLE status FROM #project\nWHERE status = \"active\"\n```\n\n> [!info] Inbox\n> Empty it on Sundays."}
        self.notes["Index.md"] = {"title": "Index", "template": "", "lines": [], "text": "---\nTags: [moc]\n---\n\n# Index\n\nBack to [[Home]]\n\n## Projects\n" + "\n".join(f"- [[{s[0]}]]" for s in SUBJECTS) + "\n\n## People\n" + "\n".join(f"- [[{p}]]" for p in PERSONS)}
        assert len(self.notes) == 400, len(self.notes)
