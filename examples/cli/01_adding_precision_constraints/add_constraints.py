"""Keeps Add and Sub in FP32, and what lies between them too. Used as `--trt-npps add_constraints.py`."""

import tensorrt as trt


def postprocess(network):
    for layer in network:
        if layer.name in ("Add", "Sub"):
            layer.precision = trt.float32
        if layer.name == "Add":
            # The precision of a layer says how it computes. Its output is stored in another type unless that is set too.
            layer.set_output_type(0, trt.float32)
