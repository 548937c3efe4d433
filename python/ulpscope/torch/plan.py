"""What an answer means for modules: which of them compute in which precision. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ..errors import Error, ErrorCode, invalid_argument
from .graph import MOVEMENT, Graph

if TYPE_CHECKING:
    import onnx

    from ..answer import Answer
    from .graph import Use

HIGH = "fp32"
_TRANSIENT = "/times_2^"  # In the names of multiplications that a repair adds.


def low_precision(answer: Answer) -> str:
    """What layers are lowered to. Raises Error(UNSUPPORTED) for anything but one of fp16 and bf16."""
    low = [each for each in answer._native.precisions if each not in ("fp32", "tf32")]
    if low not in (["fp16"], ["bf16"]):
        raise Error(
            ErrorCode.UNSUPPORTED,
            f"[apply] answer: expected fp16 or bf16 for the layers of modules, got {', '.join(low) or 'neither'}; try "
            'ulpscope.torch.search(..., precisions=["fp16"])',
        )
    return low[0]


def inside(module: str, of: str) -> bool:
    """Whether one module is another, or in it."""
    return of == "" or module == of or module.startswith(of + ".")


def check_nodes(graph: Graph, names: Iterable[str]) -> None:
    """Raises Error(INVALID_ARGUMENT) where the model does not have them all."""
    unknown = [name for name in names if name not in graph.nodes and _TRANSIENT not in name]
    if unknown:
        raise invalid_argument(
            f"[apply] answer: expected layers of this module, got '{unknown[0]}'"
            + (f" and {len(unknown) - 1} more" if unknown[1:] else "")
            + "; try the module and the samples of the search"
        )


class Plan:
    """The precision of every module that computes something in its own forward.

    A module whose forward has a layer to be kept computes in float32 as a whole, its children as they need it; what the
    code of a forward does, it does in one precision. Modules without arithmetic of their own let values pass.
    """

    def __init__(self, graph: Graph, answer: Answer) -> None:
        self.graph = graph
        self.low = low_precision(answer)
        self.precisions = {graph.module_of(node): self.low for node in graph.nodes.values() if _types(graph, node)}
        self.why: dict[str, str] = {}
        self._flows = self._find_flows()
        kept = {node: layer for layer in answer.layers for node in (layer.nodes or (layer.name,))}
        check_nodes(graph, kept)
        for node, layer in kept.items():
            if node in graph.nodes:
                reason = layer.reason.text or layer.reason.kind
                self.keep(graph.modules[node], f"{layer.name} ({layer.op}): {reason}", layer.precision)
        self._keep_stores(answer.to_dict().get("following", []))

    def _keep_stores(self, following: Iterable[str]) -> None:
        """Tables of embeddings whose rows are read in higher precision stay so."""
        computing = {self.graph.module_of(node) for node in self.graph.nodes.values() if self.graph.computes(node)}
        for name in following:
            node = self.graph.nodes.get(name)
            if node is not None and self.graph.module_of(node) not in computing:
                self.keep(self.graph.module_of(node), f"{name}: what reads it is kept")

    def _find_flows(self) -> set[tuple[str, str]]:
        """Pairs of modules: one makes a tensor that arithmetic of the other's own forward reads."""
        graph = self.graph
        return {
            (graph.module_of(node), graph.module_of(reader))
            for node in graph.nodes.values()
            for output in node.output
            if graph.is_live(output)
            for reader in graph.readers(output)
        }

    def keep(self, module: str, why: str, precision: str = HIGH) -> None:
        """Raises a module, where it computes anything. Of two precisions neither of which is the low one: float32."""
        if module not in self.precisions:
            return
        wanted = HIGH if precision == "tf32" else precision
        if self.precisions[module] not in (self.low, wanted):
            wanted = HIGH
        self.precisions[module] = wanted
        self.why.setdefault(module, why)

    def kept(self) -> list[str]:
        return [module for module, precision in self.precisions.items() if precision != self.low]

    def settle(self, holders: Mapping[str, set[str]]) -> None:
        """Modules that use each other's parameters compute in one precision. `holders`: the modules that own each
        parameter or buffer, by the name of the initializer."""
        changed = True
        while changed:
            changed = False
            for name, owners in holders.items():
                users = {self.graph.module_of(use.node) for use in self._final_uses(name)}
                for user in users - owners:
                    together = {user, *(self.home(owner) for owner in owners)} & set(self.precisions)
                    if len({self.precisions[each] for each in together}) > 1:
                        changed = True
                        for each in together:
                            self.keep(each, f"shares '{name}' with a module that is kept")

    def _final_uses(self, name: str) -> Iterable[Use]:
        return (final for use in self.graph.uses.get(name, ()) for final in self.graph.final_uses(use))

    def home(self, module: str) -> str:
        """The module itself, or the nearest around it, that has a precision; "" where there is none."""
        while module not in self.precisions and module:
            module = module.rpartition(".")[0]
        return module

    def precision_of(self, module: str) -> str:
        """For parameters: those of modules without arithmetic are read by the forward around them."""
        return self.precisions.get(self.home(module), self.low)

    def leaves_as(self, module: str) -> str | None:
        """What the results of a module are cast to: the precision of the forward around it, if that computes with them.
        None: they leave as they are, and the modules that they get to cast."""
        if module == "":
            return None
        around = self.home(module.rpartition(".")[0])
        if around not in self.precisions:
            return None
        reads = any(inside(maker, module) and reader == around for maker, reader in self._flows)
        return self.precisions[around] if reads else None

    def effects(self, answer: Answer) -> dict[str, float]:
        """The predicted share of the tolerance that each low module uses, as an amplitude; empty where nothing was
        predicted."""
        sums: dict[str, float] = {}
        for row in answer._values.get("sensitivities", []):
            node = self.graph.nodes.get(row["name"])
            module = None if node is None else self.graph.module_of(node)
            if module is not None and self.precisions.get(module) == self.low:
                sums[module] = sums.get(module, 0.0) + float(row["effect"]) ** 2
        return {module: math.sqrt(total) for module, total in sums.items()}

    def modules_between(self, names: Iterable[str]) -> list[str]:
        """Those that compute anything between these nodes, in the order of the network."""
        found = self.graph.between({name for name in names if name in self.graph.nodes})
        nodes = [node for name, node in self.graph.nodes.items() if name in found and _types(self.graph, node)]
        return list(dict.fromkeys(self.graph.module_of(node) for node in nodes))


def _types(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether the forward with this node has a precision: by its arithmetic, or by a table that it reads."""
    if graph.computes(node):
        return True
    reads_table = any(graph.stored(name) is not None and _is_float(graph, name) for name in node.input if name)
    return node.op_type in MOVEMENT and any(map(graph.is_live, node.output)) and reads_table


def _is_float(graph: Graph, tensor: str) -> bool:
    name = graph.stored(tensor)
    return name is not None and graph.initializers[name].data_type in (1, 10, 16)
