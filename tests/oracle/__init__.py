"""An interpreter of docs/numerics.md over ONNX files that shares nothing with the engine.

>>> outcomes = oracle.run(model, {"x": x}, precision="fp16", fusion="full")
>>> message = oracle.judge(outcomes["y"], actual)  # None where `actual` is what the rules allow

rounding.py      number formats
element_formats.py  formats of 8 bits and less, with their scales
values.py        elements and what another order of float32 sums may make of them
model.py         the file
operators*.py    layers in float64
specialize.py    shapes, constants, what is numeric
assign.py        precisions and storage types
grouping.py      the groups of the fusion levels
interpreter.py   values inside of groups, stored values, bodies
judge.py         the verdict

Layers, values and roundings leave np.errstate to `run`: entering it for each of them took a tenth of the time.
"""

from .interpreter import groups, run
from .judge import Outcome, judge
from .values import Unsupported

__all__ = ["Outcome", "Unsupported", "groups", "judge", "run"]
