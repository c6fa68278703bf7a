"""A capability child tries choices on real steps, and says which it is trying before it tries."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from objectives import knobs
from objectives.contract import ObjectiveReference
from objectives.knobs import Facts, facts_from_mapping
from objectives.trial.capability import run
from objectives.trial.channel import Channel
from objectives.trial.protocol import RunRequest

WORKLOADS = Path(__file__).parents[1] / "workloads"
sys.path.append(str(WORKLOADS))


def request_for(objective: str, answer: dict[str, Any]) -> RunRequest:
    return RunRequest(
        run="capability-test",
        purpose="capability",
        objective=ObjectiveReference(kind=f"tests_tiny_lm:{objective}", folder=str(WORKLOADS)),
        answer=answer,
    )


def ask_here(objective: str, **answer: Any) -> list[dict[str, Any]]:
    """Runs the body in this process, which has torch imported already. Returns its events."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as lines:
        run(request_for(objective, answer), Channel(theirs))
        theirs.shutdown(socket.SHUT_WR)
        return [json.loads(line) for line in lines]


def ask_child(objective: str, **answer: Any) -> tuple[list[dict[str, Any]], int]:
    """Runs one cold capability child to its end. Returns its events and its exit status."""
    request = request_for(objective, answer)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "objectives.trial.child", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        ours.sendall(request.to_json().encode() + b"\n")
        with ours.makefile("rb") as lines:
            events = [json.loads(line) for line in lines]
    child.communicate()
    return events, child.returncode


def answers(events: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == "answer" and key in event]


def last_facts(events: list[dict[str, Any]]) -> Facts:
    return facts_from_mapping(answers(events, "facts")[-1]["facts"])


def refused(events: list[dict[str, Any]]) -> dict[str, str]:
    return {event["tried"]: event["refused"] for event in answers(events, "tried") if event["refused"]}


def everything() -> dict[str, list[Any]]:
    return {item.name: list(item.values) for item in knobs.KNOBS if item.choices}


def test_a_transformers_model_runs_every_choice_that_a_cpu_can() -> None:
    events, status = ask_child("TinyLM", knobs=everything())
    assert status == 0
    facts = last_facts(events)
    assert facts.device_kind == "cpu"
    assert facts.cores >= 1
    assert "torch" in facts.libraries
    assert {"checkpoint_blocks", "set_attention", "set_loss", "lengths"} <= facts.workload_methods
    assert not facts.has_convolutions
    assert refused(events) == {}
    tried = [event["tried"] for event in answers(events, "tried")]
    assert tried[0] == "base"
    assert {"precision=bf16-true", "activation_checkpointing=selective", "loss=chunked"} <= set(tried)
    assert not [name for name in tried if name.startswith(("compile", "allocator", "loader", "memory_format"))]
    order = [(event.get("trying") or event.get("tried")) for event in events if {"trying", "tried"} & set(event)]
    assert order == [name for name in tried for _ in range(2)]


def test_a_user_s_own_convolution_net_gets_the_choices_its_methods_allow() -> None:
    events = ask_here("Pictures", knobs=everything())
    facts = last_facts(events)
    assert facts.has_convolutions
    assert facts.workload_methods == {"checkpoint_blocks"}
    tried = {event["tried"] for event in answers(events, "tried")}
    assert {"memory_format=channels_last", "activation_checkpointing=full", "precision=bf16-true"} <= tried
    assert not [name for name in tried if name.startswith(("attention", "loss", "batching"))]
    assert refused(events) == {}


def test_a_chunked_loss_that_is_another_loss_is_refused_with_both_numbers() -> None:
    events = ask_here("WrongChunks", knobs={"loss": ["chunked"]})
    assert "instead of" in refused(events)["loss=chunked"]


@pytest.mark.case("I12")
def test_a_recomputation_that_differs_refuses_checkpointing_alone() -> None:
    events = ask_here(
        "CheckpointBreaks", knobs={"activation_checkpointing": ["none", "full"], "precision": ["bf16-mixed"]}
    )
    reasons = refused(events)
    assert list(reasons) == ["activation_checkpointing=full"]
    assert "CheckpointError" in reasons["activation_checkpointing=full"]


@pytest.mark.case("I11")
def test_parameters_that_silently_get_no_gradient_refuse_checkpointing() -> None:
    events = ask_here("GradientsLost", knobs={"activation_checkpointing": ["full"], "memory_format": ["channels_last"]})
    reasons = refused(events)
    assert list(reasons) == ["activation_checkpointing=full"]
    assert "get no gradient" in reasons["activation_checkpointing=full"]


@pytest.mark.case("C07")
def test_a_shape_rule_of_a_kernel_leaves_the_micro_batches_that_fit_it() -> None:
    sizes = list(range(1, 9))
    events = ask_here("RowsOfSixteen", knobs={"micro_batch_size": sizes}, shapes=True, base={"micro_batch_size": 8})
    legal, reasons = knobs.legal_values(knobs.knob("micro_batch_size"), last_facts(events), sizes)
    assert legal == (8,)
    assert "divisible by 16" in reasons[3]


def test_a_choice_that_takes_the_process_down_is_known_and_skipped_the_next_time() -> None:
    asked = {"attention": ["eager"], "loss": ["chunked"]}
    events, status = ask_child("Dies", knobs=asked)
    assert status == -11
    assert "finished" not in [event["event"] for event in events]
    assert events[-1]["trying"] == "attention=eager"
    reason = "ended the process by signal 11"
    events = ask_here("Dies", knobs=asked, skip={"attention=eager": reason})
    assert [event["tried"] for event in answers(events, "tried")] == ["base", "loss=chunked"]
    assert last_facts(events).unsupported["attention=eager"] == reason


def test_a_try_that_runs_out_of_memory_says_nothing_about_the_choice() -> None:
    events = ask_here("RunsOut", knobs={"loss": ["chunked"]})
    (told,) = [event for event in answers(events, "tried") if event["tried"] == "loss=chunked"]
    assert told["refused"] is None
    assert "memory ran out" in told["unknown"]
    assert last_facts(events).unsupported == {}


def test_a_base_that_fails_is_not_blamed_on_the_choices() -> None:
    events = ask_here("RowsOfSixteen", knobs={"loss": ["chunked"], "precision": ["bf16-mixed"]})
    assert list(refused(events)) == ["base"]
    unknown = {event["tried"]: event["unknown"] for event in answers(events, "tried") if event["tried"] != "base"}
    assert all("without this choice" in text for text in unknown.values())


def test_data_that_cannot_be_read_ends_the_run_before_any_choice_is_blamed() -> None:
    with pytest.raises(FileNotFoundError, match="corpus"):
        ask_here("NoData", knobs={"loss": ["chunked"]})


def test_a_loss_that_renames_the_head_is_compared_all_the_same() -> None:
    events = ask_here("RenamedHead", knobs={"loss": ["chunked"]})
    assert [event["tried"] for event in answers(events, "tried")] == ["base", "loss=chunked"]
    assert refused(events) == {}
