"""Fixtures of the tests of who may do what."""

from tests.broker.conftest import own_redis as own_redis
