"""Models whose layers hold values that make no sense, or next to none: what the tests of hostile input run."""
import json

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from cli_support import encode_array

HUGE = 2 ** 62
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def ints(*values):
    return np.array(values, np.int64)


def floats(*shape, value=1.0):
    return np.full(shape, value, np.float32)


def model(nodes, inputs, constants=None, outputs=("y",), opset=17, functions=(), domains=()):
    """A model of these nodes. Inputs are arrays by name (their values are what to feed), constants as well."""
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for name, value in inputs.items()]
    # Without types: the layers tell.
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    initializers = [numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
                    for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "hostile", infos, results, initializers)
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(domain, 1) for domain in domains]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=list(functions))


def dynamic_lstm(**others):
    """The inputs of a DynamicQuantizeLSTM with a state of 2, of them those that are other ones."""
    byte = np.zeros((1,), np.uint8)
    return {
        "x": floats(2, 3, 4), "w": np.ones((1, 4, 8), np.uint8), "r": np.ones((1, 2, 8), np.uint8), "b": floats(1, 16),
        "n": np.full(3, 2, np.int32), "h": floats(1, 3, 2), "c": floats(1, 3, 2), "p": floats(1, 6),
        "ws": floats(1), "wz": byte, "rs": floats(1), "rz": byte, **others,
    }  # fmt: skip


def qgemm(c):
    """The inputs of a QGemm of three rows and four columns with these sums to begin from."""
    scale, zero = floats(), np.array(3, np.uint8)
    return {"a": np.ones((3, 5), np.uint8), "as": scale, "az": zero, "b": np.ones((5, 4), np.uint8), "bs": scale,
            "bz": zero, "c": c}  # fmt: skip


def qlinear(w, x):
    """The inputs of a QLinear product whose weights are signed and their zero point is not."""
    scale, zero = floats(), np.array(3, np.uint8)
    return {"x": x, "xs": scale, "xz": zero, "w": w, "ws": scale, "wz": zero, "ys": scale, "yz": zero}


def layer(op, inputs, outputs=("y",), opset=17, **attributes):
    """(feed, [models]) of one layer named `bad`: its inputs after the first come once as constants, once at run time."""
    node = helper.make_node(op, list(inputs), list(outputs), name="bad", **attributes)
    first = dict(list(inputs.items())[:1])
    rest = dict(list(inputs.items())[1:])
    models = [model([node], inputs, outputs=outputs, opset=opset)]
    if rest:
        models.append(model([node], first, rest, outputs, opset))
    return inputs, models


