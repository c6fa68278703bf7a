"""Who is a reader, who an editor, and whom nobody knows."""

from __future__ import annotations

from typing import Any

import pytest

from tuner.errors import TightfitError
from ui.access import Rules, providers, role_of

NOW = 1_000_000.0
RULES = Rules.of(
    {"editors": ["Ada@example.org"], "readers": ["*@example.org"], "editor_groups": ["ml"], "reader_groups": ["all"]}
)


def user(**claims: Any) -> dict[str, Any]:
    return {"is_logged_in": True, "iat": NOW - 60, **claims}


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"email": "ada@example.org"}, "editor"),
        ({"email": "ADA@EXAMPLE.ORG"}, "editor"),
        ({"email": "bob@example.org"}, "reader"),
        ({"email": "bob@example.org", "groups": ["ml"]}, "editor"),
        ({"email": "eve@elsewhere.org", "groups": ["all"]}, "reader"),
        ({"email": "eve@elsewhere.org"}, "nobody"),
        ({"email": "eve@elsewhere.org\n@example.org"}, "nobody"),
        ({"email": "eve@elsewhere.org@example.org"}, "nobody"),
        ({"email": "bob@example.org.evil"}, "nobody"),
        ({"email": "ada@example.org", "email_verified": False}, "nobody"),
        ({"email": "ada@example.org", "is_logged_in": False}, "nobody"),
        ({"email": "ada@example.org", "is_logged_in": "true"}, "nobody"),
        ({"email": "ada@example.org", "iat": NOW - 13 * 3600}, "nobody"),
        ({"email": None}, "nobody"),
        ({"groups": "ml"}, "nobody"),
        ({}, "nobody"),
    ],
)
def test_a_role_is_what_the_lists_say(claims: dict[str, Any], role: str) -> None:
    assert role_of(user(**claims), RULES, NOW) == role


def test_nobody_is_let_in_by_an_empty_address() -> None:
    everybody = Rules.of({"readers": ["*"]})
    assert role_of(user(email=""), everybody, NOW) == "nobody"
    assert role_of(user(email="x@y.z"), everybody, NOW) == "reader"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({}, "lets nobody in"),
        ({"editors": []}, "lets nobody in"),
        ({"editors": "ada@example.org"}, "no list of texts"),
        ({"editors": [1]}, "no list of texts"),
        ({"editor": ["ada@example.org"]}, "no key 'editor'"),
        ({"readers": ["*"], "hours": 0}, "hours"),
        ({"readers": ["*"], "hours": True}, "hours"),
    ],
)
def test_roles_that_mean_nothing_are_refused(section: dict[str, Any], words: str) -> None:
    with pytest.raises(TightfitError, match=words):
        Rules.of(section)


def test_providers_are_those_with_a_client() -> None:
    assert providers({"client_id": "x", "cookie_secret": "y"}) == [None]
    assert providers({"cookie_secret": "y", "corp": {"client_id": "x"}, "client_kwargs": {"prompt": "login"}}) == [
        "corp"
    ]
