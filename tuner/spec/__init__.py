"""The spec: read, refused with line, reason and fix, or turned into plain frozen data. pydantic stays in here."""

from tuner.spec.identity import difference, from_mapping, identity, to_mapping
from tuner.spec.locate import with_lines
from tuner.spec.model import Limits, MemoryLimit, StudySpec
from tuner.spec.reading import read

__all__ = [
    "Limits",
    "MemoryLimit",
    "StudySpec",
    "difference",
    "from_mapping",
    "identity",
    "read",
    "to_mapping",
    "with_lines",
]
