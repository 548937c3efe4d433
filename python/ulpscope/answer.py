"""What a search answers: which layers need more precision, why, and how well the result holds."""

from __future__ import annotations

import html
import json
import operator
import os
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Optional, Union

from .arguments import FilePath, checked
from .criterion import MetricFunction, PerOutput, make_criterion
from .errors import invalid_argument
from .native import _core
from .worker.answers import expand_answer

Json = dict[str, Any]


@dataclass(frozen=True)
class OutputError:
    """The error of one output, in its worst sample."""

    output: str
    error: float  #: In the unit of the metric.
    used: float  #: Of the tolerance; infinite where something is not finite that should be.
    sample: int


@dataclass(frozen=True)
class Judgement:
    """The verdict on the outputs of several samples."""

    used: float  #: Error / tolerance of the worst output and sample; infinite where values are not finite.
    error: float  #: The same in the unit of the metric (rel-l2: a ratio; psnr, snr: dB; kl: nats).
    worst_output: str
    worst_sample: int  #: -1: all samples together.
    problem: str  #: Why `used` is infinite, for people; else empty.
    outputs: tuple[OutputError, ...]

    @property
    def passed(self) -> bool:
        """Whether the tolerance holds."""
        return self.used <= 1

    @staticmethod
    def from_dict(values: Json) -> Judgement:
        outputs = tuple(
            OutputError(each["output"], float(each["value"]), float(each["used"]), each["sample"])
            for each in values["outputs"]
        )
        return Judgement(
            float(values["used"]), float(values["value"]), values["worst_output"], values["worst_sample"],
            values["problem"], outputs,
        )  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """Why a layer is kept."""

    kind: str  #: "overflow", "underflow", "cancellation", "saturation", "resolution", "rounding", "faster", ...
    text: str  #: One sentence.
    tensor: str  #: Where it shows.
    count: int  #: Elements concerned, over all samples,
    total: int  #: of these.
    largest: float  #: The largest magnitude there (underflow: the smallest that vanishes).
    share: float  #: Of the squared error of the lowest precision, as predicted.


@dataclass(frozen=True)
class KeptLayer:
    """A layer that stays in higher precision."""

    name: str
    op: str
    nodes: tuple[str, ...]  #: The ONNX nodes that it came from.
    precision: str  #: "fp32", "tf32", "fp16" or "bf16".
    effect: float  #: Predicted share of the tolerance that it would use alone; may be infinite.
    reason: Reason


@dataclass(frozen=True)
class Repair:
    """A change that costs no precision."""

    kind: str  #: "clamp", "scale", "scale-shift", "equalize", ...
    name: str  #: The layer or tensor.
    text: str  #: One sentence.


@dataclass(frozen=True)
class Lowest:
    """Everything in the lowest precisions, but for what was asked to stay."""

    text: str  #: All of it in a few lines.
    passed: bool  #: At the tolerance, on all samples that it was tried on.
    only_margin: bool  #: It passes on all samples; layers are kept only since it uses more than the margin.
    search: Judgement  #: On the samples of the search.
    held_out: Optional[Judgement]  #: On all others; None where it fails before, or there are none.
    first_output: Optional[str]  #: The first in the network's order that fails.
    layer: Optional[str]  #: The first that makes an infinity or a NaN, where it is known.


@dataclass(frozen=True)
class Trial:
    """One set of layers that was tried."""

    index: int  #: For Answer.at.
    kind: str  #: "search", "hold-out", "untouched", "layer", "shrink", "fallback", "repair", ...
    layers: tuple[tuple[str, str], ...] = field(repr=False)  #: Names and precisions of those above the lowest.
    judgement: Judgement
    passed: bool  #: At the margin of the trial.
    time_us: float  #: Estimated on the target, in microseconds.
    cost_share: float  #: Of the multiply-adds, in these layers.
    seconds: float  #: That the trial took.


@dataclass(frozen=True)
class CurvePoint:
    """A point of the predicted curve of error against time."""

    time_us: float  #: Estimated on the target, in microseconds.
    used: float  #: Of the tolerance, as predicted and corrected by the trials; may be infinite.
    raised: int  #: Layers in higher precision.
    trial: Optional[int]  #: A trial of so many layers and this time, for Answer.at; None: it was not tried.


@dataclass(frozen=True)
class LayerBits:
    """What the constant weights of a layer take. Bits are those of codes, scales and zero points."""

    name: str
    format: str  #: "int4-64", "nvfp4-weights", "fp32", ...
    block: Optional[int]  #: Weights that share a scale; None: those of a channel, or there are no scales.
    weights: int
    bits: int


@dataclass(frozen=True)
class Bits:
    """What constant weights take whose formats a search chose by their bits."""

    per_weight: float
    budget: Optional[float]  #: Per weight; None: as few as hold the tolerance.
    weights: int
    bytes: int
    layers: tuple[LayerBits, ...] = field(repr=False)  #: All candidates, in network order.
    #: Bits per weight and the least errors that they are predicted to allow: shares of the tolerance, or errors in the
    #: unit of the metric where there is none.
    curve: tuple[tuple[float, float], ...] = field(repr=False)


