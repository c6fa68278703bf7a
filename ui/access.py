"""Who may look and who may act. Without OIDC everybody who reaches these screens may do both (they listen on loopback).

With ``[auth]`` in the secrets file a ``[roles]`` section beside it says who is who; nobody else is let in::

    [roles]
    editors = ["ada@example.org"]           # may submit, pause, cancel, delete and release
    readers = ["*@example.org"]             # may look
    editor_groups = ["ml-platform"]         # the same by the groups of the identity token
    reader_groups = []
    groups_claim = "groups"
    hours = 12                              # after so long people sign in again
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from tuner.errors import TightfitError

Role = Literal["nobody", "reader", "editor"]
AUTH, ROLES, READ_ONLY = "auth", "roles", "tuner_read_only"
"""Sections and keys of the secrets; the last one is set by ``tuner ui --read-only``."""
LISTS = ("editors", "readers", "editor_groups", "reader_groups")


class Forbidden(TightfitError):
    """An action was asked for by somebody who may only look."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The ``[roles]`` section.

    Attributes:
        editors: Addresses, or patterns of them; likewise ``readers``.
        editor_groups: Names of groups; likewise ``reader_groups``.
        groups_claim: The identity token's key that lists a person's groups.
        hours: How long a sign-in counts.
    """

    editors: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    editor_groups: tuple[str, ...] = ()
    reader_groups: tuple[str, ...] = ()
    groups_claim: str = "groups"
    hours: float = 12.0

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Rules:
        """Reads the section.

        Raises:
            TightfitError: An unknown key, a list that is none, or nobody is let in.
        """
        unknown = [key for key in section if key not in (*LISTS, "groups_claim", "hours")]
        if unknown:
            raise TightfitError(f"[roles] has no key {unknown[0]!r}; there are {', '.join(LISTS)}, groups_claim, hours")
        lists = {key: _texts(key, section[key]) for key in LISTS if key in section}
        if not any(lists.values()):
            raise TightfitError(f"[roles] lets nobody in: fill one of {', '.join(LISTS)}")
        return cls(**lists, groups_claim=str(section.get("groups_claim", "groups")), hours=_hours(section))


def _texts(key: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise TightfitError(f"[roles] {key} is no list of texts")
    return tuple(value)


def _hours(section: Mapping[str, Any]) -> float:
    hours = section.get("hours", 12)
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 < hours <= 720:
        raise TightfitError("[roles] hours is no number above 0 and up to 720")
    return float(hours)


def role_of(user: Mapping[str, Any], rules: Rules, now_seconds: float) -> Role:
    """What a signed-in person may do; ``nobody`` for one who is not listed, not signed in, or was too long ago.

    Args:
        user: The claims of the identity token, with ``is_logged_in``.
        rules: The ``[roles]`` section.
        now_seconds: Unix time.
    """
    if user.get("is_logged_in") is not True or _is_old(user, rules, now_seconds):
        return "nobody"
    address = "" if user.get("email_verified") is False else str(user.get("email") or "").casefold()
    groups = user.get(rules.groups_claim)
    mine = {str(each) for each in groups} if isinstance(groups, list | tuple) else set()
    if _is_listed(address, rules.editors) or mine & set(rules.editor_groups):
        return "editor"
    if _is_listed(address, rules.readers) or mine & set(rules.reader_groups):
        return "reader"
    return "nobody"


def _is_old(user: Mapping[str, Any], rules: Rules, now_seconds: float) -> bool:
    issued = user.get("iat")
    return isinstance(issued, int | float) and now_seconds - issued > rules.hours * 3600


def _is_listed(address: str, patterns: Sequence[str]) -> bool:
    one = address.count("@") == 1 and address.isprintable() and " " not in address
    return one and any(fnmatchcase(address, pattern.casefold()) for pattern in patterns)


def secret(name: str) -> Any:
    """A section of the secrets; None without it, or without any."""
    try:
        return st.secrets.get(name)
    except (StreamlitSecretNotFoundError, FileNotFoundError):
        return None


def is_configured() -> bool:
    """Whether people have to sign in."""
    return bool(secret(AUTH))


def role() -> Role:
    """What the person of this session may do."""
    found = _signed_in() if is_configured() else "editor"
    return "reader" if found == "editor" and secret(READ_ONLY) else found


def _signed_in() -> Role:
    return role_of(st.user.to_dict(), Rules.of(secret(ROLES) or {}), time.time())


def may_act() -> bool:
    """Whether controls that change something are shown."""
    return role() == "editor"


def require_editor() -> None:
    """The gate in front of every change: the buttons are not.

    Raises:
        Forbidden: This session may only look.
    """
    if not may_act():
        raise Forbidden("You may look at these screens, not change anything: ask who runs them for the editor's role.")


def admitted() -> bool:
    """Whether the page may be drawn; if not, what to do stands in its place."""
    if role() != "nobody":
        return True
    st.title("Tightfit", anchor=False)
    if st.user.get("is_logged_in") is True:
        st.warning("You are signed in, but may not see these screens.", icon=":material/lock:")
        st.text("Ask who runs them for a role. If your sign-in is older than they allow, sign in again.")
        st.button("Sign out", on_click=st.logout, icon=":material/logout:")
    else:
        st.text("Sign in to see the studies.")
    for name in providers(secret(AUTH) or {}):
        label = "Sign in" if name is None else f"Sign in with {name}"
        st.button(label, key=f"login-{name}", on_click=st.login, args=(name,), type="primary", icon=":material/login:")
    return False


def providers(section: Mapping[str, Any]) -> list[str | None]:
    """Names of the identity providers of ``[auth]``; None for an unnamed one."""
    named: list[str | None] = [
        name for name, value in section.items() if isinstance(value, Mapping) and "client_id" in value
    ]
    return [None] if "client_id" in section else named
