"""Editing a client's configuration keeps all other content; unsafe edits are rejected."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from marklight.surfaces.setup import CLIENTS
from tests.surfaces.setup.user import JSON, User, command, values

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
def test_all_other_text_of_a_json_file_is_unchanged(user: User, client: str, text: str) -> None:
    text = text.replace("SERVERS", CLIENTS[client].servers)
    file = user.write_config(client, text)
    assert user.install_mcp(client)[0] == 0
    after = file.read_bytes().decode()
    bare = after.removeprefix("\ufeff")
    assert after.startswith("\ufeff") == text.startswith("\ufeff")
    assert ("\r\n" in after) == ("\r\n" in text)
    assert ("\n" in after.strip()) == ("\n" in text or text == "{}")
    wanted = json.loads(text.removeprefix("\ufeff")) if text.strip() else {}
    now = json.loads(bare)
    ours = now[CLIENTS[client].servers].pop("marklight")
    assert command(ours)[-1] == str(user.notes)
    assert now == {CLIENTS[client].servers: {}} | wanted
    # Only additions: every old character is still there, in order.
    rest = iter(after)
    assert all(character in rest for character in text.strip())
    user.install_mcp(client, "--remove")
    removed = file.read_bytes().decode()
    assert json.loads(removed.removeprefix("\ufeff")) == {
        key: value for key, value in wanted.items() if value != {}
    }
    if text.strip() and "{}" not in text.strip()[1:]:
        assert removed == text


@pytest.mark.parametrize("client", JSON)
def test_an_object_without_other_entries_is_removed_with_ours(user: User, client: str) -> None:
    servers = CLIENTS[client].servers
    user.install_mcp(client)
    user.install_mcp(client, "--remove")
    assert values(user.file(client)) == {}
    file = user.write_config(client, json.dumps({"theme": "dark"}))
    user.install_mcp(client)
    user.install_mcp(client, "--remove")
    assert values(file) == {"theme": "dark"}
    other = {"other": {"command": "npx"}}
    user.write_config(client, json.dumps({servers: other}))
    user.install_mcp(client)
    user.install_mcp(client, "--remove")
    assert values(file) == {servers: other}


COMMENTED = """\
// Settings of the editor
//
{
  "theme": "dark", // at night
  /* SERVERS: {"marklight": {}} */
  "SERVERS": {
    // the first one
    "other": { "command": "npx", "args": ["//", "a,}"] }, // needed
  },
}
"""


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "codex"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_comments_in_json_are_kept(user: User, client: str, ending: str) -> None:
    text = COMMENTED.replace("SERVERS", CLIENTS[client].servers).replace("\n", ending)
    file = user.write_config(client, text)
    assert user.install_mcp(client)[0] == 0
    after = file.read_bytes().decode()
    rest = iter(after)
    assert all(character in rest for character in text)
    assert after.count(ending) == after.count("\n") > text.count("\n")
    user.install_mcp(client, str(user.home), "--name", "marklight")
    assert file.read_bytes().decode() == after.replace(
        json.dumps(str(user.notes), ensure_ascii=False), json.dumps(str(user.home))
    )
    assert user.install_mcp(client, "--remove")[0] == 0
    assert file.read_bytes().decode() == text


def test_comments_in_our_own_entry_are_kept(user: User) -> None:
    own = '"marklight": { /* mine */ "env": {"A": "1"}, // why\n "command": "old", "args": [] }'
    file = user.write_config("zed", '{"context_servers": {' + own + "}}")
    assert user.install_mcp("zed")[0] == 0
    after = file.read_text()
    assert after.startswith(
        '{"context_servers": {"marklight": { /* mine */ "env": {"A": "1"}, // why\n'
    )
    assert "old" not in after


def test_an_existing_file_of_another_name_is_used(user: User) -> None:
    # opencode 1.18 creates ~/.config/opencode/opencode.jsonc at its first start.
    folder = user.home / ".config" / "opencode"
    folder.mkdir(parents=True)
    file = folder / "opencode.jsonc"
    file.write_text('{\n  "$schema": "https://opencode.ai/config.json"\n}')
    assert user.install_mcp("opencode")[0] == 0
    assert "marklight" in values(file)["mcp"]
    assert not user.file("opencode").exists()


def test_the_servers_of_opencode_2_are_one_level_deeper(user: User) -> None:
    # opencode.ai/docs/mcp-servers: version 2 has mcp.servers.NAME, version 1 has mcp.NAME.
    other = {"type": "local", "command": ["npx"]}
    file = user.write_config("opencode", json.dumps({"mcp": {"servers": {"other": other}}}))
    user.install_mcp("opencode")
    assert set(values(file)["mcp"]["servers"]) == {"other", "marklight"}
    assert "marklight" in user.install_mcp("opencode", "--list")[1]
    user.install_mcp("opencode", "--remove")
    assert values(file) == {"mcp": {"servers": {"other": other}}}
    file = user.write_config("opencode", json.dumps({"mcp": {"servers": other}}))
    user.install_mcp("opencode")
    assert set(values(file)["mcp"]) == {"servers", "marklight"}


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


def test_comments_and_order_of_a_toml_file_are_kept(user: User) -> None:
    file = user.write_config("codex", CODEX)
    assert user.install_mcp("codex")[0] == 0
    assert file.read_text().startswith(CODEX + "\n[mcp_servers.marklight]\n")
    assert set(user.servers("codex")) == {"other", "marklight"}
    user.install_mcp("codex", "--remove")
    assert file.read_text() == CODEX


def test_a_toml_file_without_final_newline_or_with_crlf(user: User) -> None:
    file = user.write_config("codex", 'a = 1\r\nb = """x\r\ny"""')
    assert user.install_mcp("codex")[0] == 0
    assert file.read_bytes().count(b"\n") == file.read_bytes().count(b"\r\n") > 4
    assert values(file)["b"] == "x\ny"


def test_only_our_lines_change_in_the_middle_of_a_toml_file(user: User) -> None:
    before, after = "[a]\nx = 1\n\n", "\n# about b\n[b]\ny = 2\n"
    own = '# ours\nstartup_timeout_sec = 30\n[mcp_servers.marklight.env]\nLANG = "C"\n'
    old = '[mcp_servers."marklight"] # here\ncommand = "gone"\nargs = [\n  "mcp",\n  "/old",\n]\n'
    file = user.write_config("codex", before + old + own + after)
    code, out, _ = user.install_mcp("codex")
    assert code == 0
    assert out.startswith("Changed marklight")
    text = file.read_text()
    assert text.startswith(before + '[mcp_servers."marklight"] # here\ncommand = ')
    assert text.endswith(own + after)
    assert "gone" not in text
    assert "/old" not in text
    user.install_mcp("codex", "--remove")
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
def test_a_toml_file_with_an_unsupported_layout_is_unchanged(user: User, text: str) -> None:
    file = user.write_config("codex", text)
    code, out, err = user.install_mcp("codex")
    assert code == 3
    assert file.read_text() == text
    assert tomllib.loads(out)["mcp_servers"]["marklight"]["args"][-1] == str(user.notes)
    assert err.splitlines()[-1].endswith("Add the entry printed above by hand.")


BROKEN = {
    "cut off": '{"servers": {',
    "a list": "[]",
    "null": "null",
    "servers are a list": '{"servers": [], "mcpServers": []}',
    "twice": '{"servers": {}, "mcpServers": {}, "mcpServers": {"a": {}}, "servers": {"a": {}}}',
    "too deep": "[" * 100_000,
    "open comment": '{"servers": {}} /*',
}
INVALID = [(client, text) for client in ("vscode", "claude-code") for text in BROKEN.values()]


@pytest.mark.parametrize(("client", "text"), INVALID)
def test_an_invalid_file_is_unchanged_and_the_entry_is_printed(
    user: User, client: str, text: str
) -> None:
    file = user.write_config(client, text)
    code, out, err = user.install_mcp(client)
    assert code == 3
    assert file.read_text() == text
    assert list(file.parent.glob(f"{file.name}*")) == [file]
    assert command(json.loads(out)[CLIENTS[client].servers]["marklight"])[-1] == str(user.notes)
    assert str(file) in err.splitlines()[-1]
    code, _, err = user.install_mcp(client, "--remove")
    assert code == 3
    assert err.rstrip().endswith("Remove marklight from it by hand.")
    assert file.read_text() == text


def test_a_file_that_is_not_utf8_is_unchanged(user: User) -> None:
    file = user.write_config("cursor", "")
    file.write_bytes('{"é": 1}'.encode("latin-1"))
    assert user.install_mcp("cursor")[0] == 3
    assert file.read_bytes() == '{"é": 1}'.encode("latin-1")


def test_a_read_only_file_is_unchanged(user: User) -> None:
    file = user.write_config("cursor", "{}")
    file.chmod(0o444)
    code, out, err = user.install_mcp("cursor")
    assert code == 3
    assert "read-only" in err
    assert file.read_text() == "{}"
    assert json.loads(out)


def test_a_file_in_place_of_a_folder_is_reported(user: User) -> None:
    (user.home / ".cursor").write_text("")
    code, _, err = user.install_mcp("cursor")
    assert code == 3
    assert "Traceback" not in err
    assert ".cursor" in err.splitlines()[-1]


def test_a_folder_in_place_of_the_file_is_reported(user: User) -> None:
    user.file("zed").mkdir(parents=True)
    code, out, err = user.install_mcp("zed")
    assert code == 3
    assert "Traceback" not in err
    assert command(json.loads(out)["context_servers"]["marklight"])[-1] == str(user.notes)
    user.install_mcp("cursor")
    code, out, err = user.install_mcp("--list")
    assert code == 0
    assert out.startswith("cursor")
    assert f"zed: Cannot read {user.file('zed')}" in err


def test_permissions_are_kept_and_a_backup_is_written(user: User) -> None:
    file = user.write_config("claude-code", '{"secret": 1}')
    file.chmod(0o600)
    _, out, _ = user.install_mcp("claude-code")
    backup = file.with_name(".claude.json.before-marklight")
    assert backup.name in out
    assert backup.read_text() == '{"secret": 1}'
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, backup)] == [0o600, 0o600]


def test_a_symbolic_link_is_kept(user: User) -> None:
    real = user.home / "dotfiles" / "mcp.json"
    real.parent.mkdir()
    real.write_text("{}")
    (user.home / ".cursor").mkdir()
    link = user.file("cursor")
    link.symlink_to(Path("..") / "dotfiles" / "mcp.json")
    assert user.install_mcp("cursor")[0] == 0
    assert link.is_symlink()
    assert "marklight" in json.loads(real.read_text())["mcpServers"]
    assert {each.name for each in link.parent.iterdir()} == {"mcp.json"}


def test_the_missing_target_of_a_symbolic_link_is_created(user: User) -> None:
    real = user.home / "dotfiles" / "mcp.json"
    link = user.file("cursor")
    link.parent.mkdir()
    link.symlink_to(real)
    assert user.install_mcp("cursor")[0] == 0
    assert link.is_symlink()
    assert "marklight" in values(real)["mcpServers"]


def test_a_folder_name_that_is_not_utf8_is_rejected(user: User, tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff"
    try:
        os.mkdir(odd)
    except OSError:
        pytest.skip("this file system has no such names")
    code, _, err = user.install_mcp("cursor", os.fsdecode(odd))
    assert code == 2
    assert "is not valid UTF-8" in err
    assert not list(user.home.iterdir())
