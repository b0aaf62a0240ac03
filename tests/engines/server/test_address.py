"""Addresses of server engines: parsing, names of libraries, and passwords that never show."""

from __future__ import annotations

import subprocess
import sys
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marklight.engines import Host, parse_address
from marklight.errors import MarklightError, SettingsError
from marklight.library.configuration import read_settings

SECRET = "s3cr3t"


def test_our_parameters_are_taken_out_and_those_of_libpq_pass_through() -> None:
    address = parse_address(
        "postgresql://ann:s3cr3t@db1:5433,db2/team?sslmode=verify-full&library=docs"
        "&vectors=qdrant://q1:6433,q2&target_session_attrs=any"
    )
    assert address.dsn == (
        "postgresql://ann:s3cr3t@db1:5433,db2/team?sslmode=verify-full&target_session_attrs=any"
    )
    assert address.library == "docs"
    assert address.vectors == (Host("q1", 6433), Host("q2", 6334))
    assert str(address) == (
        "postgresql://ann@db1:5433,db2/team?sslmode=verify-full&target_session_attrs=any"
        "&library=docs&vectors=qdrant://q1:6433,q2:6334"
    )
    assert address.is_server
    assert address.folder is None


@pytest.mark.parametrize(
    ("written", "dsn", "shown"),
    [
        ("postgres://db/x", "postgresql://db/x", "postgresql://db/x"),
        ("postgresql://", "postgresql://", "postgresql://"),
        ("postgresql:///x", "postgresql:///x", "postgresql:///x"),
        ("postgresql://[::1]:5433/x", "postgresql://[::1]:5433/x", "postgresql://[::1]:5433/x"),
        (
            "postgresql:///x?host=/run/pg&library=a",
            "postgresql:///x?host=/run/pg",
            "postgresql:///x?host=/run/pg&library=a",
        ),
        ("postgresql://%2Frun%2Fpg/x", "postgresql://%2Frun%2Fpg/x", "postgresql://%2Frun%2Fpg/x"),
        (
            "postgresql://ann%40home:s3%2Fcr3t@db/x",
            "postgresql://ann%40home:s3%2Fcr3t@db/x",
            "postgresql://ann%40home@db/x",
        ),
        (
            "postgresql://db/x?password=s3cr3t&sslpassword=s3cr3t&sslkey=/k",
            "postgresql://db/x?password=s3cr3t&sslpassword=s3cr3t&sslkey=/k",
            "postgresql://db/x",
        ),
        (
            "postgresql:///?service=team&library=notes",
            "postgresql:///?service=team",
            "postgresql:///?service=team&library=notes",
        ),
    ],
)
def test_forms_of_an_address(written: str, dsn: str, shown: str) -> None:
    address = parse_address(written)
    assert (address.dsn, str(address)) == (dsn, shown)
    assert SECRET not in repr(address)


def test_libpq_reads_every_form() -> None:
    conninfo = pytest.importorskip("psycopg.conninfo")
    parsed = parse_address("postgresql://ann:s3%2F@[::1]:5433,db2/x?library=a&connect_timeout=3")
    assert conninfo.conninfo_to_dict(parsed.dsn) == {
        "user": "ann",
        "password": "s3/",
        "host": "::1,db2",
        "port": "5433,",
        "dbname": "x",
        "connect_timeout": "3",
    }


def test_the_list_of_parameters_contains_those_of_the_installed_libpq() -> None:
    pq = pytest.importorskip("psycopg.pq")
    from marklight.engines.server import PARAMETERS

    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()}
    unsuitable = {"replication", "authtype", "tty"}
    oauth = {name for name in known if name.startswith(("oauth", "scram"))}
    assert known - PARAMETERS <= unsuitable | oauth


