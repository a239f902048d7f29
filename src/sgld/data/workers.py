"""Workers that passes over rows on disk are mapped over: Dask's, Ray's, those of an executor; no scheduler of ours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RunError, SGLDError, UsageError, first_line

__all__ = ["Workers"]


class Workers:
    """A function map(function, items) -> results in their order. Compiled code asks nothing of it: any two are equal.

    Args:
      given: such a function; a client of Dask's (`map` and `gather`); or what has such a `map`, as an executor of
        `concurrent.futures` and a pool of `multiprocessing` or Ray have.

    Raises: UsageError for anything else.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        self._map: Callable[[Any, Any], Any] = given
        if callable(getattr(given, "map", None)):
            self._map = _of_client(given) if hasattr(given, "gather") else given.map
        elif not callable(given):
            raise UsageError(
                "workers must be a client of Dask's, an executor or pool with a map, or a function map(function, items). "
                f"Got {type(given).__name__}."
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workers)

    def __hash__(self) -> int:
        return hash(Workers)

    def __repr__(self) -> str:
        return f"Workers({type(self.given).__name__})"

    def __call__(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """function(item) of every item. RunError where the workers fail."""
        try:
            found = list(self._map(function, items))
        except SGLDError:
            raise
        except Exception as error:
            raise RunError(
                f"the workers failed: {type(error).__name__} ({first_line(error)}); see to it that each has this version "
                "of sgld and what the posterior uses, and go on with sgld.resume."
            ) from error
        if len(found) != len(items):
            raise RunError(
                f"the workers gave {len(found)} results for {len(items)} pieces; their map must give one each, in order."
            )
        return found


def _of_client(client: Any) -> Callable[[Any, Sequence[Any]], list[Any]]:
    def mapped(function: Any, items: Sequence[Any]) -> list[Any]:
        with warnings.catch_warnings():  # rows that are sent are sent once
            warnings.filterwarnings("ignore", "Sending large graph")
            # pure: results would be kept, and looked up by hashing every argument
            return client.gather(client.map(function, items, pure=False))

    return mapped
