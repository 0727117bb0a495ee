"""Writes the reference from the code: `python -m tests.architecture.reference docs/reference.md`.

Commands come from the command line itself, declarations and settings from their fields and the texts below them,
metrics, keys and errors from the modules that hold them all, events from every call of a logger, the findings of
`fleet check` from what its modules yield. A test compares the page with what would be written, so a change of any of
them wants this command once more.

Not guaranteed: an event whose name is put together at run time (see `words.py`); a finding that is returned or raised.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import typer

import fleet
from fleet import errors, metrics
from fleet.broker import keys
from fleet.cli import cli
from tests.architecture.words import Row, rows, said

ROOT = Path(__file__).parents[2]
RUNBOOK = ROOT / "docs/when-things-go-wrong.md"
HEAD = """# Reference

Made from the code by `python -m tests.architecture.reference docs/reference.md`; edit that, not this. A test compares.

[Commands](#commands) · [Declarations](#declarations) · [Findings](#findings) · [Settings](#settings) ·
[Metrics](#metrics) · [Events](#events) · [Keys in Redis](#keys-in-redis) · [Errors](#errors)
"""
FOUND_BY_CHECK = ("check", "elastic_check", "graces", "memory_limits", "rolling")


def page() -> str:
    """The whole page."""
    parts = (HEAD, *_commands(), *_declarations(), *_findings(), *_settings(), *_metrics(), *_events())
    return "\n".join((*parts, *_keys(), *_errors())).rstrip() + "\n"


def _table(head: Sequence[str], found: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for cells in found:
        yield "| " + " | ".join(re.sub(r"\s+", " ", cell).replace("|", "\\|").strip() for cell in cells) + " |"
    yield ""


def _first(text: str | None) -> str:
    """The first paragraph of a docstring, in Markdown's backticks."""
    return inspect.cleandoc(text or "").split("\n\n")[0]


def _commands() -> Iterator[str]:
    yield "## Commands\n"
    yield "`fleet --app DIR …` is for an application elsewhere. An engine's error: one sentence, exit code 2.\n"
    yield from _table(("command", "does", "takes"), _below(typer.main.get_command(cli), "fleet"))


def _below(command: Any, name: str) -> Iterator[Sequence[str]]:
    for sub in sorted(getattr(command, "commands", {})):
        found = command.commands[sub]
        if not hasattr(found, "commands") or found.invoke_without_command:
            yield f"`{name} {sub}`", _first(found.help), "<br>".join(map(_parameter, found.params))
        yield from _below(found, f"{name} {sub}")


def _parameter(parameter: Any) -> str:
    told = getattr(parameter, "help", None) or ""
    shown = parameter.opts[0] if parameter.param_type_name == "option" else str(parameter.name).upper()
    return f"`{shown}` {told}"


def _declarations() -> Iterator[str]:
    yield "## Declarations\n"
    yield "What an application's rooms import from `fleet`.\n"
    for name in sorted(fleet.__all__):
        made = getattr(fleet, name)
        if dataclasses.is_dataclass(made):
            yield f"### {name}\n\n{inspect.cleandoc(made.__doc__ or '')}\n"
            yield from _table(("field", "type", "default"), map(_field, dataclasses.fields(made)))
        elif callable(made):
            yield f"### {name}{_signature(made)}\n\n{inspect.cleandoc(made.__doc__ or '')}\n"
    yield f"### deadline\n\n{_first(fleet.deadline.__doc__)}\n"
    yield from _table(("function", "does"), _functions(fleet.deadline))


def _signature(made: Any) -> str:
    return "(" + ", ".join(inspect.signature(inspect.unwrap(made)).parameters) + ")"


def _field(field: dataclasses.Field[Any]) -> Sequence[str]:
    default = "" if field.default is dataclasses.MISSING else f"`{_plain(field.default)}`"
    return f"`{field.name}`", f"`{field.type}`", default


def _plain(value: object) -> str:
    return str(value) if isinstance(value, timedelta) else repr(value)


def _functions(module: Any) -> Iterator[Sequence[str]]:
    for name, function in sorted(vars(module).items()):
        here = getattr(function, "__module__", "") == module.__name__
        if callable(function) and here and not name.startswith("_") and not inspect.isclass(function):
            yield f"`{name}{_signature(function)}`", _first(function.__doc__)


def _findings() -> Iterator[str]:
    yield "## Findings\n"
    yield "Of `fleet check`; the last file's by `--against MANIFEST`. At each … it says what was found.\n"
    sources = [f"fleet/{name}.py" for name in FOUND_BY_CHECK]
    found = ((said, f"`{source}`") for source in sources for said in _yielded(ROOT / source))
    yield from _table(("it says", "judged in"), found)


def _yielded(source: Path) -> Iterator[str]:
    """The sentences that a module yields, in their order."""
    yields = (node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Yield))
    for node in sorted(yields, key=lambda one: one.lineno):
        if isinstance(node.value, ast.JoinedStr):
            parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.value.values]
            yield re.sub("…+", "…", "".join(parts)).replace("*", "\\*")


