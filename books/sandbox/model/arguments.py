"""Makes plausible arguments for a tool call from the tool's JSON schema and what was said before.

A property takes the value of the same name in an earlier message's JSON, if the type fits; else an allowed one is
drawn. Not guaranteed: patterns, formats other than `date` and `date-time`, and conditions between properties.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from books.sandbox.model.reading import content
from fleet.clock import clock

Schema = dict[str, Any]
_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


def arguments(schema: Schema, messages: list[dict[str, Any]], rng: Random) -> dict[str, Any]:
    """An object that has the schema's required properties, and those optional ones that were spoken of."""
    return _object(schema, _spoken_of(messages), schema.get("$defs", {}), rng)


def _spoken_of(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Every named value in the JSON of what the user and the tools said; a later one replaces an earlier."""
    known: dict[str, Any] = {}

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            known.update(value)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            collect(inner)

    for message in messages:
        if message["role"] in ("user", "tool"):
            try:
                collect(json.loads(content(message)))
            except ValueError:
                continue
    return known


def _object(schema: Schema, known: dict[str, Any], defs: dict[str, Schema], rng: Random) -> dict[str, Any]:
    properties: dict[str, Schema] = schema.get("properties", {})
    required = schema.get("required", [])
    made = {}
    for name, wanted in properties.items():
        wanted = _resolved(wanted, defs)
        if name in known and _fits(known[name], wanted):
            made[name] = known[name]
        elif name in required:
            made[name] = _value(wanted, known, defs, rng)
    return made


def _value(schema: Schema, known: dict[str, Any], defs: dict[str, Schema], rng: Random) -> Any:
    for given in ("const", "default"):
        if given in schema:
            return schema[given]
    if allowed := schema.get("enum") or schema.get("examples"):
        return rng.choice(allowed)
    match _type(schema):
        case "string":
            return _text(schema)
        case "integer" | "number":
            lowest = int(schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1))
            return rng.randint(lowest, int(schema.get("maximum", lowest + 9)))
        case "boolean":
            return rng.random() < 0.5
        case "array":
            item = _resolved(schema.get("items", {}), defs)
            return [_value(item, known, defs, rng) for _ in range(max(1, schema.get("minItems", 1)))]
        case "null":
            return None
        case _:
            return _object(schema, known, defs, rng)


def _text(schema: Schema) -> str:
    now = clock.now()
    forms = {"date": now.date().isoformat(), "date-time": now.isoformat(timespec="seconds")}
    return forms.get(schema.get("format", ""), str(schema.get("description") or schema.get("title") or "anything")[:60])


def _resolved(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Without references, and of alternatives the first that is not null."""
    if "$ref" in schema:
        return _resolved(defs.get(schema["$ref"].rpartition("/")[2], {}), defs)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            options = [_resolved(option, defs) for option in schema[several]]
            return next((option for option in options if option.get("type") != "null"), {"type": "null"})
    return schema


def _type(schema: Schema) -> str:
    named = schema.get("type", "object" if "properties" in schema else "string")
    return str(next((kind for kind in named if kind != "null"), "null") if isinstance(named, list) else named)


def _fits(value: Any, schema: Schema) -> bool:
    if "enum" in schema:
        return value in schema["enum"]
    wanted = _TYPES.get(_type(schema))
    return wanted is not None and isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))
