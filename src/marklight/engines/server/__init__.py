"""Addresses of server engines: libpq connection URIs with our parameters `library` and `vectors`.

Error messages contain no part of the address that could be a piece of a password with characters that are not
percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import AddressValueError, IPv6Address
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from marklight.engines import DEFAULT_LIBRARY, SERVER_SCHEMES, EngineAddress, Host
from marklight.errors import SettingsError

QDRANT, QDRANT_PORT = "qdrant://", 6334
OURS = ("library", "vectors")
PASSWORDS = ("password", "sslpassword")
SHOWN = frozenset(
    "host hostaddr port dbname user service sslmode target_session_attrs application_name".split()
)
"""Parameters of libpq that are shown; all others may be secrets, or lead to them."""
PARAMETERS = SHOWN | frozenset(
    "password passfile require_auth channel_binding connect_timeout client_encoding options"
    " fallback_application_name keepalives keepalives_idle keepalives_interval keepalives_count"
    " tcp_user_timeout sslnegotiation sslcompression sslcert sslkey sslkeylogfile sslpassword"
    " sslcertmode sslrootcert sslcrl sslcrldir sslsni requirepeer ssl_min_protocol_version"
    " ssl_max_protocol_version min_protocol_version max_protocol_version krbsrvname gsslib"
    " gssencmode gssdelegation load_balance_hosts servicefile ssl".split()
)
"""Parameters of libpq (PostgreSQL 18) that an address may contain."""

ENCODE = (
    "Write special characters of the user name and password percent-encoded (%40 for @),"
    " or leave the password out and set PGPASSWORD or ~/.pgpass"
)
FORM = "Use postgresql://USER@HOST:PORT/DATABASE?library=NAME"
_LIBRARY = re.compile(r"[a-z][a-z0-9_]{0,49}")
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?")
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")
RESERVED = ("public", "information_schema", "pg_catalog")
HISTORY = "_history"
"""Ending of the library that contains the commits of another one."""


def parse(address: str) -> EngineAddress:
    """Parse the address of a server engine; raise SettingsError, without the address, for an invalid one."""
    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in SERVER_SCHEMES:
        raise _invalid("it has no // after the scheme", FORM)
    if not rest.isascii() or not rest.isprintable() or " " in rest:
        raise _invalid("it contains characters that must be percent-encoded", ENCODE)
    place, _, query = rest.partition("?")
    authority, slash, database = place.partition("/")
    login, at, hosts = authority.rpartition("@")
    if "@" in login or "@" in database or "@" in query or "/" in database:
        # One of these is the rest of a password with a raw @, / or ?.
        raise _invalid("it contains @ or / in an unexpected place", ENCODE)
    for part in (login, database, *hosts.split(",")):
        _decoded(part)
    user, _, password = login.partition(":")
    for host in hosts.split(","):
        _check_host(host)
    kept, ours = _parameters(query)
    visible = [f"{key}={value}" for key, value in kept if key in SHOWN]
    server = f"postgresql://{user}{at}{hosts}{slash}{database}"
    dsn = f"postgresql://{place}"
    return EngineAddress(
        "postgresql",
        dsn=dsn + _query(f"{key}={value}" for key, value in kept),
        server=server + _query(visible),
        library=_library(ours.get("library", DEFAULT_LIBRARY)),
        vectors=_nodes(ours["vectors"]) if "vectors" in ours else (),
        has_password=bool(password) or any(key in PASSWORDS for key, _ in kept),
    )


def _parameters(query: str) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Return the parameters for libpq, as they are written, and our own ones, decoded."""
    kept: list[tuple[str, str]] = []
    ours: dict[str, str] = {}
    for item in filter(None, query.split("&")):
        key, equals, value = item.partition("=")
        if not equals or (key not in OURS and key not in PARAMETERS):
            raise _invalid(
                f"{key!r} is not a parameter of a PostgreSQL connection"
                if equals and key.isidentifier()
                else "a parameter after ? is not of the form KEY=VALUE",
                "Known are library, vectors and the parameters of libpq, such as sslmode",
            )
        decoded = _decoded(value)
        if key not in OURS:
            kept.append((key, value))
        elif key in ours:
            raise _invalid(f"{key} is given twice", FORM)
        else:
            ours[key] = decoded
    return kept, ours


