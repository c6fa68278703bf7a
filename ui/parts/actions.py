"""What a person may do with a study, each with its question; all of it goes through :mod:`ui.acting`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from storage.records import StudyStatus
from ui import access, acting
from ui.guard import guarded
from ui.plain import markdown


@dataclass(frozen=True, kw_only=True)
class Action:
    """One thing to do.

    Attributes:
        when: Statuses that allow it.
        asks: The question before it is done; None where it can be undone and is done at once.
        done: What is said afterwards.
    """

    name: str
    icon: str
    when: frozenset[StudyStatus]
    act: Callable[[str], Any]
    done: str
    asks: str | None = None


ACTIONS = (
    Action(
        name="Pause", icon="pause", when=frozenset({"queued", "running"}), act=acting.pause,
        done="Paused: the runs in progress end first.",
    ),
    Action(
        name="Resume", icon="play_arrow", when=frozenset({"paused", "failed", "cancelled", "finished"}),
        act=acting.resume, done="Back in the workers' queue.",
    ),
    Action(
        name="Cancel", icon="block", when=frozenset({"queued", "running", "paused"}), act=acting.cancel,
        done="Cancelled: its measurements stay.",
        asks="The study ends now. What it has measured stays, and it can be resumed later.",
    ),
    Action(
        name="Delete", icon="delete", when=frozenset({"queued", "paused", "finished", "failed", "cancelled"}),
        act=acting.delete, done="Deleted.",
        asks="The study and everything it measured are removed for good.",
    ),
)  # fmt: skip
"""Every action, in the order of the menu."""
BY_NAME = {each.name: each for each in ACTIONS}


def offered(status: StudyStatus) -> tuple[str, ...]:
    """Names of the actions that the status allows."""
    return tuple(each.name for each in ACTIONS if status in each.when)


def menu(name: str, status: StudyStatus, key: str, label: str = "Actions") -> None:
    """The menu of a study's actions; nothing for who may only look."""
    if not access.may_act():
        return
    chosen = st.menu_button(label, offered(status), key=key, width="content", type="tertiary")
    if chosen in offered(status):
        begin(BY_NAME[chosen], name)


def begin(action: Action, name: str) -> None:
    """Does it, after its question where it has one."""
    if action.asks is None:
        _do(action, name)
        return
    _ask(action, name)


def _ask(action: Action, name: str) -> None:
    @st.dialog(f"{action.name} this study?", icon=f":material/{action.icon}:")
    def question() -> None:
        st.text(name)
        st.write(action.asks)
        with st.container(horizontal=True, horizontal_alignment="right"):
            if st.button("Keep it", key="keep"):
                st.rerun()
            if st.button(action.name, key="go", type="primary", icon=f":material/{action.icon}:"):
                _do(action, name)

    question()


def _do(action: Action, name: str) -> None:
    with guarded():
        action.act(name)
        st.toast(f"{markdown(name)}: {action.done}", icon=f":material/{action.icon}:")
        st.rerun()
