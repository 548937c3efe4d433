"""Scripts that make or edit networks and builder configurations, against our ``tensorrt``."""

from __future__ import annotations

from typing import Any, Dict

from .errors import WorkerError
from .scripts import describe_type, load_function


def _tensorrt(server: Any) -> Any:
    import tensorrt as trt

    if not getattr(trt, "__ulpscope__", False):
        raise WorkerError("script", "[script] worker: network scripts need a worker whose tensorrt is ulpscope's")
    from tensorrt import _base

    _base.bridge.request = server.request
    return trt


def _network(trt: Any, description: Dict[str, Any]) -> Any:
    network = trt.INetworkDefinition()
    network._load(description)
    return network


def load_network(server: Any, path: str, function: str) -> Dict[str, Any]:
    """The network that ``load_network()`` returns, as changes to the model that it read (if it read one)."""
    trt = _tensorrt(server)
    result = load_function(path, function)()
    items = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    networks = [item for item in items if isinstance(item, trt.INetworkDefinition)]
    if len(items) not in (2, 3) or len(networks) != 1 or networks[0] is not items[1]:
        raise WorkerError(
            "script", f"[script] {path}:{function}: expected (builder, network) or (builder, network, parser), got {describe_type(result)}"
        )
    description: Dict[str, Any] = networks[0]._describe()
    return description


def postprocess_network(server: Any, path: str, function: str, network: Dict[str, Any]) -> Dict[str, Any]:
    """The changes that ``postprocess(network=network)`` made."""
    trt = _tensorrt(server)
    edited = _network(trt, network)
    load_function(path, function)(network=edited)
    description: Dict[str, Any] = edited._describe()
    return description


def _describe_config(config: Any, flags: Any) -> Dict[str, Any]:
    shapes = [profile._shapes.items() for profile in config._profiles]
    return {
        "flags": [flag.name for flag in flags if config.get_flag(flag)],
        "profiles": [{name: [list(each) for each in sizes] for name, sizes in items} for items in shapes],
        "calibrator": config.int8_calibrator is not None,
    }


def load_config(server: Any, path: str, function: str, network: Dict[str, Any]) -> Dict[str, Any]:
    """The configuration that ``load_config(builder, network)`` returns."""
    trt = _tensorrt(server)
    config = load_function(path, function)(trt.Builder(), _network(trt, network))
    if not isinstance(config, trt.IBuilderConfig):
        raise WorkerError("script", f"[script] {path}:{function}: expected a builder configuration, got {describe_type(config)}")
    return _describe_config(config, trt.BuilderFlag)


def postprocess_config(server: Any, path: str, function: str, network: Dict[str, Any], config: Dict[str, Any]) -> Dict[str, Any]:
    """The configuration after ``postprocess_config(builder=, network=, config=)``."""
    trt = _tensorrt(server)
    edited = trt.IBuilderConfig()
    known = trt.BuilderFlag.__members__
    edited.flags = sum(1 << int(known[name]) for name in config["flags"] if name in known)
    for shapes in config["profiles"]:
        profile = trt.IOptimizationProfile()
        for name, (low, middle, high) in shapes.items():
            profile.set_shape(name, low, middle, high)
        edited.add_optimization_profile(profile)
    load_function(path, function)(builder=trt.Builder(), network=_network(trt, network), config=edited)
    described = _describe_config(edited, trt.BuilderFlag)
    # Formats that the real module has no flag for stay as they were.
    described["flags"] += [name for name in config["flags"] if name not in known]
    return described
