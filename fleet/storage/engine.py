"""The process's engine, its pool, and the transaction around a block.

The pool is bounded (`FLEET_DATABASE_POOL`): a lane of 128 threads shares it, since a sync holds a connection only
while it writes. A thread that gets none within 30 s fails its job, which is tried again. A deadline does not strike
while the pool gives or takes a connection, nor a commit: it would leave the pool's lock taken, or the connection
nobody's.

A host that vanishes without a word is noticed within 30 s, over TCP: a server's by the process, and a process's by the
server where it lets itself be told, which would else keep its locked rows for a quarter of an hour to two hours, from
its next delivery and from janitors. A process that was killed is noticed within 10 s also while its statement waits for
a lock. A server that only reads counts as one that is gone: the pool connects anew, to whoever its name stands for by
then.

Not guaranteed: an end at the soft budget where a server is there and does not answer (stopped, or behind a lock):
psycopg waits in C, where no raise strikes, and the server's kernel still says yes. That job ends at its hard budget. No
`statement_timeout` is set: a long statement is legitimate, and what bounds it is the job's budget; a URL may give one
(`?options=-c%20statement_timeout=60000`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import ExceptionContext
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, PoolProxiedConnection, QueuePool
from sqlalchemy.util import queue as pool_queue

from fleet import deadline
from fleet.errors import SettingsInvalid
from fleet.gone import READ_ONLY
from fleet.logs import get_logger

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
log = get_logger(__name__)


def psycopg_url(url: str) -> URL:
    """The URL with psycopg 3 as its driver, whatever driver it names or leaves out."""
    return make_url(url).set(drivername="postgresql+psycopg")


class _Waits(pool_queue.Queue[Any]):
    """Waits for a connection no longer than the job's soft budget."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        left = deadline.remaining()
        if left is not None and block:
            timeout = min(left.total_seconds(), left.total_seconds() if timeout is None else timeout)
        return super().get(block, timeout)


class _Pool(QueuePool):
    """Shielded where it gives a connection, makes one, and takes one back."""

    _queue_class = _Waits

    def connect(self) -> PoolProxiedConnection:
        with deadline.shielded():
            try:
                return super().connect()
            except PoolTimeout:
                deadline.check()  # the wait that the budget cut short is the job's end
                raise

    def _do_return_conn(self, record: ConnectionPoolEntry) -> None:
        with deadline.shielded():
            super()._do_return_conn(record)


class _Once(Generic[T]):
    """Makes it at first use, one for all threads: `cache` alone lets those that come together make one each."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._made = cache(make)
        self.__doc__ = make.__doc__
        self.cache_clear, self.cache_info = self._made.cache_clear, self._made.cache_info
        self._begin_anew()
        os.register_at_fork(after_in_child=self._begin_anew)

    def _begin_anew(self) -> None:
        """A fork inherits the lock, and not the thread that may hold it."""
        self._lock = threading.Lock()

    def __call__(self) -> T:
        with self._lock:
            return self._made()


# A server that hangs fails a job; it must not hold its thread. What was sent and is not acknowledged ends a connection
# by the one, silence while an answer is awaited by the others; sockets of the machine itself know neither.
_KEEPALIVES = ("idle", "interval", "count")
_NOTICES = {
    "connect_timeout": 5,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
}
# The same by the server, for each session; by itself it goes by the kernel's, which are minutes and hours.
_NOTICED = "; ".join(
    [f"SET tcp_keepalives_{name} = {_NOTICES[f'keepalives_{name}']}" for name in _KEEPALIVES]
    + [f"SET tcp_user_timeout = {_NOTICES['tcp_user_timeout']}"]
)
# Where a statement waits for a lock or runs: else each process that a hard budget ends leaves its backends in the queue
# for that lock, until all connections of the server are used up.
_LOOKS_FOR_US = "SET client_connection_check_interval = '10s'"


def _ask_to_be_noticed(connection: psycopg.Connection[Any], *_: Any) -> None:
    """As far as the server lets us: some managed ones let nobody set these, and then go by their own."""
    import psycopg

    for asked in (_NOTICED, _LOOKS_FOR_US):
        try:
            connection.execute(asked)
        except psycopg.DatabaseError as error:
            if error.sqlstate is None:  # the connection's own
                raise
            log.debug("postgres_setting_refused", asked=asked, error=str(error).splitlines()[0])
            connection.rollback()
        else:
            connection.commit()


def _judge(error: ExceptionContext) -> None:
    if getattr(error.original_exception, "sqlstate", None) == READ_ONLY:
        error.is_disconnect = True


def _engine(url: str, **options: Any) -> Engine:
    made = create_engine(psycopg_url(url), connect_args=_NOTICES, **options)
    event.listen(made, "connect", _ask_to_be_noticed)
    event.listen(made, "handle_error", _judge)
    return made


@_Once
def database() -> Engine:
    """The process's engine; opens no connection yet.

    Raises `SettingsInvalid` if no database is configured.
    """
    from fleet.app import settings

    configured = settings()
    if not configured.database_url:
        raise SettingsInvalid("FLEET_DATABASE_URL is not set, and this work keeps records in PostgreSQL.")
    return _engine(
        configured.database_url,
        poolclass=_Pool,
        pool_size=configured.database_pool,
        max_overflow=0,
        pool_timeout=30,
        pool_pre_ping=True,
        hide_parameters=True,  # errors go to logs and to Sentry; what a row holds does not
    )


def unpooled(url: str) -> Engine:
    """An engine that keeps no connection, for a process that needs one for a moment now and then."""
    return _engine(url, poolclass=NullPool)


def dedicated(engine: Engine, name: str) -> psycopg.Connection[Any]:
    """A connection of the driver's to an engine's database, beside its pool, in autocommit; PostgreSQL shows `name`.

    Raises psycopg's `OperationalError`.
    """
    import psycopg

    arguments, options = engine.dialect.create_connect_args(engine.url)
    made = psycopg.connect(*arguments, **{**options, **_NOTICES}, autocommit=True, application_name=name)
    _ask_to_be_noticed(made)
    return made


@_Once
def _sessions() -> sessionmaker[Session]:
    return sessionmaker(database(), expire_on_commit=False)


class session:  # it is used like a function
    """One transaction: committed at the end of the block, rolled back when the block raises.

    A class and no generator, so that its end stands behind a shield as a whole: a deadline that struck a commit, or the
    return of a connection, would lose the connection to the pool.
    """

    def __enter__(self) -> Session:
        self._session = _sessions()()
        return self._session

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with deadline.shielded():
            try:
                if kind is None:
                    self._session.commit()
            finally:
                self._session.close()  # rolls back what was not committed
