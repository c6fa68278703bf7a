"""Blocks to throughput: warm-up found, skipped steps paid for, composed steps equal to whole ones, no lucky stops."""

import math
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives.measure.window import Block, find_warm_up, is_warm, narrow_enough, stall_share, summarise
from objectives.trial.protocol import WindowPlan

UNHURRIED = settings(deadline=None, max_examples=60)


def whole(seconds: float, *, units: int = 100, applied: bool = True, wait: float = 0.0) -> Block:
    return Block(
        micro_seconds=(seconds,),
        micro_units=(units,),
        optimizer_seconds=0.0,
        accumulation_steps=1,
        applied=applied,
        data_wait_seconds=wait,
    )


def noisy(count: int, *, variation: float = 0.03, r: float = 0.0, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    x, values = rng.gauss(0, 1), []
    for _ in range(count):
        values.append(0.1 * math.exp(variation * x))
        x = r * x + math.sqrt(1 - r * r) * rng.gauss(0, 1)
    return values


BLOCKS = st.lists(
    st.builds(
        whole,
        st.floats(min_value=1e-4, max_value=1e3),
        units=st.integers(0, 10**6),
        applied=st.booleans(),
        wait=st.floats(min_value=0, max_value=1e3),
    ),
    min_size=1,
    max_size=80,
)


class TestBlock:
    def test_a_whole_step_is_its_exact_sum(self) -> None:
        block = Block(micro_seconds=(1.0, 2.0), micro_units=(10, 30), optimizer_seconds=0.5, accumulation_steps=2)
        assert (block.step_seconds, block.units, block.composed) == (3.5, 40, False)

    def test_a_cut_step_is_composed_from_its_pieces(self) -> None:
        block = Block(micro_seconds=(1.0, 2.0), micro_units=(10, 30), optimizer_seconds=0.5, accumulation_steps=8)
        assert (block.step_seconds, block.units, block.composed) == (12.5, 160, True)

    @UNHURRIED
    @given(st.integers(1, 64), st.floats(0.001, 10), st.floats(0, 10), st.integers(3, 64))
    def test_composed_equals_whole_when_micro_steps_are_alike(
        self, accumulation: int, micro: float, optimizer: float, kept: int
    ) -> None:
        kept = min(kept, accumulation)
        common = {"optimizer_seconds": optimizer, "accumulation_steps": accumulation}
        cut = Block(micro_seconds=(micro,) * kept, micro_units=(7,) * kept, **common)
        full = Block(micro_seconds=(micro,) * accumulation, micro_units=(7,) * accumulation, **common)
        assert cut.step_seconds == pytest.approx(full.step_seconds)
        assert cut.units == pytest.approx(full.units)

    def test_a_starved_loader_sets_the_pace_of_a_composed_step(self) -> None:
        # The loader makes a micro-batch in 0.25 s, the model needs 0.1 s and an update 0.3 s. A whole step of 10 takes
        # the loader 2.5 s (the update hides in it); a cut block of 3 takes it 0.75 s, and 0.15 s of that is waiting.
        cut = Block(
            micro_seconds=(0.1, 0.1, 0.1),
            micro_units=(1, 1, 1),
            optimizer_seconds=0.3,
            accumulation_steps=10,
            data_wait_seconds=0.0,
            overlapped_loading=True,
        )
        assert cut.step_seconds == pytest.approx(1.3)  # no wait: the model sets the pace
        starved = Block(
            micro_seconds=(0.1, 0.15, 0.2),
            micro_units=(1, 1, 1),
            optimizer_seconds=0.3,
            accumulation_steps=10,
            data_wait_seconds=0.15,
            overlapped_loading=True,
        )
        assert starved.step_seconds == pytest.approx(10 * 0.75 / 3)

    def test_loading_in_line_is_composed_like_any_part_of_a_micro_step(self) -> None:
        block = Block(
            micro_seconds=(0.3,) * 3,
            micro_units=(1,) * 3,
            optimizer_seconds=0.1,
            accumulation_steps=10,
            data_wait_seconds=0.6,
        )
        assert block.step_seconds == pytest.approx(3.1)


class TestSummary:
    @pytest.mark.case("C01")
    def test_a_skipped_step_costs_time_and_brings_nothing(self) -> None:
        summary = summarise([whole(0.1, applied=index % 2 == 0) for index in range(40)])
        assert summary.throughput == pytest.approx(500)
        assert (summary.blocks, summary.applied_blocks) == (40, 20)

    def test_nothing_applied_is_no_throughput_and_no_error(self) -> None:
        summary = summarise([whole(0.1, applied=False)] * 5)
        assert summary.throughput == 0.0
        assert summary.relative_standard_error is None
        assert summary.half_width_95 is None

    @pytest.mark.case("H03")
    def test_units_per_second_rank_not_seconds_per_step(self) -> None:
        small = summarise([whole(0.233, units=8)] * 5)
        large = summarise([whole(0.443, units=16)] * 5)
        assert small.throughput == pytest.approx(34.3, abs=0.1)
        assert large.throughput == pytest.approx(36.1, abs=0.1)
        assert large.throughput > small.throughput

    @pytest.mark.case("H11")
    def test_spikes_show_beside_the_median(self) -> None:
        summary = summarise([whole(2.0 if index % 10 == 9 else 0.1) for index in range(50)])
        assert summary.median_step_seconds == pytest.approx(0.1)
        assert summary.p95_step_seconds == pytest.approx(2.0)

    @pytest.mark.case("E06")
    def test_waiting_for_data_is_told_apart(self) -> None:
        assert summarise([whole(0.055, wait=0.05)] * 10).data_wait_share == pytest.approx(0.909, abs=1e-3)

    def test_one_block_has_a_throughput_and_no_error(self) -> None:
        summary = summarise([whole(0.5)])
        assert summary.throughput == 200
        assert summary.relative_standard_error is None
        assert summary.effective_sample_size == 1

    @pytest.mark.parametrize("blocks", [[], [whole(0.0)]])
    def test_no_time_is_refused(self, blocks: list[Block]) -> None:
        with pytest.raises(ValueError, match="at least one block"):
            summarise(blocks)

    def test_correlated_steps_are_fewer_than_they_look(self) -> None:
        alike = summarise([whole(s) for s in noisy(200, r=0.8)])
        apart = summarise([whole(s) for s in noisy(200)])
        assert alike.effective_sample_size < 80 < apart.effective_sample_size
        assert alike.relative_standard_error is not None
        assert apart.relative_standard_error is not None
        assert alike.relative_standard_error > apart.relative_standard_error

    def test_longer_windows_are_surer(self) -> None:
        widths = [summarise([whole(s) for s in noisy(count)]).half_width_95 for count in (20, 80, 320)]
        assert widths == sorted(widths, reverse=True)

    @UNHURRIED
    @given(BLOCKS)
    def test_never_nan_and_always_json(self, blocks: list[Block]) -> None:
        mapping = summarise(blocks).to_mapping()
        assert all(value is None or math.isfinite(value) for value in mapping.values())

    @UNHURRIED
    @given(BLOCKS, st.randoms())
    def test_throughput_does_not_depend_on_the_order(self, blocks: list[Block], rng: random.Random) -> None:
        shuffled = rng.sample(blocks, len(blocks))
        assert summarise(shuffled).throughput == pytest.approx(summarise(blocks).throughput)
        assert summarise(shuffled).median_step_seconds == summarise(blocks).median_step_seconds

    @UNHURRIED
    @given(BLOCKS, st.floats(0.01, 100))
    def test_a_slower_clock_scales_everything_and_no_relative_error(self, blocks: list[Block], factor: float) -> None:
        slower = [whole(b.wall_seconds * factor, units=b.micro_units[0], applied=b.applied) for b in blocks]
        first, second = summarise(blocks), summarise(slower)
        assert second.throughput * factor == pytest.approx(first.throughput)
        if first.relative_standard_error is None:
            assert second.relative_standard_error is None
        else:
            assert second.relative_standard_error == pytest.approx(first.relative_standard_error, rel=1e-5, abs=1e-9)


class TestWarmUp:
    @pytest.mark.case("H02")
    def test_compile_and_autotune_are_dropped(self) -> None:
        assert find_warm_up([79, 0.6, *[0.115] * 20]) == 2
        assert find_warm_up([79, 12, 3, 0.6, *[0.115] * 20]) == 4
        assert find_warm_up([79, 0.6, 0.115]) == 2

    def test_at_least_two_and_never_more_than_half(self) -> None:
        assert [find_warm_up([1.0] * count) for count in range(5)] == [0, 1, 2, 2, 2]
        assert find_warm_up([float(100 - index) for index in range(100)]) <= 50

    @pytest.mark.parametrize("r", [0.0, 0.6, 0.8])
    @pytest.mark.parametrize("variation", [0.03, 0.2])
    @pytest.mark.parametrize("count", [6, 20, 100])
    def test_a_series_that_only_wanders_keeps_its_steps(self, r: float, variation: float, count: int) -> None:
        dropped = [find_warm_up(noisy(count, variation=variation, r=r, seed=seed)) for seed in range(60)]
        assert sum(drop > 2 for drop in dropped) <= 12
        assert sum(dropped) / len(dropped) < 2 + 0.06 * count

    def test_a_gentle_warm_up_is_found_by_the_test(self) -> None:
        series = [s * (1.25 if index < 30 else 1.0) for index, s in enumerate(noisy(150, r=0.3))]
        assert find_warm_up(series) == pytest.approx(30, abs=2)

    @UNHURRIED
    @given(st.lists(st.floats(1e-4, 1e4), max_size=60))
    def test_bounds_whatever_comes(self, series: list[float]) -> None:
        drop = find_warm_up(series)
        assert min(len(series), 2) <= drop <= max(min(len(series), 2), len(series) // 2)

    @UNHURRIED
    @given(st.lists(st.floats(0.01, 10), max_size=60), st.sampled_from([0.25, 2.0, 8.0]))
    def test_another_clock_drops_the_same_steps(self, series: list[float], factor: float) -> None:
        assert find_warm_up([s * factor for s in series]) == find_warm_up(series)

    @pytest.mark.parametrize(
        ("series", "warm"),
        [
            ([], False),
            ([1.0], False),
            ([1.0, 1.0], False),
            ([1.0, 1.0, 1.0], True),
            ([79, 0.6, 0.115], False),
            ([79, 0.6, 0.115, 0.115], True),
            ([2.4, 1.5, 1.0], False),
            ([2.4, 1.5, 1.0, 1.02], True),
            ([9, 8, 7, 6, 5, 4], False),
        ],
    )
    def test_warm_while_they_come(self, series: Sequence[float], warm: bool) -> None:
        assert is_warm(series) is warm

    def test_noise_is_warm_soon(self) -> None:
        for seed in range(30):
            series = noisy(40, variation=0.2, r=0.8, seed=seed)
            assert any(is_warm(series[:count]) for count in range(3, 12))


class TestStopping:
    PLAN = WindowPlan(min_seconds=2.0, max_seconds=8.0, target_half_width=0.01)

    def test_the_longest_time_always_ends_it(self) -> None:
        assert narrow_enough([whole(9.0)], self.PLAN, 9.0)
        assert narrow_enough([], self.PLAN, 8.0)

    def test_not_before_the_shortest_time_and_twenty_blocks(self) -> None:
        assert not narrow_enough([whole(0.1)] * 100, self.PLAN, 1.9)
        assert not narrow_enough([whole(0.1)] * 19, self.PLAN, 3.0)
        assert narrow_enough([whole(0.1)] * 20, self.PLAN, 3.0)

    def test_a_target_of_zero_takes_the_whole_window(self) -> None:
        plan = WindowPlan(min_seconds=2.0, max_seconds=8.0, target_half_width=0.0)
        assert not narrow_enough([whole(0.1)] * 20, plan, 7.9)

    def test_wide_windows_go_on(self) -> None:
        assert not narrow_enough([whole(s) for s in noisy(20, variation=0.3)], self.PLAN, 3.0)

    def test_looks_are_few(self) -> None:
        looks = [count for count in range(2000) if narrow_enough([whole(0.1)] * count, self.PLAN, 3.0)]
        assert looks[0] == 20
        assert len(looks) < 40
        assert all(later >= earlier * 1.1 for earlier, later in pairwise(looks[2:]))

    def test_stopping_early_does_not_lose_the_coverage(self) -> None:
        true, covered, runs = 1000 / math.exp(0.03**2 / 2), 0, 60
        for seed in range(runs):
            blocks: list[Block] = []
            elapsed = 0.0
            for seconds in noisy(80, r=0.3, seed=seed):
                blocks.append(whole(seconds))
                elapsed += seconds
                if narrow_enough(blocks, self.PLAN, elapsed):
                    break
            summary = summarise(blocks)
            assert summary.half_width_95 is not None
            covered += abs(summary.throughput / true - 1) <= summary.half_width_95
        assert covered / runs >= 0.87


class TestStall:
    @pytest.mark.case("E06")
    def test_a_slow_loader_is_seen(self) -> None:
        assert stall_share([0.055] * 4, [0.005] * 4) == pytest.approx(0.909, abs=1e-3)

    def test_a_loader_that_keeps_up_is_zero_and_never_less(self) -> None:
        assert stall_share([0.1], [0.1]) == 0.0
        assert stall_share([0.1], [0.12]) == 0.0

    @pytest.mark.parametrize(("loaded", "cached"), [([], [0.1]), ([0.1], []), ([0.0], [0.1])])
    def test_both_sides_are_needed(self, loaded: list[float], cached: list[float]) -> None:
        with pytest.raises(ValueError, match="both are needed"):
            stall_share(loaded, cached)
