"""The module that stands in for tensorrt, in a process where it comes first, and Polygraphy on top of it."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

WORKER = Path(__file__).resolve().parents[2] / "python" / "ulpscope" / "worker"


def run(code: str) -> str:
    """What the code prints; fails with its traceback."""
    prologue = f"import sys; sys.path.insert(0, {str(WORKER / 'shims')!r})\n"
    result = subprocess.run([sys.executable, "-c", prologue + textwrap.dedent(code)], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_enumerations_print_as_the_real_ones():
    out = run("""
        import tensorrt as trt
        print(trt.float32, str(trt.float16), f"{trt.int8}", repr(trt.DataType.BF16), trt.LayerType.MATRIX_MULTIPLY, int(trt.bool))
        print(trt.nptype(trt.float16).__name__, trt.volume((2, 3)), trt.float32.itemsize)
    """)
    assert out == "DataType.FLOAT DataType.HALF DataType.INT8 <DataType.BF16: 7> LayerType.MATRIX_MULTIPLY 4\nfloat16 6 4\n"


def test_hand_built_layers_have_the_default_names():
    run("""
        import numpy as np, tensorrt as trt
        network = trt.Builder(trt.Logger()).create_network()
        x = network.add_input("x", trt.float32, (1, 2))
        names = [network.add_constant((1,), np.ones(1, np.float32)), network.add_matrix_multiply(x, trt.MatrixOperation.NONE, x, trt.MatrixOperation.TRANSPOSE),
                 network.add_topk(x, trt.TopKOperation.MAX, 1, 2)]
        assert [layer.name for layer in names] == ["(Unnamed Layer* 0) [Constant]", "(Unnamed Layer* 1) [Matrix Multiply]", "(Unnamed Layer* 2) [TopK]"]
        assert names[0].get_output(0).name == "(Unnamed Layer* 0) [Constant]_output"
        assert names[2].num_outputs == 2 and network.num_layers == 3 and network[-1] is names[2] and network.get_layer(9) is None
        layer = names[1]
        assert not layer.precision_is_set and not layer.output_type_is_set(0)
        layer.precision = trt.float16
        layer.set_output_type(0, trt.float32)
        assert layer.precision == trt.float16 and layer.get_output_type(0) == trt.float32
        layer.reset_precision(); layer.reset_output_type(0)
        assert not layer.precision_is_set and not layer.output_type_is_set(0)
        assert x.is_network_input and not x.is_network_output and x.is_execution_tensor and tuple(x.shape) == (1, 2)
    """)


@pytest.mark.parametrize(
    "code, message",
    [
        ("network.add_identiti(x)", "add_identity"),
        ("network.add_identity(x).presicion = 1", "precision"),
        ("trt.float5", "float16"),
        ("network.add_identity(x).precision = 'float16'", "tensorrt.DataType"),
        ("network.add_input('x', trt.float32, (1,))", "named 'x' already"),
        ("network.mark_output(other.add_input('y', trt.float32, (1,)))", "another network"),
        ("network.add_identity(x).get_output(0).name = 'x'", "another tensor"),
    ],
)
def test_mistakes_say_what_there_is(code, message):
    out = run(f"""
        import tensorrt as trt
        network, other = trt.INetworkDefinition(), trt.INetworkDefinition()
        x = network.add_input("x", trt.float32, (1, 2))
        try:
            {code}
        except Exception as error:
            print(type(error).__name__, error)
    """)
    assert message in out


def test_casting_to_the_layers_class_gives_its_operation():
    run("""
        import tensorrt as trt
        network = trt.INetworkDefinition()
        network._load({"handle": 0, "name": "n", "opset": 17, "tensors": [["x", "float32", [2], False], ["y", "float32", None, False]], "inputs": [0],
                       "outputs": [1], "layers": [{"id": 0, "name": "l", "op": "Mul", "domain": "",
                                                   "type": "ELEMENTWISE", "inputs": [0, 0], "outputs": [1],
                                                   "precision": None, "output_types": [None], "nodes": ["l"]}]})
        layer = network[0]
        assert layer.type == trt.LayerType.ELEMENTWISE
        layer.__class__ = trt.IElementWiseLayer
        assert layer.op == trt.ElementWiseOperation.PROD
        assert network._describe()["changed_layers"] == []
        layer.precision = trt.float16
        assert [change["precision"] for change in network._describe()["changed_layers"]] == ["float16"]
    """)


def test_config_flags_and_profiles():
    run("""
        import tensorrt as trt
        from polygraphy.backend.trt import CreateConfig, Profile, create_config
        builder = trt.Builder(trt.Logger())
        config, network = builder.create_builder_config(), builder.create_network()
        network.add_input("x", trt.float32, (-1,))
        assert config.get_flag(trt.BuilderFlag.TF32) and config.flags == 1 << int(trt.BuilderFlag.TF32)
        config = CreateConfig(fp16=True, precision_constraints="prefer",
                              profiles=[Profile().add("x", (1,), (2,), (3,))])(builder, network)
        assert not config.get_flag(trt.BuilderFlag.TF32)
        assert config.get_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
        assert config.num_optimization_profiles == 1
        config.max_workspace_size = 1 << 20
        assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
        assert config.set_tactic_sources(3)
        try:
            create_config(builder, None, pf16=True)
        except TypeError as error:
            print(error)
    """)


#: What CreateConfig(**case) leaves of these otherwise than CreateConfig() does.
CONFIGS = [
    ("{}", {}),
    ("dict(tactic_sources=[])", {"sources": 0}),
    ("dict(tactic_sources=[trt.TacticSource.CUBLAS, trt.TacticSource.CUDNN])", {"sources": 5}),
    ("dict(profiling_verbosity=trt.ProfilingVerbosity.NONE)", {"profiling_verbosity": "ProfilingVerbosity.NONE"}),
    ("dict(engine_capability=trt.EngineCapability.SAFETY)", {"engine_capability": "EngineCapability.SAFETY"}),
    ("dict(hardware_compatibility_level=trt.HardwareCompatibilityLevel.AMPERE_PLUS)",
     {"hardware_compatibility_level": "HardwareCompatibilityLevel.AMPERE_PLUS"}),
    ("dict(builder_optimization_level=5)", {"builder_optimization_level": "5"}),
    ("dict(max_aux_streams=2)", {"max_aux_streams": "2"}),
    ("dict(use_dla=True, allow_gpu_fallback=True)",
     {"default_device_type": "DeviceType.DLA", "DLA_core": "0",
      "flags": ["GPU_FALLBACK", "PREFER_PRECISION_CONSTRAINTS"]}),
    ("dict(memory_pool_limits={trt.MemoryPoolType.WORKSPACE: 39, trt.MemoryPoolType.DLA_LOCAL_DRAM: 20})",
     {"pools": [39, 0, 20, 0, 0, 0]}),
    ("dict(preview_features=[trt.PreviewFeature.PROFILE_SHARING_0806])", {"features": ["PROFILE_SHARING_0806"]}),
    ("dict(quantization_flags=[trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION])", {"quantization_flags": "1"}),
    ("dict(fp16=True, int8=True, tf32=False, bf16=True, fp8=True)", {"flags": ["BF16", "FP16", "FP8", "INT8"]}),
    ("dict(precision_constraints='obey')", {"flags": ["OBEY_PRECISION_CONSTRAINTS"]}),
    ("dict(precision_constraints='prefer', tf32=True)", {"flags": ["PREFER_PRECISION_CONSTRAINTS", "TF32"]}),
    ("dict(refittable=True, sparse_weights=True, direct_io=True, restricted=True, "
     "version_compatible=True, exclude_lean_runtime=True)",
     {"flags": ["DIRECT_IO", "EXCLUDE_LEAN_RUNTIME", "REFIT", "SAFETY_SCOPE", "SPARSE_WEIGHTS", "VERSION_COMPATIBLE"]}),
    ("dict(profiles=[])", {"profiles": 0}),
    ("dict(profiles=[Profile().add('x', (1, 2), (2, 2), (4, 2)), Profile()], fp16=True)",
     {"profiles": 2, "flags": ["FP16"]}),
]  # fmt: skip


def test_configurations_are_what_polygraphy_makes_of_them():
    out = run(f"""
        import tensorrt as trt
        from polygraphy.backend.trt import CreateConfig, Profile, create_network
        builder, network = create_network()
        network.add_input("x", trt.float32, (-1, 2))
        network.add_input("y", trt.float32, (3,))

        def kept(case):
            with CreateConfig(**case)(builder, network) as config:
                names = ("profiling_verbosity", "engine_capability", "hardware_compatibility_level",
                         "builder_optimization_level",
                         "max_aux_streams", "default_device_type", "DLA_core", "quantization_flags")
                return {{**{{name: str(getattr(config, name)) for name in names}},
                        "sources": config.get_tactic_sources(), "profiles": config.num_optimization_profiles,
                        "pools": [config.get_memory_pool_limit(pool) for pool in trt.MemoryPoolType],
                        "features": [each.name for each in trt.PreviewFeature if config.get_preview_feature(each)],
                        "flags": sorted(each.name for each in trt.BuilderFlag if config.get_flag(each))}}

        plain = kept({{}})
        for case in [{", ".join(case for case, _ in CONFIGS)}]:
            print("KEPT", {{name: value for name, value in kept(case).items() if value != plain[name]}})
        profile = Profile().fill_defaults(network)
        shapes = [[name, *map(tuple, (each.min, each.opt, each.max))] for name, each in profile.items()]
        print("KEPT", plain["profiles"], plain["flags"], shapes)
    """)
    found = [line[5:] for line in out.splitlines() if line.startswith("KEPT ")]
    assert found.pop() == "1 [] [['x', (1, 2), (1, 2), (1, 2)], ['y', (3,), (3,), (3,)]]"
    assert [eval(line) for line in found] == [expected for _, expected in CONFIGS]


def test_polygraphys_loaders_edit_our_networks():
    run("""
        import tensorrt as trt
        from polygraphy import constants
        from polygraphy.backend.trt import (CreateNetwork, ModifyNetworkOutputs, PostprocessNetwork, SetLayerPrecisions,
                                             SetTensorDatatypes,
                                            engine_from_network)
        def named(layer, name, output):
            layer.name, layer.get_output(0).name = name, output
            return layer.get_output(0)

        made = builder, network = CreateNetwork(strongly_typed=True)()
        assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        x = network.add_input("x", trt.float32, (1, 2))
        y = named(network.add_identity(x), "first", "y")
        network.mark_output(named(network.add_elementwise(y, y, trt.ElementWiseOperation.SUM), "second", "z"))
        outputs = lambda: sorted(network.get_output(i).name for i in range(network.num_outputs))
        SetLayerPrecisions(made, {"second": trt.float16, "third": trt.float16})()
        assert [layer.precision_is_set for layer in network] == [False, True] and network[1].precision == trt.float16
        SetTensorDatatypes(made, {"x": trt.float16})()
        assert x.dtype == trt.float16
        for wanted, excluded, expected in (["y"], None, ["y"]), (constants.MARK_ALL, None, ["y", "z"]), (
                constants.MARK_ALL, ["y"], ["z"]):
            assert ModifyNetworkOutputs(made, wanted, excluded)() == made and outputs() == expected
        renamed = PostprocessNetwork(made, lambda network: setattr(network[0], "name", "renamed"))()
        assert renamed[1][0].name == "renamed"
        try:
            engine_from_network(made)
        except RuntimeError as error:
            assert "a script only describes the network" in str(error)
        else:
            raise AssertionError("an engine was built")
    """)


def test_objects_are_context_managers():
    run("""
        import tensorrt as trt
        from polygraphy.backend.trt import Calibrator, CreateNetwork, set_tensor_formats
        builder, network = CreateNetwork()()
        with builder, network, builder.create_builder_config() as config, trt.OnnxParser(network, trt.Logger()) as parser:
            out = network.add_identity(network.add_input("x", trt.float32, (1, 2))).get_output(0)
            out.name = "y"
            network.mark_output(out)
            assert isinstance(config, trt.IBuilderConfig) and isinstance(parser, trt.OnnxParser)
        set_tensor_formats((builder, network), {"x": [trt.TensorFormat.LINEAR, trt.TensorFormat.CHW4], "y": [trt.TensorFormat.HWC8]})
        assert network.get_input(0).allowed_formats == 1 << int(trt.TensorFormat.LINEAR) | 1 << int(trt.TensorFormat.CHW4)
        assert out.allowed_formats == 1 << int(trt.TensorFormat.HWC8)
        calibrator = Calibrator([], BaseClass=trt.IInt8LegacyCalibrator, quantile=0.25, regression_cutoff=0.9)
        assert isinstance(calibrator, trt.IInt8LegacyCalibrator)
        assert (calibrator.get_quantile(), calibrator.get_regression_cutoff()) == (0.25, 0.9)
        assert isinstance(Calibrator([]), trt.IInt8EntropyCalibrator2)
    """)
