"""The doors that are fuzzed: a queue with its worker, and the world outside."""

from tests.books.conftest import world as world
from tests.broker.conftest import station as station
from tests.middleware.conftest import house as house
from tests.middleware.conftest import recorded as recorded
