"""The modules that stand in for tensorrt and polygraphy, in a process where they come first."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

WORKER = Path(__file__).resolve().parents[2] / "python" / "ulpscope" / "worker"


def run(code: str, shims: bool = True) -> str:
    """What the code prints; fails with its traceback."""
    prologue = f"import sys; sys.path.insert(0, {str(WORKER / 'shims')!r})\n" if shims else ""
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
                       "outputs": [1], "layers": [{"name": "l", "op": "Mul", "domain": "", "type": "ELEMENTWISE", "inputs": [0, 0], "outputs": [1],
                                                   "precision": None, "output_types": [None], "nodes": ["l"]}]})
        layer = network[0]
        assert layer.type == trt.LayerType.ELEMENTWISE
        layer.__class__ = trt.IElementWiseLayer
        assert layer.op == trt.ElementWiseOperation.PROD
        assert network._describe()["changed_layers"] == []
        layer.precision = trt.float16
        assert [change["precision"] for change in network._describe()["changed_layers"]] == ["float16"]
    """)


def test_extend_has_the_real_semantics():
    code = """
        from polygraphy import func

        def x(a, b):
            return [a], b

        @func.extend(x)
        def keeps(first, second):
            first.append(second)

        @func.extend(x)
        def sees_arguments(a, b, first, second):
            return a, b, first, second

        @func.extend(lambda: None)
        def nothing():
            return 5

        print(keeps(1, 2), sees_arguments(1, b=2), nothing())
        try:
            func.extend(x)(lambda one: None)(1, 2)
        except Exception as error:
            print(type(error).__name__, str(error).split(chr(10))[0])
    """
    ours = run(code)
    assert "([1, 2], 2) (1, 2, [1], 2) 5" in ours
    assert "accepts 1 parameter(s), but needs to accept 2 parameter(s) from: x instead." in ours
    if pytest.importorskip("importlib.util").find_spec("polygraphy"):
        real = run(code, shims=False)
        assert [line for line in real.splitlines() if not line.startswith("[!]")][0] == ours.splitlines()[0]


def test_results_go_both_ways_with_the_real_module(tmp_path):
    write = f"""
        import numpy as np
        from polygraphy.comparator import RunResults
        from polygraphy.json import save_json
        results = RunResults()
        results.add([{{"y": np.arange(3, dtype=np.float32)}}, {{"y": np.zeros((2, 0), np.int64)}}], runtime=0.5, runner_name="a")
        results.save({str(tmp_path / "NAME")!r})
        save_json([{{"x": np.ones((1, 2), np.float16)}}], {str(tmp_path / "NAME.inputs")!r})
    """
    read = f"""
        import numpy as np
        from polygraphy.comparator import RunResults
        from polygraphy.json import load_json
        results = RunResults.load({str(tmp_path / "NAME")!r})
        (name, iterations), = results.items()
        assert name == "a" and len(iterations) == 2 and iterations[0].runtime == 0.5 and iterations[0].runner_name == "a"
        np.testing.assert_array_equal(iterations[0]["y"], np.arange(3, dtype=np.float32))
        assert iterations[1]["y"].shape == (2, 0) and iterations[1]["y"].dtype == np.int64
        (feed,) = load_json({str(tmp_path / "NAME.inputs")!r})
        assert feed["x"].dtype == np.float16
    """
    run(write.replace("NAME", "ours"))
    run(read.replace("NAME", "ours"))
    if pytest.importorskip("importlib.util").find_spec("polygraphy"):
        run(read.replace("NAME", "ours"), shims=False)
        run(write.replace("NAME", "real"), shims=False)
        run(read.replace("NAME", "real"))


def test_config_flags_and_profiles():
    run("""
        import tensorrt as trt
        from polygraphy.backend.trt import CreateConfig, Profile, create_config
        builder = trt.Builder(trt.Logger())
        config = builder.create_builder_config()
        assert config.get_flag(trt.BuilderFlag.TF32) and config.flags == 1 << int(trt.BuilderFlag.TF32)
        config = CreateConfig(fp16=True, precision_constraints="prefer", profiles=[Profile().add("x", (1,), (2,), (3,))])(builder, trt.INetworkDefinition())
        assert not config.get_flag(trt.BuilderFlag.TF32) and config.get_flag(trt.BuilderFlag.PREFER_PRECISION_CONSTRAINTS)
        assert config.num_optimization_profiles == 1
        config.max_workspace_size = 1 << 20
        assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
        assert config.set_tactic_sources(3)
        try:
            create_config(builder, None, pf16=True)
        except TypeError as error:
            print(error)
    """)


