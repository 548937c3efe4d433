"""LSTM, GRU and RNN in float64, by the equations of ONNX, with bounds of operators_opaque; and DynamicQuantizeLSTM."""

from __future__ import annotations

import typing

import numpy as np

from .model import Node
from .operators_movement import Inputs
from .rounding import round_to
from .values import T, Unsupported, Value, uncertain

Array = np.ndarray

DYNAMIC_LSTM = "DynamicQuantizeLSTM"
_GATES = {"LSTM": 4, DYNAMIC_LSTM: 4, "GRU": 3, "RNN": 1}
_OF_LSTM = ("Sigmoid", "Tanh", "Tanh")
_DEFAULTS = {"LSTM": _OF_LSTM, DYNAMIC_LSTM: _OF_LSTM, "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_FUNCTIONS: dict[str, typing.Callable[[Array], Array]] = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Tanh": np.tanh, "Relu": lambda x: np.maximum(x, 0),
    "Softsign": lambda x: x / (1 + np.abs(x)), "Softplus": lambda x: np.logaddexp(0, x),
}  # fmt: skip
#: With alpha and beta, or alpha alone: the function, and how many values it takes.
_PARAMETRIC: dict[str, tuple[typing.Callable[..., Array], tuple[float, ...]]] = {
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "Affine": (lambda x, a, b: a * x + b, (1, 0)),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), (1, 1)),
    "LeakyRelu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "Elu": (lambda x, a: np.where(x < 0, a * np.expm1(x), x), (1,)),
    "ThresholdedRelu": (lambda x, a: np.where(x < a, 0, x), (1,)),
}  # fmt: skip


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _functions(node: Node, ways: int) -> list[list[typing.Callable[[Array], Array]]]:
    names = [_text(n) for n in node.get("activations") or _DEFAULTS[node.op] * ways]
    if any(name not in _FUNCTIONS and name not in _PARAMETRIC for name in names):
        raise Unsupported(f"{node.op} with activations of other names")
    # Values are taken in the order of the functions that have any.
    given = [iter(node.get("activation_alpha") or ()), iter(node.get("activation_beta") or ())]
    functions = []
    for name in names:
        function, defaults = _PARAMETRIC.get(name, (_FUNCTIONS.get(name), ()))
        values = [float(np.float32(next(each, default))) for each, default in zip(given, defaults)]
        functions.append(lambda x, f=function, values=values: f(x, *values))
    count = len(_DEFAULTS[node.op])
    return [functions[way * count : (way + 1) * count] for way in range(ways)]


class _Way:
    """One direction: its weights, [gate, hidden, width] of the input and [gate, hidden, hidden] of the state."""

    def __init__(self, node: Node, inputs: list[Array | None], way: int, functions: list):
        self.node, self.functions, gates = node, functions, _GATES[node.op]
        w, r, bias = inputs[1][way], inputs[2][way], inputs[3]
        self.hidden = r.shape[-1]
        self.w, self.r = (m.reshape(gates, self.hidden, -1) for m in (w, r))
        parts = np.zeros((2, gates, self.hidden)) if bias is None else bias[way].reshape(2, gates, self.hidden)
        self.w_bias, self.r_bias = parts
        peephole = inputs[7] if len(inputs) > 7 else None
        self.peephole = None if peephole is None else peephole[way].reshape(3, self.hidden)

    def clipped(self, x: Array) -> Array:
        limit = self.node.get("clip", 0)
        return np.clip(x, -limit, limit) if limit else x

    def peeped(self, gate: int, c: Array) -> Array | float:
        """What a gate sees of the cell: without peepholes nothing, of an infinite one, too."""
        return 0.0 if self.peephole is None else self.peephole[gate] * c

    def step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """x [batch, width] and the states [batch, hidden] to the next states."""
        sums = [x @ w.T + wb for w, wb in zip(self.w, self.w_bias)]
        full = lambda g, state: sums[g] + state @ self.r[g].T + self.r_bias[g]
        f = self.functions
        if self.node.op == DYNAMIC_LSTM:  # The states are operands of products alone, each sequence's by itself.
            h = np.stack([_as_bytes(row, _TIE) for row in h])
        if self.node.op == "RNN":
            return f[0](self.clipped(full(0, h))), c
        if self.node.op == "GRU":
            z, reset = f[0](self.clipped(full(0, h))), f[0](self.clipped(full(1, h)))
            if self.node.get("linear_before_reset", 0):
                candidate = sums[2] + reset * (h @ self.r[2].T + self.r_bias[2])
            else:
                candidate = full(2, reset * h)
            return (1 - z) * f[1](self.clipped(candidate)) + z * h, c
        i = f[0](self.clipped(full(0, h) + self.peeped(0, c)))
        forget = f[0](self.clipped(full(2, h) + self.peeped(2, c)))
        c = forget * c + i * f[1](self.clipped(full(3, h)))
        o = f[0](self.clipped(full(1, h) + self.peeped(1, c)))
        return o * f[2](c), c