@pytest.mark.parametrize(
    "written",
    [
        "postgresql:db",
        "postgresql://ann:s3@cr3t@db/x",
        "postgresql://ann:s3/cr3t@db/x",
        "postgresql://ann:s3?cr3t@db/x",
        "postgresql://ann:s3?cr3t=1@db/x",
        "postgresql://ann:s3?a=1&cr3t@db/x",
        "postgresql://ann:s3 cr3t@db/x",
        "postgresql://ann:s3%cr3t@db/x",
        "postgresql://ann:s3cr3t",
        "postgresql://ann:s3cr3t/x",
        "postgresql://ann:s3cr3t@db:cr3t/x",
        "postgresql://db/x?s3cr3t",
        "postgresql://db/x?vectors=qdrant://s3cr3t@q1",
        "postgresql://db/x?vectors=qdrant://s3cr3t%40q1",
        "postgresql://db/x?vectors=http://s3cr3t",
        "postgresql://db/x?vectors=qdrant://",
        "postgresql://db/x?vectors=qdrant://q1,q1",
        "postgresql://db/x?library=a&library=b",
        "postgresql://db/x?nonsense=1",
        "postgresql://[::g]/x",
        "postgresql://[::1/x",
        "mysql://ann:s3cr3t@db/x",
        "postgresqll://ann:s3cr3t@db/x",
    ],
)
def test_an_invalid_address_is_an_error_without_its_password(written: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_address(written)
    message = str(caught.value)
    assert "cr3t" not in message
    assert "engine" in message
    assert caught.value.hint


@given(st.text(min_size=6, max_size=30).filter(lambda text: len(set(text)) > 3))
def test_no_password_shows_however_it_is_written(password: str) -> None:
    encoded = quote(password, safe="", errors="surrogatepass")
    for written in (password, encoded):
        try:
            address = parse_address(f"postgresql://u:{written}@h/d")
        except MarklightError as error:
            shown = str(error)
            assert password not in shown
        else:
            assert str(address) == "postgresql://u@h/d"
            assert repr(address) == "EngineAddress('postgresql://u@h/d')"


@pytest.mark.parametrize("name", ["Docs", "a-b", "1a", "a b", "ä", "a" * 51, "a;drop", ""])
def test_a_library_has_a_plain_name(name: str) -> None:
    with pytest.raises(SettingsError, match="not a valid name"):
        parse_address(f"postgresql://db/x?library={quote(name)}")


@pytest.mark.parametrize("name", ["public", "pg_x", "information_schema", "docs_history"])
def test_some_names_of_libraries_are_reserved(name: str) -> None:
    with pytest.raises(SettingsError, match="reserved"):
        parse_address(f"postgresql://db/x?library={name}")


def test_the_history_is_a_library_beside_it() -> None:
    address = parse_address("postgresql://db/x?library=docs").beside("history")
    assert (address.library, str(address)) == (
        "docs_history",
        "postgresql://db/x?library=docs_history",
    )


WITHOUT_PACKAGE = """
import sys
sys.modules["psycopg"] = sys.modules["qdrant_client"] = None
from marklight import engines
from marklight.errors import StoreError
for address in ("postgresql://ann:s3cr3t@127.0.0.1:1/x", "postgresql:///x?vectors=qdrant://q"):
    try:
        engines.open(address)
    except StoreError as error:
        print(error)
"""


def test_a_missing_package_is_one_line_that_names_the_extra() -> None:
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_PACKAGE], capture_output=True, check=True, text=True
    )
    first, second = run.stdout.splitlines()
    assert first.endswith('Install it with: pip install "marklight[postgres]"')
    assert second.endswith('Install it with: pip install "marklight[qdrant]"')
    assert SECRET not in run.stdout


def test_a_setting_with_fixed_choices_is_checked() -> None:
    with pytest.raises(SettingsError, match="must be none or scalar or binary, not 'some'"):
        read_settings(None, ["qdrant.quantization=some"])
    with pytest.raises(SettingsError, match="must be here or workers, not 'elsewhere'"):
        read_settings(None, ["queue.embed=elsewhere"])
