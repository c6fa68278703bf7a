"""A child's line to its worker, over a real socket pair in one process."""

import json
import socket
import threading
import time

import pytest

from objectives.trial.channel import Channel, read_request_line
from objectives.trial.protocol import decode


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def wait_until(condition):
    give_up_at = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def test_the_request_is_read_without_the_lines_behind_it(ends):
    worker, child = ends
    worker.sendall(b'{"run": 1}\n{"stop": "dominated"}\n')
    assert read_request_line(child) == b'{"run": 1}\n'

    channel = Channel(child, lost=lambda _reason: None)
    channel.listen(60)
    wait_until(lambda: channel.stop_requested)
    assert channel.stop_reason == "dominated"


def test_a_request_in_pieces(ends):
    worker, child = ends
    sender = threading.Thread(target=lambda: [worker.sendall(part) for part in (b"x" * 300_000, b"y", b"z\n")])
    sender.start()
    assert read_request_line(child) == b"x" * 300_000 + b"yz\n"
    sender.join()


def test_a_worker_that_leaves_before_its_request(ends):
    worker, child = ends
    worker.sendall(b"half a reque")
    worker.close()
    with pytest.raises(EOFError):
        read_request_line(child)


def test_events_carry_order_and_rank(ends):
    worker, child = ends
    channel = Channel(child, rank=1, world_size=2)
    channel.phase("build")
    channel.send("memory", used_share=float("nan"))
    first, second = [decode(line) for line in worker.recv(65536).splitlines()]
    assert (first.event, first.fields, first.rank, first.world_size) == ("phase", {"phase": "build"}, 1, 2)
    assert (second.seq, second.fields) == (1, {"used_share": None})
    assert channel.last_phase == "build"


def test_many_threads_never_mix_their_lines(ends):
    worker, child = ends
    channel, received = Channel(child), bytearray()
    threads = [
        threading.Thread(target=lambda: [channel.send("step", text="t" * 2000) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while received.count(b"\n") < 200:
        received += worker.recv(65536)
    assert sorted(json.loads(line)["seq"] for line in received.splitlines()) == list(range(200))
    for thread in threads:
        thread.join()


def test_a_silent_worker_and_a_gone_one_end_the_run(ends):
    worker, child = ends
    reasons = []
    Channel(child, lost=reasons.append).listen(0.05)
    wait_until(lambda: reasons)
    assert reasons == ["its worker said nothing for 0.05 s"]

    Channel(child, lost=reasons.append).listen(60)
    worker.close()
    wait_until(lambda: len(reasons) == 2)
    assert reasons[1] == "its worker is gone"


def test_keepalives_keep_it_going_and_nonsense_is_no_stop(ends):
    worker, child = ends
    reasons = []
    channel = Channel(child, lost=reasons.append)
    channel.listen(0.5)
    for line in (b'{"keepalive": 1}\n', b"\xff\xfe\n", b"[]\n", b"{", b'"stop": "time"}\n'):
        worker.sendall(line)
        time.sleep(0.01)
    wait_until(lambda: channel.stop_requested)
    assert (channel.stop_reason, reasons) == ("time", [])


def test_sending_to_a_worker_that_is_gone_ends_the_run(ends):
    worker, child = ends
    reasons = []
    channel = Channel(child, lost=reasons.append)
    worker.close()
    channel.send("started")
    assert "cannot be reached" in reasons[0]
