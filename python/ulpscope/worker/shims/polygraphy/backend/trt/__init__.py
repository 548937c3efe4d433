"""Networks and builder configurations."""

from typing import Any

from .config import CreateConfig, PostprocessConfig, Profile, create_config, postprocess_config
from .network import (
    CreateNetwork,
    LoadPlugins,
    ModifyNetworkOutputs,
    NetworkFromOnnxBytes,
    NetworkFromOnnxPath,
    PostprocessNetwork,
    SetLayerPrecisions,
    SetTensorDatatypes,
    create_network,
    get_trt_logger,
    load_plugins,
    modify_network_outputs,
    network_from_onnx_bytes,
    network_from_onnx_path,
    postprocess_network,
    set_layer_precisions,
    set_tensor_datatypes,
)

__all__ = [
    "Calibrator",
    "CreateConfig",
    "CreateNetwork",
    "LoadPlugins",
    "ModifyNetworkOutputs",
    "NetworkFromOnnxBytes",
    "NetworkFromOnnxPath",
    "PostprocessConfig",
    "PostprocessNetwork",
    "Profile",
    "SetLayerPrecisions",
    "SetTensorDatatypes",
    "create_config",
    "create_network",
    "get_trt_logger",
    "load_plugins",
    "modify_network_outputs",
    "network_from_onnx_bytes",
    "network_from_onnx_path",
    "postprocess_config",
    "postprocess_network",
    "set_layer_precisions",
    "set_tensor_datatypes",
]


def Calibrator(*args: Any, **kwargs: Any) -> Any:  # noqa: N802 - its name in the real module
    """Stands for a calibrator; ulpscope calibrates itself (--calibration-cache)."""
    import tensorrt as trt

    return trt.IInt8EntropyCalibrator2()


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"ulpscope's polygraphy.backend.trt has no '{name}': scripts describe networks and configurations here, ulpscope builds and runs "
        f"them; it provides: {', '.join(__all__)}"
    )
