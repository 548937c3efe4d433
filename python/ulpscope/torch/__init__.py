"""Mixed precision for modules of torch, where people have their networks.

    import ulpscope
    answer = ulpscope.torch.search(module, samples, threshold=5e-3)
    answer.kept_modules                                # {"blocks.3.norm": (KeptLayer(...), ...)}
    mixed = ulpscope.torch.apply(module, answer)       # checked on the samples
    ulpscope.torch.applied(mixed).modules              # what became of each module, and why

Needs torch 2.11 or later, onnx and onnxscript: pip install "ulpscope[torch]". docs/torch.md
"""

from __future__ import annotations

from .applying import Applied, AppliedModule, Departure, applied, apply
from .exporting import export
from .searching import ModuleAnswer, search

__all__ = ["Applied", "AppliedModule", "Departure", "ModuleAnswer", "applied", "apply", "export", "search"]
