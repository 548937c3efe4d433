"""Which repairs of an answer a module can take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..data import Arrays
from .calls import Call
from .casting import hook_inputs
from .folding import CannotFold, Folder, Folds, Json, folded_copy
from .graph import Graph
from .running import ForwardFailed, largest_difference, outputs_of

#: Of a module with folded repairs against itself, in float32 (rel-l2). Powers of two change no bit of most values;
#: clamped masks and what underflows may. The test networks differ by 0.
_SAME = 1e-6


@dataclass(frozen=True)
class Refusal:
    """A repair that the module cannot take."""

    repair: Json
    modules: tuple[str, ...]  #: Those in the way.
    nodes: frozenset[str]  #: That the repair is about.
    why: str


def folds_of(
    graph: Graph, module: Any, repairs: Sequence[Json], calls: Sequence[Call], exact: Sequence[Arrays]
) -> tuple[Folds, list[Refusal]]:
    """What the module can take, and what it cannot. Every fold is tried: the results have to stay.

    module: in float32 and evaluation mode; it is left as it is. exact: its results.
    """
    folder = Folder(graph, module)
    folds, refusals = Folds(), []
    for repair in repairs:
        try:
            found = folder.fold(repair)
            together = Folds()
            together.add(folds)
            together.add(found)
            _check(graph, module, found, calls, exact)
        except CannotFold as error:
            nodes = folder.nodes_of(repair)
            modules = error.modules or sorted({graph.modules[name] for name in nodes})
            refusals.append(Refusal(repair, tuple(modules), frozenset(nodes), error.why))
            continue
        folds = together
    return folds, refusals


def _check(graph: Graph, module: Any, folds: Folds, calls: Sequence[Call], exact: Sequence[Arrays]) -> None:
    changed = folded_copy(module, folds, hook_inputs)
    try:
        difference = largest_difference(exact, outputs_of(changed, calls, list(exact[0])))
    except ForwardFailed as error:
        raise CannotFold([], f"with it the module raises {error}") from error
    if not difference <= _SAME:
        raise CannotFold(
            [], f"with it the float32 results of the module differ by {difference:.3g}: its code does not use what is "
            "scaled in the way of the exported model"
        )  # fmt: skip
