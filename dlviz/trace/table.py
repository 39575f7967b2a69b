"""Columns of equal length, in which a Trace holds its spans, messages and memory.

A table holds one numpy array for each column and no object for each row, so that a trace of 100,000
spans is read, checked and measured by numpy. Whole numbers are int64, times float64 seconds, text
and dicts object arrays.

A missing value is -1 in a column of whole numbers, NaN in a column of times, "" in a column of text
and None in a column of dicts. `rows()` gives None for a missing number or time, `frame()` <NA>.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import pandas

SPANS = {
    "rank": int,
    "lane": str,
    "kind": str,
    "name": str,
    "start": float,
    "end": float,
    "wall_start": float,
    "wall_end": float,
    "depth": int,
    "step": int,
    "stage": int,
    "microbatch": int,
    "bucket": int,
    "group": str,
    "sequence": int,
    "nbytes": int,
    "peer": int,
    "flow": int,
    "where": str,
    "fields": dict,
}
MESSAGES = {
    "src": int,
    "dst": int,
    "nbytes": int,
    "offset": int,
    "count": int,
    "op": str,
    "sent": float,
    "arrived": float,
    "received": float,
    "wall_sent": float,
    "wall_received": float,
    "tag": int,
    "group": str,
    "step": int,
}
MEMORY = {"rank": int, "time": float, "what": str, "nbytes": int}
BUFFERS = {
    "rank": int,
    "name": str,
    "time": float,
    "wall": float,
    "index": int,
    "where": str,
    "step": int,
}

MISSING = {int: -1, float: float("nan"), str: "", dict: None}
_DTYPE = {int: np.int64, float: np.float64, str: object, dict: object}
_ACCEPTED = {
    int: (int, np.integer),
    float: (int, float, np.integer, np.floating),
    str: (str,),
    dict: (dict, type(None)),
}
_WORDS = {int: "whole numbers", float: "numbers", str: "text", dict: "dicts"}


class TraceError(ValueError):
    """An impossible trace, or file of one; the error's message names row and values."""


class Table:
    """Named columns of one length.

    `table["kind"]` and `table.kind`: the column, a numpy array; `table[3]` is a row, as `for row in
    table` gives them; `table[index]` with a mask, a slice or row numbers is the Table of those
    rows. Raises ValueError where columns differ in length, IndexError for a row beyond the last.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any] | np.ndarray]):
        self._columns = {name: _array(values) for name, values in columns.items()}
        lengths = {name: len(values) for name, values in self._columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"the columns of a table need one length, these have {lengths}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self._columns[index]
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"row {index} is beyond the {len(self)} of this table.")
            at = index % len(self)
            return next(self[at : at + 1].rows())
        if not isinstance(index, slice):
            index = np.asarray(index, dtype=None if len(index) else np.intp)
        return Table({name: values[index] for name, values in self._columns.items()})

    def __getattr__(self, name: str) -> np.ndarray:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"a table of {', '.join(columns)} has no column {name!r}")
        return columns[name]

    def rows(self) -> Iterator[Any]:
        """Each row as a namedtuple of Python values, None where a number or a time is missing."""
        values = zip(*map(_values, self._columns.values()), strict=True)
        return map(_row(self.names)._make, values)

    __iter__ = rows

    def frame(self) -> pandas.DataFrame:
        """The table as a DataFrame: whole numbers as Int64 with <NA>, times in seconds with NaN."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("frame() needs pandas: run `pip install pandas`") from error

        def series(values: np.ndarray) -> Any:
            if values.dtype != np.int64:
                return values
            return pandas.arrays.IntegerArray(values.copy(), values == -1)

        return pandas.DataFrame({name: series(values) for name, values in self._columns.items()})

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.names)})"

    def _repr_html_(self) -> str:
        return self.frame().to_html(max_rows=20, na_rep="")


@cache
def _row(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names)  # pyright: ignore[reportUntypedNamedTuple]


class Tables(Protocol):
    """A Trace as it is stored."""

    spans: Table
    messages: Table
    memory: Table
    buffers: list[dict[str, Any]]
    meta: dict[str, Any]

    @property
    def ranks(self) -> list[int]: ...


def tabulate(what: str, schema: Mapping[str, type], rows: Any) -> Table:
    """The Table of `schema` from `rows`: a Table, a dict of columns or a list of dicts.

    A column missing in `rows` is filled with its missing value (a depth with 0). Raises TraceError,
    naming `what`, for an unknown column or a value of another type.
    """
    if isinstance(rows, Table):
        given: dict[str, Any] = {name: rows[name] for name in rows.names}
    elif isinstance(rows, Mapping):
        given = dict(rows)
    else:
        rows = list(rows or ())
        given = {name: [row.get(name) for row in rows] for name in dict.fromkeys(_keys(rows))}
    unknown = [name for name in given if name not in schema]
    if unknown:
        raise TraceError(
            f"{what} have no column {unknown[0]!r}: they have {', '.join(schema)}"
            + ("; put anything else into fields." if "fields" in schema else ".")
        )
    length = len(next(iter(given.values()), ()))
    columns = {}
    for name, kind in schema.items():
        missing = 0 if name == "depth" else MISSING[kind]
        if name in given:
            columns[name] = _typed(f"{what}: the column {name}", kind, given[name], missing)
        else:
            columns[name] = np.full(length, missing, dtype=_DTYPE[kind])
    try:
        return Table(columns)
    except ValueError as error:
        raise TraceError(f"{what}: {error}") from None


def _keys(rows: list[Any]) -> Iterator[str]:
    for row in rows:
        yield from row


def _typed(column: str, kind: type, values: Any, missing: Any) -> np.ndarray:
    if isinstance(values, np.ndarray) and kind in (int, float) and values.dtype == _DTYPE[kind]:
        return values.copy()
    values = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if kind is not dict:
        values = [missing if value is None else value for value in values]
    for found in set(map(type, values)):
        if not issubclass(found, _ACCEPTED[kind]) or issubclass(found, bool):
            row, value = next((i, v) for i, v in enumerate(values) if type(v) is found)
            raise TraceError(f"{column} holds {_WORDS[kind]}, not {value!r:.40} (row {row}).")
    try:
        return _array(values, _DTYPE[kind])
    except OverflowError:
        raise TraceError(f"{column} holds a number beyond 64 bits.") from None


def _array(values: Any, dtype: Any = None) -> np.ndarray:
    """`values` as a column: numbers as int64 or float64, all else as an object array."""
    if isinstance(values, np.ndarray) and dtype is None:
        if values.dtype.kind in "iu":
            return values.astype(np.int64, copy=False)
        return values.astype(np.float64 if values.dtype.kind == "f" else object, copy=False)
    if dtype is None:
        types = set(map(type, values))
        numbers = bool(types) and all(issubclass(t, (int, float, np.number)) for t in types)
        dtype = np.asarray(values).dtype if numbers and bool not in types else object
    array = np.empty(len(values), dtype)
    array[:] = values
    return array


def _values(column: np.ndarray) -> list[Any]:
    if column.dtype == np.int64:
        return [None if value == -1 else value for value in column.tolist()]
    if column.dtype == np.float64:
        return [None if value != value else value for value in column.tolist()]
    return column.tolist()
