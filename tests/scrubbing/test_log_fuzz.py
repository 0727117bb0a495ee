"""Thousands of postings through the configured log, as JSON and for a terminal: nothing personal is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.environment import child_path
from tests.scrubbing.log_writer import A_BATCH, SEED
from tests.scrubbing.payloads import payloads
from tests.scrubbing.search import found_in, missing_from

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_of_thousands_of_postings_no_line_holds_anything_personal_and_every_id_can_be_read(
    log_format: str, count: int, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "tests.scrubbing.log_writer", log_format, str(count)]
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": child_path(ROOT)}, stdout=log, stderr=log, check=True
        )
    written = (tmp_path / "log").read_text()
    if log_format == "json":
        written = "\n".join(json.dumps(json.loads(line), ensure_ascii=False) for line in written.splitlines())
    batches = written.split("batch_written")
    assert len(batches) == count // A_BATCH + 1
    drawn = payloads(count, SEED)
    found: list[str] = []
    lost: list[str] = []
    for text in batches[:-1]:
        batch = list(islice(drawn, A_BATCH))
        found += found_in(text, batch)
        lost += missing_from(text, batch)
    assert found == []
    assert lost == []
