"""What a configured process writes to standard error: uncaught exceptions, tracebacks, lines that cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.environment import child_path

ROOT = Path(__file__).parents[2]
HEAD = """
import threading
from fleet.logs import configure, get_logger

configure("{log_format}", "INFO")
log = get_logger("fleet.test")

def book(customer):
    raise ValueError(f"nothing for {{customer}}")

class Shy:
    def __str__(self):
        raise LookupError("Erika Mustermann")
    __repr__ = __str__
"""


def run(code: str, log_format: str = "json") -> tuple[int, str]:
    """Exit code and standard error of a process."""
    environment = {**os.environ, "PYTHONPATH": child_path(ROOT)}
    command = [sys.executable, "-c", HEAD.format(log_format=log_format) + code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def lines(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_an_exception_that_ends_a_process_is_a_scrubbed_critical_line() -> None:
    code, said = run("book('Erika Mustermann')")
    (line,) = lines(said)
    assert (code, line["event"], line["level"]) == (1, "process_broke", "critical")
    assert line["exception"].endswith("ValueError: nothing for [removed]")


def test_an_exception_that_ends_a_thread_names_the_thread() -> None:
    code, said = run("threading.Thread(target=book, args=('Erika Mustermann',), name='alarm').start()")
    (line,) = lines(said)
    assert (code, line["event"], line["thread"]) == (0, "thread_broke", "alarm")
    assert "Mustermann" not in said


def test_a_line_that_cannot_be_looked_at_is_written_with_its_event_and_what_broke() -> None:
    _, said = run("log.error('odd', row=Shy(), customer='Erika Mustermann')")
    (line,) = lines(said)
    assert (line["event"], line["level"], line["not_scrubbed"]) == ("odd", "error", "LookupError")
    assert "Mustermann" not in said


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_keeps_its_places_and_shows_no_variables(log_format: str) -> None:
    code = """
def outer():
    secretly = "a quiet word"
    book("Erika Mustermann")

try:
    outer()
except ValueError:
    log.exception("broke", row=17)
"""
    _, said = run(code, log_format)
    assert "Mustermann" not in said
    assert "a quiet word" not in said
    assert "nothing for [removed]" in said
    assert "in outer" in said


def test_a_line_below_the_level_is_not_even_looked_at() -> None:
    assert run("log.debug('odd', row=Shy())") == (0, "")
