"""The command line imported once, each command in a fork: of a second that `fleet` takes, a tenth is its own work.

A line of standard input is one command as JSON; the answer is a line with its exit code. No application is imported
before the fork, so what one command loads no other sees. That the command line starts from nothing is shown by
tests/fleet/test_cli.py. Not guaranteed: that a command which hangs ends; who asked for it kills this process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from typing import Any, NoReturn

WANTED = ("fleet.cli", "sqlalchemy.orm", "psycopg", "rich.table", "fleet.check", "fleet.storage.engine", "middleware")


def run(asked: Any) -> int:
    """The exit code of one command, in a process whose environment, folder and streams are those asked for."""
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["cwd"])
    for number, path in ((1, asked["stdout"]), (2, asked["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path[0] = asked["cwd"]  # as `python -m` does
    sys.argv = ["fleet", *asked["words"]]
    try:
        importlib.import_module("fleet.cli").main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def fork(line: str) -> NoReturn:
    """Run what `line` asks for and end this process, whatever comes of it."""
    code = 1
    try:
        code = run(json.loads(line))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Serve until standard input ends."""
    for name in WANTED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            fork(line)
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n")


if __name__ == "__main__":
    main()
