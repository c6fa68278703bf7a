"""The worker's end of a channel, against a child that does what it likes with its own."""

import json
import socket

import pytest

from objectives.contract import ObjectiveReference
from objectives.trial.protocol import Event, RunRequest, encode
from tuner.work import run_line
from tuner.work.run_line import Line

REQUEST = RunRequest(run="r", purpose="search", objective=ObjectiveReference(kind="causal_lm"), keepalive_seconds=60)


def made(**changes):
    ours, theirs = socket.socketpair()
    request = RunRequest.from_json(json.dumps(json.loads(REQUEST.to_json()) | changes))
    return Line(ours, request), theirs


def event(**fields):
    return encode(Event(event="step", seq=0, monotonic_seconds=1.0, fields=fields))


@pytest.fixture
def line_and_child():
    line, child = made()
    with child:
        assert RunRequest.from_json(child.recv(65536).decode()) == REQUEST
        yield line, child
    line.close()


def test_events_in_pieces(line_and_child):
    line, child = line_and_child
    whole = event(seconds=1) + event(seconds=2)
    child.sendall(whole[:30])
    assert line.read() == []
    child.sendall(whole[30:])
    assert [found.fields["seconds"] for found in line.read()] == [1, 2]
    assert line.source() is not None
    child.close()
    assert line.read() == []
    assert line.source() is None


@pytest.mark.parametrize(
    "broken",
    [b"not json", b"\xff\x00", b"[]", b"{}", b'{"v": 1}', b'{"v": 9, "event": "step"}', b"[" * 100_000, b""],
)
def test_what_is_no_event_is_counted_and_the_next_one_read(line_and_child, broken):
    line, child = line_and_child
    child.sendall(broken + b"\n" + event(seconds=3))
    assert [found.fields["seconds"] for found in line.read()] == [3]
    assert line.broken == 1
    assert line.first_broken == broken[:500].decode("utf-8", "replace")


def test_a_line_without_end_takes_no_memory(line_and_child, monkeypatch):
    monkeypatch.setattr(run_line, "LARGEST_LINE_BYTES", 1000)
    line, child = line_and_child
    for _ in range(5):
        child.sendall(b"x" * 900)
        line.read()
    child.sendall(b"tail\n" + event(seconds=4))
    assert [found.fields["seconds"] for found in line.read()] == [4]
    assert line.broken == 1


def test_a_child_that_does_not_read_blocks_nobody_and_gets_everything_later():
    line, child = made(environment={"A": "x" * 2_000_000})
    with child:
        line.send({"stop": "dominated"})
        received = bytearray()
        while received.count(b"\n") < 2:
            received += child.recv(1 << 20)
            line.keep_alive()
        request, stop = received.splitlines()
        assert len(json.loads(request)["environment"]["A"]) == 2_000_000
        assert json.loads(stop) == {"stop": "dominated"}
    line.send({"stop": "again"})
    line.close()


def test_keepalives_are_sent_when_due():
    line, child = made(keepalive_seconds=0.0)
    with child:
        line.keep_alive()
        assert child.recv(65536).endswith(b'{"keepalive": 1}\n')
    line.close()
