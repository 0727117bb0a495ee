"""The process's clients of the world outside, made at first use from the settings and shared by all threads.

Importing this module imports neither httpx nor the OpenAI SDK.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from config.settings import settings
from fleet import parking, quota
from fleet.errors import RetryLater
from fleet.gone import server_gone
from fleet.logs import get_logger

if TYPE_CHECKING:
    from books.bank import BankClient
    from books.gateway import GatewayClient
    from books.model import ModelClient

T = TypeVar("T")

log = get_logger(__name__)

_lock = threading.Lock()


def _once(make: Callable[[], T]) -> T:
    # `cache` alone would let 128 threads that start together make a client each.
    with _lock:
        return make()


@cache
def _bank() -> BankClient:
    from books.bank import BankClient

    known = settings()
    return BankClient(known.bank_url, known.bank_secret_id, known.bank_secret_key)


@cache
def _model() -> ModelClient:
    from books.model import ModelClient

    known = settings()
    return ModelClient(known.model_url, known.model_key, known.model_name)


@cache
def _authority() -> GatewayClient:
    from books.gateway import GatewayClient

    known = settings()
    return GatewayClient(known.authority_url, known.authority_key, "/v1/filings")


@cache
def _payments() -> GatewayClient:
    from books.gateway import GatewayClient

    known = settings()
    return GatewayClient(known.payments_url, known.payments_key, "/v1/charges")


def bank() -> BankClient:
    """The aggregator's client."""
    return _once(_bank)


def model_name() -> str:
    """Which model is asked."""
    return settings().model_name


def model() -> ModelClient:
    """The model's client."""
    return _once(_model)


def authority() -> GatewayClient:
    """The tax authority's client, which takes filings."""
    return _once(_authority)


def payments() -> GatewayClient:
    """The payment gateway's client, which takes charges."""
    return _once(_payments)


MODEL = "model"
"""The model's quota (`config/quotas.py`), and the key it is parked by, which all its callers share."""
AUTHORITY, PAYMENTS = "authority", "payments"
"""The keys that these are parked by; neither has a quota."""


@contextmanager
def limited(key: str) -> Iterator[None]:
    """Call the world outside under a key: with a place of its quota, if it has one, and unless it is parked.

    Raises `RetryLater` while it is parked, and `NoPlace`, which is one, where batch gets no place. A rate limit that
    the block meets parks the key; one that batch meets where people share a quota with it parks batch alone, so that
    nobody waits for batch: whether people are limited too is found out by their own call. While Redis does not answer
    nothing counts as parked: people are called for, and batch, where there is a quota, gets no place of it.
    """
    _check(key)
    shared, people = quota.declared(key), quota.for_people()
    own = key if people or not shared else f"{key} for batch"
    if own != key:
        _check(own)
    try:
        with quota.place(key, people=people) if shared else nullcontext():
            yield
    except RetryLater as error:
        error.key = error.key or own
        raise


def _check(key: str) -> None:
    try:
        parking.check(key)
    except Exception as error:
        if not server_gone(error):
            raise
        log.warning("parking_unanswered", key=key, error=repr(error))


def forget() -> None:
    """Make new clients at the next use; for tests that change the settings."""
    for client in (_bank, _model, _authority, _payments):
        client.cache_clear()
