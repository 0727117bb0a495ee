"""`python docs/screenshots.py`: takes the pictures of the console that the README and docs/console.md show.

A fleet is staged (`tests/console/staged.py`) on servers of its own, at twenty past four in a night of March, and a real
Chromium looks at it. Needs the dev group and a `chromium` on the PATH; writes docs/console-*.png.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

AT = "2026-03-03T04:20:00+01:00"
DESKTOP, PHONE = (1280, 800), (390, 844)
# file, address, size of the window, scheme, whole page
SHOTS = (
    ("now", "/", DESKTOP, "dark", False),
    ("night", "/night", DESKTOP, "light", True),
    ("lanes", "/lanes", DESKTOP, "light", False),
    ("dead", "/dead/act?do=requeue&queue=agent_batch", DESKTOP, "dark", False),
    ("phone", "/", PHONE, "dark", False),
)
ARGUMENTS = """
--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --hide-scrollbars
"""


def main() -> None:
    """Stage, start the console, take each picture."""
    os.environ["FLEET_CLOCK_ORIGIN"], os.environ["FLEET_CLOCK_ANCHOR"] = AT, datetime.now(UTC).isoformat()
    os.environ["FLEET_NAMESPACE"] = "night"
    from fleet import app as application
    from fleet import clock, local
    from fleet.console import tokens
    from fleet.storage import database
    from tests.console import staged

    secret, os.environ["FLEET_CONSOLE_TOKENS"] = tokens.draw("ann", "operate")

    with tempfile.TemporaryDirectory(prefix="fleet-shots-") as folder, local.servers(ROOT, Path(folder)):
        app = application.load(ROOT)
        clock.configure(application.settings())
        made = staged.whole(application.process_broker(), app, database())
        command = [sys.executable, "-m", "fleet", "--app", str(ROOT), "console", "--port", "0"]
        console = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        try:
            _take(_address(console), secret)
        finally:
            console.terminate()
            console.wait(10)
            made.stop()


def _address(console: subprocess.Popen[str]) -> str:
    assert console.stderr is not None
    for line in console.stderr:
        if found := re.search(r"console_started.*url=(\S+?)/(?:\s|$)", re.sub(r"\x1b\[[0-9;]*m", "", line)):
            return found[1]
    raise SystemExit(f"The console ended with {console.wait()}.")


def _take(url: str, secret: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS.split())
        for name, path, (width, height), scheme, whole in SHOTS:
            wanted: Any = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
            context = chromium.new_context(**wanted)
            page = context.new_page()
            page.goto(url + path)  # which leads to the login, and from there back
            page.get_by_label("Token").fill(secret)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_timeout(2_500)  # a live page has had its first part by then
            file = ROOT / "docs" / f"console-{name}.png"
            page.screenshot(path=str(file), full_page=whole)
            print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
            context.close()
        chromium.close()


if __name__ == "__main__":
    main()
