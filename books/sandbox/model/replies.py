"""What the sandbox model answers: fields read from the receipt, a category by the transaction's words, an agent's turn.

An agent's run calls one to three of the tools it is offered, one a turn in an order drawn by run, then answers. Without
tools it answers at once. A question that names a `text` is answered with the text's category; anything else with OK
and what the tools returned.

Not guaranteed: sense. The answers have the shape, and the amounts and names, that were sent.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from random import Random

from books.sandbox.model.arguments import arguments
from books.sandbox.model.reading import Asked, Kind, content
from books.sandbox.receipt_text import read_fields

MOST_CALLS = 3
_SHOWN = 200
_STEM = 5
_REST = ("other", "sonstiges", "miscellaneous")
# The first category with a word in the text wins, if it is offered; the names are those that the books start with.
_WORDS: dict[str, tuple[str, ...]] = {
    "Wages": ("lohn", "gehalt", "payroll", "salary"),
    "Social security": ("sv-beitr", "minijob", "krankenkasse"),
    "Taxes": ("finanzamt", "ust-va", "steuer", "hmrc"),
    "Rent": ("miete", "hausverwaltung", "rent"),
    "Energy": ("strom", "gas", "stadtwerke", "energie", "electric"),
    "Telephone and internet": ("telekom", "telefon", "mobilfunk", "internet", "broadband"),
    "Insurance": ("versicherung", "police", "insurance"),
    "Fuel and vehicles": ("tank", "kfz", "diesel", "super e10", "fuel"),
    "Hosting and software": ("hosting", "domain", "server", "cloud", "software", "saas", "lizenz"),
    "Office supplies": ("bürobedarf", "papier", "toner", "office"),
    "Groceries and meals": ("lebensmittel", "restaurant", "bewirtung", "markt", "café"),
    "Travel": ("reise", "hotel", "bahn", "flug", "travel"),
    "Bank fees": ("kontof", "entgelt", "gebühr", "bank charge"),
    "Revenue": ("kd-nr", "auftrag", "gutschrift", "customer payment"),
    "Purchases and services": ("rechnung", "bestellung", "invoice"),
}


@dataclass(frozen=True, slots=True)
class Reply:
    """A text, or a tool's name and arguments (JSON)."""

    content: str | None
    calls: list[tuple[str, str]] = field(default_factory=list)

    @property
    def written(self) -> str:
        """All that the model wrote, for counting."""
        return (self.content or "") + "".join(name + given for name, given in self.calls)

    def broken_off(self) -> Reply:
        """The same, its JSON cut in the middle."""
        if self.calls:
            return Reply(None, [(name, given[: max(1, len(given) // 2)]) for name, given in self.calls])
        text = self.content or ""
        return Reply(text[: len(text) // 2])


def reply(asked: Asked, rng: Random) -> Reply:
    """`rng` belongs to the run: each of its turns draws the same plan."""
    match asked.kind:
        case Kind.EXTRACT:
            return Reply(json.dumps(read_fields(asked.receipt()), ensure_ascii=False))
        case Kind.CATEGORIZE:
            return Reply(json.dumps({"category": category(asked.transaction(), asked.categories)}, ensure_ascii=False))
        case Kind.AGENT:
            return _turn(asked, rng)


def has_json(asked: Asked, rng: Random) -> bool:
    """Whether the reply has JSON that can be broken off."""
    return asked.kind is not Kind.AGENT or bool(_turn(asked, rng).calls)


def category(text: str, offered: list[str]) -> str:
    """The best among those offered: by its words, by most of its own name, or the one that takes the rest."""
    text = text.lower()
    for name, words in _WORDS.items():
        if name in offered and any(word in text for word in words):
            return name
    shared = {name: _shared(name, text) for name in offered}
    if any(shared.values()):
        return max(offered, key=lambda name: shared[name])
    return next((name for name in offered if name.lower() in _REST), offered[-1])


def _shared(name: str, text: str) -> float:
    """The part of a name's words that begin like a word in the text."""
    stems = [word[:_STEM] for word in re.findall(r"[^\W\d_]{3,}", name.lower())]
    return sum(bool(re.search(rf"\b{stem}", text)) for stem in stems) / max(1, len(stems))


def _turn(asked: Asked, rng: Random) -> Reply:
    names = [tool["function"]["name"] for tool in asked.tools]
    plan = rng.sample(names, rng.randint(1, min(MOST_CALLS, len(names)))) if names else []
    done = len(_made(asked))
    if done >= len(plan):
        return Reply(_answer(asked))
    tool = next(tool for tool in asked.tools if tool["function"]["name"] == plan[done])
    given = arguments(tool["function"].get("parameters") or {}, asked.messages, rng)
    return Reply(None, [(plan[done], json.dumps(given, ensure_ascii=False))])


def _made(asked: Asked) -> list[str]:
    """The ids of the calls so far whose arguments could be read; the others are to be made again."""
    made = []
    for message in asked.messages:
        for call in message.get("tool_calls") or ():
            try:
                json.loads(call["function"]["arguments"])
            except ValueError:
                continue
            made.append(call["id"])
    return made


def _answer(asked: Asked) -> str:
    try:
        question = json.loads(asked.question())
    except ValueError:
        question = None
    if isinstance(question, dict) and isinstance(text := question.get("text"), str) and "question" in question:
        return category(text, [*_WORDS, "Other"])
    made = _made(asked)
    found = [content(m)[:_SHOWN] for m in asked.messages if m["role"] == "tool" and m.get("tool_call_id") in made]
    return f"OK. {' '.join(found)}" if found else "OK. Nothing speaks against it."
