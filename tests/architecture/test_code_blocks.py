"""Every code block of README, CONTRIBUTING and docs is run, or parsed by what it is written for.

Python runs, block after block, in one process a page; our commands are parsed by the command line itself, and run where
they only read; a `text` block is an output or a drawing. How a page prepares its blocks, and what is not looked at:
`code_blocks.py`.
"""

from __future__ import annotations

import configparser
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from fleet.cli import cli
from tests.architecture.code_blocks import (
    CHANGES,
    COMPILED,
    LANGUAGES,
    OWN,
    Block,
    Command,
    asked,
    blocks,
    commands,
    is_read_only,
    run,
)
from tests.architecture.mermaid import faults
from tests.conftest import ROOT, Environment
from tests.environment import child_path

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = {page: str(page.relative_to(ROOT)) for page in PAGES}
BLOCKS = {page: blocks(page.read_text()) for page in PAGES}
# Programs that a page may name beside ours; nothing of theirs is checked but what `_others` looks at.
OTHERS = (".", "docker", "kubectl", "uv", "pip", "git", "curl", "openssl", "mkdir", "touch", "sed", "redis-cli")
FLEET: Any = typer.main.get_command(cli)
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def at(page: Path, line: int) -> str:
    return f"{NAMES[page]}:{line}"


def of(*languages: str) -> list[tuple[Path, Block]]:
    return [(page, block) for page in PAGES for block in BLOCKS[page] if block.language in languages]


def test_every_block_says_what_it_is_written_in_or_that_it_is_an_output() -> None:
    lost = [
        f"{at(page, block.line)}: {block.language or 'no language'!r}; give one of {', '.join(LANGUAGES)}"
        for page in PAGES
        for block in BLOCKS[page]
        if block.language not in LANGUAGES
    ]
    assert not lost, "\n".join(lost)
    for page in PAGES:
        fences = len(re.findall(r"^\s*```", page.read_text(), re.MULTILINE))
        visible = sum(block.language != "run" for block in BLOCKS[page])
        assert fences == 2 * visible, f"{NAMES[page]}: a block is not closed, or is indented"
        beside = re.sub(r"^ *```.*?^ *```$|<!--.*?-->", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        indented = re.search(r"\n\n {4}.*", beside)
        assert indented is None, f"{NAMES[page]}: {indented[0]!r} is a block without a fence, which nothing looks at"


def needed(page: Path) -> list[str]:
    """The packages that a page says it needs beyond ours; each has to be one of the tests' tools."""
    found = re.search(r"<!-- needs ([\w, ]+) -->", page.read_text())
    names = re.split(r",\s*", found[1]) if found else []
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    assert set(names) <= {re.split(r"[><=\[]", tool)[0] for tool in tools}
    return names


RUN = [page for page in PAGES if any(block.language in ("python", "sh", "console") for block in BLOCKS[page])]


@pytest.mark.parametrize("page", RUN, ids=lambda page: NAMES[page])
def test_the_code_of_a_page_runs(page: Path, environment: Environment, tmp_path: Path) -> None:
    for package in needed(page):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{NAMES[page]} runs with {package}, of the group dev, which is not installed here")
    own = OWN in page.read_text()
    here = tmp_path / "shop"
    here.mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "tests.architecture.code_blocks", str(page)],
        cwd=here if own else ROOT,
        env={**os.environ, "PYTHONPATH": child_path(here if own else ROOT) + (os.pathsep + str(ROOT) if own else "")},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-5000:]


@pytest.mark.parametrize(
    ("page", "block"),
    of("sh", "console"),
    ids=lambda given: NAMES[given] if isinstance(given, Path) else str(given.line),
)
def test_every_command_of_a_page_is_one_that_its_program_takes(page: Path, block: Block) -> None:
    for command in commands(block):
        fault = fault_of(command)
        assert fault is None, f"{at(page, command.line)}: {' '.join(command.words)}: {fault}"


def test_every_command_of_a_page_that_only_reads_is_run() -> None:
    parsed = {
        f"{at(page, command.line)}: {' '.join(command.words)}"
        for page, block in of("sh", "console")
        for command in commands(block)
        if command.words[0] == "fleet" and not is_read_only(command) and not asked(command).startswith(CHANGES)
    }
    assert not parsed, "only parsed, and not among those that change something: " + "; ".join(sorted(parsed))


def fault_of(command: Command) -> str | None:
    """What a program would not take about a command; None if nothing is known."""
    program, *arguments = command.words
    match program:
        case "fleet":
            return _parsed(arguments)
        case "make":
            names = [name for name in arguments if "=" not in name]
            return next((f"there is no target {name}" for name in names if name not in TARGETS), None)
        case "python" | "python3":
            return _python(arguments)
        case _ if program in OTHERS:
            return _others(arguments)
        case _ if program.startswith(".venv/bin/"):
            return fault_of(Command((program.removeprefix(".venv/bin/"), *arguments), command.line))
    return f"{program} is none of ours, and none of {', '.join(OTHERS)}"