def _settings() -> Iterator[str]:
    yield "## Settings\n"
    yield (
        "From the environment, or from a file of the variable's name in `FLEET_SECRETS_DIR`. "
        "Durations are written `6s`, `1m` or `PT6S`.\n"
    )
    from fleet.settings import Settings

    yield from _table(("variable", "default", "means"), _variables(Settings, ROOT / "fleet/settings.py"))
    yield "The bookkeeping's own, beside them:\n"
    from config.settings import Settings as Own

    yield from _table(("variable", "default", "means"), _variables(Own, ROOT / "config/settings.py"))


def _variables(made: Any, source: Path) -> Iterator[Sequence[str]]:
    for name, told in told_of_fields(source).items():
        field = made.model_fields[name]
        variable = field.validation_alias or f"FLEET_{name.upper()}"
        yield f"`{variable}`", "" if field.default in (None, "", ()) else f"`{field.default}`", told


def told_of_fields(source: Path) -> dict[str, str]:
    """Field -> the text below it, of the class `Settings` of a module; empty for a field that has none."""
    tree = ast.parse(source.read_text())
    (made,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Settings"]
    found: dict[str, str] = {}
    for node, after in zip(made.body, [*made.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            has_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            found[node.target.id] = str(after.value.value) if has_text else ""  # type: ignore[union-attr]
    return found


def _metrics() -> Iterator[str]:
    yield "## Metrics\n"
    yield (
        "A counter's name ends in `_total` where it is scraped; `read` is read from Redis when a beat is scraped. "
        "[More](metrics.md).\n"
    )
    told = (
        (f"`{one.name}`", one.kind, " ".join(f"`{label}`" for label in one.labels), one.means)
        for one in metrics.EXPORTED
    )
    yield from _table(("metric", "kind", "labels", "means"), told)


def _events() -> Iterator[str]:
    found = said(ROOT)
    by_anchor = {anchor: row for row in rows(RUNBOOK) for anchor in row.anchors}
    yield "## Events\n"
    yield "The words by which the log names what happened. Those with a link have a row in the runbook.\n"
    told = ((_event(name, by_anchor), where.partition(":")[0]) for name, where in sorted(found.events.items()))
    yield from _table(("event", "logged in"), ((event, f"`{where}`") for event, where in told))


def _event(name: str, known: dict[str, Row]) -> str:
    return f"[`{name}`](when-things-go-wrong.md#{name})" if name in known else f"`{name}`"


def _keys() -> Iterator[str]:
    yield "## Keys in Redis\n"
    yield "All are built in [`fleet/broker/keys.py`](../fleet/broker/keys.py); `ns` is `FLEET_NAMESPACE`.\n"
    yield from _table(("key", "holds"), _told_keys())


def _told_keys() -> Iterator[Sequence[str]]:
    for name, function in vars(keys).items():
        if (
            inspect.isfunction(function)
            and not name.startswith("of_")
            and "namespace" in inspect.signature(function).parameters
        ):
            given: list[Any] = [
                "ns" if one == "namespace" else _Named(one) for one in inspect.signature(function).parameters
            ]
            yield f"`{function(*given)}`", _first(function.__doc__)


class _Named(str):
    """A part of a key that stands for itself, in capitals."""

    def __new__(cls, name: str) -> _Named:
        return super().__new__(cls, name.upper())


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield "Of [`fleet/errors.py`](../fleet/errors.py), all below `FleetError` but for what interrupts a body.\n"
    found = [one for one in vars(errors).values() if inspect.isclass(one) and one.__module__ == errors.__name__]
    yield from _table(
        ("error", "is a", ""),
        ((f"`{one.__name__}`", f"`{one.__bases__[0].__name__}`", _first(one.__doc__)) for one in found),
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
