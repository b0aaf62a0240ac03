"""What assistants read about us is true: the skill, the list of our pages, and the page on setting them up."""

from __future__ import annotations

import re

from .examples import ROOT, SKILL
from .llms import BESIDE, DOCS, LLMS, llms
from .reference import PUBLIC_SKILL

RENEW = "run `python -m tests.docs.reference`"


def test_the_skill_in_the_repository_is_the_one_in_the_package() -> None:
    assert PUBLIC_SKILL.read_bytes() == SKILL.read_bytes(), RENEW


def test_the_skill_is_short_and_says_when_to_use_it() -> None:
    lines = SKILL.read_text().splitlines()
    assert len(lines) < 120
    assert lines[0] == lines[3] == "---"
    name, description = (line.partition(": ") for line in lines[1:3])
    # The form's own limits: agentskills.io/specification.
    assert name[::2] == ("name", PUBLIC_SKILL.parent.name)
    assert description[0] == "description"
    assert 0 < len(description[2]) <= 1024
    assert ": " not in description[2], "YAML would take it for a mapping"


def test_every_page_is_in_the_list_for_assistants_and_every_link_there_exists() -> None:
    text = LLMS.read_text()
    assert text == llms(), RENEW
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)(?:: \S.+)?$", text, re.MULTILINE)
    assert len(links) == len(set(links)) == text.count("\n- ")
    assert all((ROOT / link).is_file() for link in links)
    pages = {page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md")}
    assert set(links) == pages - {"docs/README.md"} | set(BESIDE)


def test_the_list_for_assistants_has_the_form_of_llmstxt_org() -> None:
    first, second, *rest = LLMS.read_text().split("\n\n")
    assert first.startswith("# ")
    assert second.startswith("> ")
    assert rest[::2] == ["## Docs", "## Optional"]
    assert all(line.startswith("- [") for part in rest[1::2] for line in part.strip().split("\n"))
