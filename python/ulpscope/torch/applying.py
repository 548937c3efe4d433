"""Answers on modules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..answer import Answer, Judgement, as_answer
from ..arguments import shown
from ..data import Arrays, Source
from ..errors import Error, ErrorCode, invalid_argument, warn
from ..native import _core
from .calls import Call, arrays_of, calls_of
from .casting import cast_modules
from .exporting import checked_module, exported
from .folding import Folds
from .graph import Graph
from .plan import HIGH, Plan
from .repairing import folds_of
from .running import ForwardFailed, first_non_finite, largest_difference, outputs_of
from .searching import ModuleAnswer

_RECORD = "_ulpscope_applied"


@dataclass(frozen=True)
class AppliedModule:
    """What became of a module that computes something in its own forward."""

    name: str  #: Of named_modules(); "" is the whole.
    kind: str  #: Its class.
    precision: str  #: Of its own forward and its parameters: "fp32", "fp16" or "bf16".
    why: str  #: Where it is not the low one.


@dataclass(frozen=True)
class Departure:
    """Where the copy differs from the answer."""

    modules: tuple[str, ...]  #: That stay in float32 for it.
    why: str


@dataclass(frozen=True)
class Applied:
    """What `apply` made of a module."""

    modules: tuple[AppliedModule, ...]  #: In the order of the network.
    folded: tuple[str, ...]  #: Parameters and attributes with other values: "blocks.0.down.weight * 2^-4".
    departures: tuple[Departure, ...]
    judgement: Judgement  #: Of the copy against the module, on the samples, by the tolerance of the search.
    #: The largest error that the answer names for its samples, in the unit of the metric. docs/torch.md says how far it
    #: speaks of others.
    predicted: float


def applied(module: Any) -> Applied:
    """What `apply` did to a copy. Raises Error(INVALID_ARGUMENT) for another module."""
    record = getattr(module, _RECORD, None)
    if not isinstance(record, Applied):
        raise invalid_argument(f"[applied] module: expected what apply returned, got {shown(module)}")
    return record


def apply(module: Any, answer: Any, samples: Any = None) -> Any:
    """A copy of a module that computes as an answer says, with the same types outside.

    module:  that of the search, in float32 and evaluation mode. It is left as it is.
    answer:  of ulpscope.torch.search; or an ulpscope.Answer (or its file) about the model of `export`, with `samples`.
    samples: as in `search`. None: those of the search.

    A module whose forward has a layer to be kept computes in float32, the others in fp16 or bf16; tensors are cast at
    their borders, by hooks. Its children are decided on their own. Repairs change parameters, buffers and attributes (a
    mask value, epsilon): powers of two, and limits of masks.

    The copy is judged against the module on the samples, by the tolerance of the search. Where it fails, modules are
    raised in the order of their predicted shares of the error until it passes; `applied(copy)` says which, and why.
    What a module cannot do (a repair of a number that its code says, an operator without a kernel for the type), it
    computes in float32, with a warning that names it.

    Raises Error: INVALID_ARGUMENT for a module in training mode, an answer of another module or without samples;
    UNSUPPORTED for an answer in other precisions, one that was not found, and where the copy does not hold the
    tolerance, with figures; SCRIPT where the module itself raises on a sample.

    >>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8)).eval()
    >>> answer = ulpscope.torch.search(module, [torch.randn(2, 4) for _ in range(4)], threshold=1e-2)
    >>> mixed = ulpscope.torch.apply(module, answer)
    >>> mixed[0].weight.dtype, mixed(torch.zeros(1, 4)).dtype, ulpscope.torch.applied(mixed).judgement.passed
    (torch.float16, torch.float32, True)
    """
    checked_module(module, "apply")
    if isinstance(answer, ModuleAnswer) and samples is None:
        calls = answer._calls
    elif samples is None:
        raise invalid_argument(
            "[apply] samples: expected some with an answer that has none of its own, got None; try those of the search"
        )
    else:
        calls = calls_of(samples, "apply")
    found = as_answer(answer)
    if found.verdict != "found":
        raise Error(
            ErrorCode.UNSUPPORTED,
            f"[apply] answer: expected one that was found, got '{found.verdict}': {found.message}",
        )
    model = answer.model if isinstance(answer, ModuleAnswer) else exported(module, calls, {})
    return _Application(module, found, model, calls).run()


class _Application:
    """One call of `apply`."""

    def __init__(self, module: Any, answer: Answer, model: Any, calls: Sequence[Call]) -> None:
        self._exact_module = copy.deepcopy(module).eval()
        self._answer = answer
        self._graph = Graph(model)
        self._names = [each.name for each in model.graph.output]
        self._calls = calls
        self._plan = Plan(self._graph, answer)
        self._check_modules()
        self._departures: list[Departure] = []
        self._loaded = Source(model).load(answer._native.model_options())
        self._exact = self._exact_outputs()

    def _check_modules(self) -> None:
        there = {name for name, _ in self._exact_module.named_modules(remove_duplicate=False)}
        missing = [name for name in self._plan.precisions if name not in there]
        if missing:
            raise invalid_argument(
                f"[apply] module: expected the module of the search, got one without '{missing[0]}'; try another one"
            )

    def _exact_outputs(self) -> list[Arrays]:
        try:
            return outputs_of(self._exact_module, self._calls, self._names)
        except ForwardFailed as failed:
            raise Error(ErrorCode.SCRIPT, f"[apply] module: '{failed.module}' raised {failed}") from failed.error

    def run(self) -> Any:
        folds = self._folds()
        self._plan.settle(self._holders())
        made, outputs = self._runnable(folds)
        judgement = self._judge(outputs)
        if not judgement.passed:
            made, judgement = self._raised(folds, made, judgement)
        setattr(made, _RECORD, self._record(folds, judgement))
        for departure in self._departures:
            warn("[apply] %s computes in float32: %s", _listed(departure.modules), departure.why)
        return made

    def _folds(self) -> Folds:
        repairs = self._answer._values["repairs"]
        folds, refusals = folds_of(self._graph, self._exact_module, repairs, self._calls, self._exact)
        for refusal in refusals:
            modules = [*refusal.modules, *self._plan.modules_between(refusal.nodes)]
            why = f"the repair '{refusal.repair['kind']}' of '{refusal.repair['name']}' cannot be made: {refusal.why}"
            self._keep(modules, why)
        return folds

    def _keep(self, modules: Sequence[str], why: str) -> None:
        for name in modules:
            self._plan.keep(name, why)
        computing = [name for name in dict.fromkeys(modules) if name in self._plan.precisions]
        self._departures.append(Departure(tuple(computing), why))

    def _holders(self) -> dict[str, set[str]]:
        """The modules that own each stored tensor of the model."""
        owners: dict[int, set[str]] = {}
        tensors: dict[str, int] = {}
        for module, inner in self._exact_module.named_modules(remove_duplicate=False):
            for key, tensor in {**inner._parameters, **inner._buffers}.items():
                if tensor is not None:
                    owners.setdefault(id(tensor), set()).add(module)
                    tensors[f"{module}.{key}" if module else key] = id(tensor)
        return {name: owners[tensors[name]] for name in self._graph.initializers if name in tensors}

    def _made(self, folds: Folds, plan: Plan) -> Any:
        made = copy.deepcopy(self._exact_module)
        folds.make_in(made)
        cast_modules(made, plan, folds)
        return made

    def _runnable(self, folds: Folds) -> tuple[Any, list[Arrays]]:
        """A copy whose forwards run; modules that raise in the low precision compute in float32."""
        while True:
            made = self._made(folds, self._plan)
            try:
                return made, outputs_of(made, self._calls, self._names)
            except ForwardFailed as failed:
                name = self._low_around(failed.module)
                if name is None:
                    raise Error(
                        ErrorCode.UNSUPPORTED,
                        f"[apply] '{failed.module}' raised {failed} with tensors cast at its borders",
                    ) from failed.error
                self._keep([name], f"in {self._plan.low} it raises {failed}")
                self._plan.settle(self._holders())

    def _low_around(self, module: str) -> str | None:
        """The nearest module, itself or around it, that computes in the low precision."""
        while True:
            if self._plan.precisions.get(module) == self._plan.low:
                return module
            if not module:
                return None
            module = module.rpartition(".")[0]

    def _judge(self, outputs: list[Arrays]) -> Judgement:
        values = _core.verify(
            self._loaded, self._answer._native, [self._inputs(call) for call in self._calls], self._answer._criterion,
            self._exact, outputs, None,
        )  # fmt: skip
        return Judgement.from_dict(values)

    def _inputs(self, call: Call) -> Arrays:
        return arrays_of(self._exact_module, call, [name for name, _, _ in self._loaded.inputs()], "apply")

    def _raised(self, folds: Folds, made: Any, judgement: Judgement) -> tuple[Any, Judgement]:
        """Raises 1, 2, 4, ... more modules until the copy passes."""
        first = judgement
        step = 1
        while not judgement.passed:
            order = self._order(folds, made)
            if not order:
                raise Error(
                    ErrorCode.UNSUPPORTED,
                    f"[apply] expected an error within the tolerance on the samples, got {first.error:.4g} "
                    f"({first.used:.3g} of it), and {judgement.error:.4g} with "
                    f"{_listed(self._plan.kept())} in float32; try more samples in the search, "
                    "or ulpscope.convert for a typed model",
                )
            for name in order[:step]:
                self._keep([name], f"the copy used {first.used:.3g} of the tolerance without it")
            step *= 2
            self._plan.settle(self._holders())
            made, outputs = self._runnable(folds)
            judgement = self._judge(outputs)
        return made, judgement

    def _order(self, folds: Folds, made: Any) -> list[str]:
        """Low modules, the largest share of the error first: as predicted, else as measured one by one."""
        low = [name for name, precision in self._plan.precisions.items() if precision == self._plan.low]
        if not low:
            return []
        effects = self._plan.effects(self._answer) or {name: self._measured(name, folds) for name in low}
        order = sorted(low, key=lambda name: -effects.get(name, 0.0))
        bad = first_non_finite(made, self._calls[0])
        around = None if bad is None else self._low_around(bad)
        return order if around is None else [around, *(name for name in order if name != around)]

    def _measured(self, name: str, folds: Folds) -> float:
        """The error of the copy on the first sample with this module alone in the low precision."""
        plan = copy.copy(self._plan)
        plan.precisions = {each: self._plan.low if each == name else HIGH for each in self._plan.precisions}
        plan.settle({})
        try:
            outputs = outputs_of(self._made(folds, plan), self._calls[:1], self._names)
        except ForwardFailed:
            return float("inf")
        return largest_difference(self._exact[:1], outputs)

    def _record(self, folds: Folds, judgement: Judgement) -> Applied:
        kinds = {name: type(inner).__name__ for name, inner in self._exact_module.named_modules(remove_duplicate=False)}
        plan = self._plan
        modules = tuple(
            AppliedModule(name, kinds[name], precision, "" if precision == plan.low else plan.why.get(name, ""))
            for name, precision in plan.precisions.items()
        )
        folded = [f"{name} * 2^{exponent}" for name, exponent in folds.scaled.items()]
        folded += [f"{name} within {limit:g}" for name, limit in folds.clamped.items()]
        folded += [f"{f'{name}.' if name else ''}{key} = {value:g}" for (name, key), value in folds.attributes.items()]
        folded += [f"what comes into {name} * 2^{exponent}" for name, exponent in folds.inputs.items()]
        held_out = self._answer.held_out
        predicted = max(self._answer.search.error, 0.0 if held_out is None else held_out.error)
        return Applied(modules, tuple(folded), tuple(self._departures), judgement, predicted)


def _listed(modules: Sequence[str]) -> str:
    names = [f"'{name}'" if name else "the module itself" for name in modules]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
