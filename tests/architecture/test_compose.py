"""docker-compose.yml without a Docker engine: it is valid, its commands exist, it holds no secret."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from config.lanes import LANES
from config.settings import Settings
from fleet.cli import cli

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "config/deploy"
TEXT = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
OF_THE_FLEET = {name: body for name, body in SERVICES.items() if body.get("command", [""])[0] == "fleet"}
CALLED_WITH = {  # of the world outside, what a lane's actors and janitors call with and no more
    "transaction-sync": {"BOOKS_BANK_SECRET_ID", "BOOKS_BANK_SECRET_KEY", "BOOKS_PAYMENTS_KEY"},
    "transaction-postprocess": {"BOOKS_MODEL_KEY"},
    "agent-batch": {"BOOKS_MODEL_KEY"},
    "agent-realtime": {"BOOKS_AUTHORITY_KEY"},
    "housekeeping": {"BOOKS_AUTHORITY_KEY", "BOOKS_PAYMENTS_KEY", "BOOKS_SMTP_USER", "BOOKS_SMTP_PASSWORD"},
}
CORE = {name for name, body in SERVICES.items() if "profiles" not in body}


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
        if program == "python":
            compile(arguments[0], name, "exec")
            continue
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


def test_the_core_asks_for_no_more_than_the_database_password_and_the_rest_is_a_profile() -> None:
    assert set(OF_THE_FLEET) - CORE == {"console"}
    assert set(SERVICES) - CORE == {"console", "prometheus", "grafana"}
    assert set(re.findall(r"\$\{(\w+):\?", TEXT)) == {"POSTGRES_PASSWORD"}, "a profile's variable would stop the core"


def test_nothing_is_published_beyond_this_host() -> None:
    published = {name: body["ports"] for name, body in SERVICES.items() if "ports" in body}
    assert set(published) == {"console", "prometheus", "grafana"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports), published


def test_the_fleets_containers_write_to_memory_alone_and_may_do_nothing_special() -> None:
    for name, body in OF_THE_FLEET.items():
        assert body["read_only"] and body["tmpfs"] == ["/tmp"], name
        assert body["cap_drop"] == ["ALL"] and body["security_opt"] == ["no-new-privileges:true"], name
        assert all(volume.endswith(":ro") for volume in body.get("volumes", ())), name


def test_every_image_that_is_not_built_here_has_a_tag_and_none_is_latest() -> None:
    for name, body in SERVICES.items():
        tag = body["image"].split(":", 1)[1]
        assert ("build" in body) or not tag.startswith("latest"), name


def test_prometheus_asks_every_lane_and_beat_on_the_port_that_they_are_given() -> None:
    configured = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    ((found,),) = [job["dns_sd_configs"] for job in configured["scrape_configs"]]
    serving = {name for name, body in OF_THE_FLEET.items() if body["command"][1] in ("work", "beat")}
    assert set(found["names"]) == serving
    assert {SERVICES[name]["environment"]["FLEET_METRICS_PORT"] for name in serving} == {str(found["port"])}


def test_a_key_of_the_world_outside_goes_to_the_lanes_that_call_there_alone() -> None:
    given = {
        name: {key for key in body["environment"] if re.search("^BOOKS_.*(SECRET|KEY|USER|PASSWORD)", key)}
        for name, body in OF_THE_FLEET.items()
    }
    assert {name: keys for name, keys in given.items() if keys} == CALLED_WITH


def test_the_lane_that_mails_is_told_by_which_server_and_encrypts_unless_told_otherwise() -> None:
    given = SERVICES["housekeeping"]["environment"]
    assert {"BOOKS_SMTP_HOST", "BOOKS_SMTP_PORT", "BOOKS_MAIL_FROM"} <= given.keys()
    assert given["BOOKS_SMTP_TLS"] == "${BOOKS_SMTP_TLS:-starttls}"


def test_the_database_is_healthy_by_tcp_where_the_images_first_server_does_not_listen() -> None:
    assert "-h 127.0.0.1 " in SERVICES["postgres"]["healthcheck"]["test"][1]


def test_what_is_mounted_from_the_tree_is_there() -> None:
    for name, body in SERVICES.items():
        for volume in body.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).exists(), f"{name}: {volume}"


def test_grafana_finds_its_prometheus_and_its_dashboards_where_they_are_mounted() -> None:
    provisioning = DEPLOY / "grafana/provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert host in SERVICES and f"127.0.0.1:{port}:{port}" in SERVICES[host]["ports"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/fleet.yml").read_text())["providers"]
    mounted = [volume.split(":")[1] for volume in SERVICES["grafana"]["volumes"]]
    assert any(path.startswith(provider["options"]["path"]) for path in mounted)


def test_it_fits_the_schema_of_compose_files() -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*check, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


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
