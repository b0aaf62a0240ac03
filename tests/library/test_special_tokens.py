"""Tokens with punctuation: each finds the document that contains it, and not a similar one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.library.conftest import paths
from tests.making import library, write

PAGES = {
    "cpp.md": "Templates in C++ are expanded by the compiler.\n",
    "c.md": "Pointers in C are numbers.\n",
    "csharp.md": "Properties in C# have getters.\n",
    "dotnet.md": "Assemblies of .NET hold metadata.\n",
    "net.md": "The net of the fisherman is torn.\n",
    "node.md": "Event loops of Node.js run callbacks.\n",
    "hyphen.md": "A state-of-the-art well-known port.\n",
    "slash.md": "Send requests to /api/v2/users over TCP/IP.\n",
    "quoted.md": 'The server said "connection refused" and then nothing.\n',
    "refused.md": "They refused. A connection was lost later.\n",
    "chinese.md": "数据库连接失败时请检查网络设置。\n",
    "japanese.md": "データベースに接続できません。\n",
    "korean.md": "데이터베이스 연결 오류\n",
    "cafe.md": "Un café crème, s'il vous plaît.\n",
    "code.md": "Look here:\n\n```python\ndef get_user_by_id(user_id):\n    return parse_json_data(user_id)\n```\n",
    "other.md": "Look there:\n\n```python\ndef draw_circle(radius):\n    return radius\n```\n",
    "vector.md": "Like so:\n\n```cpp\nstd::vector<int> myVar123;\nthrow HTTPResponseError();\n```\n",
}


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("C++", "cpp.md"),
        ("c++ templates", "cpp.md"),
        ("C#", "csharp.md"),
        (".NET", "dotnet.md"),
        ("net", "net.md"),
        ("Node.js", "node.md"),
        ("node js", "node.md"),
        ("state-of-the-art", "hyphen.md"),
        ("well known", "hyphen.md"),
        ("/api/v2/users", "slash.md"),
        ("TCP/IP", "slash.md"),
        ('"connection refused"', "quoted.md"),
        ("数据库", "chinese.md"),
        ("接続", "japanese.md"),
        ("데이터베이스", "korean.md"),
        ("cafe creme", "cafe.md"),
        ("CAFÉ", "cafe.md"),
        ("expanding template", "cpp.md"),
    ],
)
def test_punctuation_is_part_of_a_token(
    tmp_path: Path, engine: str, question: str, path: str
) -> None:
    write(tmp_path / "docs", PAGES)
    with library(tmp_path / "docs", engine=engine) as lib:
        lib.index()
        assert paths(lib.search(question, mode="keyword"))[0] == path


@pytest.mark.parametrize(
    ("question", "path"),
    [
        ("getUserById", "code.md"),
        ("get_user_by_id", "code.md"),
        ("parseJsonData", "code.md"),
        ("user json", "code.md"),
        ("std::vector", "vector.md"),
        ("HTTPResponseError", "vector.md"),
        ("http_response_error", "vector.md"),
        ("myVar123", "vector.md"),
        ("drawCircle", "other.md"),
    ],
)
def test_identifiers_are_found_whole_and_by_their_parts(
    tmp_path: Path, engine: str, question: str, path: str
) -> None:
    write(tmp_path / "docs", PAGES)
    with library(tmp_path / "docs", engine=engine) as lib:
        lib.index()
        assert paths(lib.search(question, mode="code"))[0] == path


@pytest.mark.parametrize(
    "fields",
    [
        ("title: quokka", "keywords: [quokka]"),
        ("title: quokka", "description: quokka"),
        ("keywords: [quokka]", "author: quokka"),
        ("description: quokka", "author: quokka"),
        ("tags: [quokka]", "aliases: [quokka]"),
        ("aliases: [quokka]", "author: quokka"),
    ],
)
def test_the_field_with_the_higher_boost_ranks_first(
    tmp_path: Path, engine: str, fields: tuple[str, str]
) -> None:
    stronger, weaker = fields
    # Names of one word each: `a` alone is a stop word, which leaves a shorter text.
    write(
        tmp_path / "docs",
        {
            "two.md": f"---\n{stronger}\n---\n\nWombats dig burrows nightly.\n",
            "one.md": f"---\n{weaker}\n---\n\nParrots sing ballads daily.\n",
        },
    )
    with library(tmp_path / "docs", engine=engine) as lib:
        lib.index()
        answer = lib.search(
            "quokka",
            mode="keyword",
            min_confidence=0.0,
            settings={"search": {"skip": ["exact_title"]}},
        )
        assert paths(answer) == ["two.md", "one.md"]


@pytest.mark.parametrize("field", ["title", "keywords", "description", "tags", "aliases"])
def test_every_boosted_field_ranks_before_the_text(tmp_path: Path, engine: str, field: str) -> None:
    text = "quokka" if field in ("title", "description") else "[quokka]"
    write(
        tmp_path / "docs",
        {
            "two.md": f"---\n{field}: {text}\n---\n\nWombats dig burrows nightly.\n",
            "one.md": "Quokkas sing ballads rather nightly.\n",
        },
    )
    with library(tmp_path / "docs", engine=engine) as lib:
        lib.index()
        answer = lib.search(
            "quokka",
            mode="keyword",
            min_confidence=0.0,
            settings={"search": {"skip": ["exact_title"]}},
        )
        assert paths(answer) == ["two.md", "one.md"]