def test_generated_data_is_the_real_modules():
    code = """
        import numpy as np
        from polygraphy.common import TensorMetadata
        from polygraphy.comparator import DataLoader
        loader = DataLoader(seed=3, iterations=2, input_metadata=TensorMetadata().add("x", np.dtype(np.float32), (2, 2)).add("n", np.dtype(np.int64), (3,)),
                            val_range=(0, 5))
        loader.input_metadata = loader.input_metadata or loader.user_input_metadata
        print([{name: array.tolist() for name, array in feed.items()} for feed in (loader[0], loader[1])])
    """
    ours = run(code)
    if pytest.importorskip("importlib.util").find_spec("polygraphy"):
        assert run(code, shims=False).splitlines()[-1] == ours.splitlines()[-1]


CONFIGS = """
    import sys, tensorrt as trt
    from polygraphy.backend.trt import CreateConfig, create_network
    F = trt.BuilderFlag
    builder, network = create_network()
    network.add_input("x", trt.float32, (1, 2))
    cases = [
        {}, dict(tactic_sources=[]), dict(tactic_sources=[trt.TacticSource.CUBLAS, trt.TacticSource.CUDNN]),
        dict(profiling_verbosity=trt.ProfilingVerbosity.NONE), dict(engine_capability=trt.EngineCapability.SAFETY),
        dict(hardware_compatibility_level=trt.HardwareCompatibilityLevel.AMPERE_PLUS), dict(builder_optimization_level=5),
        dict(max_aux_streams=2), dict(use_dla=True, allow_gpu_fallback=True),
        dict(memory_pool_limits={trt.MemoryPoolType.WORKSPACE: 39, trt.MemoryPoolType.DLA_LOCAL_DRAM: 20}),
        dict(preview_features=[trt.PreviewFeature.PROFILE_SHARING_0806]), dict(preview_features=[]),
        dict(quantization_flags=[trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION]),
        dict(fp16=True, int8=True, tf32=False, bf16=True, fp8=True), dict(precision_constraints="obey"), dict(precision_constraints="prefer"),
        dict(refittable=True, sparse_weights=True, direct_io=True, restricted=True, version_compatible=True, exclude_lean_runtime=True),
    ]
    for case in cases:
        with CreateConfig(**case)(builder, network) as c:
            print("CONFIG", c.get_tactic_sources(), c.profiling_verbosity, c.engine_capability, c.hardware_compatibility_level,
                  c.builder_optimization_level, c.max_aux_streams, c.default_device_type, c.DLA_core,
                  [c.get_memory_pool_limit(pool) for pool in trt.MemoryPoolType], [c.get_preview_feature(f) for f in trt.PreviewFeature],
                  c.get_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION), sorted(f.name for f in F if c.get_flag(f)))
"""


PROFILES = """
    import tensorrt as trt
    from polygraphy.backend.trt import CreateConfig, Profile, create_network
    builder, network = create_network()
    network.add_input("x", trt.float32, (-1, 2))
    network.add_input("y", trt.float32, (3,))
    given = [Profile().add("x", (1, 2), (2, 2), (4, 2)), Profile()]
    for case in [{}, dict(profiles=None), dict(profiles=[]), dict(profiles=given), dict(profiles=given[:1], fp16=True)]:
        config = CreateConfig(**case)(builder, network)
        print("CONFIG", config.num_optimization_profiles, config.get_calibration_profile() is not None)
    print("CONFIG", [list(profile) for profile in given])
    profile = Profile().fill_defaults(network)
    print("CONFIG", [[name, *(tuple(shape) for shape in (s.min, s.opt, s.max))] for name, s in profile.items()])
"""


@pytest.mark.parametrize("script", [PROFILES])
def test_configs_have_the_profiles_of_the_real_module(tmp_path, script):
    pytest.importorskip("polygraphy")
    (tmp_path / "tensorrt").symlink_to(WORKER / "shims" / "tensorrt")
    real = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + textwrap.dedent(script), shims=False)
    lines = [[line for line in text.splitlines() if line.startswith("CONFIG")] for text in (run(script), real)]
    assert len(lines[0]) == 7 and lines[0] == lines[1]
    assert lines[0][0].startswith("CONFIG 1")


