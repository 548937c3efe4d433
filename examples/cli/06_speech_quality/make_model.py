"""Writes model.onnx: DNSMOS P.835, which rates recordings of speech from 1 to 5, with its spectrogram inside.

The trained network is that of the package speechmos (MIT License, Microsoft), which scripts/demo.sh installs into
.venv; only the file is read. input_1[N, 144160]: 9.01 s at 16 kHz -> Identity:0[N, 3]: speech, background, overall.
"""

import importlib.util
import pathlib
import shutil
import sys

spec = importlib.util.find_spec("speechmos")
if spec is None or spec.origin is None:
    sys.exit("the package speechmos is missing; try: scripts/setup.sh --demo, and .venv/bin/python3 make_model.py")
shutil.copyfile(pathlib.Path(spec.origin).parent / "dnsmos_models" / "sig_bak_ovr.onnx", "model.onnx")
