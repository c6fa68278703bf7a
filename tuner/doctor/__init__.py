"""The seven mistakes of memory and batch optimization, each looked for in what a study has measured."""

from tuner.doctor.diagnosis import CHECKS, Diagnosis, diagnose

__all__ = ["CHECKS", "Diagnosis", "diagnose"]
