"""What padding and tokenizing cost, and what packing, length grouping or cached tokens would save (mistake 5)."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from tuner.doctor.check import Advice, Figure, Finding, open_question
from tuner.doctor.knob_gain import knob_finding
from tuner.doctor.pairs import gain_from, gains
from tuner.doctor.subjects import Subject, baseline_of, data_facts, sequence_length
from tuner.doctor.telling import gain_words, percent

if TYPE_CHECKING:
    from tuner.answer.summary import StudyView

PADDED = 0.10
"""Share of the computed positions from which on padding is worth a change."""
SAVED = 1.05
"""What a change of batching must promise at least."""


def padding(view: StudyView) -> Finding | None:
    """The share of positions that teach nothing, and what other ways to batch would make of it."""
    base = baseline_of(view)
    known = [] if base is None else base.numbers("padding_share")
    if base is None or not known:
        return None
    share, ways = fmean(known), _ways(view, base)
    advice = _advice(view, base, share, ways) if share >= PADDED else None
    told = ", ".join(f"{name} would leave {percent(left)}" for name, left in ways.items())
    return Finding(
        name="padding",
        verdict="fine" if advice is None else "improve",
        statement=f"{percent(share)} of the baseline's positions are padding{'; ' + told if told else ''}.",
        figures=(
            Figure(name="padding", value=share, unit="share", of="baseline"),
            *(Figure(name="padding left", value=left, unit="share", of=name) for name, left in ways.items()),
        ),
        trials=(0,),
        runs=base.run_ids,
        advice=() if advice is None else (advice,),
        essential=False,
    )


def _ways(view: StudyView, base: Subject) -> dict[str, float]:
    """Padding that other ways to batch would leave, by value of the knob ``batching``; from lengths alone."""
    found: dict[str, float] = {}
    grouped = base.numbers("grouped_padding_share")
    if grouped and base.config.batching == "padded":
        found["length-grouped"] = fmean(grouped)
    per_row, length = data_facts(view).get("mean_tokens_per_row") or {}, sequence_length(view)
    if base.config.batching != "packed" and length and isinstance(per_row.get("packed"), (int, float)):
        found["packed"] = max(0.0, 1 - float(per_row["packed"]) / length)
    return found


def _advice(view: StudyView, base: Subject, share: float, ways: dict[str, float]) -> Advice | None:
    """The best measured way, else the best by lengths, as far as it promises enough."""
    measured = gain_from(gains(view, "batching"), base.config.batching)
    if measured:
        best = measured[0]
        return Advice(
            change=f"batching: {best.end}",
            expected=f"{gain_words(best)}, {best.ground}",
            check=f"`tuner show {view.study.name}`: the trials {', '.join(map(str, best.trials[:4]))}",
            knobs={"batching": best.end},
            gain=best.ratio,
            gain_interval=(best.low, best.high),
            measured=True,
        )
    promised = {name: (1 - left) / (1 - share) for name, left in ways.items()}
    name = max(promised, key=lambda each: promised[each], default=None)
    if name is None or promised[name] < SAVED:
        return None
    also = " (with `global_batch_tokens`: packed rows are another batch in samples)" if name == "packed" else ""
    return Advice(
        change=f"batching: {name}{also}",
        expected=f"up to {promised[name]:.2f}x: so many more of the computed positions are real",
        check=f"`tuner run` with `search.batching: [{base.config.batching}, {name}]`",
        knobs={"batching": name},
        gain=promised[name],
    )


def tokens(view: StudyView) -> Finding | None:
    """Whether tokens made on the fly cost time: trials alike in all else."""
    if view.facts is None or "set_tokens" not in view.facts.workload_methods:
        return None
    if not gains(view, "tokens"):
        told = "Tokens made on the fly and cached ones were not measured with the same other settings."
        return open_question("tokens", told, "`tuner run` with `search.tokens: [on-the-fly, cached]`", essential=False)
    return knob_finding(
        view, knob="tokens", name="tokens", nothing="", measured_by="`tuner run SPEC`", essential=False
    )  # fmt: skip
