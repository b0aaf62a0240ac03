"""An assistant is set up by one command, and nothing else in its configuration is touched."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client

from marklight.surfaces.cli.app import run
from marklight.surfaces.mcp.tools import tools_for
from marklight.surfaces.setup import files
from marklight.surfaces.setup.clients import CLIENTS, Machine, starting
from marklight.surfaces.setup.skill import SOURCE

JSON = [name for name, client in CLIENTS.items() if not client.file.endswith(".toml")]


class Person:
    """Someone at a machine of their own, with a folder of notes."""

    def __init__(self, home: Path, notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.notes, self._capsys = home, notes, capsys

    def types(self, *arguments: str) -> tuple[int, str, str]:
        code = run(["install-mcp", *arguments])
        out, err = self._capsys.readouterr()
        return code, out, err

    def file(self, client: str) -> Path:
        (file,) = CLIENTS[client].user_files(Machine("linux", self.home, {}))
        return Path(file)

    def has(self, client: str, text: str) -> Path:
        file = self.file(client)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
        return file

    def servers(self, client: str) -> Any:
        return values(self.file(client))[CLIENTS[client].servers]


def values(file: Path) -> dict[str, Any]:
    text = file.read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    return found


@pytest.fixture
def person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Person]:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in os.environ:
        if name.startswith(("MARKLIGHT_", "CLAUDE_", "CODEX_", "XDG_")):
            monkeypatch.delenv(name)
    home, notes = tmp_path / "home", tmp_path / 'my "nötes" 日本'
    home.mkdir()
    notes.mkdir()
    (notes / "a.md").write_text("# Backups\n\nKept for thirty days.\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(notes)
    yield Person(home, notes, capsys)
    assert not list(tmp_path.rglob(".*.marklight")), "something half-written was left behind"


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
    assert CLIENTS[client].next in out


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_time_there_is_nothing_to_do(person: Person, client: str) -> None:
    person.types(client)
    before = person.file(client).stat()
    code, out, _ = person.types(client)
    assert code == 0
    assert out.startswith("nothing to do")
    assert person.file(client).stat() == before
    assert len(list(person.file(client).parent.iterdir())) == 1


@pytest.mark.parametrize("client", CLIENTS)
def test_what_was_put_in_can_be_taken_out(person: Person, client: str) -> None:
    person.types(client)
    code, out, _ = person.types(client, "--remove")
    assert code == 0
    assert out.startswith("removed marklight from")
    assert not values(person.file(client)).get(CLIENTS[client].servers)
    code, out, _ = person.types(client, "--remove")
    assert code == 0
    assert out.startswith("nothing to do")


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


OTHERS = {
    "two spaces": '{\n  "theme": "dark",\n  "SERVERS": {\n    "other": {"command": "npx", "args": []}\n  },\n  "n": 1.10\n}\n',
    "tabs": '{\n\t"SERVERS": {\n\t\t"other": {\n\t\t\t"command": "npx"\n\t\t}\n\t}\n}',
    "windows": '{\r\n    "SERVERS": {\r\n        "other": { "url": "https://x" }\r\n    }\r\n}\r\n',
    "one line": '{"a":[1,2,{"SERVERS":"}"}],"SERVERS":{"other":{"command":"x"}},"z":"\\u00e9\\/"}',
    "byte order mark": '\ufeff{\n  "SERVERS": {}\n}\n',
    "no servers": '{\n  "numStartups": 41,\n  "big": 12345678901234567890.0\n}\n',
    "empty object": "{}",
    "blank": " \n",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("client", JSON)
def test_everything_else_in_a_json_file_stays_to_the_letter(
    person: Person, client: str, text: str
) -> None:
    text = text.replace("SERVERS", CLIENTS[client].servers)
    file = person.has(client, text)
    assert person.types(client)[0] == 0
    after = file.read_bytes().decode()
    bare = after.removeprefix("\ufeff")
    assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert ("\r\n" in after) == ("\r\n" in text)
    assert ("\n" in after.strip()) == ("\n" in text or text == "{}")
    wanted = json.loads(text.removeprefix("\ufeff")) if text.strip() else {}
    now = json.loads(bare)
    ours = now[CLIENTS[client].servers].pop("marklight")
    assert ours["args"][-1] == str(person.notes)
    assert now == {CLIENTS[client].servers: {}} | wanted
    # Nothing but additions: each line that was there is there, in its order.
    rest = iter(after)
    assert all(sign in rest for sign in text.strip())
    person.types(client, "--remove")
    removed = file.read_bytes().decode()
    if '"other"' in text:
        assert removed == text


CODEX = """\
# my own settings
model = "o9"  # the good one
note = '''
[mcp_servers.marklight]
command = "this is text, not a table"
'''