def recurrent(node: Node, inputs: list[Array | None]) -> list[Array]:
    """Y, Y_h and, of an LSTM, Y_c. Behind the end of a sequence Y is 0 and the state stays."""
    if node.get("layout", 0) or node.get("input_forget", 0):
        raise Unsupported(f"{node.op} with layout or input_forget")
    inputs = inputs + [None] * (8 - len(inputs))
    x = inputs[0]
    time, batch, _ = x.shape
    ways, hidden = inputs[2].shape[0], inputs[2].shape[-1]
    lengths = np.full(batch, time) if inputs[4] is None else inputs[4]
    y, finals = np.zeros((time, ways, batch, hidden)), np.zeros((2, ways, batch, hidden))
    functions = _functions(node, ways)
    for way in range(ways):
        backwards = way == 1 or _text(node.get("direction", "forward")) == "reverse"
        layer = _Way(node, inputs, way, functions[way])
        states = [np.zeros((batch, hidden)) if s is None else s[way] for s in (inputs[5], inputs[6])]
        for t in range(time):
            # Each sequence backwards from its own end.
            at = np.where(backwards, lengths - 1 - t, t)
            alive = (t < lengths)[:, None]
            now = layer.step(x[at % time, np.arange(batch)], *states)
            states = [np.where(alive, new, old) for new, old in zip(now, states)]
            for b in np.flatnonzero(alive):
                y[at[b], way, b] = states[0][b]
        finals[:, way] = states
    return [y, finals[0]] + ([finals[1]] if _GATES[node.op] == 4 else [])


# DynamicQuantizeLSTM.

#: States so near to a tie, in steps of a byte, may be either number.
_TIE = 1e-4


class _BesideTieError(Exception):
    """Others may have another byte here."""


def _as_bytes(x: Array, tie: float = 0.0) -> Array:
    """What DynamicQuantizeLinear and back make of it."""
    low, high = min(0.0, x.min(initial=0)), max(0.0, x.max(initial=0))
    scale = round_to(np.float64((high - low) / 255), "fp32") if high > low else 1.0
    steps = [round_to(v / scale, "fp32") for v in (x, np.asarray(-low))]
    if tie and any((np.abs(np.abs(s - np.trunc(s)) - 0.5) < tie).any() for s in steps):
        raise _BesideTieError
    zero = np.clip(np.rint(steps[1]), 0, 255)
    return (np.clip(np.rint(steps[0]) + zero, 0, 255) - zero) * scale


def _real(matrix: Value, scales: Value, zeros: Value | None) -> Array:
    """[ways, width, gates] of bytes as [ways, gates, width] of numbers."""
    by_column = lambda v: v.v.astype(np.float64).reshape(len(matrix.v), 1, -1)  # noqa: E731
    integers = matrix.v.astype(np.float64) - (0 if zeros is None else by_column(zeros))
    return np.swapaxes(integers * by_column(scales), 1, 2)


def dynamic_lstm(node: Node, x: Inputs) -> list[Value]:
    """An LSTM whose operands of products are bytes; without a say where these may be other ones."""
    x = x + [None] * (12 - len(x))
    given = [None if value is None else value.v for value in x[:8]]
    given[1], given[2] = _real(x[1], x[8], x[9]), _real(x[2], x[10], x[11])
    known = all(value is None or value.e is None for value in x)
    known = known and all(np.isfinite(v).all() for v in given if v is not None)
    try:
        given[0] = _as_bytes(np.nan_to_num(given[0]), _TIE)
        outputs = recurrent(node, [v if v is None else np.nan_to_num(v) for v in given])[: len(node.outputs)]
    except _BesideTieError:
        known = False
        steps, batch = x[0].shape[:2]
        ways, hidden = x[2].shape[:2]
        states = (ways, batch, hidden)
        outputs = [np.zeros((steps, *states)), np.zeros(states), np.zeros(states)][: len(node.outputs)]
    if not known:
        return [uncertain(y, T.FLOAT, True) for y in outputs]
    return [Value(y, T.FLOAT, 1e-5 * (1 + np.abs(y))) for y in outputs]
