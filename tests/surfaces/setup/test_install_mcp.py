"""An assistant is set up by one command, and taken out by another."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from marklight.surfaces.setup import config_file
from marklight.surfaces.setup.clients import CLIENTS
from marklight.surfaces.setup.config_file import SKILL
from tests.surfaces.setup.person import Person, values


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_configuration_gets_one(person: Person, client: str) -> None:
    code, out, err = person.types(client)
    assert code == 0, err
    written = person.servers(client)["marklight"]
    assert Path(written["command"]).is_absolute()
    assert written["args"][-2:] == ["mcp", str(person.notes)]
    assert set(written) <= {"type", "command", "args"}
    assert out.count("\n") == 1
    assert str(person.file(client)) in out
    assert CLIENTS[client].next_step in out


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_time_there_is_nothing_to_do(person: Person, client: str) -> None:
    person.types(client)
    before = person.file(client).stat()
    code, out, _ = person.types(client)
    assert code == 0
    assert out.startswith("Nothing to do")
    assert person.file(client).stat() == before
    assert len(list(person.file(client).parent.iterdir())) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_put_in_can_be_taken_out(person: Person, client: str) -> None:
    person.types(client)
    code, out, _ = person.types(client, "--remove")
    assert code == 0
    assert out.startswith("Removed marklight from")
    assert not values(person.file(client)).get(CLIENTS[client].servers)
    code, out, _ = person.types(client, "--remove")
    assert code == 0
    assert out.startswith("Nothing to do")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_prints_what_can_be_pasted_and_writes_nothing(
    person: Person, client: str
) -> None:
    code, out, err = person.types(client, "--dry-run")
    assert code == 0
    assert not person.file(client).exists()
    assert str(person.file(client)) in err
    printed = tomllib.loads(out) if client == "codex" else json.loads(out)
    person.types(client)
    assert printed == values(person.file(client))
    assert person.types(client, "--print")[1] == out
    assert person.types(client, "--remove", "--dry-run")[0] == 0
    assert printed == values(person.file(client))


def test_what_a_person_added_to_our_entry_stays(person: Person) -> None:
    mine = {"command": "old", "args": ["mcp", "/old"], "env": {"A": "1"}, "timeout": 60}
    person.has("cursor", json.dumps({"mcpServers": {"marklight": mine}}))
    _, out, _ = person.types("cursor")
    assert out.startswith("Changed")
    now = person.servers("cursor")["marklight"]
    assert (now["env"], now["timeout"]) == ({"A": "1"}, 60)
    assert now["args"][-1] == str(person.notes)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_entry_that_was_reached_by_an_address_becomes_a_command(
    person: Person, client: str
) -> None:
    address = "http://127.0.0.1:7433/mcp"
    if client == "codex":
        person.has(client, f'[mcp_servers.marklight]\nurl = "{address}"\n')
    else:
        old = {"marklight": {"type": "http", "url": address}}
        person.has(client, json.dumps({CLIENTS[client].servers: old}))
    assert person.types(client)[0] == 0
    assert set(person.servers(client)["marklight"]) <= {"type", "command", "args"}


@pytest.mark.parametrize("client", CLIENTS)
def test_several_libraries_stand_side_by_side_under_their_names(
    person: Person, client: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    person.types(client)
    person.types(client, str(work), "--name", "work")
    servers = person.servers(client)
    assert {name: each["args"][-1] for name, each in servers.items()} == {
        "marklight": str(person.notes),
        "work": str(work),
    }
    person.types(client, "--remove", "--name", "marklight")
    assert set(person.servers(client)) == {"work"}


@pytest.mark.parametrize("client", [name for name, each in CLIENTS.items() if each.project_file])
def test_for_one_project_the_projects_file_is_written(person: Person, client: str) -> None:
    code, _, err = person.types(client, "--project")
    assert code == 0
    assert not err
    file = person.notes / CLIENTS[client].project_file
    assert set(values(file)[CLIENTS[client].servers]) == {"marklight"}
    assert not any(each.is_file() for each in person.home.rglob("*"))
    assert person.types(client, "--project", "--remove")[0] == 0


def test_another_file_can_be_named(person: Person) -> None:
    file = person.home / "Code - Insiders" / "mcp.json"
    assert person.types("vscode", "--file", str(file))[0] == 0
    assert set(values(file)["servers"]) == {"marklight"}


def test_variables_that_move_a_configuration_are_followed(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(person.home / "c"))
    monkeypatch.setenv("CODEX_HOME", str(person.home / "x"))
    person.types("claude-code", "--skill")
    person.types("codex")
    assert {each.relative_to(person.home).as_posix() for each in person.home.rglob("*.*")} == {
        "c/.claude.json",
        "c/skills/marklight/SKILL.md",
        "x/config.toml",
    }


WRONG = {
    "unknown": (["cluade-code"], "Did you mean 'claude-code'?"),
    "in other letters": (["VSCode"], "Did you mean 'vscode'?"),
    "like nothing": (["emacs"], "Known: claude-code, claude-desktop, cursor, vscode, codex"),
    "no projects": (["claude-desktop", "--project"], "Leave out --project"),
    "no skills": (["claude-desktop", "--skill"], "does not read skills"),
    "no folder": (["cursor", "nowhere"], "No such folder: nowhere"),
    "a file": (["cursor", "a.md"], "is not a folder"),
    "a name": (["cursor", "--name", "a b"], "letters, digits, - and _"),
    "an empty name": (["cursor", "--name", ""], "letters, digits, - and _"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_call_is_refused_with_what_is_right(
    person: Person, arguments: list[str], said: str
) -> None:
    code, out, err = person.types(*arguments)
    assert code == 2
    assert not out
    assert said in err
    assert err.count("\n") == 1
    assert not list(person.home.iterdir())


def test_below_a_library_the_library_is_served_and_a_part_only_if_it_is_asked_for(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    (person.notes / "marklight.toml").write_text("")
    part = person.notes / "guides"
    part.mkdir()
    monkeypatch.chdir(part)
    person.types("cursor")
    assert person.servers("cursor")["marklight"]["args"][-1] == str(person.notes)
    person.types("cursor", ".")
    assert person.servers("cursor")["marklight"]["args"][-1] == str(part)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_home_folder_is_served_only_if_it_is_named_or_a_library(
    person: Person, monkeypatch: pytest.MonkeyPatch, dry: tuple[str, ...]
) -> None:
    for folder in (person.home, person.home.parent):
        monkeypatch.chdir(folder)
        code, out, err = person.types("claude-code", *dry)
        assert (code, out) == (2, "")
        assert (
            "Name the folder of your documents: `marklight install-mcp claude-code ~/notes`" in err
        )
    assert not person.file("claude-code").exists()
    assert person.types("claude-code", str(person.home), *dry)[0] == 0
    assert person.types("claude-code", "--remove", *dry)[0] == 0
    monkeypatch.chdir(person.home)
    (person.home / "marklight.toml").touch()
    assert person.types("claude-code", *dry)[0] == 0


def test_a_file_that_its_own_program_writes_meanwhile_is_read_again(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.has("claude-code", '{"numStartups": 1}')
    real = config_file._read
    told: list[Path] = []

    def load(asked: Path) -> bytes | None:
        found = real(asked)
        if not told:
            told.append(asked)
            file.write_text('{"numStartups": 2}')
        return found

    monkeypatch.setattr(config_file, "_read", load)
    assert person.types("claude-code")[0] == 0
    assert values(file)["numStartups"] == 2
    assert "marklight" in values(file)["mcpServers"]


def test_the_skill_goes_where_the_client_looks_for_it_and_comes_out_again(person: Person) -> None:
    for client in (each for each in CLIENTS.values() if each.skills):
        code, out, _ = person.types(client.name, "--skill")
        assert code == 0
        file = person.home / client.skills / "marklight" / "SKILL.md"
        assert file.read_bytes() == SKILL.read_bytes()
        assert str(file) in out
        assert "Nothing to do for the skill" in person.types(client.name, "--skill")[1]
        assert person.types(client.name, "--skill", "--remove")[0] == 0
        assert not file.parent.exists()


def test_a_skill_that_was_changed_is_kept(person: Person) -> None:
    file = person.home / ".claude/skills/marklight/SKILL.md"
    person.types("claude-code", "--skill")
    file.write_text("my own")
    assert person.types("claude-code", "--skill", "--remove")[0] == 3
    assert file.read_text() == "my own"
    person.types("claude-code", "--skill")
    assert file.read_bytes() == SKILL.read_bytes()
    assert file.with_name("SKILL.md.before-marklight").read_text() == "my own"


def test_variables_of_the_shell_are_told_since_a_client_may_not_have_them(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    assert "MARKLIGHT_MODEL_NAME" in person.types("cursor")[2]
