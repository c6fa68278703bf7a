"""What a fresh server loads before its first reader comes: 1 to 2 s of imports that would be his wait otherwise."""

from __future__ import annotations

import threading


def begin() -> threading.Thread:
    """Loads in the background; returns its thread. Nothing depends on its success."""
    thread = threading.Thread(target=_load, name="warm", daemon=True)
    thread.start()
    return thread


def _load() -> None:
    """Everything a study's page needs, plotly's checks of a figure and scipy's quantiles included."""
    import pandas  # noqa: F401 - Streamlit loads it with the first table
    from scipy.special import stdtrit

    from ui.charts.front import Choices, Picture, front_figure
    from ui.parts import study_page, trial_page  # noqa: F401
    from ui.points import points_of

    stdtrit(3.0, 0.975)
    front_figure(Picture(points=points_of([])), Choices()).to_json()
