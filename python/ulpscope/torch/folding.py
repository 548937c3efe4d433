"""Repairs of an answer in parameters and attributes of modules."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph import Graph, Use
from .packages import torch_package
from .plan import inside

if TYPE_CHECKING:
    import onnx

Json = dict[str, Any]
_USUAL_EPSILON = 1e-5  # Of ONNX's normalizations.


class CannotFold(Exception):
    """What a module cannot do of a repair."""

    def __init__(self, modules: Iterable[str], why: str) -> None:
        super().__init__(why)
        self.modules = list(dict.fromkeys(modules))
        self.why = why


@dataclass
class Folds:
    """Changes of a module that leave its float32 results as they are."""

    scaled: dict[str, int] = field(default_factory=dict)  #: Exponents of parameters and buffers, by name.
    clamped: dict[str, float] = field(default_factory=dict)  #: Limits.
    attributes: dict[tuple[str, str], float] = field(default_factory=dict)  #: (module, attribute): the value it gets.
    inputs: dict[str, int] = field(default_factory=dict)  #: Exponents of what comes into modules.
    exact: set[str] = field(default_factory=set)  #: Modules whose parameters stay in float32.

    def make_in(self, module: Any) -> None:
        """Makes them, but for what hooks do (`inputs`) and what casts heed (`exact`)."""
        torch = torch_package("apply")
        with torch.no_grad():
            for name, exponent in self.scaled.items():
                tensor_named(module, name).mul_(2.0**exponent)
            for name, limit in self.clamped.items():
                tensor_named(module, name).clamp_(-limit, limit)
        for (name, attribute), value in self.attributes.items():
            setattr(module.get_submodule(name), attribute, value)

    def add(self, other: Folds) -> None:
        """Raises CannotFold, and may have added some then."""
        if self.scaled.keys() & other.scaled.keys() or self.inputs.keys() & other.inputs.keys():
            raise CannotFold([], "another repair scales the same parameter")
        if any(self.clamped.get(name, limit) != limit for name, limit in other.clamped.items()) or any(
            self.attributes.get(place, value) != value for place, value in other.attributes.items()
        ):
            raise CannotFold([], "another repair gives the same number another value")
        self.scaled.update(other.scaled)
        self.clamped.update(other.clamped)
        self.attributes.update(other.attributes)
        self.inputs.update(other.inputs)
        self.exact |= other.exact


def tensor_named(module: Any, name: str) -> Any:
    """A parameter or buffer."""
    owner, _, last = name.rpartition(".")
    return getattr(module.get_submodule(owner), last)


def names_in(module: Any) -> set[str]:
    """Of all parameters and buffers; each of those that are shared, too."""
    named = (*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False))
    return {name for name, _ in named}


class Folder:
    """Finds the changes of a module that do what repairs of an answer do to its model."""

    def __init__(self, graph: Graph, module: Any) -> None:
        self.graph = graph
        self.module = module
        self._names = names_in(module)

    def fold(self, repair: Json) -> Folds:
        """Raises CannotFold."""
        if repair["kind"] == "clamp":
            return self._clamp(repair)
        if repair["kind"] == "scale":
            return self._scale(repair)
        if repair["kind"] == "scale-shift":
            node = self.graph.nodes[repair["name"]]
            return Folds(exact={self.graph.module_of(node)})
        raise CannotFold([], f"modules have nothing like the repair '{repair['kind']}'")

    def nodes_of(self, repair: Json) -> set[str]:
        """The nodes that a repair is about."""
        if repair["kind"] == "clamp":
            return {use.node.name for use in self._uses(repair["name"])}
        edits = repair.get("edits", [])
        named = {edit["name"] for edit in edits if edit["kind"] != "shared-constant"} or {repair["name"]}
        shared = [edit["name"] for edit in edits if edit["kind"] == "shared-constant"]
        return {each for each in named | {use.node.name for name in shared for use in self._uses(name)}} & set(
            self.graph.nodes
        )

    def _uses(self, tensor: str) -> list[Use]:
        node = self.graph.nodes.get(tensor)  # Constants are named by their layers, too.
        name = node.output[0] if node is not None else tensor
        return [final for use in self.graph.uses.get(name, ()) for final in self.graph.final_uses(use)]

    def _clamp(self, repair: Json) -> Folds:
        folds, limit, name = Folds(), float(repair["limit"]), repair["name"]
        stored = self.graph.stored(name)
        if stored in self._names:
            folds.clamped[stored] = limit
            return folds
        for use in self._uses(name):
            owner, attribute, value = self._attribute(use)
            folds.attributes[owner, attribute] = math.copysign(min(abs(value), limit), value)
        return folds

    def _scale(self, repair: Json) -> Folds:
        folds = Folds()
        exponents: dict[str, dict[tuple[str, int], int]] = {}
        insertions: dict[tuple[str, int], int] = {}
        for edit in repair["edits"]:
            if edit["exponent"] == 0:
                continue
            if edit["kind"] == "shared-constant":
                for use in self._uses(edit["name"]):
                    self._scale_constant(use, edit["exponent"], exponents, folds)
            elif edit["kind"] == "constant":
                use = Use(self.graph.nodes[edit["name"]], edit["input"])
                self._scale_constant(use, edit["exponent"], exponents, folds)
            elif edit["kind"] == "epsilon":
                self._scale_epsilon(self.graph.nodes[edit["name"]], edit["exponent"], folds)
            elif edit["kind"] == "insertion":
                insertions[edit["name"], edit["input"]] = edit["exponent"]
            else:
                raise CannotFold([], f"modules have nothing like the edit '{edit['kind']}'")
        for name, by_use in exponents.items():
            folds.scaled[name] = self._shared_exponent(name, by_use)
        for name, index in insertions:
            self._insert(Use(self.graph.nodes[name], index), insertions, folds)
        return folds

    def _scale_constant(
        self, use: Use, exponent: int, exponents: dict[str, dict[tuple[str, int], int]], folds: Folds
    ) -> None:
        stored = self.graph.stored(use.node.input[use.input])
        if stored in self._names:
            for final in self.graph.final_uses(use):
                exponents.setdefault(stored, {})[final.node.name, final.input] = exponent
            return
        owner, attribute, value = self._attribute(use)
        self._set(folds, owner, attribute, value * 2.0**exponent)

    def _shared_exponent(self, name: str, by_use: dict[tuple[str, int], int]) -> int:
        """That of all uses of a parameter."""
        exponents = set(by_use.values())
        others = [use for use in self._uses(name) if (use.node.name, use.input) not in by_use]
        if others or len(exponents) > 1:
            modules = [self.graph.module_of(use.node) for use in self._uses(name)]
            raise CannotFold(modules, f"'{name}' is read in several places, which the answer scales in different ways")
        return exponents.pop()

    def _attribute(self, use: Use) -> tuple[str, str, float]:
        """The attribute that a constant of a forward comes from: module, name and value."""
        owner = self.graph.module_of(use.node)
        value = self.graph.literal(use.node.input[use.input])
        if value is None:
            raise CannotFold([owner], "a constant that the answer changes is neither a parameter nor a number")
        return (owner, *self._attribute_with(owner, value))

    def _attribute_with(self, owner: str, value: float) -> tuple[str, float]:
        module = self.module.get_submodule(owner)
        found = [
            (name, each)
            for name, each in vars(module).items()
            if isinstance(each, float) and np.float32(each) == np.float32(value)
        ]
        if not found and getattr(module, "eps", 0.0) is None:  # torch.nn.RMSNorm: that of the type.
            return "eps", value
        if len(found) != 1:
            count = f"{len(found)} attributes have" if found else "no attribute has"
            raise CannotFold(
                [owner], f"the answer changes the constant {value:.6g} of its forward, a value that {count}; try "
                "`self.NAME` for it in the code"
            )  # fmt: skip
        return found[0]

    @staticmethod
    def _set(folds: Folds, owner: str, attribute: str, value: float) -> None:
        if folds.attributes.setdefault((owner, attribute), value) != value:
            raise CannotFold([owner], f"the answer changes its attribute '{attribute}' in different ways")

    def _scale_epsilon(self, node: onnx.NodeProto, exponent: int, folds: Folds) -> None:
        owner = self.graph.module_of(node)
        value = next((each.f for each in node.attribute if each.name == "epsilon"), _USUAL_EPSILON)
        attribute, exact = self._attribute_with(owner, value)
        self._set(folds, owner, attribute, exact * 2.0**exponent)

    def _insert(self, use: Use, insertions: dict[tuple[str, int], int], folds: Folds) -> None:
        """A multiplication in front of a node, as one of what comes into its module."""
        tensor, owner = use.node.input[use.input], self.graph.module_of(use.node)
        exponent = insertions[use.node.name, use.input]
        own = [node for node in self.graph.nodes.values() if inside(self.graph.module_of(node), owner)]
        made = {name for node in own for name in node.output}
        reads = [
            (node.name, i, name)
            for node in own
            for i, name in enumerate(node.input)
            if self.graph.is_live(name) and name not in made
        ]
        if not owner or tensor in made or any(insertions.get((node, i)) != exponent for node, i, _ in reads):
            raise CannotFold(
                [owner], f"the answer multiplies an operand of {use.node.op_type} ({use.node.name}) in the middle of "
                "its forward"
            )  # fmt: skip
        folds.inputs[owner] = exponent


def folded_copy(module: Any, folds: Folds, hook_inputs: Callable[[Any, Folds], None]) -> Any:
    """A copy in float32 with the changes."""
    result = copy.deepcopy(module)
    folds.make_in(result)
    hook_inputs(result, folds)
    return result
