"""The embedded store's file: rights, folder, journal, what it refuses."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from storage import studies
from storage.database import Database
from storage.errors import StoreUnavailable
from storage.locks import lock_key


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_owner_can_read_it(sqlite_database: Database, tmp_path: Path) -> None:
    studies.create(sqlite_database, name="private", spec={}, identity={})
    files = list((tmp_path / "store").iterdir())
    assert {path.name for path in files} >= {"tuner.db", "tuner.db-wal", "tuner.db-shm"}
    assert {mode(path) for path in files} == {0o600}
    assert mode(tmp_path / "store") == 0o700


def test_an_existing_file_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    path.touch()
    path.chmod(0o660)
    Database.open(str(path)).close()
    assert mode(path) == 0o660


def test_the_default_lies_in_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNER_DATA_DIR", str(tmp_path / "data"))
    database = Database.open()
    database.prepare()
    assert (tmp_path / "data" / "tuner.db").exists()
    assert database.embedded
    assert database.check() == "current"
    database.close()


def test_settings_of_each_connection(sqlite_database: Database) -> None:
    names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
    found = sqlite_database.read(lambda session: [session.scalar(text(f"PRAGMA {name}")) for name in names])
    assert found == ["wal", 1, 30_000, 2]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    path.write_text("these are notes, not a database" * 100)
    database = Database.open(str(path))
    with pytest.raises(StoreUnavailable, match=r"notes\.db cannot be used: file is not a database"):
        database.prepare()
    database.close()
    assert path.read_text().startswith("these are notes")


def test_a_place_where_nothing_can_be_made() -> None:
    with pytest.raises(StoreUnavailable, match="/proc/tightfit"):
        Database.open("/proc/tightfit/tuner.db")


def test_lock_names_have_numbers_of_their_own_for_good() -> None:
    assert lock_key("migrate") == 4_894_279_266_766_045_818
    assert lock_key("study 1") != lock_key("study 2")


def test_alembic_and_psycopg2_are_not_needed_to_work_on_a_ready_store(sqlite_database: Database) -> None:
    program = f"""
import sys
from storage import studies
from storage.database import Database
database = Database.open({str(sqlite_database.url.database)!r})
database.prepare()
studies.list_all(database)
print([name for name in ("alembic", "psycopg2", "optuna", "torch") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ))
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