def _parsed(arguments: list[str]) -> str | None:
    """Parse as the command line does, down to the last group, and run nothing."""
    command, context = FLEET, None
    try:
        while True:
            context = command.make_context(command.name or "fleet", list(arguments), parent=context)
            arguments = [*context._protected_args, *context.args]
            if not hasattr(command, "commands") or not arguments:
                return None
            _, command, arguments = command.resolve_command(context, arguments)
    except typer.Exit:
        return None
    except Exception as error:  # typer brings click's errors with it, or click does
        if hasattr(error, "format_message"):
            return str(error.format_message())
        raise


def _python(arguments: list[str]) -> str | None:
    if arguments[:1] == ["-m"]:
        known = importlib.util.find_spec(arguments[1].partition(".")[0]) and importlib.util.find_spec(arguments[1])
        return None if known else f"there is no module {arguments[1]}"
    if arguments[:1] == ["-c"]:
        return _not_compiled(arguments[1], "-c")
    if arguments and arguments[0].endswith(".py"):
        return None if (ROOT / arguments[0]).is_file() else f"there is no file {arguments[0]}"
    return None


def _not_compiled(text: str, where: str) -> str | None:
    try:
        compile(text, where, "exec")
    except SyntaxError as error:
        return f"it is no Python: {error}"
    return None


def test_what_is_somebody_elses_python_compiles() -> None:
    found = of(COMPILED)
    assert {NAMES[page] for page, _ in found} == {"docs/from-celery.md"}
    for page, block in found:
        assert (fault := _not_compiled(block.text, at(page, block.line))) is None, fault


def test_python_on_a_command_line_is_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\npython -c 'raise SystemExit(3)'\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:2: .* ended with 3"):
        run(page)


def _others(arguments: list[str]) -> str | None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for argument in arguments:
        wanted = re.search(r"^(?:nightshift|\.)\[([\w,]+)\]", argument)
        if wanted and not set(wanted[1].split(",")) <= set(extras):
            return f"there is no extra {wanted[1]}"
        if argument.startswith(("config/", "docs/", "requirements")) and not (ROOT / argument).exists():
            return f"there is no {argument}"
    return None


@pytest.mark.parametrize(
    ("page", "block"), of("mermaid"), ids=lambda given: NAMES[given] if isinstance(given, Path) else str(given.line)
)
def test_every_diagram_can_be_drawn(page: Path, block: Block) -> None:
    assert faults(block.text) == [], at(page, block.line)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('flowchart LR\n  a["one"] --> b', None),
        ('flowchart LR\n  a["one" --> b', 'no node and no edge: a["one" --> b'),
        ("flowchart LR\n  subgraph x\n  a --> b", "a subgraph without its end"),
        ("stateDiagram-v2\n  a --> b: when", None),
        ("stateDiagram-v2\n  a -> b: when", "no state and no move: a -> b: when"),
        ("sequence\n  a", "an unknown kind of diagram: sequence"),
    ],
)
def test_a_diagram_that_cannot_be_drawn_is_said(text: str, fault: str | None) -> None:
    assert faults(text) == ([fault] if fault else [])


def test_every_block_of_values_can_be_read() -> None:
    for page, block in of("toml", "yaml", "ini"):
        try:
            match block.language:
                case "toml":
                    tomllib.loads(block.text)
                case "yaml":
                    list(yaml.safe_load_all(block.text))
                case "ini":
                    configparser.ConfigParser(interpolation=None, strict=False).read_string(block.text)
        except (tomllib.TOMLDecodeError, yaml.YAMLError, configparser.Error) as error:
            pytest.fail(f"{at(page, block.line)}: {error}")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ("fleet jobs --advise", None),
        ("fleet dead requeue --yes", None),
        ("fleet jobs --advice", "No such option: --advice"),
        ("fleet dead revive", "No such command 'revive'"),
        ("fleet work", "Missing argument"),
        ("make nigth", "there is no target nigth"),
        ("python -m books.nihgt", "there is no module books.nihgt"),
        ("python -c print(", "it is no Python"),
        ("pip install nightshift[consoles]", "there is no extra consoles"),
        ("celery worker", "celery is none of ours"),
    ],
)
def test_a_command_that_is_none_is_said(words: str, fault: str | None) -> None:
    said = fault_of(Command(tuple(words.split()), 1))
    assert said is None if fault is None else said is not None and fault in said


def test_every_option_and_target_that_a_page_names_in_a_sentence_exists() -> None:
    lost = []
    for page in PAGES:
        sentences = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for found in re.finditer(r"`((?:fleet|make|python -m) [^`]+)`", sentences):
            fault = _named(found[1].replace("\n", " "))
            if fault:
                lost.append(f"{NAMES[page]}: `{found[1]}`: {fault}")
    assert not lost, "\n".join(lost)


def _named(said: str) -> str | None:
    """What is unknown of a command that is named with placeholders, as `fleet dead list | show`, in a sentence."""
    program, *words = [word for word in shlex.split(said) if "=" not in word]
    if program == "make":
        return fault_of(Command(("make", *words), 1))
    if program == "python":
        return _python(words)
    command = FLEET
    for word in words:
        options = {"--help", *(option for parameter in command.params for option in parameter.opts)}
        if word == "|":
            break
        if hasattr(command, "commands") and re.fullmatch(r"[a-z][a-z-]*", word):
            if word not in command.commands:
                return f"there is no command {word}"
            command = command.commands[word]
        elif word.lstrip("[").startswith("--") and word.strip("[]") not in options:
            return f"there is no option {word}"
    return None
