"""A spec while it is written: one text, and many controls that say the same. Pure.

Why no callbacks: Streamlit may abort one at any access to its session when the browser sends the next change, and then
a change is lost. Here a change is found by comparing what a control says with what it last said in step, in every run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.spec.objective_keys import KINDS, OwnKeys
from ui.forms.fields import Field, fields, holds, meant, shown
from ui.forms.text import edited, value_at, values_of

EDITOR, KIND = "editor", "form.objective.kind"
"""Names of the text's control and of the objective's."""
KIND_PATH = ("objective", "kind")


@dataclass(kw_only=True)
class Draft:
    """What one person is writing.

    Attributes:
        text: The YAML: the truth.
        said: By key of a control, what it said when it was in step with the text.
        versions: By name of a control, how often it became another one.
    """

    text: str
    said: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)

    def key(self, name: str) -> str:
        """Under which key the control of that name is shown now."""
        return f"{name} {self.versions.get(name, 0)}"

    def shown_as(self, name: str, value: Any) -> str:
        """The key under which a control shows a value.

        A control that is to say something else than it does becomes another control: the browser may still send what
        it said before, with a change elsewhere, and that must not be taken for a change of this one. A control that
        says the right thing is left alone, and with it what a person is just typing there.
        """
        key = self.key(name)
        if key in self.said and self.said[key] != value:
            self.versions[name] = self.versions.get(name, 0) + 1
            key = self.key(name)
        self.said[key] = value
        return key

    def take(self, states: Mapping[str, Any]) -> None:
        """Takes over what a person has changed.

        Args:
            states: What the controls say now, by key; those that are no longer shown count for nothing.
        """
        changed = {key: value for key, value in states.items() if key in self.said and self.said[key] != value}
        if not changed:
            return
        editor = self.key(EDITOR)
        if editor in changed:
            self.said[editor] = changed[editor]
            self.text = str(changed[editor] or "")
        for each in fields(self.kind()):
            key = self.key(each.key)
            if key in changed:
                self.said[key] = changed[key]
                self.text = edited(self.text, each.path, meant(each, changed[key]))
        if self.key(KIND) in changed:
            self.said[self.key(KIND)] = changed[self.key(KIND)]
            self._take_kind(changed[self.key(KIND)])

    def _take_kind(self, kind: str | None) -> None:
        """Another objective: keys that it does not have go."""
        known = KINDS.get(kind, OwnKeys).model_fields if kind is not None else {}
        before = value_at(values_of(self.text) or {}, ("objective",))
        for name in before if isinstance(before, Mapping) else ():
            if name not in known:
                self.text = edited(self.text, ("objective", name), None)
        self.text = edited(self.text, KIND_PATH, kind)

    def kind(self) -> str | None:
        """The objective's kind; None where the text names none."""
        kind = value_at(values_of(self.text) or {}, KIND_PATH)
        return kind if isinstance(kind, str) else None

    def controls(self) -> list[tuple[Field, str | None]] | None:
        """The fields with the keys of their controls; a key of None where no control can hold the value.

        None where the text cannot be read.
        """
        values = values_of(self.text)
        if values is None:
            return None
        found: list[tuple[Field, str | None]] = []
        for each in fields(self.kind()):
            value = value_at(values, each.path)
            found.append((each, self.shown_as(each.key, shown(each, value)) if holds(each, value) else None))
        return found
