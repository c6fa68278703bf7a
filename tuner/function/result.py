"""What ``tuner.tune`` returns: the answer, the front as a table, a picture, exports. Made for a notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from tuner.answer.picture import draw
from tuner.cli import words
from tuner.errors import TightfitError
from tuner.function.ladder import Ladder, sentence

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An SVG picture that a notebook shows by itself."""

    svg: str

    def save(self, file: str | Path) -> Path:
        """Writes it; returns where."""
        path = Path(file)
        path.write_text(self.svg, encoding="utf-8")
        return path

    def _repr_svg_(self) -> str:
        return self.svg


class Table(list[Row]):
    """Rows that a notebook shows as a table; each a plain dict."""

    def to_pandas(self) -> Any:
        """The same as a data frame.

        Raises:
            TightfitError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise TightfitError("pandas is not installed: `pip install pandas`, or use the rows as they are") from error
        return pandas.DataFrame(list(self))

    def _repr_html_(self) -> str:
        head = list(dict.fromkeys(name for row in self for name in row))
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        rows = "".join(
            f"<tr>{''.join(f'<td>{escape(_cell(row.get(name)))}</td>' for name in head)}</tr>" for row in self
        )
        return f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"


def _cell(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else words.value(value)


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """A tuned function's answer.

    Attributes:
        document: As ``tuner show --json`` prints it.
        trials: Every measured trial, as in the document.
        ladders: What batch finders would have chosen, accelerate's first; empty where that is not known.
    """

    document: Mapping[str, Any]
    trials: Sequence[Mapping[str, Any]] = ()
    ladders: Sequence[Ladder] = ()

    @property
    def study(self) -> str:
        """The study's name in the store."""
        return str(self.document["study"])

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The fastest confirmed configuration with its numbers; None without one."""
        found: Mapping[str, Any] | None = self.document["best"]
        return found

    @property
    def baseline(self) -> Mapping[str, Any] | None:
        """Trial 0; None before it has ended."""
        found: Mapping[str, Any] | None = self.document["baseline"]
        return found

    @property
    def config(self) -> Mapping[str, Any]:
        """The winner's knobs with its ``accumulation_steps``.

        Raises:
            TightfitError: There is no winner.
        """
        if self.best is None:
            raise TightfitError(
                f"{self.study} has no winner: {self.document['stop_reason'] or 'nothing was confirmed'}"
            )
        return dict(self.best["config"])

    @property
    def speedup(self) -> float | None:
        """Of the winner over the baseline; None where it is not stated."""
        found: float | None = self.document["speedup_over_baseline"]
        return found

    @property
    def front(self) -> Table:
        """The Pareto front, fastest first: a row a trial, with its knobs that differ between them."""
        rows = list(self.document["front"])
        names = [
            name for name in (rows[0]["config"] if rows else {}) if len({str(r["config"][name]) for r in rows}) > 1
        ]
        always = [name for name in ("micro_batch_size", "accumulation_steps") if rows]
        return Table(_row(each, dict.fromkeys([*always, *names])) for each in rows)

    @property
    def instead_of(self) -> str | None:
        """What ``find_executable_batch_size`` would have chosen, and how much slower; None where that is not known."""
        best = self.best
        rate = None if best is None else best["throughput"]
        return sentence(self.ladders, rate, None if best is None else best["throughput_unit"])

    def plot(self) -> Picture:
        """Throughput against peak memory, every measured trial."""
        best, front = self.best, [each["number"] for each in self.document["front"]]
        title = f"{self.study}: {len(self.trials)} measured trials on {self.document['device']}, 95 % intervals"
        return Picture(svg=draw(title, self.trials, front, 0, None if best is None else best["number"]))

    def export(self, to: str, **options: Any) -> dict[str, Any]:
        """The winner as files for a trainer; arguments and errors as :func:`tuner.api.export`."""
        from tuner import api

        return api.export(self.study, to, **options)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {**self.document, "trials": list(self.trials), "batch_finders": [asdict(each) for each in self.ladders],
                "instead_of": self.instead_of}  # fmt: skip

    def summary(self) -> str:
        """The answer in a few lines of text."""
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        text = "".join(f"<div>{escape(line)}</div>" for line in _lines(self))
        picture = self.plot().svg if self.trials else ""
        return f"<div>{text}{self.front._repr_html_()}{picture}</div>"


def _row(trial: Mapping[str, Any], names: Mapping[str, None]) -> Row:
    config, interval = trial["config"], trial["throughput_interval"] or (None, None)
    return {
        "trial": trial["number"],
        "throughput": trial["throughput"],
        "throughput_low": interval[0],
        "throughput_high": interval[1],
        "throughput_unit": trial["throughput_unit"],
        "peak_memory_bytes": trial["peak_memory_bytes"],
        **{name: config[name] for name in names},
    }


def _lines(tuned: Tuned) -> list[str]:
    best, document = tuned.best, tuned.document
    head = f"{tuned.study}: {sum(document['counts'].values())} trials on {document['device']}"
    if best is None:
        return [head, f"No winner: {document['stop_reason'] or 'nothing was confirmed'}"]
    base = (tuned.baseline or {}).get("config") or {}
    said = [head, f"winner: {words.rate(best['throughput'], best['throughput_unit'])}, "
                  f"{words.size(best['peak_memory_bytes'])}"]  # fmt: skip
    said.append(f"  {words.knobs(best['config'], base) or 'the baseline itself'}")
    if tuned.speedup is not None and best["number"] != (tuned.baseline or {}).get("number"):
        said.append(f"  {words.times(tuned.speedup)} the baseline, global batch {document['global_batch_size']} kept")
    return [*said, *([tuned.instead_of] if tuned.instead_of else [])]
