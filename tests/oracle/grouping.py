"""The groups of docs/numerics.md, section "Fusion", rule by rule."""

from __future__ import annotations

import dataclasses

from . import operators
from .assign import Assignment
from .integers import Integers
from .operators_pointwise import POINTWISE
from .operators_rows import REDUCTIONS, reduction_axes, softmax_axes
from .specialize import Specialization
from .values import FLOATS, T

ALONE, POINT, PRODUCT, ROW, ATTENTION = "alone", "pointwise", "product", "row", "attention"
Shape = tuple[int, ...]


@dataclasses.dataclass
class Group:
    kind: str
    layers: list[int]
    domain: Shape = ()
    row_dims: int = 0

    @property
    def row_shape(self) -> Shape:
        return self.domain[: len(self.domain) - self.row_dims] + (1,) * self.row_dims


def is_scale_shift(spec: Specialization, i: int) -> bool:
    """BatchNormalization in inference form with a constant scale and shift per channel."""
    node = spec.graph.nodes[i]
    if node.op != "BatchNormalization" or node.domain or node.get("training_mode", 0) or any(node.outputs[1:]):
        return False
    spatial = node.opset >= 9 or node.get("spatial", 1) == 1
    return spatial and all(name in spec.constants for name in node.inputs[1:5])


def row_dims(spec: Specialization, i: int) -> int:
    """How many innermost dimensions of its input a row layer works over; 0: it is none."""
    node = spec.graph.nodes[i]
    rank = len(spec.shapes[node.inputs[0]] or ())
    if node.op in ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"):
        axis = node.get("axis", -1)
        return rank - axis if axis >= 0 else -axis
    if node.op == "InstanceNormalization":
        return max(0, rank - 2)
    axes: tuple[int, ...] = ()
    if node.op in ("Softmax", "LogSoftmax"):
        axes = softmax_axes(node, rank)
    elif node.op in REDUCTIONS:
        given = spec.constants.get(node.inputs[1]) if node.reads(1) else None
        if node.reads(1) and given is None:
            return 0
        axes = reduction_axes(node, given, rank)
    innermost = tuple(range(rank - len(axes), rank))
    return len(axes) if axes == innermost else 0


