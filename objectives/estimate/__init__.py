"""Peak memory predicted without running: the worst case is played through with tensors that have shapes but no values.

How it goes::

    model on the meta device -> knobs applied -> parameters become fakes -> the training loop's own steps, every new
    storage counted once (:mod:`~objectives.estimate.storages`) -> the largest sum, split by category

A model of any size costs seconds and no memory. What no fake can know (a kernel's scratch space, an allocator's
rounding) is a constant of family and precision, which the study's own runs correct (``tuner.search.memory_model``).
"""

from objectives.estimate.estimator import Estimator, predict
from objectives.estimate.prediction import CATEGORIES, Prediction

__all__ = ["CATEGORIES", "Estimator", "Prediction", "predict"]