[mcp_servers.other]
command = "npx"
args = [
    "-y",  # [mcp_servers.marklight]
]

# the last one
[profiles.slow]
model = "o8"
"""


def test_comments_and_order_of_a_toml_file_stay(person: Person) -> None:
    file = person.has("codex", CODEX)
    assert person.types("codex")[0] == 0
    assert file.read_text().startswith(CODEX + "\n[mcp_servers.marklight]\n")
    assert set(person.servers("codex")) == {"other", "marklight"}
    person.types("codex", "--remove")
    assert file.read_text() == CODEX


def test_a_toml_file_without_a_last_line_break_or_with_windows_ones_is_well(person: Person) -> None:
    file = person.has("codex", 'a = 1\r\nb = """x\r\ny"""')
    assert person.types("codex")[0] == 0
    assert file.read_bytes().count(b"\n") == file.read_bytes().count(b"\r\n") > 4
    assert values(file)["b"] == "x\ny"


def test_in_the_middle_of_a_toml_file_only_our_own_lines_change(person: Person) -> None:
    before, after = "[a]\nx = 1\n\n", "\n# about b\n[b]\ny = 2\n"
    own = '# ours\nstartup_timeout_sec = 30\n[mcp_servers.marklight.env]\nLANG = "C"\n'
    old = '[mcp_servers."marklight"] # here\ncommand = "gone"\nargs = [\n  "mcp",\n  "/old",\n]\n'
    file = person.has("codex", before + old + own + after)
    code, out, _ = person.types("codex")
    assert code == 0
    assert out.startswith("changed marklight")
    text = file.read_text()
    assert text.startswith(before + '[mcp_servers."marklight"] # here\ncommand = ')
    assert text.endswith(own + after)
    assert "gone" not in text
    assert "/old" not in text
    person.types("codex", "--remove")
    assert file.read_text() == "[a]\nx = 1\n" + after


@pytest.mark.parametrize(
    "text",
    [
        '[mcp_servers]\nmarklight = { command = "x" }\n',
        'mcp_servers.marklight.command = "x"\n',
        'mcp_servers = { other = { command = "x" } }\n',
        "mcp_servers = 3\n",
        "not toml",
    ],
)
def test_a_toml_file_that_cannot_be_changed_by_its_lines_is_left_alone(
    person: Person, text: str
) -> None:
    file = person.has("codex", text)
    code, out, err = person.types("codex")
    assert code == 3
    assert file.read_text() == text
    assert tomllib.loads(out)["mcp_servers"]["marklight"]["args"][-1] == str(person.notes)
    assert err.splitlines()[-1].endswith("Paste what is printed above yourself")


BROKEN = {
    "comments": '{\n  // mine\n  "servers": {}\n}\n',
    "trailing comma": '{"servers": {},}',
    "cut off": '{"servers": {',
    "a list": "[]",
    "null": "null",
    "servers are a list": '{"servers": [], "mcpServers": []}',
    "twice": '{"servers": {}, "mcpServers": {}, "mcpServers": {"a": {}}, "servers": {"a": {}}}',
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("client", ["vscode", "claude-code"])
def test_a_file_with_comments_or_faults_is_left_alone_and_what_to_paste_is_printed(
    person: Person, client: str, text: str
) -> None:
    file = person.has(client, text)
    code, out, err = person.types(client)
    assert code == 3
    assert file.read_text() == text
    assert list(file.parent.glob(f"{file.name}*")) == [file]
    assert json.loads(out)[CLIENTS[client].servers]["marklight"]["args"][-1] == str(person.notes)
    assert str(file) in err.splitlines()[-1]
    code, _, err = person.types(client, "--remove")
    assert code == 3
    assert err.rstrip().endswith("Take marklight out of it yourself")
    assert file.read_text() == text


def test_a_file_that_is_not_utf8_is_left_alone(person: Person) -> None:
    file = person.has("cursor", "")
    file.write_bytes('{"é": 1}'.encode("latin-1"))
    assert person.types("cursor")[0] == 3
    assert file.read_bytes() == '{"é": 1}'.encode("latin-1")


def test_a_read_only_file_is_left_alone(person: Person) -> None:
    file = person.has("cursor", "{}")
    file.chmod(0o444)
    code, out, err = person.types("cursor")
    assert code == 3
    assert "read-only" in err
    assert file.read_text() == "{}"
    assert json.loads(out)


def test_a_file_where_a_folder_should_be_is_one_clear_line(person: Person) -> None:
    (person.home / ".cursor").write_text("")
    code, _, err = person.types("cursor")
    assert code == 3
    assert "Traceback" not in err
    assert ".cursor" in err.splitlines()[-1]


def test_rights_are_kept_and_the_file_as_it_was_stands_beside(person: Person) -> None:
    file = person.has("claude-code", '{"secret": 1}')
    file.chmod(0o600)
    _, out, _ = person.types("claude-code")
    backup = file.with_name(".claude.json.before-marklight")
    assert backup.name in out
    assert backup.read_text() == '{"secret": 1}'
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, backup)] == [0o600, 0o600]


def test_a_link_stays_a_link(person: Person) -> None:
    real = person.home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    (person.home / ".cursor").mkdir()
    link = person.file("cursor")
    link.symlink_to(Path("..") / "dotfiles" / "mcp.json")
    assert person.types("cursor")[0] == 0
    assert link.is_symlink()
    assert "marklight" in json.loads(real.read_text())["mcpServers"]
    assert {each.name for each in link.parent.iterdir()} == {"mcp.json"}


def test_a_link_to_a_file_that_is_not_there_yet_makes_it(person: Person) -> None:
    real = person.home / "dotfiles" / "mcp.json"
    link = person.file("cursor")
    link.parent.mkdir()
    link.symlink_to(real)
    assert person.types("cursor")[0] == 0
    assert link.is_symlink()
    assert "marklight" in values(real)["mcpServers"]


def test_a_folder_whose_name_is_no_utf8_cannot_be_written_down(
    person: Person, tmp_path: Path
) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    try:
        os.mkdir(odd)
    except OSError:
        pytest.skip("this file system has no such names")
    code, _, err = person.types("cursor", os.fsdecode(odd))
    assert code == 2
    assert "not named in UTF-8" in err
    assert not list(person.home.iterdir())


def test_what_a_person_added_to_our_entry_stays(person: Person) -> None:
    mine = {"command": "old", "args": ["mcp", "/old"], "env": {"A": "1"}, "timeout": 60}
    person.has("cursor", json.dumps({"mcpServers": {"marklight": mine}}))
    _, out, _ = person.types("cursor")
    assert out.startswith("changed")
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
    "no skills": (["claude-desktop", "--skill"], "reads no skills"),
    "no folder": (["cursor", "nowhere"], "there is no folder nowhere"),
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


def test_a_file_that_its_own_program_writes_meanwhile_is_read_again(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = person.has("claude-code", '{"numStartups": 1}')
    real = files.load
    told: list[Path] = []

    def load(asked: Path) -> bytes | None:
        found = real(asked)
        if not told:
            told.append(asked)
            file.write_text('{"numStartups": 2}')
        return found

    monkeypatch.setattr(files, "load", load)
    assert person.types("claude-code")[0] == 0
    assert values(file)["numStartups"] == 2
    assert "marklight" in values(file)["mcpServers"]


def test_the_skill_goes_where_the_client_looks_for_it_and_comes_out_again(person: Person) -> None:
    for client in (each for each in CLIENTS.values() if each.skills):
        code, out, _ = person.types(client.name, "--skill")
        assert code == 0
        file = person.home / client.skills / "marklight" / "SKILL.md"
        assert file.read_bytes() == SOURCE.read_bytes()
        assert str(file) in out
        assert "nothing to do for the skill" in person.types(client.name, "--skill")[1]
        assert person.types(client.name, "--skill", "--remove")[0] == 0
        assert not file.parent.exists()


def test_a_skill_that_was_changed_is_kept(person: Person) -> None:
    file = person.home / ".claude/skills/marklight/SKILL.md"
    person.types("claude-code", "--skill")
    file.write_text("my own")
    assert person.types("claude-code", "--skill", "--remove")[0] == 3
    assert file.read_text() == "my own"
    person.types("claude-code", "--skill")
    assert file.read_bytes() == SOURCE.read_bytes()
    assert file.with_name("SKILL.md.before-marklight").read_text() == "my own"


def test_variables_of_the_shell_are_told_since_a_client_may_not_have_them(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARKLIGHT_MODEL_NAME", "fake")
    assert "MARKLIGHT_MODEL_NAME" in person.types("cursor")[2]


MAC = Machine("darwin", PurePosixPath("/Users/ana"), {})
WINDOWS = Machine("win32", PureWindowsPath(r"C:\Users\Ana B"), {})
ROAMING = Machine("win32", WINDOWS.home, {"APPDATA": r"D:\Roaming", "LOCALAPPDATA": r"D:\Local"})
LINUX = Machine("linux", PurePosixPath("/home/ana"), {})
XDG = Machine("linux", LINUX.home, {"XDG_CONFIG_HOME": "/etc/ana"})
XDG_WRONG = Machine("linux", LINUX.home, {"XDG_CONFIG_HOME": "relative"})

PLACES = [
    (LINUX, "claude-code", "/home/ana/.claude.json"),
    (MAC, "claude-code", "/Users/ana/.claude.json"),
    (WINDOWS, "claude-code", r"C:\Users\Ana B\.claude.json"),
    (LINUX, "claude-desktop", "/home/ana/.config/Claude/claude_desktop_config.json"),
    (MAC, "claude-desktop", "/Users/ana/Library/Application Support/Claude/claude_desktop_config.json"),
    (WINDOWS, "claude-desktop", r"C:\Users\Ana B\AppData\Roaming\Claude\claude_desktop_config.json"),
    (LINUX, "cursor", "/home/ana/.cursor/mcp.json"),
    (MAC, "cursor", "/Users/ana/.cursor/mcp.json"),
    (WINDOWS, "cursor", r"C:\Users\Ana B\.cursor\mcp.json"),
    (LINUX, "vscode", "/home/ana/.config/Code/User/mcp.json"),
    (XDG, "vscode", "/etc/ana/Code/User/mcp.json"),
    (XDG_WRONG, "vscode", "/home/ana/.config/Code/User/mcp.json"),
    (MAC, "vscode", "/Users/ana/Library/Application Support/Code/User/mcp.json"),
    (WINDOWS, "vscode", r"C:\Users\Ana B\AppData\Roaming\Code\User\mcp.json"),
    (ROAMING, "vscode", r"D:\Roaming\Code\User\mcp.json"),
    (LINUX, "codex", "/home/ana/.codex/config.toml"),
    (MAC, "codex", "/Users/ana/.codex/config.toml"),
    (WINDOWS, "codex", r"C:\Users\Ana B\.codex\config.toml"),
]  # fmt: skip


@pytest.mark.parametrize(("machine", "client", "place"), PLACES)
def test_the_file_is_where_the_platform_has_it(machine: Machine, client: str, place: str) -> None:
    assert str(CLIENTS[client].user_files(machine)[-1]) == place


def test_claude_desktop_as_a_windows_package_has_its_file_elsewhere() -> None:
    first, second, _ = CLIENTS["claude-desktop"].user_files(ROAMING)
    assert first == PureWindowsPath(r"D:\Local\Claude-Data\claude_*\claude_desktop_config.json")
    assert second.match(r"D:\Local\Packages\Claude_*\LocalCache\Roaming\Claude\*.json")


def test_the_folder_that_a_package_made_is_taken(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = person.home / "AppData" / "Local"
    made = local / "Packages" / "Claude_pzs8" / "LocalCache" / "Roaming" / "Claude"
    made.mkdir(parents=True)
    monkeypatch.setenv("LOCALAPPDATA", str(local))
    monkeypatch.setattr(sys, "platform", "win32")
    from marklight.surfaces.setup.clients import file_of

    assert file_of(CLIENTS["claude-desktop"], None) == made / "claude_desktop_config.json"
    assert file_of(CLIENTS["cursor"], None) == person.home / ".cursor" / "mcp.json"


def test_where_there_is_no_program_beside_python_the_module_is_started(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert starting(tmp_path) == (str(python), "-P", "-m", "marklight", "mcp", str(tmp_path))
    called = tmp_path / "local" / "marklight"
    called.parent.mkdir()
    called.touch(0o755)
    monkeypatch.setattr(sys, "argv", [str(called)])
    assert starting(tmp_path) == (str(called), "mcp", str(tmp_path))


def test_the_module_is_the_command(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise SystemExit('taken from the current folder')")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "marklight", "--version"],
        cwd=tmp_path, env={**os.environ, "PATH": ""}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("marklight ")


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_the_very_command_that_was_written_serves_the_folder(
    person: Person, client: str, tmp_path: Path
) -> None:
    """Started as a client does it: from elsewhere, without a PATH, with few variables."""
    person.types(client)
    written = person.servers(client)["marklight"]
    shared = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    own = {"MARKLIGHT_MODEL_NAME": "fake", "MARKLIGHT_DATA_DIR": str(tmp_path / "data")}
    server = StdioServerParameters(
        command=written["command"],
        args=written["args"],
        cwd=tmp_path,
        env={**shared, **own, "PATH": "", "HOME": str(person.home)},
    )

    async def talk() -> tuple[set[str], str]:
        with (tmp_path / "log").open("w") as log:
            async with (
                stdio_client(server, errlog=log) as (reading, writing),
                ClientSession(reading, writing) as session,
            ):
                await session.initialize()
                tools = {tool.name for tool in (await session.list_tools()).tools}
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    answer = await session.call_tool("query_documents", {"query": "backups kept"})
                    text = "".join(part.text for part in answer.content if part.type == "text")
                    if "Nothing is indexed yet" not in text:
                        break
                return tools, text

    tools, text = anyio.run(talk)
    assert tools == set(tools_for(False))
    assert "a.md:3-3 § Backups" in text
    assert "Kept for thirty days." in text
