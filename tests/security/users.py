"""A Valkey of a test's own with an ACL user for each role of an application."""

from __future__ import annotations

from typing import Any

import redis

from fleet.broker.grants import ROLES, Role
from fleet.broker.roles import Own, acl_line
from tests.broker.conftest import OwnRedis


class Users:
    """Users with the rights that `fleet acl` prints, and what was refused to any of them."""

    def __init__(self, server: OwnRedis, own: Own) -> None:
        self.own, self._port, self.admin = own, server.port, server.client
        for role in ROLES:
            line = acl_line(role, own, f"fleet-{role}").replace("PASSWORD", f"secret-of-{role}")
            self.admin.execute_command(*line.split())

    def url(self, role: Role) -> str:
        return f"redis://fleet-{role}:secret-of-{role}@127.0.0.1:{self._port}/0"

    def client(self, role: Role) -> redis.Redis:
        return redis.Redis.from_url(self.url(role))

    def refused(self) -> list[str]:
        """What the server's log says was refused: user, why, on what."""
        found: Any = self.admin.execute_command("ACL", "LOG", "128")
        told = [one if isinstance(one, dict) else dict(zip(one[::2], one[1::2], strict=True)) for one in found]
        texts = [{_text(name): _text(value) for name, value in one.items()} for one in told]
        return [f"{one['username']}: {one['reason']} {one['object']} ({one['context']})" for one in texts]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
