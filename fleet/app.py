"""Finds an application's rooms, and is the only place that imports by name.

An application is a folder with `actors/`, `config/lanes.py` and `config/schedule.py`, and perhaps `janitors/`,
`config/settings.py` and `config/quotas.py`. Its rooms have import names that other packages use too, so each is checked
to have come from the folder it should, also where a process only sends: `ShadowedRoom` names both paths.

Not guaranteed: two applications in one process. The broker is the process's, as it is in Dramatiq.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, cast

import dramatiq

import fleet
from fleet.actor import FleetActor
from fleet.broker import FleetBroker
from fleet.declarations import Budget, Entry, Lane, Retry
from fleet.errors import DeclarationInvalid, FleetError, NotDeclared, RoomMissing, ShadowedRoom
from fleet.payloads import PayloadEncoder
from fleet.quota import Quota
from fleet.thresholds import DEFAULT, Thresholds
from fleet.window import elastic_of

if TYPE_CHECKING:
    from fleet.settings import Settings

ENGINE = Path(fleet.__file__).resolve().parent.parent
ENGINE_ROOMS = ("fleet", "beat", "middleware")
NEEDED_ROOMS = ("actors", "config")
OPTIONAL_ROOMS = ("janitors",)


@dataclass(frozen=True)
class App:
    """A loaded application: its root, its actors by name, its lanes, schedule and quotas as they are written."""

    root: Path
    actors: Mapping[str, FleetActor[Any, Any]]
    lanes: tuple[Lane, ...]
    schedule: tuple[Entry, ...]
    quotas: tuple[Quota, ...] = ()

    def lane(self, name: str) -> Lane:
        """The lane of this name, or `NotDeclared`."""
        for lane in self.lanes:
            if lane.name == name:
                return lane
        raise NotDeclared("lane", name, (lane.name for lane in self.lanes))

    def lane_here(self, name: str) -> Lane:
        """The same as this process's settings have it run: with their `drain`, if they name one."""
        declared, drain = self.lane(name), settings().drain
        return declared if drain is None else replace(declared, drain=drain)

    def entry(self, name: str) -> Entry:
        """The entry of this name, or `NotDeclared`."""
        for entry in self.schedule:
            if entry.name == name:
                return entry
        raise NotDeclared("entry", name, (entry.name for entry in self.schedule))

    def actor(self, name: str) -> FleetActor[Any, Any]:
        """The actor of this name, or `NotDeclared`."""
        if name not in self.actors:
            raise NotDeclared("actor", name, self.actors)
        return self.actors[name]

    def lane_of(self, queue: str) -> Lane | None:
        """The lane that serves a queue, None if none does."""
        return next((lane for lane in self.lanes if queue in lane.queues), None)


@cache
def process_broker() -> FleetBroker:
    """This process's broker, made at the first declaration; becomes Dramatiq's global broker too.

    Raises `ShadowedRoom` if another package has the name of the engine's room `middleware`.
    """
    broker = FleetBroker(settings, middleware=_import_room("middleware", ENGINE).default_order())
    dramatiq.set_broker(broker)
    dramatiq.set_encoder(PayloadEncoder(lambda: settings().payload_keys, lambda: settings().payload_seal))
    return broker


@cache
def settings() -> Settings:
    """This process's settings: the application's if it has some, else the engine's.

    Raises `SettingsInvalid` if the environment cannot be read; `ShadowedRoom` or `DeclarationInvalid` if there is a
    `config.settings`, whoever's it is, that gives no `Settings`.
    """
    from fleet.settings import Settings

    config = importlib.util.find_spec("config")
    if config is None:
        return Settings.read()
    if config.submodule_search_locations is None:  # a module, where a room is a package
        raise _no_settings(Path(str(config.origin)))
    if importlib.util.find_spec("config.settings") is None:
        return Settings.read()
    module = importlib.import_module("config.settings")
    give = getattr(module, "settings", None)
    given = give() if callable(give) else None
    if not isinstance(given, Settings):
        raise _no_settings(_place(module))
    return given


def _no_settings(found: Path) -> FleetError:
    """What a `config` is told that gives no settings: that it is not the application's, as far as that can be seen."""
    actors = next(iter(getattr(sys.modules.get("actors"), "__path__", ())), None)
    config = Path(actors).resolve().parent / "config" if actors else None
    if config is not None and config not in found.resolve().parents:
        return ShadowedRoom("config", found=found, wanted=config)
    return DeclarationInvalid(
        f"{found} has no function settings() that returns a fleet.settings.Settings, which is what the fleet asks the "
        f"module config.settings for. Is it the application's own? Give it one, or delete it. Is it another package's, "
        f"as a Django project's that is called config? Rename that package, or send by name (docs/sending.md)."
    )


def load(root: Path) -> App:
    """Import an application's rooms and return what they declare.

    Raises `RoomMissing`, `ShadowedRoom`, `DeclarationInvalid`, or whatever importing the application's code raises.
    """
    root = root.resolve()
    for room in NEEDED_ROOMS:
        if not (root / room / "__init__.py").is_file():
            raise RoomMissing(
                f"{root} is not an application's root: {room}/__init__.py is not there. "
                f"Start from the root, or name it with --app DIR."
            )
    sys.path[:] = [str(root), *(entry for entry in sys.path if entry != str(root))]
    for room in ENGINE_ROOMS:
        _import_room(room, ENGINE)
    for room in (*NEEDED_ROOMS, *OPTIONAL_ROOMS):
        if (root / room / "__init__.py").is_file():
            package = _import_room(room, root)
            if room != "config":  # of config only what is asked for by name; deploy/ and wiring are not code to load
                _import_modules(package)
    declared = lanes(root)
    schedule = _declared(root, "config.schedule", "SCHEDULE", Entry)
    has_quotas = (root / "config" / "quotas.py").is_file()
    quotas = _declared(root, "config.quotas", "QUOTAS", Quota) if has_quotas else ()
    broker = process_broker()
    broker.quotas = MappingProxyType({quota.name: quota for quota in quotas})
    broker.lanes = MappingProxyType({queue: lane for lane in declared for queue in lane.queues})
    broker.entries = MappingProxyType({entry.name: entry for entry in schedule})
    actors = cast("dict[str, FleetActor[Any, Any]]", broker.actors)
    return App(root, MappingProxyType(actors), declared, schedule, quotas)


