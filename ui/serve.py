"""The server of the screens, started as a program of its own: ``tuner ui`` runs ``python -P ui/serve.py``.

``-P`` and the path below keep a person's own ``ui.py`` or ``storage/`` in the working folder from being loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
if str(HOME) not in sys.path:
    sys.path.insert(0, str(HOME))

import argparse  # noqa: E402 - our packages are found from here on
import importlib.util  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import tomllib  # noqa: E402
from collections.abc import AsyncIterator, Mapping, Sequence  # noqa: E402
from contextlib import asynccontextmanager  # noqa: E402
from typing import Any  # noqa: E402

from tuner.errors import TightfitError  # noqa: E402
from ui.exposure import Listening, address, allowed_names, free_port, require_safe  # noqa: E402

LOGGER = logging.getLogger("tuner.ui")
SCRIPT = Path(__file__).resolve().parent / "app.py"
MOST_SECRETS_BYTES = 100_000


def main(arguments: Sequence[str]) -> int:
    """Serves until a signal ends it. The exit status: 2 for what is refused, 1 where it cannot, 130 for Ctrl-C."""
    asked = _parser().parse_args(arguments)
    if asked.with_parent:
        _end_with_parent(asked.with_parent)
    try:
        serve(
            Listening(
                host=asked.host,
                port=asked.port,
                allow_unauthenticated=asked.allow_unauthenticated,
                read_only=asked.read_only,
                names=tuple(asked.allow_host),
            ),
            None if asked.secrets is None else Path(asked.secrets),
            announced=not asked.with_parent,
        )
    except TightfitError as error:
        sys.stderr.write(f"tuner: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    return 0


def serve(asked: Listening, secrets_file: Path | None, *, announced: bool = True) -> None:
    """Serves the screens, blocking.

    Args:
        asked: Where and for whom.
        secrets_file: TOML with ``[auth]`` and ``[roles]``; None for none, or Streamlit's own places.
        announced: Whether the address is said on stderr.

    Raises:
        TightfitError: It may not or cannot listen so.
    """
    file = secrets_file or _usual_secrets()
    secrets = {} if file is None else read_secrets(file)
    require_safe(asked, secrets)
    _require_sign_in_works(secrets)
    port = free_port(asked.host, asked.port)
    _prepare_logs()
    import streamlit as st
    from starlette.middleware import Middleware
    from streamlit.file_util import get_static_dir

    from ui import warm
    from ui.shield import Shield, content_policy

    policy = content_policy((Path(get_static_dir()) / "index.html").read_text(encoding="utf-8"))
    names = allowed_names(asked, secrets)
    app = st.App(
        SCRIPT,
        middleware=[Middleware(Shield, names=names, policy=policy)],
        secrets={"tuner_read_only": asked.read_only},
        on_script_error=_hidden,
        lifespan=_announcing(address(asked.host, port)) if announced else None,
    )
    warm.begin()
    app.run(config=_options(asked.host, port, file))


def _require_sign_in_works(secrets: Mapping[str, Any]) -> None:
    if secrets.get("auth") and importlib.util.find_spec("authlib") is None:
        raise TightfitError("signing in needs Authlib, which is not installed: pip install 'tightfit[auth]'")


def _options(host: str, port: int, secrets_file: Path | None) -> dict[str, Any]:
    """What holds whatever a person's own Streamlit configuration says."""
    return {
        "server.address": host,
        "server.port": port,
        "server.headless": True,
        "server.fileWatcherType": "none",
        "server.maxUploadSize": 1,
        "server.enableStaticServing": False,
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "viewer",
        "logger.hideWelcomeMessage": True,
        "runner.magicEnabled": False,
        "runner.postScriptGC": False,  # a full collection after every tick: nine tenths of all work with ten watching
        "secrets.files": [] if secrets_file is None else [str(secrets_file)],
    }


def read_secrets(file: Path) -> Mapping[str, Any]:
    """The secrets as plain data.

    Raises:
        TightfitError: They cannot be read; nothing of what they hold is in the message.
    """
    try:
        if file.stat().st_size > MOST_SECRETS_BYTES:
            raise TightfitError(f"the secrets {file} are larger than {MOST_SECRETS_BYTES} bytes")
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TightfitError(f"the secrets {file} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TightfitError(f"the secrets {file} are no TOML") from error


def _usual_secrets() -> Path | None:
    """Where Streamlit looks by itself: the working folder's, then the person's."""
    places = (Path.cwd(), Path.home())
    return next((found for each in places if (found := each / ".streamlit" / "secrets.toml").is_file()), None)


def _hidden(error: Exception) -> bool:
    """What nobody foresaw goes to the log; the page says that it failed."""
    import streamlit as st

    LOGGER.error("a page failed", exc_info=error)
    st.error("This page failed. The server's log says why; reload the page to try again.", icon=":material/error:")
    return True


def _announcing(place: str) -> Any:
    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        sys.stderr.write(f"tuner: the screens are at {place}\n")
        sys.stderr.flush()
        yield

    return lifespan


def _prepare_logs() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")


def _end_with_parent(parent: int) -> None:
    """Ends when the process that started it does, however that ends."""
    from objectives.trial.process_table import process_control

    process_control(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="tuner ui")
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int)
    made.add_argument("--allow-unauthenticated", action="store_true")
    made.add_argument("--read-only", action="store_true")
    made.add_argument("--allow-host", action="append", default=[])
    made.add_argument("--secrets")
    made.add_argument("--with-parent", type=int, default=0)
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
