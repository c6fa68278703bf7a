"""What every check keeps to, whatever was measured."""

from __future__ import annotations

import json

import pytest
from doctor_studies import Tried, check, run, study
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.doctor import CHECKS, diagnose
from tuner.doctor.check import VERDICTS, Check, CheckResult, Finding, open_question
from tuner.documents import ADVICE, CHECK, DIAGNOSIS, EVIDENCE, missing

EMPTY = study()
FULL = study(
    Tried(knobs={"micro_batch_size": 1, "precision": "fp32"}, rate=500.0, said={"data_wait_share": 0.4}),
    Tried(knobs={"micro_batch_size": 8, "precision": "fp32"}, rate=900.0, memory={"swap_bytes": 0}),
    Tried(knobs={"micro_batch_size": 8, "precision": "bf16-true"}, rate=2000.0),
    Tried(knobs={"micro_batch_size": 64}, outcome="device_oom", cause="capacity", rate=None, peak=None),
    data={"rows": 1000, "longest_row": 100},
    search={"micro_batch_size": (1, 8, 64)},
)  # fmt: skip


def test_the_seven_mistakes_are_looked_for_in_their_order():
    assert [each.mistake for each in CHECKS] == [1, 2, 3, 4, 5, 6, 7]
    assert len({each.name for each in CHECKS}) == 7


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.name)
@pytest.mark.parametrize("view", [EMPTY, FULL], ids=["empty", "full"])
def test_a_check_tells_what_it_promises(check: Check, view):
    result = check.result(view)
    assert result.verdict in VERDICTS
    assert result.findings
    assert len({each.name for each in result.findings}) == len(result.findings)
    for finding in result.findings:
        assert finding.statement.endswith((".", "`"))
        if finding.verdict == "not_measured":
            assert "`" in finding.measured_by
        assert bool(finding.advice) == (finding.verdict in ("improve", "broken")), finding
        for advice in finding.advice:
            assert advice.change
            assert advice.expected
            assert advice.check


def test_an_empty_study_is_never_passed():
    result = diagnose(EMPTY)
    assert {each.verdict for each in result.checks} == {"not_measured"}
    assert not result.advice


@pytest.mark.parametrize("view", [EMPTY, FULL], ids=["empty", "full"])
def test_the_document_has_every_promised_field(view):
    document = json.loads(json.dumps(diagnose(view).to_json(), allow_nan=False))
    assert not missing(document, DIAGNOSIS)
    for each in document["checks"]:
        assert not missing(each, CHECK)
        assert not [gap for found in each["evidence"] for gap in missing(found, EVIDENCE)]
        assert not [gap for advice in each["advice"] for gap in missing(advice, ADVICE)]
    assert sum(document["counts"].values()) == 7


def test_the_worst_finding_decides_and_open_ones_beside_the_point_do_not():
    fine = Finding(name="a", verdict="fine", statement="a.")
    open_, beside = open_question("b", "b.", "`x`"), open_question("c", "c.", "`x`", essential=False)
    bad = Finding(name="d", verdict="broken", statement="d.", essential=False)

    def verdict(*findings: Finding) -> str:
        return CheckResult(name="n", mistake=1, title="t", findings=findings).verdict

    assert verdict(fine, beside) == "fine"
    assert verdict(fine, open_) == "not_measured"
    assert verdict(beside) == "not_measured"
    assert verdict(fine, open_, bad) == "broken"


figures = st.one_of(st.none(), st.floats(0.0, 1e9, allow_nan=False))
tries = st.builds(
    Tried,
    knobs=st.fixed_dictionaries(
        {
            "micro_batch_size": st.sampled_from([1, 2, 4, 64]),
            "precision": st.sampled_from(["fp32", "fp16-mixed", "bf16-true"]),
            "loader_workers": st.sampled_from([0, 2, 99]),
        }
    ),
    rate=st.one_of(st.none(), st.floats(0.1, 1e6)),
    peak=st.one_of(st.none(), st.floats(0.0, 16.0)),
    outcome=st.sampled_from(["completed", "pruned", "device_oom", "numerical", "shm", "unsupported", "infra"]),
    said=st.dictionaries(
        st.sampled_from(
            ["data_wait_share", "data_stall_share", "padding_share", "skipped_steps", "blocks", "batch_bytes",
             "workers_bytes_before", "workers_bytes_after", "first_pass_wait_seconds", "later_pass_wait_seconds"]
        ),
        st.one_of(st.none(), st.floats(0.0, 1.0)),
    ),
    memory=st.dictionaries(
        st.sampled_from(["peak_reserved_bytes", "peak_allocated_bytes", "allocation_retries", "swap_bytes"]),
        st.one_of(st.none(), st.integers(0, 2**34)),
    ),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(tries, max_size=6), st.sampled_from(["cpu", "cuda"]), st.sampled_from([None, 8.0]))
def test_no_mixture_of_rows_makes_a_check_fail(tried, device, limit):
    view = study(*tried, device=device, limit_gib=limit)
    json.dumps(diagnose(view).to_json(), allow_nan=False)


@pytest.mark.parametrize("purpose", ["verify", "soak", "profile"])
def test_a_longer_run_that_failed_or_is_half_written_counts_for_nothing(purpose):
    failed = run(
        purpose, trial_id=1, outcome="crashed", measurement={"growth": "flat", "seconds": 1.0, "tool": "torch"}
    )
    half = run(purpose, trial_id=1, at=600.0, measurement={"version": 1})
    assert check(study(Tried(), longer=[failed, half]), "profiling").verdict == "not_measured"
    assert check(study(Tried(), longer=[failed, half]), "fragmentation").verdict == "not_measured"
