"""The Lua scripts, each loaded by its file's name; what each takes and returns stands in its header."""

from __future__ import annotations

from pathlib import Path

import redis
from redis.commands.core import Script

_FOLDER = Path(__file__).parent / "lua"


class Scripts:
    """The broker's scripts, bound to a client; loading opens no connection."""

    def __init__(self, client: redis.Redis) -> None:
        self.enqueue = self._load(client, "enqueue")
        self.turn = self._load(client, "turn")
        self.reap = self._load(client, "reap")
        self.condemn = self._load(client, "condemn")
        self.beat = self._load(client, "beat")
        self.revive = self._load(client, "revive")
        self.trim = self._load(client, "trim")
        self.forget = self._load(client, "forget")
        self.export = self._load(client, "export")
        self.fire_now = self._load(client, "fire_now")
        self.probe = self._load(client, "probe")
        self.store_reading = self._load(client, "store_reading")
        self.seed = self._load(client, "seed")
        self.rights = self._load(client, "rights")

    @staticmethod
    def _load(client: redis.Redis, name: str) -> Script:
        return client.register_script((_FOLDER / f"{name}.lua").read_text())
