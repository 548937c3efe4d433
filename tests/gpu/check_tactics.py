"""Holds replayed algorithms against measured ones: check_tactics.py PROGRAM MODEL.onnx...

PROGRAM is `ulpscope`; nothing but its command line and numpy is used. Every process has a cache folder of its own, empty
at first. For every model, in fp16:

- with --load-tactics the outputs have the bits of the run that saved the tactics, and nothing is measured: no file of
  tactics appears in the folder;
- so with --load-timing-cache, where the tactics and their times, saved again, are those of the file;
- a timing cache that is damaged, or of another GPU, is ignored with a warning that names it;
- algorithms that are malformed, of another GPU or of the CPU are refused, and the message says so.

One line per check; exits 1 when one does not hold or a run fails.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable

from check_models import RunFailed, read_outputs, same_bits


#: XXH3, 128 bits, of an empty text.
NO_SOURCE = "99aa06d3014798d86001c324468d497f"


class Check:
    """The runs of one model, in a folder."""

    def __init__(self, options: argparse.Namespace, model: pathlib.Path, folder: pathlib.Path) -> None:
        self.options, self.model, self.folder, self.failed = options, model, folder, 0

    def say(self, holds: bool, what: str) -> None:
        self.failed += not holds
        print(f"{'ok    ' if holds else 'FAILED'} {self.model.stem}: {what}", flush=True)

    def run(self, name: str, *words: str, fails: bool = False) -> str:
        """What the program said; its cache folder is NAME.cache, its outputs go to NAME.json."""
        command = [str(self.options.program), "run", str(self.model), "--trt", "--fp16", "--assume-lowest"]
        command += [*words, "--save-outputs", f"{name}.json"]
        if "--backend" not in words:
            command += ["--backend", "cuda"]
        environment = {**os.environ, "ULPSCOPE_CACHE": str(self.folder / f"{name}.cache")}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True,
                              errors="replace", timeout=self.options.seconds, check=False)  # fmt: skip
        said = done.stdout + done.stderr
        if (done.returncode != 0) != fails:
            raise RunFailed(f"{' '.join(words)}: exit {done.returncode}: {said.strip().splitlines()[-1:]}")
        return said

    def kept(self, name: str) -> list[str]:
        """The files of tactics that a run left."""
        return [path.name for path in (self.folder / f"{name}.cache").glob("tactics-*.txt")]

    def read(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text())

    def same_outputs(self, name: str) -> bool:
        first, again = (read_outputs(self.folder / f"{each}.json") for each in ("first", name))
        return same_bits(first, again)

    def check_replay(self) -> None:
        self.run("first", "--save-inputs", "inputs.json", "--save-tactics", "t.json", "--save-timing-cache", "t.cache")
        steps = [step for entry in self.read("t.json")["replay"].values() for step in entry.get("steps", [])]
        chosen = [step for step in steps if step["computes"] != "generated kernel"]
        self.say(len(chosen) > 0 and self.kept("first") != [], f"{len(chosen)} algorithms of {len(steps)} steps saved")
        kernels = [step["algorithm"] for step in steps if step["computes"] == "generated kernel"]
        self.say(NO_SOURCE not in kernels, f"{len(kernels)} hashes of generated kernels saved")
        said = self.run("replayed", "--load-inputs", "inputs.json", "--load-tactics", "t.json")
        self.say(self.same_outputs("replayed"), "--load-tactics: the same bits in a second process")
        self.say(self.kept("replayed") == [], "--load-tactics: nothing is measured")
        self.say("tactic replay has no" not in said and "not those of the tactic replay" not in said,
                 "--load-tactics: every step is in the file")  # fmt: skip

    def check_timing_cache(self) -> None:
        words = ["--load-inputs", "inputs.json", "--save-tactics", "u.json", "--save-timing-cache", "u.cache"]
        self.run("timed", *words, "--load-timing-cache", "t.cache")
        self.say(self.same_outputs("timed"), "--load-timing-cache: the same bits in a third process")
        first, again = self.read("t.cache"), self.read("u.cache")
        # A second measurement would hardly give the same times.
        self.say(first.get("tactics") is not None and first == again, "--load-timing-cache: nothing is measured")
        self.say(self.read("t.json") == self.read("u.json"), "--load-timing-cache: the same tactics")

    def check_foreign_caches(self) -> None:
        foreign = self.read("t.cache")
        foreign["tactics"] = {"NVIDIA A0-driver1": next(iter(foreign["tactics"].values()))}
        (self.folder / "foreign.cache").write_text(json.dumps(foreign))
        (self.folder / "damaged.cache").write_text((self.folder / "t.cache").read_text()[:-9])
        for name, part in (("foreign.cache", "NVIDIA A0-driver1"), ("damaged.cache", "damaged.cache is ignored")):
            said = self.run("known", "--load-inputs", "inputs.json", "--load-timing-cache", name)
            self.say("ignored" in said and part in said, f"--load-timing-cache {name} is ignored")

    def refused(self, what: str, change: Callable[[dict], None], part: str) -> None:
        replay = self.read("t.json")
        change(replay)
        (self.folder / "bad.json").write_text(json.dumps(replay))
        said = self.run("refused", "--load-tactics", "bad.json", fails=True)
        self.say("[tactics]" in said and part in said, f"{what} are refused")

    def check_bad_algorithms(self, product: str, convolution: str) -> None:
        def change(replay: dict) -> None:
            for entry in replay["replay"].values():
                for step in entry.get("steps", []):
                    if step["computes"] != "generated kernel":
                        step["algorithm"] = convolution if step["computes"].startswith("convolution") else product

        self.refused(f"algorithms {product[:8]} and {convolution}", change, "does not offer the algorithm")

    def check_other_machines(self) -> None:
        self.refused("algorithms of another GPU", lambda replay: replay.update(device="NVIDIA A0"), "NVIDIA A0")
        self.run("cpu", "--load-inputs", "inputs.json", "--backend", "cpu", "--save-tactics", "of_cpu.json")
        for path, backend in (("of_cpu.json", "cuda"), ("t.json", "cpu")):
            said = self.run("refused", "--load-tactics", path, "--backend", backend, fails=True)
            holds = "[tactics]" in said and "'cpu'" in said and "'cuda'" in said
            self.say(holds, f"{path} with --backend {backend} is refused")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=120, help="limit of one run of the program")
    options = parser.parse_args()
    if not options.program.exists():
        parser.error(f"{options.program}: no such file")
    options.program = options.program.resolve()
    failed = 0
    for number, model in enumerate(options.models):
        with tempfile.TemporaryDirectory() as folder:
            check = Check(options, model.resolve(), pathlib.Path(folder))
            try:
                check.check_replay()
                check.check_timing_cache()
                check.check_bad_algorithms("f" * 128, "engine 9999 knobs 2=1")
                if number == 0:  # These have little to do with the network.
                    check.check_bad_algorithms("xyz", "engine")
                    check.check_other_machines()
                    check.check_foreign_caches()
            except (RunFailed, subprocess.TimeoutExpired, OSError, ValueError, KeyError) as error:
                check.say(False, str(error))
            failed += check.failed
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