def lanes(root: Path) -> tuple[Lane, ...]:
    """The lanes alone, also of an application whose actors cannot be imported; after `load`, which sets the path.

    Raises `RoomMissing`, `DeclarationInvalid`, or whatever importing `config.lanes` raises.
    """
    return _declared(root, "config.lanes", "LANES", Lane)


def balancer_rules(app: App) -> Any | None:
    """`BALANCER` of `config/thresholds.py`: the parameters of `beat.balancer`, None where the application has none."""
    if not (app.root / "config" / "thresholds.py").is_file():
        return None
    return getattr(importlib.import_module("config.thresholds"), "BALANCER", None)


def backlog_of(entry: Entry) -> Callable[[], int]:
    """The application's function that counts what is left of an elastic entry.

    Raises `DeclarationInvalid` if there is none of that name, or whatever importing its module raises.
    """
    where = elastic_of(entry).backlog
    return cast("Callable[[], int]", _function(where, f"Entry({entry.name!r}), backlog={where!r}", " that counts"))


def warm_of(lane: Lane) -> Callable[[], object]:
    """The application's function that a lane's processes call before their first message; nothing where it names none.

    Raises `DeclarationInvalid` if there is none of that name, or whatever importing its module raises.
    """
    if lane.warm is None:
        return lambda: None
    return _function(lane.warm, f"Lane({lane.name!r}), warm={lane.warm!r}")


def _function(where: str, told: str, which: str = "") -> Callable[[], object]:
    name, _, function = where.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there, and imports something that is not
        raise DeclarationInvalid(f"{told}: there is no module {error.name!r}.") from None
    found = getattr(module, function, None)
    if callable(found):
        return cast("Callable[[], object]", found)
    known = [known for known in vars(module) if callable(getattr(module, known)) and not known.startswith("_")]
    close = get_close_matches(function, known, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise DeclarationInvalid(f"{told}: {name} has no function {function!r}{which}.{hint}")


def janitors(app: App) -> dict[str, ModuleType]:
    """The modules of the room `janitors`, by name; a janitor's file, its actor and its log event are one word."""
    if not (app.root / "janitors" / "__init__.py").is_file():
        return {}
    package = importlib.import_module("janitors")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return {name: importlib.import_module(f"janitors.{name}") for name in names}


def beat(app: App) -> None:
    """Run a beat replica of a loaded application; the beat's room stands above this one and is found by name."""
    importlib.import_module("beat.__main__").run(app)


def thresholds() -> tuple[Thresholds, Mapping[str, Thresholds]]:
    """The default limits of queues, and an application's own by queue; after `load`, which sets the path.

    Raises `DeclarationInvalid`, or whatever importing `config.thresholds` raises.
    """
    if not (importlib.util.find_spec("config") and importlib.util.find_spec("config.thresholds")):
        return DEFAULT, MappingProxyType({})
    module = importlib.import_module("config.thresholds")
    declared = getattr(module, "THRESHOLDS", None)
    if not isinstance(declared, Mapping) or not all(isinstance(one, Thresholds) for one in declared.values()):
        raise DeclarationInvalid(f"{module.__file__}: THRESHOLDS must map queues to Thresholds.")
    return DEFAULT, MappingProxyType(dict(declared))


def _import_room(room: str, folder: Path) -> ModuleType:
    module = importlib.import_module(room)
    found, wanted = _place(module), (folder / room).resolve()
    if wanted not in found.parents:
        raise ShadowedRoom(room, found=found, wanted=wanted)
    return module


def _place(module: ModuleType) -> Path:
    """The file of a module; the folder of a package that has none."""
    return Path(module.__file__ or next(iter(module.__path__), "")).resolve()


def _import_modules(package: ModuleType) -> None:
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
        importlib.import_module(f"{package.__name__}.{module.name}")


def _declared(root: Path, module: str, name: str, kind: type[Any]) -> tuple[Any, ...]:
    path = root / Path(*module.split(".")).with_suffix(".py")
    if not path.is_file():
        raise RoomMissing(f"{path} is not there; it declares {name} = [{kind.__name__}(…), …].")
    values = getattr(importlib.import_module(module), name, None)
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, kind) for value in values):
        raise DeclarationInvalid(f"{path}: {name} must be a list of {kind.__name__}, found {type(values).__name__}.")
    return tuple(values)


def effective_budget(actor: FleetActor[Any, Any], lane: Lane) -> Budget:
    """The actor's own budget, else its lane's."""
    return actor.budget or lane.budget


def effective_retry(actor: FleetActor[Any, Any], lane: Lane) -> Retry:
    """The actor's own retry shape, else its lane's."""
    return actor.retry or lane.retry


def longest_hard(actors: Mapping[str, Any], lane: Lane) -> timedelta:
    """Of all actors of a lane, and of the lane itself: as long may a retired child live for what runs in it."""
    own = [actor.budget for actor in actors.values() if actor.queue_name in lane.queues]
    hard: timedelta = max(budget.hard for budget in (lane.budget, *own) if budget is not None)
    return hard
