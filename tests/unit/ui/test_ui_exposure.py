"""Where the screens may listen, and which requests are ours."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tuner.errors import TightfitError
from ui.exposure import (
    Listening,
    Refused,
    address,
    allowed_names,
    free_port,
    host_of,
    is_allowed_host,
    is_loopback,
    is_own_origin,
    require_safe,
)

AUTH = {"redirect_uri": "https://tuner.example.org/oauth2callback", "cookie_secret": "s" * 32, "client_id": "x"}
ROLES = {"editors": ["ada@example.org"]}


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_this_machine_may_always_look(host: str) -> None:
    assert is_loopback(host)
    require_safe(Listening(host=host), {})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "tuner.example.org", "localhost.example.org"])
def test_others_need_to_sign_in_or_a_flag(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(Refused, match="--allow-unauthenticated"):
        require_safe(Listening(host=host), {})
    with pytest.raises(Refused):
        require_safe(Listening(host=host, read_only=True), {})
    require_safe(Listening(host=host, allow_unauthenticated=True), {})
    require_safe(Listening(host=host), {"auth": AUTH, "roles": ROLES})


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        ({"auth": AUTH}, "no \\[roles\\]"),
        ({"auth": AUTH, "roles": {"readers": []}}, "lets nobody in"),
        ({"auth": {**AUTH, "cookie_secret": "short"}, "roles": ROLES}, "cookie_secret is short"),
        ({"auth": {**AUTH, "redirect_uri": ""}, "roles": ROLES}, "no redirect_uri"),
        ({"auth": {"client_id": "x"}, "roles": ROLES}, "no redirect_uri"),
    ],
)
def test_half_a_sign_in_is_refused_even_at_home(secrets: dict[str, Any], words: str) -> None:
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(TightfitError, match=words):
            require_safe(Listening(host=host, allow_unauthenticated=True), secrets)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost:8501", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]:8501", "::1"),
        ("Tuner.Example.org.", "tuner.example.org"),
        ("", None),
        (None, None),
        ("user@localhost", None),
        ("localhost/x", None),
        ("localhost:x", None),
        ("[::1", None),
        ("[evil]", None),
        ("a b", None),
    ],
)
def test_a_host_header_is_read_strictly(header: str | None, host: str | None) -> None:
    assert host_of(header) == host


def test_a_foreign_name_is_not_ours() -> None:
    names = allowed_names(Listening(names=("Lab.example.org",)), {"auth": AUTH})
    for ours in ("localhost:1", "127.0.0.1:8501", "[::1]:8501", "lab.example.org", "tuner.example.org:443", "10.1.2.3"):
        assert is_allowed_host(ours, names), ours
    for foreign in ("evil.example", "localhost.evil.example", "tuner.example.org.evil", "", None):
        assert not is_allowed_host(foreign, names), foreign


def test_an_origin_is_ours_only_with_the_same_host_and_port() -> None:
    assert is_own_origin("http://127.0.0.1:8501", "127.0.0.1:8501")
    assert is_own_origin("https://tuner.example.org", "tuner.example.org")
    for origin in (
        "http://127.0.0.1:8502",
        "http://localhost:8501",
        "null",
        "",
        None,
        "file://",
        "http://evil.example",
    ):
        assert not is_own_origin(origin, "127.0.0.1:8501"), origin


def test_a_taken_port_is_said_and_the_next_free_one_is_found() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(TightfitError, match=f"cannot listen on 127.0.0.1:{port}"):
            free_port("127.0.0.1", port)
    assert free_port("127.0.0.1", 0) > 0
    assert free_port("127.0.0.1", None) >= 8501


def test_the_address_is_one_that_can_be_opened() -> None:
    assert address("0.0.0.0", 8501) == "http://localhost:8501"
    assert address("::1", 8501) == "http://[::1]:8501"
    assert address("127.0.0.1", 1) == "http://127.0.0.1:1"
