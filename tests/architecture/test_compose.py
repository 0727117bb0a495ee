"""docker-compose.yml without a Docker engine: it is valid, its commands exist, it holds no secret."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from config.lanes import LANES
from config.settings import Settings
from fleet.cli import cli

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OF_THE_FLEET = {name: body for name, body in SERVICES.items() if body.get("command", [""])[0] == "fleet"}


def test_every_lane_has_one_service_and_the_beat_has_two() -> None:
    worked = [body["command"][2] for body in OF_THE_FLEET.values() if body["command"][1] == "work"]
    assert sorted(worked) == sorted(lane.name for lane in LANES)
    assert sum(body["command"] == ["fleet", "beat"] for body in OF_THE_FLEET.values()) == 2


@pytest.mark.parametrize("name", sorted(OF_THE_FLEET))
def test_every_command_and_healthcheck_is_one_that_the_command_line_takes(name: str) -> None:
    group = typer.main.get_command(cli)
    body = OF_THE_FLEET[name]
    lines = [body["command"]] + ([body["healthcheck"]["test"][1:]] if "healthcheck" in body else [])
    for program, command, *arguments in lines:
        assert program == "fleet"
        known = group.commands[command]  # type: ignore[attr-defined]
        known.make_context(command, list(arguments), resilient_parsing=False)


def test_whatever_runs_on_has_a_healthcheck_and_waits_for_what_it_needs() -> None:
    for name, body in SERVICES.items():
        if body.get("restart") == "no":
            continue
        assert body["healthcheck"]["test"], name
        if name in OF_THE_FLEET:
            assert body["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}
            assert body["depends_on"]["redis"] == {"condition": "service_healthy"}


def test_redis_keeps_an_append_only_file_and_never_evicts() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--maxmemory-policy noeviction" in command


def test_it_holds_no_secret() -> None:
    for service, body in SERVICES.items():
        for name, value in body.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|KEY|DSN", name):
                assert str(value).startswith("${"), f"{service} {name}: {value}"
    assert not re.search(r"://[^$\s:/]+:[^$\s]+@", TEXT)


def test_every_variable_it_sets_is_one_that_the_settings_read() -> None:
    known = {
        str(field.validation_alias) if field.validation_alias else f"FLEET_{name}".upper()
        for name, field in Settings.model_fields.items()
    }
    for name, body in OF_THE_FLEET.items():
        assert set(body["environment"]) <= known, name
