"""Models with a constant that is no number, in every place that has constants."""

import numpy as np
from onnx import helper

from hostile_models import IMAGE, floats, model


def with_one(value, *shape):
    """Small numbers, of which one is the value."""
    made = np.random.default_rng(3).normal(0, 0.5, shape).astype(np.float32)
    made.flat[made.size // 2] = value
    return made


def behind_a_product(op, place, value, shapes, **attributes):
    """A product, a layer `bad` with constants of these shapes by name, the one at `place` of the value, a product."""
    names, constants = ["a"], {"w": with_one(0.1, 8, 8), "v": with_one(0.1, 8, 8)}
    for name, shape in shapes.items():
        names.append(name)
        constants[name] = with_one(value if name == place else 0.25, *shape)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node(op, names, ["out"], name="bad", **attributes),
        helper.make_node("MatMul", ["out", "v"], ["y"], name="last"),
    ]
    return model(nodes, {"x": floats(4, 8)}, constants)


def masked(value, op="Add"):
    """Attention with a mask of that value."""
    mask = np.zeros((4, 4), np.float32)
    mask[:, 2:] = value
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["q"], name="q"),
        helper.make_node("Transpose", ["q"], ["k"], name="k", perm=[1, 0]),
        helper.make_node("MatMul", ["q", "k"], ["s"], name="s"),
        helper.make_node(op, ["s", "mask"], ["m"], name="bad"),
        helper.make_node("Softmax", ["m"], ["p"], name="p"),
        helper.make_node("MatMul", ["p", "q"], ["y"], name="o"),
    ]
    return model(nodes, {"x": floats(4, 8)}, {"w": with_one(0.1, 8, 8), "mask": mask})


def _filled(value):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Less", ["a", "zero"], ["c"], name="less"),
        helper.make_node("Where", ["c", "fill", "a"], ["b"], name="bad"),
        helper.make_node("Softmax", ["b"], ["y"], name="last"),
    ]
    return model(nodes, {"x": floats(4, 8)}, {"w": with_one(0.1, 8, 8), "zero": floats(), "fill": floats(value=value)})


def _convolved(value, place):
    constants = {
        "k": with_one(0.1, 4, 4, 3, 3),
        "b": with_one(0.1, 4),
        "s": with_one(1.0, 4),
        "m": with_one(0.1, 4),
        "d": np.abs(with_one(0.1, 4)) + 1,
    }
    constants[place].flat[1] = value
    nodes = [
        helper.make_node("Conv", ["x", "k", "b"], ["a"], name="conv"),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "d"], ["c"], name="bad"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    return model(nodes, IMAGE, constants)


# Constants in every place that repairs, --clamp-constants and int8 look at, by the value that one of them has.
PLACES = {
    "mask": masked,
    "mask_factor": lambda v: masked(v, "Mul"),
    "fill": _filled,
    "clip_low": lambda v: behind_a_product("Clip", "l", v, {"l": (), "h": ()}),
    "clip_high": lambda v: behind_a_product("Clip", "h", v, {"l": (), "h": ()}),
    "min": lambda v: behind_a_product("Min", "l", v, {"l": (8,)}),
    "max": lambda v: behind_a_product("Max", "l", v, {"l": (8,)}),
    "weight": lambda v: behind_a_product("MatMul", "l", v, {"l": (8, 8)}),
    "gemm_bias": lambda v: behind_a_product("Gemm", "c", v, {"l": (8, 8), "c": (8,)}),
    "scale": lambda v: behind_a_product("Mul", "l", v, {"l": (8,)}),
    "divisor": lambda v: behind_a_product("Div", "l", v, {"l": (8,)}),
    "bias": lambda v: behind_a_product("Add", "l", v, {"l": (8,)}),
    "norm_scale": lambda v: behind_a_product("LayerNormalization", "s", v, {"s": (8,), "b": (8,)}),
    "norm_bias": lambda v: behind_a_product("LayerNormalization", "b", v, {"s": (8,), "b": (8,)}),
    "norm_epsilon": lambda v: behind_a_product("LayerNormalization", "", v, {"s": (8,), "b": (8,)}, epsilon=float(v)),
    "slope": lambda v: behind_a_product("PRelu", "l", v, {"l": (8,)}),
    "exponent": lambda v: behind_a_product("Pow", "l", v, {"l": ()}),
    "conv_weight": lambda v: _convolved(v, "k"),
    "conv_bias": lambda v: _convolved(v, "b"),
    "batch_scale": lambda v: _convolved(v, "s"),
    "batch_mean": lambda v: _convolved(v, "m"),
    "batch_variance": lambda v: _convolved(v, "d"),
}
VALUES = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
