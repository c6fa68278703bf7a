"""What is believed of a device's memory before any run: how far predicted peaks are off. One table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Level:
    """Standard deviations of one level's offset (MiB) and slope (share of the predicted peak) before any run."""

    offset_mib: float
    slope: float


@dataclass(frozen=True, kw_only=True)
class Prior:
    """What is believed of a kind of device before any run.

    Attributes:
        offset_mib: Mean offset.
        slope: Mean slope.
        levels: Spread by level, in the order of :func:`keys_of`.
        noise_mib: Between runs of one configuration.
        noise_share: The same, as a share of the peak.
    """

    offset_mib: float
    slope: float
    levels: tuple[Level, Level, Level, Level]
    noise_mib: float
    noise_share: float


PRIORS: Mapping[str, Prior] = {
    "cpu": Prior(
        offset_mib=14.0,
        slope=0.0,
        levels=(
            Level(offset_mib=10.0, slope=0.005),
            Level(offset_mib=10.0, slope=0.003),
            Level(offset_mib=2.5, slope=0.003),
            Level(offset_mib=30.0, slope=0.2),
        ),
        noise_mib=1.5,
        noise_share=0.002,
    ),
    "cuda": Prior(
        offset_mib=24.0,
        slope=0.02,
        levels=(
            Level(offset_mib=24.0, slope=0.02),
            Level(offset_mib=16.0, slope=0.01),
            Level(offset_mib=16.0, slope=0.01),
            Level(offset_mib=100.0, slope=0.25),
        ),
        noise_mib=8.0,
        noise_share=0.005,
    ),
}
"""CPU: measured minus predicted was 11 to 15 MiB for language models of 130 to 590 MiB, 6 to 17 for a ViT, 17 to 37 for
a small ConvNext; within 2 MiB the same for one precision of one model (``benchmarks.estimate``). CUDA: the caching
allocator reserves in segments of 2 and 20 MiB; not measured yet, so wide."""
