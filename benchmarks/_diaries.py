"""Generate diaries and minutes of near-duplicate entries, and queries that one entry answers by a rare word."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from typing import NamedTuple

FIRST, DAYS, WEEKS = date(2024, 1, 1), 600, 200


class Fact(NamedTuple):
    """An event of one day: a sentence with a rare word, and queries about it."""

    sentence: str
    rare: Sequence[str]
    """Each on one day only."""
    common: Sequence[str]
    """Words in its place on other days, repeatedly."""
    never: Sequence[str]
    """Words that occur on no day."""
    questions: Sequence[str]
    """Short ones and long ones; a long one has words that every day has."""


class LabelledQuery(NamedTuple):
    """A query and the sentence that answers it; no other day has its rare word."""

    text: str
    answer: str
    """Empty where it never happened."""


class Entry(NamedTuple):
    """One day or one meeting."""

    day: date
    lines: Sequence[str]
    """Markdown with headings of the second level and below."""


Written = Callable[[date, Sequence[str], random.Random], list[str]]
"""Write the entry of a day with these sentences."""

OF_DAYS = (
    Fact(
        "Bought a {} at the flea market.",
        "quince theodolite mandolin samovar hammock kayak accordion typewriter wheelbarrow terrarium "
        "sundial telescope ukulele abacus loom anvil".split(),
        "lamp chair vase clock mirror basket".split(),
        "trombone lawnmower chessboard sewing-machine aquarium".split(),
        (
            "{} bought",
            "when did I buy the {}",
            "where was the {} from that I bought",
            "on which day did I go to the market and buy a {}",
            "what did I cook in the evening after I had bought the {}",
            "was it the day of the pancakes with the neighbours that I bought the {}",
        ),
    ),
    Fact(
        "Met {} in the street and had a coffee together.",
        "Xaver Ottilie Ragnhild Bartholomew Ysolde Tancred Philippa Casimir Leocadia Anselm Dorothea "
        "Hieronymus Quentin Zenobia Wolfram".split(),
        "Clara David Emma Frank Helen Martin".split(),
        "Gwendolyn Thaddeus Ulrike Octavian Beatrix".split(),
        (
            "meeting {}",
            "coffee with {}",
            "when did I meet {} in the street",
            "what was the weather like on the day I met {}",
            "did I go for a run in the morning before I met {}",
            "did I meet {} before or after I saw the swan by the river",
        ),
    ),
    Fact(
        "The plumber came and repaired the {}.",
        "gutter radiator dishwasher doorbell thermostat letterbox chandelier skylight bidet downpipe "
        "cistern fireplace greenhouse pergola".split(),
        "tap sink shower boiler".split(),
        "gate freezer awning drawbridge carport".split(),
        (
            "{} repaired",
            "when was the {} mended",
            "who came to repair the {} in the house",
            "what else did I do at work when the plumber came for the {}",
            "had I booked the train to Paris when the {} was repaired by somebody",
        ),
    ),
    Fact(
        "Booked the train to {} for the holidays.",
        "Trondheim Ljubljana Ghent Tartu Lecce Bilbao Gdansk Utrecht Salzburg Avignon Porto Odense "
        "Uppsala Bergamo".split(),
        "Paris London Berlin Vienna".split(),
        "Reykjavik Seville Tallinn Cork".split(),
        (
            "train to {}",
            "when did I book the tickets to {}",
            "on what day of the week did I book the train to {} for us",
            "how tired was I in the evening when I booked the holidays in {}",
            "did I book {} on the day that I met Helen and had a coffee",
        ),
    ),
    Fact(
        "Saw a {} by the river.",
        "heron kingfisher badger otter cormorant hedgehog stork beaver woodpecker osprey dragonfly "
        "salamander buzzard goldfinch".split(),
        "duck swan dog cat".split(),
        "pelican weasel flamingo toad".split(),
        (
            "{} river",
            "where did I see the {}",
            "which morning did I see a {} while running along the river",
            "what did I have for breakfast on the day that I saw the {}",
            "did I buy a lamp at the market when I saw the {}",
        ),
    ),
    Fact(
        "Cooked {} for the neighbours.",
        "ratatouille borscht paella goulash moussaka risotto shakshuka gazpacho fondue ceviche "
        "jambalaya bouillabaisse gnocchi tiramisu".split(),
        "pancakes lasagne curry dumplings".split(),
        "sushi schnitzel haggis couscous".split(),
        (
            "{} neighbours",
            "who came for the {}",
            "when did I cook {} for the people next door",
            "how late did I go to bed after cooking {} for the neighbours",
            "was the cough better when we had {} together with the people next door",
        ),
    ),
    Fact(
        "Dentist and doctor: the {} is better now.",
        "molar tendon sinusitis migraine bursitis eczema tinnitus conjunctivitis sciatica tonsillitis "
        "shingles laryngitis".split(),
        "back knee cold cough".split(),
        "appendix gout measles asthma".split(),
        (
            "{} better",
            "what did the doctor say about the {}",
            "when did I hear that my {} was getting better",
            "who did I have lunch with at work when the {} got better",
            "had the plumber repaired the boiler when the {} got better",
        ),
    ),
)

OF_MEETINGS = (
    Fact(
        "Decided to buy a {} for the office.",
        "defibrillator projector shredder laminator franking-machine humidifier whiteboard plotter "
        "turnstile bookcase gong aquarium".split(),
        "printer monitor desk headset".split(),
        "forklift piano treadmill".split(),
        (
            "{} decision",
            "when did we decide to buy the {}",
            "in which weekly meeting was it decided that the office gets a {}",
            "did we decide on the {} when the network had failed on Sunday",
        ),
    ),
    Fact(
        "{} asked for an offer until the end of the quarter.",
        "Siemens Bosch Heineken Lufthansa Maersk Nestle Ferrari Lidl Philips Swarovski Lego "
        "Michelin".split(),
        "Acme Initech Globex Umbrella".split(),
        "Volvo Danone Spotify".split(),
        (
            "offer for {}",
            "who is to write the offer that {} asked for",
            "what was on the agenda of the weekly when {} asked us for an offer",
        ),
    ),
    Fact(
        "Incident: the {} failed on Sunday and was restarted.",
        "kafka redis postgres nginx keycloak grafana jenkins rabbitmq vault haproxy minio "
        "elasticsearch".split(),
        "mail backup network website".split(),
        "mongodb tomcat cassandra".split(),
        (
            "{} incident",
            "when did {} fail",
            "who took the minutes when we talked about the {} that failed on Sunday",
        ),
    ),
    Fact(
        "{} joins the team in the new year.",
        "Aurelia Balthasar Cosima Desmond Eulalia Ferdinand Griselda Horatio Ignatius Jolanda "
        "Kunibert Lavinia".split(),
        "Tom Lisa Peter Maria".split(),
        "Sieglinde Theobald Valentina".split(),
        (
            "{} joins",
            "when will {} start to work here",
            "which action items were open in the meeting that said {} joins the team",
        ),
    ),
)


def diary() -> tuple[list[Entry], list[LabelledQuery]]:
    """A day after the other, each with one to three things that happened."""
    chance = random.Random("diary")
    return _told([FIRST + timedelta(at) for at in range(DAYS)], OF_DAYS, _day, chance)


def journal() -> tuple[list[Entry], list[LabelledQuery]]:
    """Return the diary with one paragraph per day."""
    entries, queries = diary()
    plain = [" ".join(line for line in each.lines if line[0] not in "#-") for each in entries]
    return [Entry(each.day, [text]) for each, text in zip(entries, plain, strict=True)], queries


def minutes() -> tuple[list[Entry], list[LabelledQuery]]:
    """A meeting a week."""
    chance = random.Random("minutes")
    return _told([FIRST + timedelta(7 * at) for at in range(WEEKS)], OF_MEETINGS, _meeting, chance)


def _told(
    days: Sequence[date], facts: Sequence[Fact], written: Written, chance: random.Random
) -> tuple[list[Entry], list[LabelledQuery]]:
    rare = [(fact, word, at) for fact in facts for at, word in enumerate(fact.rare)]
    happened = dict(zip(chance.sample(days, len(rare)), rare, strict=True))
    entries, queries = [], []
    for day in days:
        other = chance.sample(facts, chance.randint(1, 3))
        message = [fact.sentence.format(chance.choice(fact.common)) for fact in other]
        if day in happened:
            fact, word, at = happened[day]
            message[0] = fact.sentence.format(word)
            queries.append(
                LabelledQuery(fact.questions[at % len(fact.questions)].format(word), message[0])
            )
        chance.shuffle(message)
        entries.append(Entry(day, written(day, message, chance)))
    for fact in facts:
        queries += [
            LabelledQuery(text.format(word), "")
            for text, word in zip(fact.questions, fact.never, strict=False)
        ]
    return entries, queries


def _day(_: date, message: Sequence[str], chance: random.Random) -> list[str]:
    pick = chance.choice
    people = ("Anna", "Ben", "Carla", "Dirk")
    return [
        f"Mood: {pick(('good', 'tired', 'fine', 'so so'))}. Weather: {pick(('rain', 'sun', 'clouds', 'fog', 'snow'))}, {chance.randint(-5, 30)} degrees.",
        "### Morning",
        f"Got up at {chance.randint(5, 7)}:{chance.randint(10, 59)}. Coffee and {pick(('oats', 'bread', 'eggs'))} for breakfast. "
        f"Ran {chance.randint(3, 9)} km along the river.",
        "### Work",
        f"Stand-up at nine with {pick(people)} and {pick(people)}. Worked on {pick(('the report', 'the billing page', 'the slides', 'old tickets'))}, "
        f"answered mail. Lunch with {pick(people)} in the canteen.",
        "### Evening",
        " ".join(message),
        f"Cooked {pick(('pasta', 'soup', 'rice', 'potatoes'))} for supper. Called {pick(('mum', 'dad'))}. Read for half an hour. "
        f"To bed at {chance.randint(21, 23)}:{chance.randint(10, 59)}.",
        "### Tomorrow",
        f"- [ ] {pick(('water the plants', 'buy milk', 'pay the rent', 'wash clothes'))}\n- [ ] {pick(('write to the bank', 'clean the kitchen', 'call the dentist'))}",
    ]


def _meeting(day: date, message: Sequence[str], chance: random.Random) -> list[str]:
    people = ["Anna", "Ben", "Carla", "Dirk", "Eva", "Farid"]
    there = chance.sample(people, 4)
    return [
        f"Present: {', '.join(there)}. Minutes: {chance.choice(there)}. Room {chance.randint(1, 4)}, ten o'clock.",
        "### Agenda",
        "1. Minutes of last week\n2. Numbers\n3. News\n4. Action items",
        "### Numbers",
        f"Revenue is {chance.choice(('above', 'below', 'on'))} plan, {chance.randint(10, 99)} new customers, {chance.randint(2, 30)} open tickets.",
        "### News",
        "\n".join(f"- {each}" for each in message),
        "### Action items",
        "\n".join(
            f"- [ ] {chance.choice(people)}: {what}"
            for what in chance.sample(
                [
                    "update the roadmap",
                    "write to the customers",
                    "prepare the numbers for next week",
                    "book the room",
                    "clean up the backlog",
                ],
                2,
            )
        ),
        f"Next meeting: {day + timedelta(7)}, same room.",
    ]


def laid_out(entries: Sequence[Entry], by: str) -> Iterator[tuple[str, str]]:
    """Paths and texts, with one file for each `day`, each `month`, or for `all`."""
    pages: dict[str, list[Entry]] = {}
    for entry in entries:
        name = {"day": str(entry.day), "month": f"{entry.day:%Y-%m}", "all": "diary"}[by]
        pages.setdefault(name, []).append(entry)
    for name, own in pages.items():
        parts = [f"# {name}"]
        for entry in own:
            parts += [f"## {entry.day:%Y-%m-%d %A}"] if by != "day" else []
            parts += entry.lines
        yield f"{name}.md", "\n\n".join(parts) + "\n"
