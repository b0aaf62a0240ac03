"""The command install-mcp."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from marklight.surfaces.setup import CLIENTS, config_file
from marklight.surfaces.setup.config_file import SKILL
from tests.surfaces.setup.user import User, command, values


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_configuration_gets_one(user: User, client: str) -> None:
    code, out, err = user.install_mcp(client)
    assert code == 0, err
    written = user.servers(client)["marklight"]
    assert Path(command(written)[0]).is_absolute()
    assert command(written)[-2:] == ["mcp", str(user.notes)]
    assert set(written) <= {"type", "command", "args"}
    assert out.count("\n") == 1
    assert str(user.file(client)) in out
    assert CLIENTS[client].next_step in out


@pytest.mark.parametrize("client", CLIENTS)
def test_installing_twice_changes_nothing(user: User, client: str) -> None:
    user.install_mcp(client)
    before = user.file(client).stat()
    code, out, _ = user.install_mcp(client)
    assert code == 0
    assert out.startswith("Nothing to do")
    after = user.file(client).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert len(list(user.file(client).parent.iterdir())) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_an_installed_entry_can_be_removed(user: User, client: str) -> None:
    user.install_mcp(client)
    code, out, _ = user.install_mcp(client, "--remove")
    assert code == 0
    assert out.startswith("Removed marklight from")
    assert not values(user.file(client)).get(CLIENTS[client].servers)
    code, out, _ = user.install_mcp(client, "--remove")
    assert code == 0
    assert out.startswith("Nothing to do")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_dry_run_prints_the_entry_and_writes_nothing(user: User, client: str) -> None:
    code, out, err = user.install_mcp(client, "--dry-run")
    assert code == 0
    assert not user.file(client).exists()
    assert str(user.file(client)) in err
    printed = tomllib.loads(out) if client == "codex" else json.loads(out)
    user.install_mcp(client)
    assert printed == values(user.file(client))
    assert user.install_mcp(client, "--print")[1] == out
    assert user.install_mcp(client, "--remove", "--dry-run")[0] == 0
    assert printed == values(user.file(client))


def test_keys_added_by_the_user_are_kept(user: User) -> None:
    mine = {"command": "old", "args": ["mcp", "/old"], "env": {"A": "1"}, "timeout": 60}
    user.write_config("cursor", json.dumps({"mcpServers": {"marklight": mine}}))
    _, out, _ = user.install_mcp("cursor")
    assert out.startswith("Changed")
    now = user.servers("cursor")["marklight"]
    assert (now["env"], now["timeout"]) == ({"A": "1"}, 60)
    assert now["args"][-1] == str(user.notes)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_entry_with_a_url_becomes_a_command(user: User, client: str) -> None:
    address = "http://127.0.0.1:7433/mcp"
    if client == "codex":
        user.write_config(client, f'[mcp_servers.marklight]\nurl = "{address}"\n')
    else:
        old = {"marklight": {"type": "http", "url": address}}
        user.write_config(client, json.dumps({CLIENTS[client].servers: old}))
    assert user.install_mcp(client)[0] == 0
    assert set(user.servers(client)["marklight"]) <= {"type", "command", "args"}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_library_gets_a_name_of_its_own(user: User, client: str, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("Work & Plans", "sub/work plans", "日本", "x" * 90)]
    for folder in folders:
        folder.mkdir(parents=True)
    for folder in (user.notes, *folders):
        code, out, _ = user.install_mcp(client, str(folder))
        assert code == 0
        assert out.startswith("Added marklight")
    expected = {
        "marklight": user.notes,
        "marklight-work-plans": folders[0],
        "marklight-work-plans-2": folders[1],
        "marklight-2": folders[2],
        "marklight-" + "x" * 20: folders[3],
    }
    names = {name: str(folder) for name, folder in expected.items()}
    assert {name: command(each)[-1] for name, each in user.servers(client).items()} == names
    for name, folder in expected.items():
        assert f"Nothing to do: {name} in" in user.install_mcp(client, str(folder))[1]
        assert len(f"mcp__{name}__search_with_hypothesis") <= 64
    user.install_mcp(client, str(folders[0]), "--name", "mine")
    assert command(user.servers(client)["mine"])[-1] == str(folders[0])


def test_the_entry_to_remove_must_be_clear(user: User, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    user.install_mcp("cursor")
    user.install_mcp("cursor", str(work))
    code, _, err = user.install_mcp("cursor", "--remove")
    assert code == 2
    assert f"marklight ({user.notes}), marklight-work ({work})" in err
    assert "--name" in err
    code, _, err = user.install_mcp("cursor", str(user.home), "--remove")
    assert code == 2
    assert "--list" in err
    assert user.install_mcp("cursor", str(user.notes), "--remove")[0] == 0
    assert set(user.servers("cursor")) == {"marklight-work"}
    assert user.install_mcp("cursor", "--remove")[1].startswith("Removed marklight-work from")


def test_the_entry_of_a_library_that_was_moved_is_replaced(user: User, tmp_path: Path) -> None:
    user.install_mcp("cursor")
    moved = user.notes.rename(tmp_path / "moved")
    _, out, _ = user.install_mcp("cursor", str(moved))
    assert out.startswith("Changed marklight in")
    assert {name: command(each)[-1] for name, each in user.servers("cursor").items()} == {
        "marklight": str(moved)
    }


def test_a_list_shows_what_is_installed_where(user: User, tmp_path: Path) -> None:
    code, out, err = user.install_mcp("--list")
    assert (code, out) == (1, "")
    assert "No library is installed" in err
    work = tmp_path / "work"
    work.mkdir()
    user.install_mcp("cursor", str(work))
    user.install_mcp("opencode")
    user.install_mcp("codex", "--project")
    user.write_config("zed", "{ // broken")
    work.rmdir()
    code, out, err = user.install_mcp("--list")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert [row[:2] for row in rows] == [
        ["cursor", "marklight"],
        ["codex", "marklight"],
        ["opencode", "marklight"],
    ]
    assert f"{work} " in out.splitlines()[0]
    assert out.splitlines()[0].endswith(f"{user.file('cursor')} (the folder does not exist)")
    assert out.splitlines()[1].endswith(str(user.notes / ".codex/config.toml"))
    assert str(user.notes) in out.splitlines()[2]
    assert f"zed: Cannot change {user.file('zed')}" in err
    assert user.install_mcp("cursor", "--list")[1].split() == out.splitlines()[0].split()
    assert user.install_mcp("gemini", "--list")[0] == 1


@pytest.mark.parametrize("client", [name for name, each in CLIENTS.items() if each.project_file])
def test_a_project_has_its_own_file(user: User, client: str) -> None:
    code, _, err = user.install_mcp(client, "--project")
    assert code == 0
    assert not err
    file = user.notes / CLIENTS[client].project_file
    assert set(values(file)[CLIENTS[client].servers]) == {"marklight"}
    assert not any(each.is_file() for each in user.home.rglob("*"))
    assert user.install_mcp(client, "--project", "--remove")[0] == 0


def test_another_file_can_be_given(user: User) -> None:
    file = user.home / "Code - Insiders" / "mcp.json"
    assert user.install_mcp("vscode", "--file", str(file))[0] == 0
    assert set(values(file)["servers"]) == {"marklight"}


def test_environment_variables_of_clients_are_honoured(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(user.home / "c"))
    monkeypatch.setenv("CODEX_HOME", str(user.home / "x"))
    user.install_mcp("claude-code", "--skill")
    user.install_mcp("codex")
    assert {each.relative_to(user.home).as_posix() for each in user.home.rglob("*.*")} == {
        "c/.claude.json",
        "c/skills/marklight/SKILL.md",
        "x/config.toml",
    }


WRONG = {
    "unknown": (["cluade-code"], "Did you mean 'claude-code'?"),
    "in other letters": (["VSCode"], "Did you mean 'vscode'?"),
    "like nothing": (
        ["emacs"],
        "Known: claude-code, claude-desktop, cursor, vscode, codex, gemini",
    ),
    "no client": ([], "Name one: claude-code, claude-desktop"),
    "no projects": (["claude-desktop", "--project"], "Leave out --project"),
    "no skills": (["claude-desktop", "--skill"], "does not read skills"),
    "no folder": (["cursor", "nowhere"], "No such folder: nowhere"),
    "a file": (["cursor", "a.md"], "is not a folder"),
    "a name": (["cursor", "--name", "a b"], "letters, digits, - and _"),
    "an empty name": (["cursor", "--name", ""], "letters, digits, - and _"),
}


@pytest.mark.parametrize(("arguments", "hint"), WRONG.values(), ids=WRONG.keys())
def test_wrong_usage_gets_a_hint(user: User, arguments: list[str], hint: str) -> None:
    code, out, err = user.install_mcp(*arguments)
    assert code == 2
    assert not out
    assert hint in err
    assert err.count("\n") == 1
    assert not list(user.home.iterdir())


def test_the_surrounding_library_is_served_unless_a_folder_is_given(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user.notes / "marklight.toml").write_text("")
    part = user.notes / "guides"
    part.mkdir()
    monkeypatch.chdir(part)
    user.install_mcp("cursor")
    assert user.servers("cursor")["marklight"]["args"][-1] == str(user.notes)
    user.install_mcp("cursor", ".")
    assert user.servers("cursor")["marklight-guides"]["args"][-1] == str(part)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_home_folder_is_served_only_if_given_or_a_library(
    user: User, monkeypatch: pytest.MonkeyPatch, dry: tuple[str, ...]
) -> None:
    for folder in (user.home, user.home.parent):
        monkeypatch.chdir(folder)
        code, out, err = user.install_mcp("claude-code", *dry)
        assert (code, out) == (2, "")
        assert (
            "Name the folder of your documents: `marklight install-mcp claude-code ~/notes`" in err
        )
    assert not user.file("claude-code").exists()
    assert user.install_mcp("claude-code", str(user.home), *dry)[0] == 0
    assert user.install_mcp("claude-code", "--remove", *dry)[0] == 0
    monkeypatch.chdir(user.home)
    (user.home / "marklight.toml").touch()
    assert user.install_mcp("claude-code", *dry)[0] == 0


def test_a_file_changed_meanwhile_is_read_again(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = user.write_config("claude-code", '{"numStartups": 1}')
    real = config_file._read
    calls: list[Path] = []

    def load(path: Path) -> bytes | None:
        found = real(path)
        if not calls:
            calls.append(path)
            file.write_text('{"numStartups": 2}')
        return found

    monkeypatch.setattr(config_file, "_read", load)
    assert user.install_mcp("claude-code")[0] == 0
    assert values(file)["numStartups"] == 2
    assert "marklight" in values(file)["mcpServers"]


def test_the_skill_is_installed_and_removed(user: User) -> None:
    for client in (each for each in CLIENTS.values() if each.skills):
        code, out, _ = user.install_mcp(client.name, "--skill")
        assert code == 0
        file = user.home / client.skills / "marklight" / "SKILL.md"
        assert file.read_bytes() == SKILL.read_bytes()
        assert str(file) in out
        assert "The skill is already up to date" in user.install_mcp(client.name, "--skill")[1]
        assert user.install_mcp(client.name, "--skill", "--remove")[0] == 0
        assert not file.parent.exists()


def test_a_changed_skill_is_kept(user: User) -> None:
    file = user.home / ".claude/skills/marklight/SKILL.md"
    user.install_mcp("claude-code", "--skill")
    file.write_text("my own")
    assert user.install_mcp("claude-code", "--skill", "--remove")[0] == 3
    assert file.read_text() == "my own"
    user.install_mcp("claude-code", "--skill")
    assert file.read_bytes() == SKILL.read_bytes()
    assert file.with_name("SKILL.md.before-marklight").read_text() == "my own"


def test_environment_variables_of_the_shell_get_a_note(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    assert "MARKLIGHT_MODEL_NAME" in user.install_mcp("cursor")[2]
