"""Networks and builder configurations."""

from typing import Any, Optional

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
    SetTensorFormats,
    create_network,
    get_trt_logger,
    load_plugins,
    modify_network_outputs,
    network_from_onnx_bytes,
    network_from_onnx_path,
    postprocess_network,
    set_layer_precisions,
    set_tensor_datatypes,
    set_tensor_formats,
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
    "SetTensorFormats",
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
    "set_tensor_formats",
]


def Calibrator(  # noqa: N802 - its name in the real module
    data_loader: Any,
    cache: Any = None,
    BaseClass: Any = None,  # noqa: N803 - likewise
    batch_size: Optional[int] = None,
    quantile: Optional[float] = None,
    regression_cutoff: Optional[float] = None,
    algo: Any = None,
) -> Any:
    """Stands for a calibrator of that class; ulpscope calibrates itself (--calibration-cache)."""
    import tensorrt as trt

    base = trt.IInt8EntropyCalibrator2 if BaseClass is None else BaseClass
    calibrator = type("CalibratorClass", (base,), {})()
    calibrator.data_loader = data_loader
    calibrator.get_batch_size = lambda: 1 if batch_size is None else batch_size
    calibrator.get_quantile = lambda: 0.5 if quantile is None else quantile
    calibrator.get_regression_cutoff = lambda: 0.5 if regression_cutoff is None else regression_cutoff
    return calibrator


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"ulpscope's polygraphy.backend.trt has no '{name}': scripts describe networks and configurations here, ulpscope builds and runs "
        f"them; it provides: {', '.join(__all__)}"
    )