COMPARISONS = """
    import numpy as np
    from polygraphy.comparator import (CompareFunc, CosineSimilarityCompareFunc, IndicesCompareFunc, IterationResult, L2CompareFunc,
                                       PsnrCompareFunc, SimpleCompareFunc, SnrCompareFunc)
    random = np.random.default_rng(5)
    x = random.uniform(0.1, 1, (3, 40)).astype(np.float32)
    x[0, 0] = 0
    inf, nan = x.copy(), x.copy()
    inf[1, 1], nan[2, 2] = np.inf, np.nan
    near = (x * np.float32(1 + 1e-4)).astype(np.float32)
    top = np.ascontiguousarray(np.argsort(-x, axis=-1)[:, :6])
    swapped = np.ascontiguousarray(top[:, [1, 0, 2, 3, 5, 4]])
    pairs = [(x, x), (near, x), (x, near), (x + np.float32(0.1), x), (inf, inf), (nan, nan), (inf, x), (top, swapped), (swapped, top), (top, top),
             (top, top[:, :5].copy()), (x.astype(np.float16), near.astype(np.float16)), (x > 0.5, near > 0.5), (x > 0.5, x > 0.4), (x, x.reshape(1, 3, 40)),
             (x, x.T.copy()), (x * 0, x * 0), (x * 0, x), (-x, x), (x[:0], x[:0]), (x.astype(np.float64), near.astype(np.float64)), (top, x[:, :6].copy())]
    stats = ["elemwise", "max", "mean", "median", "quantile"]
    functions = [CompareFunc.simple(), CompareFunc.simple(atol=1e-3, rtol={"b": 1e-3, "": 1e-9}), CompareFunc.simple(infinities_compare_equal=True)]
    functions += [SimpleCompareFunc(check_error_stat={"a": s, "b": "max"}, atol=t, rtol=t, error_quantile=0.3) for s in stats for t in (0, 1.1e-4, 0.2)]
    functions += [CompareFunc.indices(t) for t in (0, 1, {"a": 2})] + [IndicesCompareFunc(fail_fast=True)]
    functions += [L2CompareFunc(), L2CompareFunc({"a": 1.0}), CosineSimilarityCompareFunc(), CosineSimilarityCompareFunc(-2.0), PsnrCompareFunc(),
                  PsnrCompareFunc(80), SnrCompareFunc(), SnrCompareFunc(-100), SimpleCompareFunc(check_shapes=False), SimpleCompareFunc(fail_fast=True)]
    fields = [f"{s}_{k}" for s in ("max", "mean", "median", "quantile") for k in ("absdiff", "reldiff")] + ["l2_norm", "cosine_similarity", "psnr", "snr"]
    for i, function in enumerate(functions):
        for j, (first, second) in enumerate(pairs):
            try:
                verdict = function(IterationResult({"a": first, "b": x}), IterationResult({"b": near, "a": second}))
                numbers = [(f, f"{float(getattr(v, f)):.4g}") for v in verdict.values() for f in fields if getattr(v, f, None) is not None]
                print("CONFIG", i, j, [(name, bool(v)) for name, v in verdict.items()], numbers)
            except Exception as error:
                print("CONFIG", i, j, "raises")
"""


def test_comparisons_judge_as_the_real_module_does(tmp_path):
    pytest.importorskip("polygraphy")
    lines = [[line for line in text.splitlines() if line.startswith("CONFIG")] for text in (run(COMPARISONS), run(COMPARISONS, shims=False))]
    assert len(lines[0]) == len(lines[1]) > 500
    # NumPy has no quantiles of booleans; some lines of the real module's are about that.
    assert sum("raises" in theirs and "raises" not in mine for mine, theirs in zip(*lines)) < 20
    assert [(mine, theirs) for mine, theirs in zip(*lines) if mine != theirs and "raises" not in theirs] == []


def test_configs_keep_what_the_real_module_sets(tmp_path):
    pytest.importorskip("polygraphy")
    (tmp_path / "tensorrt").symlink_to(WORKER / "shims" / "tensorrt")
    real = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + textwrap.dedent(CONFIGS), shims=False)
    lines = [[line for line in text.splitlines() if line.startswith("CONFIG")] for text in (run(CONFIGS), real)]
    assert len(lines[0]) == 17 and len(set(lines[0])) > 12 and lines[0] == lines[1]


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


