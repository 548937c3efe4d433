"""Searches on modules."""

from __future__ import annotations

import copy
import html
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .. import searching
from ..answer import Answer, CurvePoint, KeptLayer, Trial
from ..arguments import Names
from ..data import precisions_of
from ..errors import Error, ErrorCode, warn
from .calls import Call, arrays_of, calls_of
from .exporting import checked_module, exported
from .graph import Graph, classes_of
from .repairing import Refusal, folds_of
from .running import ForwardFailed, outputs_of

if TYPE_CHECKING:
    import onnx

_LISTED = 12  #: Longer tables of a page are folded.


class ModuleAnswer(Answer):
    """The answer of a search on a module of torch: an Answer about `model` that knows modules."""

    def __init__(self, answer: Answer, model: onnx.ModelProto, calls: Sequence[Call]) -> None:
        super().__init__(answer._native, answer._judged_by)
        #: What was exported: for ulpscope.convert, verify and Engine.
        self.model = model
        self._calls = list(calls)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "model": self.model, "_calls": self._calls}

    @cached_property
    def modules(self) -> dict[str, str]:
        """Of every layer the module in whose forward it ran, by the names of named_modules(); "" is the whole."""
        return dict(Graph(self.model).modules)

    @property
    def kept_modules(self) -> dict[str, tuple[KeptLayer, ...]]:
        """The layers to keep in higher precision by module, in the order of the network."""
        result: dict[str, tuple[KeptLayer, ...]] = {}
        for layer in self.layers:
            module = self._module_of(layer)
            result[module] = (*result.get(module, ()), layer)
        return result

    def _module_of(self, layer: KeptLayer) -> str:
        return next((self.modules[each] for each in (layer.name, *layer.nodes) if each in self.modules), "")

    def at(self, trial: int | Trial | CurvePoint) -> ModuleAnswer:
        """As Answer.at."""
        return ModuleAnswer(super().at(trial), self.model, self._calls)

    def _rows(self) -> list[tuple[str, str, str]]:
        """Of each module with layers to keep: its name, its class, and these layers."""
        classes = classes_of(self.model)
        return [
            (
                name or "the module itself",
                classes.get(name, "module"),
                ", ".join(f"{layer.op} in {layer.precision} ({layer.reason.kind})" for layer in layers),
            )
            for name, layers in self.kept_modules.items()
        ]

    def _lines(self) -> list[str]:
        return [f"{name} ({kind}): {layers}" for name, kind, layers in self._rows()]

    def _section(self) -> str:
        rows = [[html.escape(cell) for cell in row] for row in self._rows()]
        body = "".join(
            f'<tr><td data-label="Module"><div><code>{name}</code></div></td>'
            f'<td data-label="Class"><div>{kind}</div></td><td data-label="Layers kept"><div>{layers}</div></td></tr>\n'
            for name, kind, layers in rows
        )
        head = "<thead><tr><th>Module</th><th>Class</th><th>Layers kept</th></tr></thead>"
        shown = f"<table>{head}<tbody>\n{body}</tbody></table>" if rows else '<p class="empty">None.</p>'
        if len(rows) > _LISTED:
            shown = f"<details><summary>{len(rows)} modules</summary>{shown}</details>"
        about = "Those in whose own forward a layer is kept, by the names of named_modules()."
        return f'<section id="modules">\n<h2>Modules</h2>\n<p class="about">{about}</p>\n{shown}\n</section>\n'

    def __str__(self) -> str:
        lines = self._lines()
        head = f"Modules with layers to keep: {len(lines)}" if lines else "Modules with layers to keep: none"
        if lines and len(self.layers) >= self._values["candidates"]:
            head = "Every module stays as it is: all layers that could be lower are to be kept"
        return "\n".join([head, *(f"    {line}" for line in lines), super().__str__()])

    def _repr_html_(self) -> str:
        rows = "".join(f"<li>{html.escape(line)}</li>" for line in self._lines())
        return super()._repr_html_() + (f"<p>Modules with layers to keep</p><ul>{rows}</ul>" if rows else "")


