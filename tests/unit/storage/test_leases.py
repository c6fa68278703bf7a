"""When a lease may be taken away: decided on plain times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from storage.recovery import Contact
from storage.workers import LONGEST_NAME, application_name

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("silent_seconds", "in_order_seconds", "over"),
    [
        (61, 3600, True),
        (60, 3600, False),  # exactly the lease is still inside it
        (59, 3600, False),
        (3600, 59, False),  # the server, or the judge's contact, is younger than a lease
        (3600, 60, True),
        (-5, 3600, False),
    ],
)
def test_a_lease_is_over_only_when_all_was_in_order_for_one(
    silent_seconds: float, in_order_seconds: float, over: bool
) -> None:
    contact = Contact(moment=NOW, since=ago(in_order_seconds), lease_seconds=60)
    assert contact.is_over(ago(silent_seconds), lease_seconds=60) is over


def test_the_longer_of_two_leases_counts() -> None:
    """A judge with a long lease would not notice an outage that a short lease does not survive."""
    slow = Contact(moment=NOW, since=ago(3600), lease_seconds=60)
    assert not slow.is_over(ago(30), lease_seconds=5)
    quick = Contact(moment=NOW, since=ago(3600), lease_seconds=5)
    assert not quick.is_over(ago(30), lease_seconds=60)
    assert quick.is_over(ago(30), lease_seconds=5)


@pytest.mark.parametrize("host", ["gpu-07", "a" * 80, "größe", ""])
def test_a_workers_name_on_the_server_fits_and_ends_with_its_device(host: str) -> None:
    name = application_name(host, "cuda:11")
    assert name.startswith("tuner worker ")
    assert name.endswith("/cuda:11")
    assert len(name.encode()) <= LONGEST_NAME