MODIFIED = """
    import onnx
    from polygraphy import constants
    from polygraphy.backend.onnx import ModifyOutputs, modify_outputs
    from polygraphy.exception import PolygraphyException
    node = onnx.helper.make_node
    infos = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in "xz"]
    nodes = [node("Constant", [], ["c"], value_floats=[1.0, 2.0]), node("Add", ["x", "c"], ["y"]), node("Identity", ["y"], ["z"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:]))
    names = lambda made: [info.name for info in made.graph.output]
    print("MADE", names(modify_outputs(model, outputs=["y"], copy=True)), names(model), names(modify_outputs(model, exclude_outputs=["z"], copy=True)))
    print("MADE", names(ModifyOutputs(lambda: model, outputs=constants.MARK_ALL, exclude_outputs=["z"], copy=True)()))
    print("MADE", names(modify_outputs(model, outputs=constants.MARK_ALL)), names(model))
    try:
        modify_outputs(model, outputs=["nothing"])
    except PolygraphyException as error:
        print("MADE", "outputs were not found" in str(error))
"""


def test_outputs_of_models_are_modified_as_by_the_real_module():
    pytest.importorskip("polygraphy")
    lines = [[line for line in run(MODIFIED, shims=shims).splitlines() if line.startswith("MADE")] for shims in (True, False)]
    assert len(lines[0]) == 4 and lines[0] == lines[1]


LOADERS = """
    import numpy as np
    from polygraphy.common import TensorMetadata
    from polygraphy.comparator import DataLoader, IterationResult, PostprocessFunc, RunResults, SimpleCompareFunc, BaseCompareFunc
    from polygraphy.exception import PolygraphyException

    inf = float("inf")
    model = TensorMetadata().add("x", np.float32, (-1, 3)).add("n", np.int32, (3,)).add("b", np.bool_, (2, 2)).add("h", np.float16, (2,))
    users = [None, TensorMetadata().add("x", None, (2, 3)), TensorMetadata().add("x", None, (2, 4)), TensorMetadata().add("x", None, (-1, 3)),
             TensorMetadata().add("n", np.int32, (5, 2, 3)), TensorMetadata().add("n", np.int32, (-100, 2, 4)),
             TensorMetadata().add("h", np.float16, (7, 8)), TensorMetadata().add("zz", np.float32, (1,)), TensorMetadata().add("x", np.float64, (1, 3))]
    for user in users:
        for values in [None, (0, 1), (3, 3), {"": (-2, 5), "x": (0.5, 0.75)}, {"x": (0, inf), "h": (-inf, 0)}, {"x": (inf, inf), "h": (-inf, inf)}]:
            loader = DataLoader(seed=4, iterations=2, input_metadata=user, val_range=values)
            loader.input_metadata = model
            for feed in (loader[0], loader[1]):
                print("MADE", [(name, array.dtype.name, array.shape, array.tolist()) for name, array in feed.items()])
    loader = DataLoader(input_metadata=TensorMetadata().add("x", np.float32, (2,)))
    print("MADE", loader[0]["x"].tolist())

    random = np.random.default_rng(2)
    arrays = [random.normal(size=(3, 5)).astype(np.float32), random.integers(0, 4, (4, 6)), random.normal(size=7).astype(np.float16),
              np.array([[1, np.nan, 3], [-np.inf, 5, np.inf]])]
    for array in arrays:
        for k in [None, 1, 3, 10, {"": 2}, {"a": 2}] + [(2, 0), {"": (1, 0), "a": (2, -1)}]:
            made = PostprocessFunc.top_k(k)(IterationResult({"a": array, "c": array}))
            print("MADE", [(name, np.asarray(each).tolist()) for name, each in made.items()])
    print("MADE", isinstance(SimpleCompareFunc(), BaseCompareFunc))
    try:
        RunResults()["nobody"]
    except PolygraphyException as error:
        print("MADE", "does not exist in this RunResults instance" in str(error))
"""


def test_loaders_and_postprocessing_are_those_of_the_real_module():
    pytest.importorskip("polygraphy")
    lines = [[line for line in run(LOADERS, shims=shims).splitlines() if line.startswith("MADE")] for shims in (True, False)]
    assert len(lines[0]) == len(lines[1]) == 143
    assert [(ours, real) for ours, real in zip(*lines) if ours != real] == []


def test_cosine_similarity_does_not_overflow():
    run("""
        import numpy as np
        from polygraphy.comparator import CosineSimilarityCompareFunc, IterationResult
        for first, second in [(1e-30, 1e-30), (1e200, 1e200), (1e-200, 1e200)]:
            for other, expected in [([3.0, 4.0], 1), ([4.0, -3.0], 0), ([-3.0, -4.0], -1)]:
                results = IterationResult({"y": np.array([3.0, 4.0]) * first}), IterationResult({"y": np.array(other) * second})
                assert abs(CosineSimilarityCompareFunc()(*results)["y"].cosine_similarity - expected) < 1e-6
    """)
