"""A module that starts a thread when imported: no template that has imported it may fork."""

import threading
import time

from tests_misbehaving import Misbehaving

threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
__all__ = ["Misbehaving"]