class Answer:
    """The answer of a search. Immutable; the same as the file that `ulpscope precision search` writes. Answers are equal
    if their files are (times and all); they can be copied and pickled, with a `metric` that can.

    >>> answer = ulpscope.search("model.onnx", samples, threshold=1e-2, objective="smallest", fusion="none")
    >>> answer.verdict
    'found'
    >>> [(layer.name, layer.reason.kind) for layer in answer.layers]
    [('Add', 'cancellation'), ('Sub', 'cancellation')]
    >>> answer.save("model.answer.json")
    >>> ulpscope.Answer.load("model.answer.json").layers == answer.layers
    True
    """

    def __init__(self, native: _core.Answer, judged_by: Optional[tuple[MetricFunction, PerOutput]] = None) -> None:
        self._native = native
        #: A metric that no file can say, and its threshold.
        self._judged_by = judged_by

    @property
    def _criterion(self) -> Optional[_core.Criterion]:
        return None if self._judged_by is None else make_criterion(*self._judged_by)

    def __getstate__(self) -> Json:
        return {"_native": self._native, "_judged_by": self._judged_by}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Answer):
            return NotImplemented
        return self.to_json() == other.to_json() and self._judged_by == other._judged_by

    def __hash__(self) -> int:
        return hash((self.verdict, self.layers))

    @staticmethod
    @checked
    def load(path: FilePath) -> Answer:
        """The answer in a file. Raises Error: NOT_FOUND, IO; INVALID_FILE for what is no answer."""
        return Answer(_core.Answer.read(os.fspath(path)))

    @staticmethod
    @checked
    def from_json(text: str) -> Answer:
        """The answer in the text of a file. Raises Error(INVALID_FILE) for what is none."""
        return Answer(_core.Answer.from_json(text, "[answer]"))

    @checked
    def save(self, path: FilePath) -> None:
        """Writes the answer as JSON, and int8 scales beside it (ANSWER.calibration.cache), unless they came from a file
        elsewhere. Raises Error(IO)."""
        native = self._native.moved_to(os.fspath(path))
        native.write()
        beside = os.path.splitext(os.fspath(path))[0] + ".calibration.cache"
        if native.scales and native.calibration_cache == beside:
            _core.write_calibration_cache(beside, "EntropyCalibration2", native.scales)
        self._native = native

    def to_json(self) -> str:
        """The text of the file that `save` writes (docs/formats.md)."""
        return self._native.to_json()

    def to_dict(self) -> Json:
        """The same as a dictionary. Numbers that are not finite are the words "inf", "-inf" and "nan"."""
        result: Json = json.loads(self.to_json())
        return result

    @cached_property
    def _values(self) -> Json:
        return expand_answer(self.to_dict())

    @property
    def verdict(self) -> str:
        """"found": holds on the samples of the search, and on those held out, where there are any. "not-reachable": not
        even with every candidate in higher precision. "unverified": a limit or an interruption came before; the best so
        far. "fails-held-out": holds on the samples of the search only."""
        return str(self._values["verdict"])

    @property
    def objective(self) -> Optional[str]:
        """What chose the layers: "fastest", "smallest", "cheapest", "bits" or "error". None for the layers of a trial
        (`at`), and for files of earlier releases."""
        objective = self._values.get("objective")
        return None if objective is None else str(objective)

    @property
    def message(self) -> str:
        """The verdict in one sentence."""
        return str(self._values["message"])

    @cached_property
    def layers(self) -> tuple[KeptLayer, ...]:
        """The layers to keep in higher precision, in network order."""
        result = []
        for each in self._values["layers"]:
            reason = each["reason"]
            why = Reason(
                reason["kind"], reason["text"], reason["tensor"], reason["count"], reason["total"],
                float(reason["largest"]), float(reason["share"]),
            )  # fmt: skip
            result.append(
                KeptLayer(each["name"], each["op"], tuple(each["nodes"]), each["precision"], float(each["effect"]), why)
            )
        return tuple(result)

    @property
    def reasons(self) -> dict[str, Reason]:
        """Why, by name of the layer."""
        return {layer.name: layer.reason for layer in self.layers}

    @property
    def repairs(self) -> tuple[Repair, ...]:
        """Changes that are made before any layer is raised."""
        return tuple(Repair(each["kind"], each["name"], each["text"]) for each in self._values["repairs"])

    @property
    def error(self) -> float:
        """Of the answer on the samples of the search, in the unit of the metric: the worst output and sample."""
        return self.search.error

    @cached_property
    def search(self) -> Judgement:
        """Of the answer on the samples of the search."""
        return Judgement.from_dict(self._values["search"])

    @cached_property
    def held_out(self) -> Optional[Judgement]:
        """Of the answer on samples that nothing was chosen by; None where there are none."""
        held_out = self._values["held_out"]
        return None if held_out is None else Judgement.from_dict(held_out)

    @cached_property
    def lowest(self) -> Optional[Lowest]:
        """Everything in the lowest precisions, without repairs: what is to be had without the answer. None where the
        search ended before, and for files of earlier releases."""
        values = self._values.get("lowest")
        if values is None:
            return None
        held_out, layer = values["held_out"], values["layer"]
        return Lowest(
            values["text"], values["passed"], values["only_margin"], Judgement.from_dict(values),
            None if held_out is None else Judgement.from_dict(held_out), values["first_output"],
            None if layer is None else layer["name"],
        )  # fmt: skip

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Everything that was tried, in order."""
        return tuple(
            Trial(
                i, each["kind"], tuple(tuple(pair) for pair in each["raised"]), Judgement.from_dict(each["error"]),
                each["passed"], float(each["time_us"]), float(each["cost_share"]), float(each["seconds"]),
            )
            for i, each in enumerate(self._values["trials"])
        )  # fmt: skip

    @property
    def scales(self) -> dict[str, float]:
        """int8: the scale of every tensor, by name: real value = scale * integer."""
        return self._native.scales

    @property
    def target(self) -> str:
        """What times were estimated for: the name of a GPU, or a file of ulpscope.measure_target."""
        return str(self._values["target"])

    @property
    def time_us(self) -> dict[str, float]:
        """Estimated microseconds on the target of "answer", of everything "lowest", and of everything "highest"."""
        return {name: float(value) for name, value in self._values["time_us"].items()}

    @cached_property
    def bits(self) -> Optional[Bits]:
        """Of the objectives "bits" and "error": the format of each layer, and what weights take. None for others."""
        found = self._values.get("bits")
        if found is None:
            return None
        layers = tuple(LayerBits(*(each[key.name] for key in fields(LayerBits))) for each in found["layers"])
        curve = tuple((float(bits), float(used)) for bits, used in found["curve"])
        return Bits(found["per_weight"], found["budget"], found["weights"], found["bytes"], layers, curve)

    def pareto(self) -> list[CurvePoint]:
        """The curve of error against time, from the fastest assignment to everything in the highest precision."""
        measured = {  # Trials say their times to six digits.
            (len(trial.layers), f"{trial.time_us:.5g}"): trial.index
            for trial in reversed(self.trials)
            if trial.kind not in ("layer", "repair")
        }
        return [
            CurvePoint(float(time), float(used), raised, measured.get((raised, f"{float(time):.5g}")))
            for time, used, raised in self._values.get("curve", [])
        ]

    @checked
    def at(self, trial: Union[int, Trial, CurvePoint]) -> Answer:
        """The answer with the layers of a trial: for `convert`, `verify` and `Engine`. Its verdict says whether they
        passed. Raises Error(INVALID_ARGUMENT) for a number beyond the trials, and for a point that was not tried."""
        index = trial.index if isinstance(trial, Trial) else trial.trial if isinstance(trial, CurvePoint) else trial
        if index is None:
            raise invalid_argument(
                "[answer] at: this point of the curve is predicted, and nobody tried its layers; try one with a trial"
            )
        count = len(self._values["trials"])
        index = operator.index(index)
        if not -count <= index < count:
            raise invalid_argument(f"[answer] at: expected a trial below {count}, got {index}")
        return Answer(self._native.with_trial(index % count), self._judged_by)

    @property
    def nodes_to_exclude(self) -> list[str]:
        """The ONNX nodes to keep: `nodes_to_exclude` of ModelOpt AutoCast and onnxruntime.quantization, and
        `node_block_list` of onnxconverter-common. Repairs are not in it."""
        return list(dict.fromkeys(node for layer in self.layers for node in (layer.nodes or (layer.name,))))

    def _section(self) -> str:
        """HTML that its page has in front of the layers."""
        return ""

    def __str__(self) -> str:
        return self._native.text(False)

    def __repr__(self) -> str:
        return f"<ulpscope.Answer {self.verdict}: {len(self.layers)} layer(s) of {self._values['candidates']}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(layer.name)}</td><td>{html.escape(layer.op)}</td><td>{layer.precision}</td>"
            f"<td>{html.escape(layer.reason.text or layer.reason.kind)}</td></tr>"
            for layer in self.layers
        )
        errors = f"Error {self.error:.4g}, {self.search.used:.3g} of the tolerance ({html.escape(self._values['criterion'])})"
        if self.held_out is not None:
            errors += f"; on held-out samples {self.held_out.error:.4g}, {self.held_out.used:.3g} of it"
        head = "<tr><th>Layer</th><th>Operator</th><th>Precision</th><th>Why</th></tr>"
        repairs = "".join(f"<li>{html.escape(each.text)}</li>" for each in self.repairs)
        return (
            f"<div><p><b>{html.escape(self.verdict)}</b>: {html.escape(self.message)}</p><p>{errors}</p>"
            + (f"<table>{head}{rows}</table>" if rows else "")
            + (f"<ul>{repairs}</ul>" if repairs else "")
            + "</div>"
        )


def as_answer(answer: Union[Answer, FilePath]) -> Answer:
    """An answer, or the one in a file. Raises as Answer.load."""
    return answer if isinstance(answer, Answer) else Answer.load(answer)
