"""The cell magic `%%ranks N`: run a cell on N ranks, from a notebook or IPython.

    %load_ext dlviz

    %%ranks 4
    x = torch.ones(3) * comm.rank
    comm.all_reduce(x)
    x                                # what this rank returns

The cell runs on every rank as it would run in the notebook, with `comm` defined. The notebook's
variables that it uses are sent along: data and models as copies, functions and classes defined in
the notebook by value, modules by name. Afterwards `run` is the `dlviz.Run`: its results (the value
of the cell's last expression, by rank), its output and its trace. Variables assigned in the cell
are lost when the ranks end: return them as the last expression. If a run fails, `run` is unchanged.
"""

from __future__ import annotations

import ast
import symtable
from types import CodeType
from typing import Any

import cloudpickle
from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from dlviz.cluster import launch
from dlviz.machine import classroom

# The worker. It is compiled as line 1 of the cell, `%%ranks ...`, so that a traceback has lines of
# the cell alone. Its globals are the notebook's, like those of the notebook's functions: pickled
# together, they share one set of globals on the rank, as they do here.
WORKER = (
    "lambda comm, names, body, last: "
    "(globals().update(names, comm=comm), exec(body, globals()), eval(last, globals()))[-1]"
)


class CellSyntaxError(Exception):
    """The cell is not valid Python. A notebook shows it like a syntax error of its own."""

    def __init__(self, error: SyntaxError, shown: list[str]):
        super().__init__(str(error))
        self._shown = shown

    def _render_traceback_(self) -> list[str]:
        return self._shown


@magics_class
class RanksMagics(Magics):
    @magic_arguments()
    @argument("ranks", nargs="?", help="how many ranks: a whole number from 1 up")
    @argument("--timeout", type=float, default=60.0, help="seconds for the whole run (default 60)")
    @argument("--paced", action="store_true", help="run on a classroom machine: 5 ms a forward")
    @argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    @cell_magic
    def ranks(self, line: str, cell: str) -> None:
        """Run the cell on N ranks with `comm` defined, and leave `run`.

        The notebook's variables that the cell uses are sent along. The value of the cell's last
        expression is the rank's result, in `run.results`. Variables assigned in the cell are NOT
        returned.
        """
        options = parse_argstring(self.ranks, line)
        count = _count(options.ranks)
        shell: Any = self.shell
        number = shell.displayhook.prompt_count
        place = shell.compile.cache(f"%%ranks {line}\n{cell}", number)
        try:
            body, last, used = compile_cell(cell, place)
        except SyntaxError as error:
            shown = shell.SyntaxTB.structured_traceback(type(error), error, [])
            raise CellSyntaxError(error, shown) from None
        hidden = shell.user_ns_hidden  # IPython's own names: exit, In, Out, ...
        names = {
            name: shell.user_ns[name]
            for name in sorted(used & shell.user_ns.keys())
            if name not in hidden or shell.user_ns[name] is not hidden[name]
        }
        worker = eval(compile(WORKER, place, "eval"), shell.user_ns)
        try:
            run = launch(
                worker,
                count,
                machine=classroom(count) if options.paced else None,
                device=options.device,
                timeout=options.timeout,
                args=(names, body, last),
            )
        except ValueError as error:
            raise UsageError(str(error)) from error
        except TypeError as error:
            raise UsageError(_unsendable(names) or str(error)) from error
        shell.user_ns["run"] = run


def load_ipython_extension(ipython: Any) -> None:
    """Register `%%ranks`: `%load_ext dlviz` calls this."""
    ipython.register_magics(RanksMagics)


def compile_cell(cell: str, place: str) -> tuple[CodeType, CodeType, set[str]]:
    """The cell as code of the file `place`, whose line 1 is the magic: its statements, its last
    expression (`None` if it has none), and the names that it may need from outside, without
    `comm`. Raises SyntaxError."""
    tree = ast.parse(f"\n{cell}", place)
    statements, last = tree.body, ast.Constant(None, lineno=1, col_offset=0)
    if statements and isinstance(statements[-1], ast.Expr):
        tree.body, last = statements[:-1], statements[-1].value
    body = compile(tree, place, "exec", dont_inherit=True)
    result = compile(ast.Expression(last), place, "eval", dont_inherit=True)
    return body, result, names_used(statements) - {"comm"}


def names_used(statements: list[ast.stmt]) -> set[str]:
    """The global names that the statements read, in functions and classes too, except those that an
    earlier statement certainly binds."""
    used: set[str] = set()
    bound: set[str] = set()
    for statement in statements:
        names = _read(symtable.symtable(ast.unparse(statement), "cell", "exec"))
        added_to = [n.target for n in ast.walk(statement) if isinstance(n, ast.AugAssign)]
        names |= {target.id for target in added_to if isinstance(target, ast.Name)}
        used |= names - bound
        bound |= _binds(statement)
    return used


def _binds(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            nodes = [node for target in targets for node in ast.walk(target)]
            return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    return set()


def _read(table: symtable.SymbolTable) -> set[str]:
    top = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (top or symbol.is_global())
    }
    return names.union(*map(_read, table.get_children()))


def _count(text: str | None) -> int:
    if text is None:
        raise UsageError("%%ranks needs a number of ranks: write %%ranks 4, say.")
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"%%ranks {text}: {text!r} is not a number of ranks; write a whole number from 1 up, "
            "as in %%ranks 4."
        ) from None


def _unsendable(names: dict[str, Any]) -> str:
    """A sentence on the first variable that cannot be pickled; "" if all can."""
    for name, value in names.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            return (
                f"the notebook's variable {name!r}, which the cell uses, cannot be sent to the "
                f"ranks ({error}): make it inside the cell."
            )
    return ""