def _library(name: str) -> str:
    """Check the name of a library: it becomes the name of a PostgreSQL schema."""
    if not _LIBRARY.fullmatch(name):
        raise SettingsError(
            f"The library {name!r} in the address of the engine is not a valid name",
            "Use up to 50 lower-case letters, digits and underscores, and begin with a letter",
        )
    if name in RESERVED or name.startswith("pg_") or name.endswith(HISTORY):
        raise SettingsError(
            f"The library cannot be named {name!r}: the name is reserved",
            f"Use a name that does not begin with pg_ or end with {HISTORY}",
        )
    return name


def _nodes(vectors: str) -> tuple[Host, ...]:
    """Return the Qdrant nodes of `qdrant://host1,host2:port`."""
    if not vectors.startswith(QDRANT):
        raise _invalid("vectors must begin with qdrant://", "Use vectors=qdrant://HOST,HOST")
    names = vectors.removeprefix(QDRANT).rstrip("/").split(",")
    if any("@" in name for name in names):
        raise _invalid(
            "vectors contains @",
            "Put the API key of Qdrant into the environment variable QDRANT_API_KEY",
        )
    hosts = [_check_host(name) for name in names]
    if not all(host.name and not host.is_socket for host in hosts):
        raise _invalid("vectors contains an empty host name", "Use vectors=qdrant://HOST,HOST")
    nodes = tuple(Host(host.name, host.port or QDRANT_PORT) for host in hosts)
    if len(set(nodes)) < len(nodes):
        raise _invalid("vectors names a host twice", "Name each Qdrant node once")
    return nodes


class _Parsed(NamedTuple):
    name: str
    port: int | None

    @property
    def is_socket(self) -> bool:
        return self.name.startswith(("/", "@"))


def _check_host(text: str) -> _Parsed:
    """Parse `name`, `name:port`, `[IPv6]:port` or an encoded path of a Unix socket."""
    if text.startswith("["):
        name, bracket, after = text[1:].partition("]")
        try:
            IPv6Address(name)
        except AddressValueError:
            raise _invalid("a host in brackets is not an IPv6 address", FORM) from None
        if not bracket or (after and not after.startswith(":")):
            raise _invalid("a host in brackets is not an IPv6 address", FORM)
        return _Parsed(name, _port(after[1:]))
    name, _, port = text.partition(":")
    name = _decoded(name)
    # Both may be parts of a password: an address without @ that should have one.
    if name and not name.startswith(("/", "@")) and not _HOST_NAME.fullmatch(name):
        raise _invalid("a host name is not valid", f"{FORM}. {ENCODE}")
    return _Parsed(name, _port(port))


def _port(text: str) -> int | None:
    if not text:
        return None
    if not (text.isdecimal() and len(text) <= 5 and 0 < int(text) < 65_536):
        raise _invalid("a port is not a number from 1 to 65535", f"{FORM}. {ENCODE}")
    return int(text)


def _decoded(text: str) -> str:
    """Decode percent-encoding; as in libpq, a % without two digits and a NUL are errors."""
    if _PERCENT.search(text):
        raise _invalid("it contains % without two hexadecimal digits, or %00", ENCODE)
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise _invalid("its percent-encoded text is not UTF-8", ENCODE) from None


def _query(items: Iterable[str]) -> str:
    text = "&".join(items)
    return f"?{text}" if text else ""


def _invalid(reason: str, hint: str) -> SettingsError:
    return SettingsError(f"The address of the engine is not valid: {reason}", hint)
