"""The benchmark's table for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

HEADINGS = (
    "strategy",
    "to 1 % (s)",
    "95 % interval",
    "auto is",
    "hits",
    "to stop (s)",
    "runs",
    "regret",
    "OOM",
    "area",
)
WIDTHS = (32, 11, 17, 8, 6, 12, 6, 8, 5, 6)


def render(document: Mapping[str, Any]) -> str:
    """Tables first, then the strategies by score, then the targets."""
    return "\n".join([*_tables(document), "", *_strategies(document), "", *_targets(document)])


def _tables(document: Mapping[str, Any]) -> Iterator[str]:
    for table in document["tables"]:
        cut = _size(table["memory_limit_bytes"])
        yield (
            f"{table['table']}: {table['rows']} configurations, {table['feasible']} fit in {cut}, "
            f"{table['predictions']} predicted; {table['seconds']:.0f} s in all, floor {table['floor_seconds']:.0f} s"
        )
        yield (
            f"  found: within {table['within']:.1%} of the best (hits: {table['hits']}); a run spreads by "
            f"{table['run_spread']:.1%}, the mean's standard error is {table['standard_error']:.2%}"
        )


def _size(limit_bytes: int | None) -> str:
    if limit_bytes is None:
        return "no limit"
    return f"{limit_bytes / 2**30:.2f} GiB" if limit_bytes >= 2**30 else f"{limit_bytes / 2**20:.0f} MiB"


def _strategies(document: Mapping[str, Any]) -> Iterator[str]:
    yield _line(HEADINGS)
    for name, told in sorted(document["strategies"].items(), key=lambda each: each[1]["score"]):
        low, high = told["score_interval"]
        yield _line(
            (
                name,
                f"{told['score']:,.0f}",
                f"{low:,.0f} to {high:,.0f}",
                f"{told['score_ratio']:.2f}x" if "score_ratio" in told else "",
                f"{told['hit_share']:.0%}",
                f"{told['seconds_to_stop']['median']:,.0f}",
                f"{told['runs_to_stop']['median']:.0f}",
                f"{told['regret_at_stop']['median']:.1%}",
                f"{told['oom_launches']['median']:.0f}",
                f"{told['hypervolume']['median']:.2f}",
            )
        )
    yield (
        "(to 1 %: geometric mean over grids of the median device-seconds until something within 1 % of the best ran, "
        "twice the whole table when never; to stop, runs, regret, OOM, area: medians at the strategy's own end; "
        "area: share of the table's front)"
    )


def _line(cells: tuple[str, ...]) -> str:
    first, *rest = zip(cells, WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{cell:>{width}}" for cell, width in rest)


def _targets(document: Mapping[str, Any]) -> Iterator[str]:
    told = document["targets"]
    for name, words in (("best_optuna", "best Optuna sampler"), ("best_other", "best other strategy")):
        if rival := told.get(name):
            verdict = "met" if rival["met"] else "not met"
            yield (
                f"against the {words} ({rival['strategy']}): {rival['ratio']:.2f} of its seconds, "
                f"wanted {rival['wanted']:.2f}: {verdict}"
            )
    if told:
        near = told["tables_near_floor"]
        yield (
            f"within three runs of the floor on {sum(near.values())} of {len(near)} tables; "
            f"out-of-memory launches: median {told['oom_launches_median']:g}; "
            f"answers within the tolerance: {told['regret_within_share']:.0%}; "
            f"answers over the limit: {told['answers_over_limit']}"
        )
