"""Models whose layers hold odd values and have an answer."""

import numpy as np

from hostile_models import HUGE, dynamic_lstm, floats, ints, layer

# These have an answer, if an odd one.
ODD = {
    "empty_conv_batch": layer("Conv", {"x": floats(0, 4, 5, 5), "w": floats(2, 4, 3, 3)}),
    "empty_conv_channels": layer("Conv", {"x": floats(1, 0, 5, 5), "w": floats(2, 0, 3, 3), "b": floats(2)}),
    "empty_conv_outputs": layer("Conv", {"x": floats(1, 4, 5, 5), "w": floats(0, 4, 3, 3)}),
    "empty_conv_1d": layer("Conv", {"x": floats(0, 4, 5), "w": floats(2, 4, 3)}),
    "empty_conv_transpose": layer("ConvTranspose", {"x": floats(0, 4, 5, 5), "w": floats(4, 2, 3, 3)}),
    "empty_matmul_rows": layer("MatMul", {"x": floats(0, 3), "w": floats(3, 4)}),
    "empty_matmul_inner": layer("MatMul", {"x": floats(2, 0), "w": floats(0, 4)}),
    "empty_matmul_columns": layer("MatMul", {"x": floats(2, 3), "w": floats(3, 0)}),
    "empty_matmul_batch": layer("MatMul", {"x": floats(0, 2, 3), "w": floats(3, 4)}),
    "empty_matmul_vector": layer("MatMul", {"x": floats(0), "w": floats(0)}),
    "empty_gemm_inner": layer("Gemm", {"x": floats(2, 0), "w": floats(0, 4), "c": floats(4)}),
    "empty_gemm_rows": layer("Gemm", {"x": floats(0, 3), "w": floats(3, 4), "c": floats(4)}),
    "empty_max_pool": layer("MaxPool", {"x": floats(0, 4, 5, 5)}, kernel_shape=[2, 2]),
    "empty_average_pool": layer("AveragePool", {"x": floats(1, 0, 5, 5)}, kernel_shape=[2, 2]),
    "empty_global_pool": layer("GlobalAveragePool", {"x": floats(0, 4, 5, 5)}),
    "empty_global_pool_area": layer("GlobalAveragePool", {"x": floats(1, 4, 0, 5)}),
    "empty_concat": layer("Concat", {"x": floats(0, 3), "w": floats(2, 3), "z": floats(0, 3)}, axis=0),
    "empty_concat_all": layer("Concat", {"x": floats(0, 3), "w": floats(0, 3)}, axis=1),
    "empty_softmax": layer("Softmax", {"x": floats(3, 0)}),
    "empty_softmax_rows": layer("Softmax", {"x": floats(0, 3)}),
    "empty_softmax_inner": layer("Softmax", {"x": floats(2, 3, 0)}, axis=1),
    "empty_log_softmax": layer("LogSoftmax", {"x": floats(0, 3)}),
    "empty_reduce_sum": layer("ReduceSum", {"x": floats(0, 3), "a": ints(0)}),
    "empty_reduce_rows": layer("ReduceMean", {"x": floats(0, 3)}, axes=[1]),
    "empty_reduce_all": layer("ReduceSum", {"x": floats(0)}),
    "empty_layer_normalization": layer("LayerNormalization", {"x": floats(0, 4), "s": floats(4)}),
    "empty_layer_normalization_row": layer("LayerNormalization", {"x": floats(4, 0), "s": floats(0)}),
    "empty_batch_normalization": layer(
        "BatchNormalization", {"x": floats(0, 4, 5), "s": floats(4), "b": floats(4), "m": floats(4), "v": floats(4)}
    ),
    "empty_instance_normalization": layer(
        "InstanceNormalization", {"x": floats(1, 2, 0), "s": floats(2), "b": floats(2)}
    ),
    "empty_add": layer("Add", {"x": floats(0, 3), "w": floats(1, 3)}),
    "empty_add_row": layer("Add", {"x": floats(1, 0, 1), "w": floats(5, 1, 3)}),
    "empty_relu": layer("Relu", {"x": floats(0)}),
    "empty_transpose": layer("Transpose", {"x": floats(0, 3, 4)}, perm=[2, 0, 1]),
    "empty_reshape": layer("Reshape", {"x": floats(0, 3), "s": ints(3, 0)}, allowzero=1),
    "empty_reshape_unknown": layer("Reshape", {"x": floats(0, 3), "s": ints(-1, 3)}),
    "empty_gather": layer("Gather", {"x": floats(3, 2), "i": ints()}),
    "empty_gather_rows": layer("Gather", {"x": floats(3, 0), "i": ints(1, 2)}),
    "empty_slice": layer("Slice", {"x": floats(3, 2), "a": ints(3), "b": ints(1)}),
    "slice_extremes": layer(
        "Slice", {"x": floats(3, 2), "a": ints(2**63 - 1), "b": ints(-(2**63)), "c": ints(0), "d": ints(-1)}
    ),
    "slice_huge_step": layer(
        "Slice", {"x": floats(3, 2), "a": ints(0), "b": ints(2**63 - 1), "c": ints(0), "d": ints(2**63 - 1)}
    ),
    "slice_lowest_step": layer(
        "Slice", {"x": floats(3, 2), "a": ints(2), "b": ints(-(2**63)), "c": ints(0), "d": ints(-(2**63))}
    ),
    "empty_split": layer("Split", {"x": floats(0, 3), "s": ints(0, 0)}, ("y", "z"), axis=0),
    "empty_expand": layer("Expand", {"x": floats(1, 3), "s": ints(0, 3)}),
    "empty_tile": layer("Tile", {"x": floats(2, 3), "r": ints(0, 1)}),
    "empty_tile_input": layer("Tile", {"x": floats(0, 3), "r": ints(2, 2)}),
    "empty_pad": layer("Pad", {"x": floats(0, 3), "p": ints(1, 0, 1, 0)}),
    "empty_top_k": layer("TopK", {"x": floats(2, 3), "k": ints(0)}, ("y", "i")),
    "empty_top_k_input": layer("TopK", {"x": floats(0, 3), "k": ints(2)}, ("y", "i")),
    "empty_non_zero": layer("NonZero", {"x": floats(0, 3)}),
    "empty_one_hot": layer("OneHot", {"i": ints(), "d": np.array(3), "v": floats(2)}),
    "empty_one_hot_depth": layer("OneHot", {"i": ints(1), "d": np.array(0), "v": floats(2)}),
    "empty_range": layer("Range", {"a": np.array(5), "b": np.array(0), "c": np.array(1)}),
    "empty_cum_sum": layer("CumSum", {"x": floats(0, 3), "a": np.array(0)}),
    "empty_dynamic_lstm": layer(
        "DynamicQuantizeLSTM",
        dynamic_lstm(x=floats(0, 3, 4), n=np.zeros(3, np.int32)),
        domain="com.microsoft",
        hidden_size=2,
    ),
    "empty_lstm": layer("LSTM", {"x": floats(0, 3, 4), "w": floats(1, 8, 4), "r": floats(1, 8, 2)}, hidden_size=2),
    "empty_lstm_batch": layer(
        "LSTM", {"x": floats(2, 0, 4), "w": floats(1, 8, 4), "r": floats(1, 8, 2)}, hidden_size=2
    ),
    "empty_resize_batch": layer(
        "Resize", {"x": floats(0, 4, 5, 5), "r": floats(0), "s": floats(0), "z": ints(0, 4, 9, 9)}
    ),
    "empty_einsum": layer("Einsum", {"x": floats(2, 0), "w": floats(0, 3)}, equation="ab,bc->ac"),
    "empty_where": layer("Where", {"c": np.zeros((0,), bool), "x": floats(0), "z": floats(1)}),
    "empty_scatter_nd": layer("ScatterND", {"x": floats(2, 3), "i": np.zeros((0, 1), np.int64), "u": floats(0, 3)}),
    "empty_unique": layer("Unique", {"x": floats(0)}),
    "empty_depth_to_space": layer("DepthToSpace", {"x": floats(0, 4, 2, 2)}, blocksize=2),
    "empty_constant_of_shape": layer("ConstantOfShape", {"s": ints(0, 1 << 40)}),
    "gemm_of_vector": layer("Flatten", {"x": floats(0, 3, 2)}, axis=1),
    "integer_division_by_zero": layer("Div", {"x": ints(3), "w": ints(0)}),
    "integer_modulo_by_zero": layer("Mod", {"x": ints(3), "w": ints(0)}),
    "integer_division_overflow": layer("Div", {"x": ints(-(2**63)), "w": ints(-1)}),
    "integer_modulo_overflow": layer("Mod", {"x": ints(-(2**63)), "w": ints(-1)}),
    "integer_negation": layer("Neg", {"x": ints(-(2**63))}),
    "integer_absolute": layer("Abs", {"x": ints(-(2**63))}),
    "integer_overflow": layer("Mul", {"x": ints(HUGE), "w": ints(HUGE)}),
    "integer_sum_overflow": layer("ReduceSum", {"x": ints(2**63 - 1, 2**63 - 1), "a": ints(0)}),
    "integer_cum_sum_overflow": layer("CumSum", {"x": ints(2**63 - 1, 2**63 - 1), "a": np.array(0)}),
    "integer_matmul_overflow": layer("MatMul", {"x": ints(HUGE, HUGE), "w": ints(9, 9)}),
    "integer_pow": layer("Pow", {"x": ints(10), "w": ints(30)}),
    "integer_pow_negative": layer("Pow", {"x": ints(0), "w": ints(-3)}),
    "bit_shift": layer("BitShift", {"x": np.array([1], np.uint32), "w": np.array([99], np.uint32)}, direction="LEFT"),
    "cast_of_nan": layer("Cast", {"x": np.array([np.nan, np.inf, -np.inf, 1e30], np.float32)}, to=6),
    "cast_to_bytes": layer("Cast", {"x": np.array([np.nan, np.inf, -1e9, 300], np.float32)}, to=2),
    "top_k_of_nan": layer(
        "TopK", {"x": np.array([np.nan, 1, np.nan, 2, np.inf] * 9, np.float32), "k": ints(40)}, ("y", "i")
    ),
    "quantize_zero_scale": layer(
        "QuantizeLinear", {"x": np.array([0, 1, np.nan], np.float32), "s": floats(value=0), "z": np.array(0, np.uint8)}
    ),
    "mx_blocks_of_nan": layer("TRT_MXFP8DynamicQuantize", {"x": floats(2, 32, value=np.nan)}, ("y", "s"), domain="trt"),
    "mx_blocks_of_nothing": layer("TRT_MXFP8DynamicQuantize", {"x": floats(2, 0)}, ("y", "s"), domain="trt"),
    "non_max_suppression_nan": layer(
        "NonMaxSuppression", {"b": floats(1, 3, 4, value=np.nan), "s": floats(1, 1, 3), "m": ints(2**63 - 1)}
    ),
    "non_max_suppression_negative": layer(
        "NonMaxSuppression", {"b": floats(1, 3, 4), "s": floats(1, 1, 3), "m": ints(-5)}
    ),
    "grid_sample_nan": layer("GridSample", {"x": floats(1, 1, 3, 3), "g": floats(1, 2, 2, 2, value=np.nan)}),
    "grid_sample_far": layer(
        "GridSample", {"x": floats(1, 1, 3, 3), "g": floats(1, 2, 2, 2, value=1e30)}, padding_mode="reflection"
    ),
    "roi_align_far": layer("RoiAlign", {"x": floats(1, 1, 3, 3), "r": floats(1, 4, value=1e30), "i": ints(0)}),
    "roi_align_nan": layer("RoiAlign", {"x": floats(1, 1, 3, 3), "r": floats(1, 4, value=np.nan), "i": ints(0)}),
    "max_roi_pool_far": layer(
        "MaxRoiPool",
        {"x": floats(1, 1, 3, 3), "r": np.array([[0, 1e30, -1e30, 3, 4]], np.float32)},
        pooled_shape=[2, 2],
    ),
    "trilu_far": layer("Trilu", {"x": floats(3, 3), "k": np.array(2**63 - 1)}),
    "trilu_near": layer("Trilu", {"x": floats(3, 3), "k": np.array(-(2**63))}, upper=0),
    "eye_far": layer("EyeLike", {"x": floats(3, 3)}, k=2**63 - 1),
    **{
        f"pad_{mode}_many_times": layer("Pad", {"x": floats(1, 3), "p": ints(0, 10, 0, 7)}, opset=19, mode=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    },
    **{
        f"pad_{mode}_of_one": layer("Pad", {"x": floats(1, 1), "p": ints(0, 200000, 0, 3)}, opset=19, mode=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    },
    **{
        f"pad_{mode}_cut_before": layer("Pad", {"x": floats(2, 3), "p": ints(0, -2, 0, 9)}, opset=19, mode=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    },
    "conv_pads_beyond_signal": layer("Conv", {"x": floats(1, 1, 3), "w": floats(1, 1, 3)}, pads=[9, 9]),
    "max_pool_pads_beyond_signal": layer("MaxPool", {"x": floats(1, 1, 3)}, kernel_shape=[2], pads=[9, 9]),
    "average_pool_pads_beyond_signal": layer("AveragePool", {"x": floats(1, 1, 3)}, kernel_shape=[2], pads=[9, 9]),
    "one_hot_outside": layer("OneHot", {"i": ints(2**63 - 1, -(2**63)), "d": np.array(3), "v": floats(2)}),
}