class Grouping:
    """`group_of[layer]` is None for layers that are evaluated beforehand."""

    def __init__(self, spec: Specialization, assignment: Assignment, level: str, integers: Integers):
        self.spec, self.assignment, self.level, self.integers = spec, assignment, level, integers
        self.group_of: list[Group | None] = [None] * len(spec.graph.nodes)
        self._casts: set[int] = set()  #: What products of integers store.
        for i in range(len(spec.graph.nodes)):
            if i not in spec.folded:
                self._place(i)
        if level == "full":
            for i, node in enumerate(spec.graph.nodes):
                if node.op == "Softmax" and not node.domain:
                    self._attention(i)

    # Kinds -------------------------------------------------------------------------------------------------------

    def kind(self, i: int) -> str:
        spec, node = self.spec, self.spec.graph.nodes[i]
        if not spec.numeric[i] or not node.outputs or not node.outputs[0] or any(node.outputs[1:]):
            return ALONE
        if any(spec.shapes[name] is None for name in [*node.all_inputs, node.outputs[0]]):
            return ALONE
        if spec.types[node.outputs[0]] not in FLOATS or spec.types[node.outputs[0]] == T.DOUBLE:
            return ALONE
        if operators.is_product(node):
            return PRODUCT
        if self.integers.stands_alone(i):
            return ALONE
        if (node.domain, node.op) in POINTWISE or is_scale_shift(spec, i):
            return POINT
        if self.level == "full" and node.domain == "" and row_dims(spec, i) > 0:
            return ROW
        return ALONE

    # Growth ------------------------------------------------------------------------------------------------------

    def _place(self, i: int) -> None:
        node, kind = self.spec.graph.nodes[i], self.kind(i)
        product = self.integers.product_to_follow(i, self)
        if product is not None:
            group = self.group_of[product]
            assert group is not None
            if node.op == "Cast":
                self._casts.add(i)
            return self._join(group, i)
        candidates: list[Group] = []
        if self.level != "none" and kind in (POINT, ROW):
            for name in node.inputs:
                producer = self.spec.producer.get(name)
                group = None if producer is None else self.group_of[producer]
                if producer is None or group is None or any(group is c for c in candidates):
                    continue
                if self.stays_inside(name) and self._same(producer, i) and self._fits(group, i, kind):
                    candidates.append(group)
        if not candidates:
            dims = row_dims(self.spec, i) if kind == ROW else 0
            shape = self.spec.shapes[node.inputs[0] if kind == ROW else node.outputs[0]] if kind != ALONE else ()
            self.group_of[i] = Group(kind, [i], shape or (), dims)
            return None
        candidates.sort(key=lambda g: -g.layers[-1])
        chosen = candidates[0]
        for other in candidates[1:]:
            self._unite(chosen, other, i)
        return self._join(chosen, i, kind)

    def _join(self, group: Group, i: int, kind: str = POINT) -> None:
        group.layers.append(i)
        if kind == ROW:
            group.kind, group.row_dims = ROW, row_dims(self.spec, i)
        self.group_of[i] = group

    def _unite(self, into: Group, other: Group, i: int) -> None:
        free = (POINT, ROW)
        if into.kind not in free or other.kind not in free or into.domain != other.domain:
            return
        if into.row_dims and other.row_dims and into.row_dims != other.row_dims:
            return
        for layer in other.layers:
            self.group_of[layer] = into
        into.layers = sorted(into.layers + other.layers)
        into.row_dims = max(into.row_dims, other.row_dims)
        into.kind = ROW if other.kind == ROW else into.kind

    def stays_inside(self, name: str) -> bool:
        """The value need not be stored for its own sake: it is no output, and stored in its layer's type."""
        spec = self.spec
        if name in spec.outputs:
            return False
        for reader in spec.readers.get(name, ()):
            node = spec.graph.nodes[reader]
            if node.op == "Cast" and node.outputs[0] in spec.outputs and spec.types[node.outputs[0]] in FLOATS:
                return False
        return self.assignment.storage.get(name) == self._stored_by(spec.producer[name])

    def _stored_by(self, i: int) -> str | None:
        if i in self._casts:
            return self.assignment.storage[self.spec.graph.nodes[i].outputs[0]]
        return self.assignment.stored_by(i)

    def _same(self, a: int, b: int) -> bool:
        return self._stored_by(a) == self._stored_by(b)

    def _fits(self, group: Group, i: int, kind: str) -> bool:
        spec, node = self.spec, self.spec.graph.nodes[i]
        output = spec.shapes[node.outputs[0]]
        if group.kind == PRODUCT:
            fits = kind == POINT and output == group.domain
        elif group.kind in (POINT, ROW):
            if kind == ROW:
                dims = row_dims(spec, i)
                fits = spec.shapes[node.inputs[0]] == group.domain and group.row_dims in (0, dims)
            else:
                fits = output == group.domain or (group.row_dims > 0 and output == group.row_shape)
        else:
            return False
        return fits and self._lines_up(group, i, kind) and not self._read_between(group, i)

    def _lines_up(self, group: Group, i: int, kind: str) -> bool:
        """What the layer reads of the group is one element per element or one per row."""
        dims = row_dims(self.spec, i) if kind == ROW else group.row_dims
        rank = len(group.domain)
        shapes = [group.domain, group.domain[: rank - dims] + (1,) * dims]
        for name in self.spec.graph.nodes[i].inputs:
            producer = self.spec.producer.get(name)
            if producer is None or self.group_of[producer] is not group:
                continue
            shape = self.spec.shapes[name] or ()
            if (1,) * (rank - len(shape)) + shape not in shapes:
                return False
        return True

    def _read_between(self, group: Group, i: int) -> bool:
        """A layer outside that stands before `i` reads what the group computes: it could not wait for `i`."""
        for layer in group.layers:
            for name in self.spec.graph.nodes[layer].outputs:
                for reader in self.spec.readers.get(name, ()):
                    if reader < i and self.group_of[reader] is not group:
                        return True
        return False

    # Attention ---------------------------------------------------------------------------------------------------

    def _attention(self, softmax: int) -> None:
        row = self.group_of[softmax]
        if row is None or row.kind != ROW:
            return
        first, last = self._source(row), self._sink(row)
        if first is None or last is None or first is last:
            return
        for group in (first, last):
            node = self.spec.graph.nodes[group.layers[0]]
            if group.kind != PRODUCT or node.op != "MatMul" or self.integers.is_integer(group.layers[0]):
                return
            if not self._same(group.layers[0], row.layers[0]):
                return
        if not self._read_only_by(first, (first, row, last)) or not self._read_only_by(row, (row, last)):
            return
        last.layers = sorted(first.layers + row.layers + last.layers)
        last.kind = ATTENTION
        for layer in last.layers:
            self.group_of[layer] = last

    def _source(self, row: Group) -> Group | None:
        """The one group of a product whose values the row group reads as they are."""
        source = None
        for layer in row.layers:
            for name in self.spec.graph.nodes[layer].inputs:
                producer = self.spec.producer.get(name)
                group = None if producer is None else self.group_of[producer]
                if producer is None or group is None or group.kind != PRODUCT or not self._same(producer, layer):
                    continue
                if (source is not None and source is not group) or not self.stays_inside(name):
                    return None
                source = group
        return source

    def _sink(self, row: Group) -> Group | None:
        """The one product that reads what the row group computes."""
        sink = None
        for layer in row.layers:
            output = self.spec.graph.nodes[layer].outputs[0]
            for reader in self.spec.readers.get(output, ()):
                group = self.group_of[reader]
                if group is row:
                    continue
                if (sink is not None and sink is not group) or group is None or output in self.spec.outputs:
                    return None
                if group.layers[0] != reader:
                    return None
                sink = group
        return sink

    def _read_only_by(self, group: Group, family: tuple[Group, ...]) -> bool:
        return all(
            any(self.group_of[reader] is member for member in family)
            for layer in group.layers
            for name in self.spec.graph.nodes[layer].outputs
            for reader in self.spec.readers.get(name, ())
        )

    def softmax_before_values(self, i: int) -> int | None:
        """The Softmax whose result is the first operand, and no more, of this second product of an attention."""
        spec, group = self.spec, self.group_of[i]
        node = spec.graph.nodes[i]
        if group is None or group.kind != ATTENTION or node.op != "MatMul":
            return None
        before = spec.producer.get(node.inputs[0])
        if before is None or self.group_of[before] is not group or spec.graph.nodes[before].op != "Softmax":
            return None
        softmax = spec.graph.nodes[before]
        rank = len(spec.shapes[softmax.inputs[0]] or ())
        one_axis = softmax_axes(softmax, rank) == (rank - 1,) and (spec.shapes[softmax.inputs[0]] or (0,))[-1] > 0
        twice = node.inputs[0] == node.inputs[1]
        return before if one_axis and not twice and len(spec.shapes[node.inputs[1]] or ()) > 1 else None

    # Use ---------------------------------------------------------------------------------------------------------

    def is_inside(self, name: str, reader: int) -> bool:
        """The layer reads the value unrounded. Products read their operands from where they are stored."""
        producer = self.spec.producer.get(name)
        if producer is None or operators.is_product(self.spec.graph.nodes[reader]):
            return False
        group = self.group_of[producer]
        return group is not None and group is self.group_of[reader]

    def folded_normalization(self, i: int) -> int | None:
        """The BatchNormalization that is multiplied into the weights of this convolution."""
        spec, node, group = self.spec, self.spec.graph.nodes[i], self.group_of[i]
        if node.op not in ("Conv", "ConvTranspose") or group is None or not self.stays_inside(node.outputs[0]):
            return None
        if any(name not in spec.constants for name in node.inputs[1:] if name):
            return None
        readers = spec.readers.get(node.outputs[0], [])
        if len(readers) != 1 or self.group_of[readers[0]] is not group or not is_scale_shift(spec, readers[0]):
            return None
        return readers[0] if spec.graph.nodes[readers[0]].inputs[0] == node.outputs[0] else None

    def names(self) -> list[list[str]]:
        """The groups of more than one layer, as names, in order."""
        seen: list[Group] = []
        for group in self.group_of:
            if group is not None and len(group.layers) > 1 and not any(group is s for s in seen):
                seen.append(group)
        return [[self.spec.graph.nodes[i].name for i in group.layers] for group in seen]
