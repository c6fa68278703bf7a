"""What a reader sees when something is wrong: the place, the reason and the way out; never a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from storage.errors import NotFound, SchemaMismatch, StorageError
from tuner.errors import StoreError, TightfitError
from ui.plain import markdown

LOGGER = logging.getLogger("tuner.ui")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@contextmanager
def guarded() -> Iterator[None]:
    """Turns an error of the block into a message on the page. What nobody foresaw goes to the server's log alone."""
    try:
        yield
    except (StorageError, TightfitError) as error:
        LOGGER.warning("a page could not be drawn: %s", error)
        show(error)
    except Exception:
        LOGGER.exception("a page failed")
        st.error("This page failed. The server's log says why; reload the page to try again.", icon=":material/error:")


def show(error: Exception) -> None:
    """What went wrong and what to do. The store's own words, which name hosts, are for who sits at the machine."""
    head, ways = _said(error)
    st.error(head, icon=":material/error:")
    if _at_the_machine() or not isinstance(error, StorageError | StoreError):
        st.code(str(error), language=None, wrap_lines=True)
    for way in ways:
        st.text(way)


def _said(error: Exception) -> tuple[str, tuple[str, ...]]:
    if isinstance(error, SchemaMismatch):
        return "The store's tables are not those of this version.", (
            "Run `tuner db migrate` where the store can be reached, then reload this page.",
        )
    if isinstance(error, NotFound):
        return "It is not in the store any more.", (
            "It may have been deleted. The list of studies shows what there is.",
        )
    if isinstance(error, StorageError | StoreError):
        return "The store cannot be reached.", (
            "These screens read the store that TUNER_DATABASE_URL names, else the embedded one in the data folder.",
            "Start the database or correct the variable, then reload this page. `tuner db check` tells the same.",
        )
    return markdown(str(error).splitlines()[0] if str(error) else type(error).__name__), ()


def _at_the_machine() -> bool:
    return st.get_option("server.address") in LOOPBACK
