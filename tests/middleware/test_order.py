"""The order of the middleware is complete, and each line says why it stands there."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

from dramatiq import Middleware

import middleware


def own_middleware() -> set[type[Middleware]]:
    """Every middleware class that a file of the folder defines."""
    modules = [importlib.import_module(f"middleware.{one.name}") for one in pkgutil.iter_modules(middleware.__path__)]
    return {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Middleware) and value.__module__ == module.__name__
    }


def order() -> list[str]:
    return [type(one).__name__ for one in middleware.default_order()]


def test_every_middleware_of_the_folder_is_in_the_default_order_once() -> None:
    assert own_middleware(), "none found: the test looks in the wrong place"
    for one in own_middleware():
        assert order().count(one.__name__) == 1, f"{one.__name__} ({one.__module__})"


def test_each_line_of_the_order_says_why_it_stands_there() -> None:
    source = Path(inspect.getfile(middleware)).read_text()
    lines = source.splitlines()
    function = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name == "default_order"
    )
    (returned,) = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
    assert isinstance(returned, ast.List) and len(returned.elts) == len(order())
    unexplained = [line for element in returned.elts if "  # " not in (line := lines[element.lineno - 1])]
    assert unexplained == []


def test_two_brokers_share_no_middleware() -> None:
    first, second = middleware.default_order(), middleware.default_order()
    assert not {id(one) for one in first} & {id(one) for one in second}


def test_what_the_order_promises_holds() -> None:
    def above(higher: str, lower: str) -> bool:
        return order().index(higher) < order().index(lower)

    assert order()[-1] == "BudgetGrant", "something could run between the grant and the body"
    for judge in ("Sentry", "Metrics", "LogContext"):
        assert above(judge, "Expiry"), f"{judge} does not hear of a message that expired"
        assert above(judge, "LaneRetries"), f"{judge} judges before it is decided whether a failure is final"
    assert above("Expiry", "SlotClaim"), "a late message would claim its slot"
    assert above("SlotClaim", "LaneRetries"), "a slot would end before it is decided whether a failure is final"
    assert above("CurrentMessage", "Expiry")
    assert above("Expiry", "CronCheckIns"), "a message that is refused would check in"
    assert above("CronCheckIns", "LaneRetries"), "it judges before it is decided whether a failure is final"
    assert above("SlotClaim", "EntryRuns"), "a message that waits for its slot would be a run each time it asks"
    assert above("EntryRuns", "LaneRetries"), "a run would end before it is decided whether a failure is final"
    assert above("CurrentMessage", "Pipelines"), "what a pipeline sends would inherit nothing"
    assert above("Pipelines", "LaneRetries")