def search(
    module: Any,
    samples: Any,
    precisions: Names = ("fp16",),
    *,
    hold_out: Any = None,
    objective: str = "smallest",
    fusion: str = "none",
    keep: Names = (),
    repair: bool = True,
    export: dict[str, Any] | None = None,
    **options: Any,
) -> ModuleAnswer:
    """The layers of a module to keep in higher precision: `export`, then ulpscope.search, in the words of modules.

    module:     a torch.nn.Module in float32 and evaluation mode, on any device; it is left as it is.
    samples:    a list, one call of the module each: a tensor, a tuple of arguments, or a dictionary of them by name.
    precisions: "fp16" or "bf16".
    hold_out:   further samples, or True or False, as in ulpscope.search.
    objective:  as in ulpscope.search; here the fewest layers by default.
    fusion:     here "none" by default: eager modules round after every operator.
    keep:       layers, as in ulpscope.search: names such as "/blocks/0/norm/*", operators.
    repair:     also repairs that parameters and attributes of the modules can take. Where a module cannot take one, the
                search is made again with its own layers kept, or without repairs, as a warning says.
    export:     further arguments of torch.onnx.export.
    options:    further arguments of ulpscope.search: threshold, metric, margin, time_limit (of each search), ... .

    Raises Error as `export` and ulpscope.search; SearchInterrupted as ulpscope.search.

    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8)).eval()
    >>> answer = ulpscope.torch.search(module, [torch.randn(2, 4) for _ in range(4)], threshold=1e-2)
    >>> answer.verdict, answer.kept_modules, answer.modules["/1/layer_norm"]
    ('found', {}, '1')
    """
    checked_module(module, "search")
    wanted = precisions_of(precisions, "precisions")
    if wanted not in (["fp16"], ["bf16"]):
        raise Error(
            ErrorCode.UNSUPPORTED,
            f"[search] precisions: expected 'fp16' or 'bf16' for modules, got {', '.join(wanted)}; try ulpscope.search "
            "on ulpscope.torch.export(module, samples)",
        )
    calls = calls_of(samples, "search")
    further = hold_out if hold_out is None or isinstance(hold_out, bool) else calls_of(hold_out, "search")
    model = exported(module, [*calls, *(further if isinstance(further, list) else [])], export or {})
    names = [each.name for each in model.graph.input]
    held_out = [arrays_of(module, call, names, "search") for call in further] if isinstance(further, list) else further
    data = [arrays_of(module, call, names, "search") for call in calls]
    given = {"objective": objective, "fusion": fusion, "hold_out": held_out, **options}
    graph = Graph(model)
    taker = _RepairTaker(module, graph, model, calls)
    asked = [keep] if isinstance(keep, str) else list(keep)
    more: list[str] = []
    told: list[tuple[object, ...]] = []
    while True:
        try:
            answer = searching.search(model, data, wanted, keep=asked + more, repair=repair, **given)
        except searching.SearchInterrupted as interrupted:
            so_far = None if interrupted.answer is None else ModuleAnswer(interrupted.answer, model, calls)
            raise searching.SearchInterrupted(so_far) from None
        refusals = taker.refusals(answer)
        if not refusals:
            return ModuleAnswer(answer, model, calls)
        added = [name for name in own_layers(graph, answer, refusals) if name not in more]
        repair = bool(added)
        more = more + added if added else []
        _warn(refusals, repair, told)
        given.pop("journal", None)  # It is of the search that is made again.
        given.pop("resume", None)


def _warn(refusals: Sequence[Refusal], keeps: bool, told: list[tuple[object, ...]]) -> None:
    """Of each once, although further searches may find it again."""
    then = "with the layers of its forward kept" if keeps else "without repairs"
    new = []
    for each in refusals:
        what = (each.repair["kind"], each.repair["name"], each.modules, each.why)
        if what not in told:
            told.append(what)
            new.append(each)
    if not new and not keeps:
        warn("[search] with these layers kept, the answer has the same repair; searching again without repairs")
    for each in new:
        modules = ", ".join(f"'{name}'" if name else "the module itself" for name in each.modules)
        warn(
            "[search] the repair '%s' of '%s' is not for %s: %s; searching again %s",
            each.repair["kind"], each.repair["name"], modules, each.why, then,
        )  # fmt: skip


def own_layers(graph: Graph, answer: Answer, refusals: Sequence[Refusal]) -> list[str]:
    """Of the modules in the way: those that have a precision. TopK and ScatterND only move values."""
    network = answer._values["network"] or {"layer": [], "precision": []}
    modules = {name for refusal in refusals for name in refusal.modules}
    rows = zip(network["layer"], network["precision"])
    names = [answer._values["names"][layer] for layer, precision in rows if precision is not None]
    return [name for name in names if graph.modules.get(name) in modules]


class _RepairTaker:
    """Whether a module can take the repairs of answers."""

    def __init__(self, module: Any, graph: Graph, model: onnx.ModelProto, calls: Sequence[Call]) -> None:
        self._module = copy.deepcopy(module).eval()
        self._graph = graph
        self._calls = calls
        self._names = [each.name for each in model.graph.output]

    @cached_property
    def _exact(self) -> list[Any]:
        try:
            return outputs_of(self._module, self._calls, self._names)
        except ForwardFailed as failed:
            raise Error(ErrorCode.SCRIPT, f"[search] module: '{failed.module}' raised {failed}") from failed.error

    def refusals(self, answer: Answer) -> list[Refusal]:
        repairs = answer._values["repairs"]
        return folds_of(self._graph, self._module, repairs, self._calls, self._exact)[1] if repairs else []
