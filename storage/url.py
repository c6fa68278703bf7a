"""Which database a text means. Every common spelling is understood; no password ever leaves :func:`safe_url`."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import platformdirs
from sqlalchemy.engine import URL

from storage.errors import StoreUnavailable

POSTGRESQL_DRIVER = "postgresql+psycopg2"
SECRET_KEYS = frozenset({"password", "sslpassword", "passwd"})
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<rest>.*)", re.DOTALL)
_FILE = re.compile(r"\.(db|sqlite|sqlite3)$", re.IGNORECASE)
_DSN = re.compile(r"^\s*\w+\s*=")
_PLACE = r"(?P<hosts>[^@/?]*)(?:/(?P<database>[^?]*))?(?:\?(?P<query>.*))?$"
_SHAPES = tuple(
    re.compile(shape, re.DOTALL)
    for shape in (
        r"(?P<login>[^?]*)@" + _PLACE,
        # No login, though an option holds an '@'.
        r"(?P<login>)(?P<hosts>[^@/?:]*(?::\d+)?)(?:/(?P<database>[^?@]*))?(?:\?(?P<query>\w+=.*))$",
        # A password with raw '?' and '@': what follows the last '@' is the place.
        r"(?P<login>.*)@" + _PLACE,
        r"(?P<login>)" + _PLACE,
    )
)
"""How what follows ``://`` may look; the first that fits counts."""


def data_folder() -> Path:
    """Where the embedded store lies: ``TUNER_DATA_DIR``, else the user's data folder."""
    return Path(os.environ.get("TUNER_DATA_DIR") or platformdirs.user_data_dir("tightfit")).expanduser()


def normalise_url(text: str | None = None) -> URL:
    """The database a text names, with the driver this package uses.

    Args:
        text: ``postgres://``, ``postgresql://``, ``postgresql+<any driver>://``, libpq's ``host=... dbname=...``,
            ``sqlite:///path`` or a path ending in ``.db``, ``.sqlite`` or ``.sqlite3``. None or empty: the file
            ``tuner.db`` in :func:`data_folder`.

    Raises:
        StoreUnavailable: None of these. The message does not repeat the text, which may hold a password.
    """
    stripped = _unquoted((text or "").strip())
    if not stripped:
        return sqlite_url(data_folder() / "tuner.db")
    match = _SCHEME.match(stripped.removeprefix("jdbc:"))
    if match is None:
        return _without_scheme(stripped)
    kind = match["scheme"].lower().partition("+")[0]
    if kind in {"postgres", "postgresql"}:
        return _postgresql_url(match["rest"])
    if kind == "sqlite":
        return _sqlite_from(match["rest"])
    raise StoreUnavailable(f"a store cannot be {kind!r}: use postgresql://user@host/database or a file ending in .db")


def _unquoted(text: str) -> str:
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1].strip() if quoted else text


def _without_scheme(text: str) -> URL:
    if _FILE.search(text):
        return sqlite_url(Path(text))
    if _DSN.match(text):
        return _from_dsn(text)
    raise StoreUnavailable("the store's address is none of postgresql://user@host/database or a file ending in .db")


def sqlite_url(path: Path) -> URL:
    """The URL of one SQLite file, its path made absolute."""
    return URL.create("sqlite", database=str(path.expanduser().absolute()))


def _sqlite_from(rest: str) -> URL:
    path = unquote(rest.partition("?")[0].removeprefix("/"))
    if not path or ":memory:" in path:
        raise StoreUnavailable("a store in memory would be lost with its process: name a file, e.g. sqlite:///tuner.db")
    return sqlite_url(Path(path))


def _from_dsn(text: str) -> URL:
    from psycopg2.extensions import parse_dsn  # type: ignore[import-untyped]

    try:
        parts = dict(parse_dsn(text))
    except Exception as error:  # psycopg2 quotes the text in its message
        raise StoreUnavailable("the store's address looks like 'host=... dbname=...' but is not valid") from error
    hosts = ",".join(_host_and_port(parts.pop("host", ""), parts.pop("port", "")))
    return _build(
        user=parts.pop("user", None),
        password=parts.pop("password", None),
        hosts=hosts,
        database=parts.pop("dbname", None),
        query=parts,
    )


def _host_and_port(hosts: str, ports: str) -> list[str]:
    names, numbers = hosts.split(","), ports.split(",")
    numbers += numbers[-1:] * (len(names) - len(numbers))
    return [f"{name}:{number}" if number else name for name, number in zip(names, numbers, strict=False)]


def _postgresql_url(rest: str) -> URL:
    match = next(filter(None, (shape.match(rest) for shape in _SHAPES)), None)
    if match is None:
        raise StoreUnavailable("the store's address is not postgresql://user:password@host:port/database")
    user, separator, password = match["login"].partition(":")
    return _build(
        user=unquote(user) or None,
        password=unquote(password) if separator else None,
        hosts=match["hosts"],
        database=unquote(match["database"] or "") or None,
        query=dict(parse_qsl(match["query"] or "", keep_blank_values=True)),
    )


def _build(*, user: str | None, password: str | None, hosts: str, database: str | None, query: dict[str, str]) -> URL:
    """One host becomes host and port; a socket folder or several hosts go where psycopg2 looks for them."""
    many = unquote(hosts)
    options: dict[str, str | tuple[str, ...]] = {**query}
    host, port = None, None
    if "," in many:
        options["host"] = tuple(many.split(","))
    elif "/" in many:
        folder, _, number = many.partition(":")
        options |= {"host": folder} | ({"port": number} if number else {})
    elif many:
        host, port = _split_port(many)
    return URL.create(
        POSTGRESQL_DRIVER, username=user, password=password, host=host, port=port, database=database, query=options
    )


def _split_port(text: str) -> tuple[str | None, int | None]:
    match = re.fullmatch(r"(\[(?P<six>[^\]]*)\]|(?P<name>[^:]*))(:(?P<port>\d*))?", text)
    if match is None:
        raise StoreUnavailable("the store's host and port are not host:port (an IPv6 address stands in brackets)")
    port = int(match["port"]) if match["port"] else None
    if port is not None and port > 65535:
        raise StoreUnavailable(f"port {port} of the store's address is above 65535")
    return match["six"] or match["name"] or None, port


def safe_url(url: URL) -> str:
    """The URL for people and logs: every secret replaced, SQLite as its plain path."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    hidden = {key: "***" if key.lower() in SECRET_KEYS else value for key, value in url.query.items()}
    return url.set(query=hidden, drivername="postgresql").render_as_string(hide_password=True)


def secret_of(url: URL) -> str | None:
    """The password a driver's message must never show; None without one."""
    in_query = (url.query.get(key) for key in ("password", "sslpassword"))
    return url.password or next((value for value in in_query if isinstance(value, str)), None)