def loop(trips, condition, carried=None):
    """A Loop with the trip count and the first condition as constants; the body keeps its condition and counts."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["go_on"]), helper.make_node("Add", ["v", "v"], ["v2"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, [2]),
        ],
        [helper.make_tensor_value_info("go_on", BOOL, []), helper.make_tensor_value_info("v2", FLOAT, [2])],
    )
    node = helper.make_node("Loop", ["trips", "go0", "x"], ["y"], name="bad", body=body)
    return model([node], {"x": floats(2)}, {"trips": np.array(trips), "go0": np.array(condition)})


def save(folder, network, feed=None):
    onnx.save(network, folder / "m.onnx")
    names = {info.name for info in network.graph.input}
    feed = {name: encode_array(value) for name, value in (feed or {}).items() if name in names}
    (folder / "in.json").write_text(json.dumps([feed]))


X = {"x": floats(2, 3, 4)}
IMAGE = {"x": floats(1, 4, 5, 5)}

# Each of these must be refused by name.
REFUSED = {
    "dropout_all": layer("Dropout", {"x": floats(3), "r": floats(value=1), "t": np.array(True)}),
    "fp4_blocks_of_scale_nan": layer(
        "TRT_FP4DynamicQuantize", {"x": floats(2, 16), "g": floats(value=np.nan)}, ("y", "s"), domain="trt"
    ),
    "mx_scales_of_no_blocks": layer(
        "TRT_MXFP8DequantizeLinear", {"x": floats(2, 32), "s": np.zeros((2, 0), np.uint8)}, domain="trt"
    ),
    "reshape_negative": layer("Reshape", {**X, "s": ints(-2, 12)}),
    "reshape_two_unknown": layer("Reshape", {**X, "s": ints(-1, -1)}),
    "reshape_other_size": layer("Reshape", {**X, "s": ints(5, 5)}),
    "reshape_not_divisible": layer("Reshape", {**X, "s": ints(-1, 5)}),
    "reshape_overflow": layer("Reshape", {**X, "s": ints(HUGE, HUGE, 4)}),
    "reshape_zero_beyond_rank": layer("Reshape", {**X, "s": ints(2, 3, 4, 0)}),
    "reshape_unknown_with_zero": layer("Reshape", {"x": floats(0, 3), "s": ints(0, -1)}, allowzero=1),
    "reshape_float_shape": layer("Reshape", {**X, "s": floats(2)}),
    "gather_out_of_range": layer("Gather", {**X, "i": ints(0, 7)}, axis=1),
    "gather_very_negative": layer("Gather", {**X, "i": ints(-(2**63))}, axis=1),
    "gather_axis": layer("Gather", {**X, "i": ints(0)}, axis=3),
    "gather_elements": layer("GatherElements", {**X, "i": ints(9).reshape(1, 1, 1)}, axis=0),
    "gather_nd": layer("GatherND", {**X, "i": ints(0, 9).reshape(1, 2)}),
    "gather_nd_too_deep": layer("GatherND", {**X, "i": ints(0, 0, 0, 0).reshape(1, 4)}),
    "scatter_nd": layer("ScatterND", {**X, "i": ints(5).reshape(1, 1), "u": floats(1, 3, 4)}),
    "scatter_elements": layer("ScatterElements", {**X, "i": ints(5).reshape(1, 1, 1), "u": floats(1, 1, 1)}),
    "expand_huge": layer("Expand", {"x": floats(1), "s": ints(1 << 40, 1 << 10)}),
    "expand_terabytes": layer("Expand", {"x": floats(1), "s": ints(1 << 40)}),
    "expand_overflow": layer("Expand", {"x": floats(1), "s": ints(HUGE, HUGE)}),
    "expand_negative": layer("Expand", {"x": floats(1), "s": ints(-3)}),
    "expand_unfit": layer("Expand", {**X, "s": ints(5)}),
    "tile_huge": layer("Tile", {"x": floats(3), "r": ints(1 << 40)}),
    "tile_overflow": layer("Tile", {"x": floats(3), "r": ints(HUGE)}),
    "tile_negative": layer("Tile", {"x": floats(3), "r": ints(-1)}),
    "constant_of_shape_huge": layer("ConstantOfShape", {"s": ints(1 << 30, 1 << 12)}),
    "constant_of_shape_overflow": layer("ConstantOfShape", {"s": ints(HUGE, HUGE)}),
    "constant_of_shape_empty": layer("ConstantOfShape", {"s": ints(0, HUGE, HUGE)}),
    "constant_of_shape_negative": layer("ConstantOfShape", {"s": ints(-1)}),
    "range_huge": layer("Range", {"a": ints(0)[0:1].reshape(()), "b": np.array(2**62), "c": np.array(1)}),
    "range_terabytes": layer("Range", {"a": np.array(0), "b": np.array(2**39), "c": np.array(1)}),
    "range_zero": layer("Range", {"a": np.array(0), "b": np.array(5), "c": np.array(0)}),
    "range_nan": layer("Range", {"a": floats(), "b": floats(value=np.nan), "c": floats()}),
    "range_inf": layer("Range", {"a": floats(), "b": floats(value=np.inf), "c": floats()}),
    "one_hot_huge": layer("OneHot", {"i": ints(1), "d": np.array(1 << 45), "v": floats(2)}),
    "one_hot_negative": layer("OneHot", {"i": ints(1), "d": np.array(-4), "v": floats(2)}),
    "conv_zero_strides": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, strides=[0, 0]),
    "conv_negative_strides": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, strides=[-1, 1]),
    "conv_zero_dilations": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, dilations=[0, 1]),
    "conv_large_kernel": layer("Conv", {**IMAGE, "w": floats(2, 4, 9, 9)}),
    "conv_huge_pads": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, pads=[HUGE] * 4),
    "conv_large_pads": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, pads=[1 << 30] * 4),
    "conv_huge_dilations": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, dilations=[HUGE, HUGE]),
    "conv_group_not_divisible": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, group=3),
    "conv_group_zero": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, group=0),
    "conv_group_negative": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3)}, group=-2),
    "conv_channels": layer("Conv", {**IMAGE, "w": floats(2, 3, 3, 3)}),
    "conv_bias": layer("Conv", {**IMAGE, "w": floats(2, 4, 3, 3), "b": floats(5)}),
    "conv_rank": layer("Conv", {"x": floats(4), "w": floats(2, 4, 3, 3)}),
    "conv_weights_rank": layer("Conv", {**IMAGE, "w": floats(2, 4)}),
    "conv_no_outputs_of_groups": layer("Conv", {**IMAGE, "w": floats(3, 2, 3, 3)}, group=2),
    "conv_transpose_zero_strides": layer("ConvTranspose", {**IMAGE, "w": floats(4, 2, 3, 3)}, strides=[0, 0]),
    "conv_transpose_huge_strides": layer("ConvTranspose", {**IMAGE, "w": floats(4, 2, 3, 3)}, strides=[HUGE, HUGE]),
    "conv_transpose_pads": layer("ConvTranspose", {**IMAGE, "w": floats(4, 2, 3, 3)}, pads=[9, 9, 9, 9]),
    "conv_transpose_group": layer("ConvTranspose", {**IMAGE, "w": floats(4, 2, 3, 3)}, group=3),
    "conv_transpose_output_shape": layer(
        "ConvTranspose", {**IMAGE, "w": floats(4, 2, 3, 3)}, output_shape=[1 << 40, 1 << 40]
    ),
    "max_pool_zero_kernel": layer("MaxPool", IMAGE, kernel_shape=[0, 0]),
    "max_pool_zero_strides": layer("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[0, 0]),
    "max_pool_large_kernel": layer("MaxPool", IMAGE, kernel_shape=[9, 9]),
    "max_pool_huge_kernel": layer("MaxPool", IMAGE, kernel_shape=[HUGE, HUGE]),
    "average_pool_huge_pads": layer("AveragePool", IMAGE, kernel_shape=[2, 2], pads=[HUGE] * 4),
    "average_pool_kernel_rank": layer("AveragePool", IMAGE, kernel_shape=[2]),
    "global_average_pool_rank": layer("GlobalAveragePool", {"x": floats(3)}),
    "split_sizes": layer("Split", {**X, "s": ints(1, 1)}, ("y", "z"), axis=1),
    "split_negative": layer("Split", {**X, "s": ints(-1, 4)}, ("y", "z"), axis=1),
    "split_overflow": layer("Split", {**X, "s": ints(2**63 - 1, -(2**63) + 4)}, ("y", "z"), axis=1),
    "split_count": layer("Split", {**X, "s": ints(3)}, ("y", "z"), axis=1),
    "concat_unfit": layer("Concat", {**X, "z": floats(5, 5, 5)}, axis=1),
    "concat_axis": layer("Concat", {**X, "z": floats(2, 3, 4)}, axis=HUGE),
    "transpose_twice": layer("Transpose", X, perm=[0, 0, 1]),
    "transpose_beyond": layer("Transpose", X, perm=[0, 1, 7]),
    "transpose_short": layer("Transpose", X, perm=[0, 1]),
    "squeeze": layer("Squeeze", {**X, "a": ints(1)}),
    "unsqueeze_twice": layer("Unsqueeze", {**X, "a": ints(1, 1)}),
    "unsqueeze_beyond": layer("Unsqueeze", {**X, "a": ints(HUGE)}),
    "slice_zero_step": layer("Slice", {**X, "a": ints(0), "b": ints(3), "c": ints(0), "d": ints(0)}),
    "slice_axis": layer("Slice", {**X, "a": ints(0), "b": ints(3), "c": ints(9)}),
    "slice_counts": layer("Slice", {**X, "a": ints(0, 0), "b": ints(3)}),
    "pad_huge": layer("Pad", {"x": floats(3), "p": ints(1 << 40, 1 << 40)}),
    "pad_overflow": layer("Pad", {"x": floats(3), "p": ints(2**63 - 1, 2**63 - 1)}),
    "pad_negative": layer("Pad", {"x": floats(3), "p": ints(-2, -2)}),
    "pad_count": layer("Pad", {"x": floats(3), "p": ints(1)}),
    "pad_mode": layer("Pad", {"x": floats(3), "p": ints(1, 1)}, mode="sideways"),
    "pad_reflect_empty": layer("Pad", {"x": floats(0), "p": ints(1, 1)}, mode="reflect"),
    "top_k_large": layer("TopK", {**X, "k": ints(9)}, ("y", "i")),
    "top_k_negative": layer("TopK", {**X, "k": ints(-1)}, ("y", "i")),
    "top_k_two": layer("TopK", {**X, "k": ints(1, 1)}, ("y", "i")),
    "matmul": layer("MatMul", {**X, "w": floats(3, 4)}),
    "matmul_scalar": layer("MatMul", {**X, "w": floats()}),
    "gemm": layer("Gemm", {"x": floats(2, 3), "w": floats(4, 3)}),
    "gemm_rank": layer("Gemm", {**X, "w": floats(4, 3)}),
    "gemm_bias": layer("Gemm", {"x": floats(2, 3), "w": floats(3, 4), "c": floats(3, 3)}),
    "add_unfit": layer("Add", {**X, "w": floats(5)}),
    "add_types": layer("Add", {**X, "w": ints(1)}),
    "batch_normalization": layer(
        "BatchNormalization", {**IMAGE, "s": floats(3), "b": floats(4), "m": floats(4), "v": floats(4)}
    ),
    "layer_normalization": layer("LayerNormalization", {**X, "s": floats(3)}),
    "layer_normalization_axis": layer("LayerNormalization", {**X, "s": floats(4)}, axis=8),
    "rms_normalization": layer("RMSNormalization", {**X, "s": floats(3)}, opset=23),
    "instance_normalization": layer("InstanceNormalization", {**IMAGE, "s": floats(2), "b": floats(4)}),
    "softmax_axis": layer("Softmax", X, axis=3),
    "reduce_axis": layer("ReduceSum", {**X, "a": ints(7)}),
    "reduce_twice": layer("ReduceSum", {**X, "a": ints(1, -2)}),
    "resize_zero": layer("Resize", {**IMAGE, "r": floats(0), "s": np.array([1, 1, 0, 0], np.float32)}),
    "resize_negative": layer("Resize", {**IMAGE, "r": floats(0), "s": np.array([1, 1, -2, 2], np.float32)}),
    "resize_inf": layer("Resize", {**IMAGE, "r": floats(0), "s": np.array([1, 1, np.inf, 2], np.float32)}),
    "resize_nan": layer("Resize", {**IMAGE, "r": floats(0), "s": np.array([1, 1, np.nan, 2], np.float32)}),
    "resize_huge": layer("Resize", {**IMAGE, "r": floats(0), "s": np.array([1, 1, 1e30, 1e30], np.float32)}),
    "resize_terabytes": layer("Resize", {**IMAGE, "r": floats(0), "s": np.array([1, 1, 3e5, 3e5], np.float32)}),
    "resize_negative_sizes": layer("Resize", {**IMAGE, "r": floats(0), "s": floats(0), "z": ints(1, 4, -5, 5)}),
    "resize_huge_sizes": layer("Resize", {**IMAGE, "r": floats(0), "s": floats(0), "z": ints(1, 4, HUGE, HUGE)}),
    "resize_axis_twice": layer(
        "Resize", {**IMAGE, "r": floats(0), "s": floats(0), "z": ints(5, 7)}, opset=18, axes=[2, -2]
    ),
    "resize_sizes_rank": layer("Resize", {**IMAGE, "r": floats(0), "s": floats(0), "z": ints(5, 5)}),
    "resize_empty": layer("Resize", {"x": floats(1, 4, 0, 5), "r": floats(0), "s": floats(0), "z": ints(1, 4, 5, 5)}),
    "upsample": layer("Upsample", {**IMAGE, "s": np.array([1, 1, -1, 0], np.float32)}, opset=9),
    "eye_rank": layer("EyeLike", X),
    "depth_to_space": layer("DepthToSpace", IMAGE, blocksize=3),
    "depth_to_space_zero": layer("DepthToSpace", IMAGE, blocksize=0),
    "space_to_depth_negative": layer("SpaceToDepth", IMAGE, blocksize=-1),
    "cum_sum_axis": layer("CumSum", {**X, "a": np.array(5)}),
    "arg_max_empty": layer("ArgMax", {"x": floats(0, 3)}, axis=0),
    "lstm": layer("LSTM", {**X, "w": floats(1, 8, 5), "r": floats(1, 8, 2)}, hidden_size=2),
    "dynamic_lstm": layer(
        "DynamicQuantizeLSTM", dynamic_lstm(w=np.ones((1, 4, 5), np.uint8)), domain="com.microsoft", hidden_size=2
    ),
    "dynamic_lstm_scales": layer(
        "DynamicQuantizeLSTM", dynamic_lstm(rs=floats(3)), domain="com.microsoft", hidden_size=2
    ),
    "dynamic_lstm_lengths": layer(
        "DynamicQuantizeLSTM", dynamic_lstm(n=np.full(3, 9, np.int32)), domain="com.microsoft", hidden_size=2
    ),
    "tensor_scatter_type": layer(
        "TensorScatter", {"c": floats(1, 4, 2), "u": np.ones((1, 2, 2), np.uint8), "i": ints(1)}, opset=24
    ),
    "matmul_integer_zeros": layer(
        "MatMulInteger",
        {
            "a": np.ones((3, 5), np.uint8),
            "b": np.ones((5, 4), np.int8),
            "az": np.array(1, np.uint8),
            "bz": np.array(1, np.uint8),
        },
    ),
    "conv_integer_zeros": layer(
        "ConvInteger",
        {"x": np.ones((1, 2, 4, 4), np.uint8), "w": np.ones((3, 2, 3, 3), np.int8), "xz": np.array(1, np.int8)},
    ),
    "qlinear_conv_zeros": layer(
        "QLinearConv", qlinear(np.ones((3, 2, 3, 3), np.int8), np.ones((1, 2, 4, 4), np.uint8))
    ),
    "qlinear_matmul_zeros": layer("QLinearMatMul", qlinear(np.ones((5, 4), np.int8), np.ones((3, 5), np.uint8))),
    "qgemm_short": layer("QGemm", qgemm(np.ones(2, np.int32)), domain="com.microsoft"),
    "qgemm_tall": layer("QGemm", qgemm(np.ones((5, 9), np.int32)), domain="com.microsoft"),
    "qgemm_rank": layer("QGemm", qgemm(np.ones((2, 3, 3, 4), np.int32)), domain="com.microsoft"),
    "lstm_hidden": layer("LSTM", {**X, "w": floats(1, 8, 4), "r": floats(1, 8, 2)}, hidden_size=-2),
    "lstm_hidden_huge": layer("LSTM", {**X, "w": floats(1, 8, 4), "r": floats(1, 8, 2)}, hidden_size=HUGE),
    "gru_lengths": layer(
        "GRU",
        {**X, "w": floats(1, 6, 4), "r": floats(1, 6, 2), "b": floats(1, 12), "l": np.array([99, -3, 1], np.int32)},
        hidden_size=2,
    ),
    "linear_attention": layer(
        "LinearAttention",
        {"q": floats(1, 2, 0), "k": floats(1, 2, 0), "v": floats(1, 2, 0)},
        update_rule="linear",
        q_num_heads=HUGE,
        kv_num_heads=HUGE,
        opset=27,
    ),
    "causal_conv": layer("CausalConvWithState", {"x": floats(1, 2, 3), "w": floats(2, 1, 0)}, opset=27),
    "einsum": layer("Einsum", {**X, "w": floats(5, 5)}, equation="abc,cd->abd"),
    "einsum_nonsense": layer("Einsum", {**X, "w": floats(5, 5)}, equation="->->,,.."),
    "reverse_sequence": layer("ReverseSequence", {**X, "l": ints(9, 9, 9)}),
    "lrn_zero": layer("LRN", IMAGE, size=0),
    "lrn_negative": layer("LRN", IMAGE, size=-3),
    "flatten_axis": layer("Flatten", X, axis=9),
    "cast_to_nothing": layer("Cast", X, to=0),
    "cast_to_string": layer("Cast", X, to=8),
    "cast_to_unknown": layer("Cast", X, to=999),
    "non_max_suppression": layer("NonMaxSuppression", {"b": floats(1, 3, 4), "s": floats(1, 1, 9)}),
    "roi_align": layer("RoiAlign", {**IMAGE, "r": floats(1, 4), "i": ints(7)}),
    "roi_align_huge": layer(
        "RoiAlign", {**IMAGE, "r": floats(1, 4), "i": ints(0)}, output_height=HUGE, output_width=HUGE
    ),
    "max_unpool_overflow": layer(
        "MaxUnpool",
        {"x": floats(1, 1, 2, 2), "i": ints(0, 1, 2, 3).reshape(1, 1, 2, 2), "s": ints(1, 1, 4, 4)},
        kernel_shape=[-(2**63), 2],
        strides=[2, 2],
    ),
    "max_unpool": layer(
        "MaxUnpool", {"x": floats(1, 1, 2, 2), "i": ints(0, 1, 2, 99).reshape(1, 1, 2, 2)}, kernel_shape=[2, 2]
    ),
    "col2im": layer("Col2Im", {"x": floats(1, 4, 9), "i": ints(HUGE, 5), "b": ints(2, 2)}, opset=18),
    "center_crop_pad": layer("CenterCropPad", {**X, "s": ints(HUGE, 1, 1)}, opset=18),
    "dft_axis": layer("DFT", {"x": floats(1, 4, 1)}, axis=7),
    "dft_huge": layer("DFT", {"x": floats(1, 4, 1), "n": np.array(HUGE)}, axis=1),
    "stft_zero_step": layer("STFT", {"x": floats(1, 16, 1), "s": np.array(0), "w": floats(4)}),
    "hann_window_huge": layer("HannWindow", {"s": np.array(HUGE)}),
    "mel_huge": layer(
        "MelWeightMatrix",
        {"a": np.array(1 << 40), "b": np.array(1 << 40), "c": np.array(8000), "d": floats(), "e": floats(value=100)},
    ),
    "group_normalization": layer(
        "GroupNormalization", {**IMAGE, "s": floats(4), "b": floats(4)}, opset=21, num_groups=3
    ),
    "group_normalization_zero": layer(
        "GroupNormalization", {**IMAGE, "s": floats(4), "b": floats(4)}, opset=21, num_groups=0
    ),
    "dequantize_axis": layer("DequantizeLinear", {"x": np.ones((2, 3), np.int8), "s": floats(3)}, axis=5),
    "dequantize_scales": layer("DequantizeLinear", {"x": np.ones((2, 3), np.int8), "s": floats(7)}, axis=1),
    "trilu_scalar": layer("Trilu", {"x": floats()}),
    "compress_axis": layer("Compress", {**X, "c": np.array([True])}, axis=9),
    "random_huge": (
        ({"x": floats(1)}),
        [
            model(
                [
                    helper.make_node("RandomNormal", [], ["r"], name="bad", shape=[HUGE, 2]),
                    helper.make_node("Add", ["r", "x"], ["y"], name="sum"),
                ],
                {"x": floats(1)},
            )
        ],
    ),
    "random_negative": (
        ({"x": floats(1)}),
        [
            model(
                [
                    helper.make_node("RandomUniform", [], ["r"], name="bad", shape=[-4, 2]),
                    helper.make_node("Add", ["r", "x"], ["y"], name="sum"),
                ],
                {"x": floats(1)},
            )
        ],
    ),
    "multinomial_huge": layer("Multinomial", {"x": floats(1, 3)}, sample_size=1 << 46),
    **{
        f"pad_{mode}_cut_and_longer": layer("Pad", {"x": floats(2, 3), "p": ints(0, -4, 0, 9)}, opset=19, mode=mode)
        for mode in ("reflect", "edge", "wrap")
    },
    **{
        f"pad_{mode}_of_nothing": layer("Pad", {"x": floats(1, 0), "p": ints(0, 2, 0, 2)}, opset=19, mode=mode)
        for mode in ("reflect", "edge", "wrap")
    },
    **{
        f"pad_{mode}_cut_away": layer("Pad", {"x": floats(2, 3), "p": ints(0, -2, 0, -2)}, opset=19, mode=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    },
    "where_type": layer("Where", {"c": floats(2), "x": floats(2), "z": floats(2)}),
    "clip_type": layer("Clip", {**X, "a": ints(0)[0:1].reshape(())}),
}
