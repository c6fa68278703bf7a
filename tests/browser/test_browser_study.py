"""A person's way in a real browser: form, worker, live trials, a point of the front, export, the trainer's loader."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded import record
from screens import Screens, browser, embedded, environment, serving
from service import Service, until

from storage import studies, trials, workers

FIRST_TRIAL_SECONDS = 3.0
"""The aim with an idle worker and a free machine; the test allows a loaded one more, and says what it took."""
ALLOWED_SECONDS = 30.0
HOSTILE = (
    "<script>window.owned=1</script>",
    "<img src=x onerror=window.owned=1>",
    "[click](javascript:window.owned=1) ![p](http://evil.example/p.png)",
    "# heading **bold** `code` :material/bolt: :red[red] $x^2$",
    "http://evil.example/ evil@evil.example www.evil.example",
    "</textarea></style><svg onload=window.owned=1>",
)

NAMES = (" ".join(HOSTILE[:3]), " ".join(HOSTILE[3:]))
"""Names of two studies: together they hold all of them."""


def fill(page: Any, label: str, text: str, written: str) -> None:
    """Types into a control and waits until the YAML says it."""
    box = page.get_by_label(label, exact=True).first
    box.fill(text)
    box.press("Tab")
    until(lambda: written in page.get_by_label("The spec as YAML").last.input_value(), "the YAML follows", 10)


def opened(section: str, page: Any) -> None:
    page.get_by_text(section, exact=True).click()


@pytest.fixture
def worked(tmp_path: Path) -> Iterator[Service]:
    """A worker on the embedded store, which may run one objective."""
    (tmp_path / "data").mkdir()
    made = Service(f"sqlite:///{tmp_path / 'data' / 'tightfit.db'}", tmp_path, slots=1, lease_seconds=10)
    allowed = {"objectives": ["built-in", "tests_sleepy:Sleepy"], "code": [str(tmp_path)]}
    (tmp_path / "allowed.yaml").write_text(json.dumps(allowed))
    try:
        made.start_worker()
        until(lambda: workers.list_all(made.database), "the worker is there")
        yield made
    finally:
        made.close()


def test_from_the_form_to_the_trainer(worked: Service, tmp_path: Path) -> None:
    from transformers import HfArgumentParser, TrainingArguments

    with serving(worked.environment) as screens, browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 1400})
        broken: list[str] = []
        page.on("pageerror", lambda error: broken.append(str(error)))
        page.on("console", lambda message: broken.append(message.text) if "Content Security" in message.text else None)
        page.goto(f"{screens.address}/new_study")
        page.get_by_text("This can be run.").wait_for(timeout=40_000)
        fill_form(page)
        begun = time.monotonic()
        page.get_by_role("button", name="Submit").click()
        page.get_by_text("by form").first.wait_for(timeout=40_000)
        page.get_by_text("Trial 0", exact=True).first.wait_for(timeout=ALLOWED_SECONDS * 1000)
        took = time.monotonic() - begun
        sys.stderr.write(f"\nsubmit to the first trial in sight: {took:.1f} s (aim {FIRST_TRIAL_SECONDS:.0f} s)\n")
        number = select_on_the_front(page)
        page.goto(f"{screens.address}/export?study=by%20form")
        with page.expect_download(timeout=40_000) as download:
            page.get_by_role("button", name="Download training_args.json").click()
        file = tmp_path / "training_args.json"
        download.value.save_as(file)
    values = json.loads(file.read_text()) | {"output_dir": str(tmp_path / "out")}
    (loaded,) = HfArgumentParser(TrainingArguments).parse_dict(values)  # type: ignore[arg-type]
    assert loaded.per_device_train_batch_size * loaded.gradient_accumulation_steps == 8
    assert number in {trial.number for trial in worked.trials("by form")}
    assert [
        each for each in broken if "_hoverlayer" not in each
    ] == []  # plotly: the mouse over a figure that just went


def fill_form(page: Any) -> None:
    """Every kind of control once; the YAML follows."""
    page.get_by_label("Objective", exact=True).first.click()
    page.get_by_role("option", name="tests_sleepy:Sleepy").click()
    page.get_by_text("kind: tests_sleepy:Sleepy").first.wait_for(timeout=40_000)
    fill(page, "study", "by form", "study: by form")
    fill(page, "micro batch size", "1, 2, 4, 8", "[1, 2, 4, 8]")
    opened("Limits", page)
    fill(page, "trials", "5", "trials: 5")
    fill(page, "window", "1s", "window: 1s")
    page.get_by_text("This can be run.").wait_for(timeout=40_000)


def select_on_the_front(page: Any) -> int:
    """Draws a box over the front; the selection stands in the address and under the front. Returns a selected trial."""
    page.locator(".js-plotly-plot .nsewdrag").first.wait_for(timeout=60_000)
    deadline = time.monotonic() + 40
    while "trials=" not in page.url and time.monotonic() < deadline:
        area = page.locator(".js-plotly-plot .nsewdrag").first
        area.scroll_into_view_if_needed()
        box = area.bounding_box()
        page.mouse.move(box["x"] + 3, box["y"] + 3)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
        page.mouse.move(box["x"] + box["width"] - 3, box["y"] + box["height"] - 3, steps=4)
        page.mouse.up()
        page.wait_for_timeout(1000)
    number = page.url.partition("trials=")[2].partition("&")[0].partition(".")[0]
    assert number.isdigit(), page.url
    page.get_by_text(f"Trial {number}").first.wait_for(timeout=40_000)
    return int(number)


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Screens]:
    """A store in which names, errors, logs and reasons are attacks."""
    with embedded(tmp_path, monkeypatch) as store:
        for number, text in enumerate(NAMES):
            made = record(store, "llama-dev", study=f"{number} {text}", most=6)
            trial = trials.reserve(store, study_id=made.id, config={"micro_batch_size": 1}, config_key="x", source=text)
            evidence = {"text": text, "phase": text, "exceptions": [{"type": text, "message": text}], "log_tail": text}
            assert trial is not None
            trials.finish(store, trial.id, outcome="crashed", cause="no_result", evidence=evidence)
            studies.set_status(store, made.id, "running")
            studies.set_status(store, made.id, "failed", text)
        workers.register(store, id="w", host=HOSTILE[1], pid=1, device_kind="cpu", device_name=HOSTILE[0])
        workers.quarantine(store, "w", HOSTILE[3])
    with serving(environment(tmp_path)) as screens:
        yield screens


UNDERSTOOD = """() => ({
    owned: window.owned === undefined ? null : window.owned,
    evil: document.querySelectorAll(
        'a[href*="//evil"], a[href^=javascript], img[src*=evil], img[src=x], svg[onload]').length,
    marked: [...document.querySelectorAll('h1 strong, h1 code, h1 em, p strong, .katex')].map(e => e.textContent)
        .filter(text => ['bold', 'code', 'x2', 'x^2', 'red'].includes(text.trim())),
})"""


def test_what_others_wrote_is_shown_and_never_understood(hostile: Screens) -> None:
    from urllib.parse import quote

    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 1000})
        foreign: list[str] = []
        page.on(
            "request", lambda request: foreign.append(request.url) if "evil" in request.url.partition("?")[0] else None
        )
        for number, text in enumerate(NAMES):
            name = quote(f"{number} {text}", safe="")
            for place in (
                "studies",
                f"study?study={name}",
                f"trial?study={name}&trial=6",
                f"export?study={name}",
                "workers",
            ):
                if number and place in ("studies", "workers"):
                    continue
                page.goto(f"{hostile.address}/{place}")
                page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for(timeout=40_000)
                page.get_by_text(text.split()[0][:12]).first.wait_for(state="attached", timeout=40_000)
                found = page.evaluate(UNDERSTOOD)
                assert found == {"owned": None, "evil": 0, "marked": []}, place
        assert foreign == []
