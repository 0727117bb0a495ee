"""The code blocks of a page, and a process that runs them: `python -m tests.architecture.code_blocks PAGE`.

A block that begins with three backticks and `python`, `sh`, `console` (a shell with prompts, and what it printed),
`mermaid`, `toml`, `yaml`, `ini` or `dockerfile` is held true; `python compiled` is somebody else's code, which is
compiled alone; `text` says that a block is a drawing or an output. Of a page in Markdown two comments are read, which
no reader sees:

    <!-- run            python that is run at its place between the blocks, in their namespace
    ... -->
    <!-- an application of its own -->     the page's files are written to an empty folder, and its commands run there

On such a page a block of code whose first line is a comment with a path is that file.

Not held true: what a command prints, but on a page with an application of its own; commands that change something; of
programs that are not ours anything but their names, extras, and the files of the tree that they are given.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN = "<!-- an application of its own -->"
COMPILED = "python compiled"
LANGUAGES = ("python", COMPILED, "sh", "console", "mermaid", "toml", "yaml", "ini", "dockerfile", "text", "run")
_BLOCK = re.compile(r"^ *```([^\n]*)\n(.*?)^ *```$|^<!-- run\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# ([\w./-]+\.(?:py|toml|ini))\n")
# What only reads, so that a test may run it.
READS = (
    "check",
    "jobs",
    "schedule",
    "manifest",
    "status",
    "night",
    "explain",
    "acl",
    "dead list",
    "outbox list",
    "janitor list",
)
# What does more, and is only parsed.
CHANGES = ("up", "fire", "pause", "balance hold", "balance release", "balance off", "console token")


@dataclass(frozen=True)
class Block:
    """A block of a page; `line` is that of its first line of code, `language` is `run` for a hidden one."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The path that its first line names."""
        found = _FILE.match(self.text)
        return found[1] if found else None


@dataclass(frozen=True)
class Command:
    """A command line, and what the page says that it prints."""

    words: tuple[str, ...]
    line: int
    prints: tuple[str, ...] = ()


def blocks(page: str) -> list[Block]:
    """All blocks of a page's text, in order."""
    return [
        Block(
            "run" if found[3] is not None else found[1].strip(),
            textwrap.dedent(found[2] if found[3] is None else found[3]),
            page[: found.start()].count("\n") + 2,
        )
        for found in _BLOCK.finditer(page)
    ]


def commands(block: Block) -> list[Command]:
    """The commands of a `sh` or `console` block, each without what is set before it; `\\` joins lines."""
    found: list[Command] = []
    lines = block.text.replace("\\\n", "  ").split("\n")
    for number, line in enumerate(lines, block.line):
        is_output = block.language == "console" and not line.startswith("$ ")
        if is_output and found and line.strip():
            found[-1] = Command(found[-1].words, found[-1].line, (*found[-1].prints, line))
        elif not is_output:
            for words in _commands_of(line.removeprefix("$ ")):
                while words and (words[0] == "do" or re.fullmatch(r"[A-Z_]+=.*", words[0])):
                    words.pop(0)
                if words and words[0] not in ("export", "cd", "for", "done"):
                    found.append(Command(tuple(words), number))
    return found


def _commands_of(line: str) -> list[list[str]]:
    """The words of each of a line's commands, without what it reads from and writes to; a quotation is one word."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word in ("<", ">"):
            next(lexer, None)
        elif set(word) <= set(";|&"):
            found.append([])
        else:
            found[-1].append(word)
    return found


def asked(command: Command) -> str:
    """What stands behind the program's name."""
    return " ".join(command.words[1:])


def is_read_only(command: Command) -> bool:
    reads = asked(command).startswith(READS) or asked(command) == "balance"
    return command.words[0] == "fleet" and reads and not {"--recorded", "--look"} & set(command.words)


def run(page: Path) -> None:
    """Run a page's blocks in the current folder; on a page with an application of its own that is where files go.

    Raises what a block raises, with the page's own lines in the traceback, and `AssertionError` for a command.
    """
    text = page.read_text()
    own = OWN in text
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(text):
        if own and block.file and block.language in ("python", "toml", "ini"):
            _write(Path.cwd() / block.file, block.text)
        elif block.language in ("python", "run"):
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
        elif block.language in ("sh", "console"):
            for command in commands(block):
                tests = own and command.words[:3] == ("python", "-m", "pytest")
                if is_read_only(command) or tests or command.words[:2] == ("python", "-c"):
                    _run(command, page, own)


def _write(path: Path, text: str) -> None:
    """A second block of the same file goes on with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".py" and path.parent != Path.cwd():
        (path.parent / "__init__.py").touch()
    with path.open("a") as file:
        file.write(text)


def _run(command: Command, page: Path, own: bool) -> None:
    words = ["-m", "fleet", *command.words[1:]] if command.words[0] == "fleet" else list(command.words[1:])
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120)
    where = f"{page.name}:{command.line}: {shlex.join(command.words)}"
    assert ended.returncode == 0, f"{where} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}"
    said = re.sub(r"\s+", " ", ended.stdout)
    for line in command.prints if own else ():
        assert re.sub(r"\s+", " ", line.strip()) in said, f"{where} does not print {line!r}, but:\n{ended.stdout}"


if __name__ == "__main__":
    run(Path(sys.argv[1]))
