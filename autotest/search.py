"""The search for a failing case through Hypothesis, which samples, shrinks and keeps cases."""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import config, source

if TYPE_CHECKING:
    import hypothesis
    from hypothesis.database import ExampleDatabase

    from .source import SourceOfCase


class Rejected(Exception):
    """The case does not count; another one is sampled."""


def search(run_case: Callable[[SourceOfCase], None], n: int, test_id: str, seed: int) -> None:
    """Run n cases that count, and shrink a failure. Without Hypothesis, raise ImportError."""
    import hypothesis
    from hypothesis import strategies

    # seed() also switches the example database off; the settings applied after it switch it on again
    body = hypothesis.given(data=strategies.data())(hypothesis.seed(seed)(_named(run_case)))
    with _shrinking_limited(config.get_int("ONEFLOW_TEST_SHRINK_SECONDS")):
        _settings(n, test_id)(body)()


def _named(method: Callable[[SourceOfCase], None]) -> Callable[[Any], None]:
    import hypothesis

    def cases(data: Any) -> None:
        try:
            method(source.HypothesisSource(data))
        except Rejected:
            hypothesis.reject()

    return cases


@contextlib.contextmanager
def _shrinking_limited(seconds: int) -> Iterator[None]:
    """Let Hypothesis itself end shrinking after this time; it has no setting for that."""
    from hypothesis.internal.conjecture import engine

    before = getattr(engine, "MAX_SHRINKING_SECONDS", None)
    if before is None:  # another version: shrinking ends by Hypothesis's own limits
        yield
        return
    engine.MAX_SHRINKING_SECONDS = seconds
    try:
        yield
    finally:
        engine.MAX_SHRINKING_SECONDS = before


def _settings(n: int, test_id: str) -> hypothesis.settings:
    import hypothesis
    from hypothesis import HealthCheck, Phase, Verbosity

    return hypothesis.settings(
        max_examples=n,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
        phases=[Phase.generate] if config.several_ranks() else [Phase.reuse, Phase.generate, Phase.shrink],
        database=database(test_id),
    )


@functools.cache
def _store(folder: str) -> ExampleDatabase | None:
    """Return the example database: Hypothesis's default for an empty name, None for "none"."""
    import hypothesis
    from hypothesis.database import DirectoryBasedExampleDatabase

    if folder == "none":
        return None
    default: Any = hypothesis.settings.default
    return DirectoryBasedExampleDatabase(folder) if folder else default.database


def database(test_id: str) -> ExampleDatabase | None:
    """Return the failing examples of this test only; Hypothesis tells tests apart by their source, which ours
    share.
    """
    folder = config.get("ONEFLOW_TEST_DATABASE")
    if not folder and config.is_set("CI") or config.several_ranks():
        return None
    store = _store(folder)
    return None if store is None else _keyed_class()(store, test_id)


@functools.cache
def _keyed_class() -> type:
    from hypothesis.database import ExampleDatabase

    class KeyedDatabase(ExampleDatabase):
        def __init__(self, store: ExampleDatabase, test_id: str) -> None:
            super().__init__()
            self.store, self.prefix = (
                store,
                zlib.crc32(test_id.encode()).to_bytes(4, "big") + test_id.encode()[-40:],
            )

        def fetch(self, key: bytes) -> Iterable[bytes]:
            return self.store.fetch(self.prefix + key)

        def save(self, key: bytes, value: bytes) -> None:
            self.store.save(self.prefix + key, value)

        def delete(self, key: bytes, value: bytes) -> None:
            self.store.delete(self.prefix + key, value)

        def move(self, src: bytes, dest: bytes, value: bytes) -> None:
            self.store.move(self.prefix + src, self.prefix + dest, value)

    return KeyedDatabase
