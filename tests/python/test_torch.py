"""ulpscope.torch: searches on modules, and copies in mixed precision. Skipped where torch is not installed."""

from __future__ import annotations

import copy
import doctest
import functools
import importlib
import pickle
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytest.importorskip("onnx")

from torch import nn

import ulpscope
from torch_networks import NETWORKS, RMSNormBlocks, halved, masked_attention, worst_error

CODE = ulpscope.ErrorCode
THRESHOLD = 5e-3


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@functools.cache
def found(name):
    """A network and its answer, which are left as they are."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    return network, search(network.module, network.samples(8))


def search(module, samples, *words, threshold=THRESHOLD, **options):
    return ulpscope.torch.search(module, samples, *words, threshold=threshold, progress=False, **options)


@pytest.fixture(params=list(NETWORKS))
def searched(request):
    return request.param, *found(request.param)


def precisions(module):
    return {each.name: each.precision for each in ulpscope.torch.applied(module).modules}


def test_copies_are_right_where_half_is_not(searched):
    """Judged by float64 sums of torch's own results, which share nothing with the engine. On 100 fresh inputs the
    copies err 0.92 to 1.16 times as much as the answers predict for their samples."""
    _, network, answer = searched
    fresh = network.samples(100)
    half = worst_error(network.module, halved(network.module), fresh)
    assert not half <= 0.5  # Wrong, or NaN.
    mixed = ulpscope.torch.apply(network.module, answer)
    record = ulpscope.torch.applied(mixed)
    error = worst_error(network.module, mixed, fresh)
    assert error <= THRESHOLD and error <= 2 * record.predicted
    assert record.judgement.passed and not record.departures
    assert 2 * list(precisions(mixed).values()).count("fp16") > len(record.modules)


def test_kept_layers_are_of_modules(searched):
    name, network, answer = searched
    modules = dict(network.module.named_modules())
    assert set(answer.modules.values()) <= set(modules)
    mixed = ulpscope.torch.apply(network.module, answer)
    kept = {module for module, precision in precisions(mixed).items() if precision == "fp32"}
    assert kept == set(answer.kept_modules)
    if name == "Whisper encoder":
        assert "layers.0.fc2" in kept and "layers.0.fc1" not in kept
        assert "layers.0.fc2 (Linear)" in str(answer) and "layers.0.fc2 (Linear)" in answer._repr_html_()
    else:
        assert not kept and answer.repairs


def test_parameters_and_borders_have_the_types_of_the_answer(searched):
    _, network, answer = searched
    before = {name: each.clone() for name, each in network.module.state_dict().items()}
    mixed = ulpscope.torch.apply(network.module, answer)
    seen = {}

    def look(name):
        return lambda inner, args, kwargs: seen.update({name: {x.dtype for x in args if x.is_floating_point()}})

    for module, precision in precisions(mixed).items():
        wanted = {"fp16": torch.float16, "fp32": torch.float32}[precision]
        inner = mixed.get_submodule(module)
        assert {each.dtype for each in inner.parameters(recurse=False)} <= {wanted}
        inner.register_forward_pre_hook(look(module), with_kwargs=True)
    with torch.no_grad():
        assert mixed(*network.sample()).dtype == torch.float32
    for module, precision in precisions(mixed).items():
        assert seen[module] <= {torch.float16 if precision == "fp16" else torch.float32}, module
    after = network.module.state_dict()  # The module itself is left alone.
    assert all(each.dtype == torch.float32 or name in before for name, each in after.items())
    assert all(torch.equal(before[name], each) for name, each in after.items())
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in network.module.modules())


def test_scaled_regions_are_folded_by_powers_of_two():
    network, answer = found("RMSNorm blocks")
    assert not answer.layers and [each.kind for each in answer.repairs] == ["scale"]
    mixed = ulpscope.torch.apply(network.module, answer)
    for name in ("embed.weight", "blocks.3.down.bias"):
        ratio = mixed.get_parameter(name).double() / network.module.get_parameter(name).half().double()
        exponent = torch.log2(ratio.median())
        assert exponent == exponent.round() and exponent < 0
    assert torch.equal(mixed.head.weight, network.module.head.weight.half())
    ratio = mixed.blocks[2].norm.eps / network.module.blocks[2].norm.eps
    assert np.log2(ratio) == 2 * exponent  # Of squares.
    assert network.module.blocks[2].norm.eps == 1e-6
    assert f"blocks.3.down.bias * 2^{int(exponent)}" in ulpscope.torch.applied(mixed).folded


def test_shared_parameters_stay_shared_where_they_can():
    network, answer = found("masked attention")
    mixed = ulpscope.torch.apply(network.module, answer)
    assert mixed.head.weight is mixed.embed.weight and mixed.head.weight.dtype == torch.float16
    kept = search(network.module, network.samples(4), keep="/head/*")
    assert set(kept.kept_modules) == {"head"}
    mixed = ulpscope.torch.apply(network.module, kept)
    assert mixed.head.weight.dtype == torch.float32 and mixed.embed.weight.dtype == torch.float16


def test_a_mask_in_the_code_is_named(caplog):
    network = masked_attention(buffer=False)
    answer = search(network.module, network.samples(8))
    mixed = ulpscope.torch.apply(network.module, answer)
    departures = ulpscope.torch.applied(mixed).departures
    assert [each.modules for each in departures] == [("layers.0.attention",), ("layers.1.attention",)]
    assert "without overflow" in departures[0].why
    assert "'layers.1.attention' computes in float32" in caplog.text
    assert precisions(mixed)["layers.0.attention"] == "fp32" and precisions(mixed)["layers.0.attention.q"] == "fp16"
    assert worst_error(network.module, mixed, network.samples(20)) <= THRESHOLD


class EpsilonInCode(nn.Module):
    """An RMSNorm whose epsilon is no attribute."""

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def with_epsilon_in_code():
    module = RMSNormBlocks(blocks=1)
    module.blocks[0].norm = EpsilonInCode()
    return module.eval()


def test_what_a_repair_cannot_reach_is_searched_again(caplog):
    module = with_epsilon_in_code()
    samples = [torch.randn(4, 16) for _ in range(8)]
    answer = search(module, samples)
    refusal = "is not for 'blocks.0.norm': the answer changes the constant 1e-06 of its forward"
    assert caplog.text.count(refusal) == 1  # The second search finds the same.
    assert "the answer has the same repair; searching again without repairs" in caplog.text
    assert answer.kept_modules and str(answer).startswith("Modules with layers to keep: 2\n")
    mixed = ulpscope.torch.apply(module, answer)
    assert not ulpscope.torch.applied(mixed).departures
    assert worst_error(module, mixed, [(each,) for each in samples]) <= THRESHOLD


def test_an_answer_that_keeps_every_module_says_so_first():
    module = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)).eval()
    answer = search(module, [torch.randn(4, 4) for _ in range(8)], threshold=1e-7)
    assert set(answer.kept_modules) == {"0", "1"}
    assert str(answer).startswith("Every module stays as it is: all layers that could be lower are to be kept\n    0 (")


def test_what_a_repair_cannot_reach_stays_in_float32(caplog):
    """With an answer that nobody fitted to modules."""
    module = with_epsilon_in_code()
    samples = [torch.randn(4, 16) for _ in range(8)]
    model = ulpscope.torch.export(module, samples)
    arrays = [{"x": each.numpy()} for each in samples]
    answer = ulpscope.search(model, arrays, threshold=THRESHOLD, fusion="none", objective="smallest", progress=False)
    assert not answer.layers
    mixed = ulpscope.torch.apply(module, answer, samples)
    (departure,) = ulpscope.torch.applied(mixed).departures
    assert departure.modules[0] == "blocks.0.norm" and "try `self.NAME`" in departure.why
    low = [name for name, precision in precisions(mixed).items() if precision == "fp16"]
    assert low == ["head"]  # All else lies between the constants that the repair scales.
    assert worst_error(module, mixed, [(each,) for each in samples]) <= THRESHOLD


class Mixing(nn.Module):
    """Makes a float32 matrix in its forward, calls a layer twice, and uses the weight of another module."""

    def __init__(self):
        super().__init__()
        self.twice = nn.Linear(8, 8)
        self.inner = Matrix()
        self.lent = nn.Linear(8, 8, bias=False)

    def forward(self, x, *, shift=None, double=True):
        x = self.twice(self.twice(x)) * (2 if double else 1)
        x = self.inner(x)
        if shift is not None:
            x = x + shift
        return {"a": self.lent(x), "b": (nn.functional.linear(x, self.lent.weight), x)}


class Matrix(nn.Module):
    def forward(self, x):
        return torch.relu(x) @ torch.eye(8)


def test_code_of_all_kinds(caplog):
    module = Mixing().eval()
    samples = [{"x": torch.randn(2, n, 8), "shift": torch.randn(8), "double": False} for n in (3, 5, 4, 3)]
    answer = search(module, samples, threshold=1e-2)
    mixed = ulpscope.torch.apply(module, answer)
    assert precisions(mixed) == {"twice": "fp16", "": "fp16", "inner": "fp32", "lent": "fp16"}
    assert "'inner' computes in float32: in fp16 it raises RuntimeError" in caplog.text
    with torch.no_grad():
        exact, result = module(**samples[1]), mixed(**samples[1])
    assert result["b"][1].dtype == torch.float32 and torch.allclose(result["a"], exact["a"], atol=1e-2)
    again = pickle.loads(pickle.dumps(mixed))
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(mixed)(**samples[1])["a"], result["a"])
        assert torch.equal(again(**samples[1])["a"], result["a"])
    assert ulpscope.torch.applied(again) == ulpscope.torch.applied(mixed)


def test_modules_that_share_a_weight_compute_alike():
    module = Mixing().eval()
    samples = [{"x": torch.randn(2, 3, 8)} for _ in range(4)]
    answer = search(module, samples, threshold=1e-2, keep="/lent/*")
    mixed = ulpscope.torch.apply(module, answer)
    assert precisions(mixed)["lent"] == precisions(mixed)[""] == "fp32" and precisions(mixed)["twice"] == "fp16"


def test_values_do_not_leave_float32_between_kept_modules():
    """What one kept module hands to the next, through a forward that only calls them, is beyond float16."""

    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.grow, self.shrink, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)
            nn.init.constant_(self.grow.bias, 0.0)
            self.grow.weight.data.mul_(3e5)

        def forward(self, x):
            return torch.relu(self.last(self.shrink(self.grow(x).unsqueeze(0)).squeeze(0)))

    module = Chain().eval()
    samples = [torch.randn(3, 8) for _ in range(4)]
    answer = search(module, samples, repair=False)
    assert set(answer.kept_modules) == {"grow", "shrink"}
    mixed = ulpscope.torch.apply(module, answer)
    assert precisions(mixed) == {"grow": "fp32", "shrink": "fp32", "last": "fp16", "": "fp16"}
    assert not ulpscope.torch.applied(mixed).departures


def test_modules_are_raised_until_the_copy_holds(monkeypatch, caplog):
    """The engine judges products of fp16 by float32 sums; a kernel that adds in float16 errs more."""

    class Coarse(nn.Module):
        def forward(self, x):
            return x * 1.0 if x.dtype == torch.float32 else (x * 8).round() / 8

    module = nn.Sequential(nn.Linear(8, 8), Coarse(), nn.Linear(8, 8), nn.Tanh()).eval()
    samples = [torch.randn(3, 8) for _ in range(4)]
    answer = search(module, samples, threshold=2e-3)
    assert not answer.layers
    mixed = ulpscope.torch.apply(module, answer)
    assert precisions(mixed) == {"0": "fp16", "1": "fp32", "2": "fp16", "3": "fp16"}
    assert ulpscope.torch.applied(mixed).judgement.passed
    assert "'1' computes in float32: the copy used" in caplog.text


def test_bfloat16_with_further_arguments_of_the_search():
    module = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).eval()
    samples = [torch.randn(3, 8) for _ in range(4)]
    answer = search(module, samples, "bf16", threshold=3e-2, accumulation="hopper", keep="/3/*")
    assert set(answer.kept_modules) == {"3"} and answer.to_dict()["accumulation"] == "hopper"
    mixed = ulpscope.torch.apply(module, answer)
    assert mixed[0].weight.dtype == torch.bfloat16 and mixed[3].weight.dtype == torch.float32
    assert worst_error(module, mixed, [(each,) for each in samples]) <= 3e-2


def test_answers_in_files(tmp_path):
    network, answer = found("RMSNorm blocks")
    samples = network.samples(4)
    answer.save(tmp_path / "answer.json")
    again = pickle.loads(pickle.dumps(answer))
    assert again == answer and again.modules == answer.modules
    of_file = ulpscope.torch.apply(network.module, tmp_path / "answer.json", samples)
    of_answer = ulpscope.torch.apply(network.module, answer, samples)
    with torch.no_grad():
        assert torch.equal(of_file(*samples[0]), of_answer(*samples[0]))
    typed, _ = ulpscope.convert(answer.model, answer, data=[{"x": each.numpy()} for (each,) in samples])
    assert ulpscope.report(answer, tmp_path / "report.html").exists() and typed.graph.node
    assert answer.at(0).model is answer.model


def test_the_report_shows_modules(tmp_path):
    _, answer = found("Whisper encoder")
    page = ulpscope.report(answer, tmp_path / "report.html").read_text()
    section = page[page.index('<section id="modules">') : page.index('<section id="layers">')]
    for name in ("layers.0.fc2", "layers.1", "layer_norm"):
        assert f"<code>{name}</code>" in section
    assert "WhisperLayer" in section and "LayerNormalization in fp32 (overflow)" in section
    nothing_kept = ulpscope.report(found("RMSNorm blocks")[1], tmp_path / "none.html").read_text()
    assert '<p class="empty">None.</p>' in nothing_kept
    plain = ulpscope.report(ulpscope.Answer.from_json(answer.to_json()), tmp_path / "plain.html").read_text()
    assert '<section id="modules">' not in plain


class ByValue(nn.Module):
    """Values decide what it does."""

    def forward(self, x):
        return 2 * x if x.sum() > 0 else x - 1


def test_what_cannot_be(tmp_path):
    module = nn.Linear(4, 2).eval()
    samples = [torch.randn(1, 4) for _ in range(2)]
    answer = search(module, samples, threshold=1e-2)
    apply = ulpscope.torch.apply
    partly = nn.Sequential(module, nn.Dropout()).eval()
    partly[1].train()
    for call, code, words in (
        (lambda: search(3, samples), CODE.INVALID_ARGUMENT, "expected a torch.nn.Module, got 3"),
        (lambda: search(module, samples[0]), CODE.INVALID_ARGUMENT, "expected a list of samples"),
        (lambda: search(module, []), CODE.INVALID_ARGUMENT, "at least one sample"),
        (lambda: search(module, [3]), CODE.INVALID_ARGUMENT, "got 3 as sample 0"),
        (lambda: search(module, [{"y": samples[0]}]), CODE.INVALID_ARGUMENT, "forward of Linear does not take one"),
        (lambda: search(module, [samples[0], torch.zeros(4)]), CODE.INVALID_ARGUMENT, "as many dimensions"),
        (lambda: search(module, samples, "int8"), CODE.UNSUPPORTED, "expected 'fp16' or 'bf16'"),
        (lambda: search(nn.Linear(4, 2), samples), CODE.INVALID_ARGUMENT, "got all of it in training mode"),
        (lambda: search(partly, samples), CODE.INVALID_ARGUMENT, "got '1' in training mode; try module.eval()"),
        (lambda: search(ByValue().eval(), samples), CODE.SCRIPT, "cannot trace the forward of ByValue"),
        (lambda: search(copy.deepcopy(module).half(), samples), CODE.UNSUPPORTED, "'weight' in torch.float16"),
        (lambda: apply(module.train(), answer), CODE.INVALID_ARGUMENT, "in training mode"),
        (lambda: apply(module.eval(), found("RMSNorm blocks")[1]), CODE.INVALID_ARGUMENT, "the module of the search"),
        (lambda: apply(module, ulpscope.Answer.from_json(answer.to_json())), CODE.INVALID_ARGUMENT, "samples"),
        (lambda: ulpscope.torch.applied(module), CODE.INVALID_ARGUMENT, "expected what apply returned"),
    ):
        with pytest.raises(ulpscope.Error) as caught:
            call()
        assert caught.value.code == code and words in str(caught.value)


def test_examples_of_docstrings():
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for name in ("exporting", "searching", "applying"):
        module = importlib.import_module(f"ulpscope.torch.{name}")
        for test in doctest.DocTestFinder().find(module, globs={"ulpscope": ulpscope, "torch": torch}):
            runner.run(test)
    assert runner.summarize(verbose=False).attempted >= 8 and runner.failures == 0
    assert sys.modules["torch"] is torch
