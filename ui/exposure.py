"""Where the screens listen and for whom: what is refused before anything listens. Pure but for the look at a port."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.errors import TightfitError

DEFAULT_PORT = 8501
PORTS_TRIED = 50
LOOPBACK_NAMES = ("localhost",)


class Refused(TightfitError):
    """These arguments would open the screens to people they are not meant for."""

    exit_status = 2


@dataclass(frozen=True, kw_only=True)
class Listening:
    """What ``tuner ui`` was asked for.

    Attributes:
        host: The address to listen on.
        port: None for the first free one from :data:`DEFAULT_PORT`.
        allow_unauthenticated: Whether others than this machine may come without signing in.
        read_only: Whether nobody may change anything.
        names: Host names under which people reach it, beside this machine's own.
    """

    host: str = "127.0.0.1"
    port: int | None = None
    allow_unauthenticated: bool = False
    read_only: bool = False
    names: tuple[str, ...] = ()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.casefold() in LOOPBACK_NAMES:
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def require_safe(asked: Listening, secrets: Mapping[str, Any]) -> None:
    """Refuses to listen for others without signing in, unless that was said in so many words.

    Args:
        asked: The arguments.
        secrets: The secrets file as plain data; empty without one.

    Raises:
        Refused: Others would come in unasked, or the configuration of signing in is not whole.
    """
    auth = secrets.get("auth")
    if auth:
        _require_whole(auth, secrets)
    elif not is_loopback(asked.host) and not asked.allow_unauthenticated:
        raise Refused(
            f"listening on {asked.host} would let everybody who reaches it change studies: configure signing in "
            "(--secrets FILE with [auth] and [roles]), or say --allow-unauthenticated, best with --read-only"
        )


def _require_whole(auth: Mapping[str, Any], secrets: Mapping[str, Any]) -> None:
    from ui.access import Rules

    for key in ("redirect_uri", "cookie_secret"):
        if not auth.get(key):
            raise Refused(f"[auth] of the secrets has no {key}: without it nobody can sign in")
    if len(str(auth["cookie_secret"])) < 32:
        raise Refused("[auth] cookie_secret is short: make one with `openssl rand -hex 32`")
    if not secrets.get("roles"):
        raise Refused("the secrets have [auth] and no [roles]: list the editors and readers there")
    Rules.of(secrets["roles"])


def allowed_names(asked: Listening, secrets: Mapping[str, Any]) -> frozenset[str]:
    """Host names a request may be addressed to. Addresses by number are always right: no foreign name leads there.

    A page of another site whose name was made to point here (DNS rebinding) arrives with that name.
    """
    from urllib.parse import urlsplit

    redirect = urlsplit(str((secrets.get("auth") or {}).get("redirect_uri", ""))).hostname
    own = () if is_loopback(asked.host) else (socket.gethostname(), asked.host)
    return frozenset(
        each.casefold().rstrip(".") for each in (*LOOPBACK_NAMES, *own, *asked.names, redirect or "") if each
    )


def host_of(header: str | None) -> str | None:
    """The name or address of a ``Host`` header or an origin's last part, without its port; None for no such thing."""
    if not header or any(sign in header for sign in "/@?#\\ \t"):
        return None
    if header.startswith("["):
        inner, closed, port = header[1:].partition("]")
        good = bool(closed) and _address(inner) is not None and (not port or (port[0] == ":" and port[1:].isdigit()))
        return inner if good else None
    name, colon, port = header.partition(":")
    return name.casefold().rstrip(".") or None if not colon or port.isdigit() else None


def is_allowed_host(header: str | None, names: frozenset[str]) -> bool:
    """Whether a request's ``Host`` is one of ours: a known name, or an address by number."""
    host = host_of(header)
    return host is not None and (host in names or _address(host) is not None)


def is_own_origin(origin: str | None, host: str | None) -> bool:
    """Whether a request comes from our own page: its ``Origin`` names the host it is addressed to."""
    if origin is None or host is None:
        return False
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and place.casefold() == host.casefold()


def free_port(host: str, port: int | None) -> int:
    """The port to listen on.

    Args:
        host: The address.
        port: The one asked for, 0 for any; None tries some from :data:`DEFAULT_PORT`.

    Raises:
        TightfitError: It is taken, or the address is none of this machine's.
    """
    wanted: Sequence[int] = range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED) if port is None else (port,)
    reason = "no port"
    for each in wanted:
        try:
            return _bound(host, each)
        except OSError as error:
            reason = error.strerror or str(error)
    where = f"{host}:{port}" if port is not None else f"{host}, ports {wanted[0]} to {wanted[-1]}"
    raise TightfitError(f"cannot listen on {where}: {reason}; name another --host or --port")


def _bound(host: str, port: int) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        return int(probe.getsockname()[1])


def address(host: str, port: int) -> str:
    """Where a person on this machine opens it."""
    found = _address(host)
    shown = "localhost" if found is not None and found.is_unspecified else f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
