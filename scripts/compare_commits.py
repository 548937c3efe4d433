#!/usr/bin/env python3
"""Builds two commits side by side and says where they compute other bits, or how their times differ.

    python scripts/compare_commits.py BASE             against HEAD
    python scripts/compare_commits.py BASE OTHER --quick
    python scripts/compare_commits.py BASE OTHER --times 7

Both get the same networks, those of the tests of this working tree (scripts/bits_inputs.py), and scripts/record_bits.py
of this working tree records what they compute, on every instruction set that the processor has. Prints each difference
by name, and their number; exits 1 if there are any. With --times, the two take turns so many times, and the medians are
printed with their ratio; nothing is compared then.

Commits are built in build/compare, in working trees of git that share this one's .venv. Instead of a commit, the folder
of a build can be named: build/release is the working tree as it was built last.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
PLACE = ROOT / "build" / "compare"
TARGETS = ("ulpscope", "ulpscope_python")
SHOWN = 200  #: Differences that are printed.

Record = Mapping[str, str]  #: Digests by what they are of.


def build(commit: str) -> pathlib.Path:
    """The build folder of a commit, which is made where it is not there yet; or the folder that is named instead."""
    if (pathlib.Path(commit) / "bin" / "ulpscope").exists():
        return pathlib.Path(commit).resolve()
    name = _output("git", "rev-parse", "--verify", "--short=12", f"{commit}^{{commit}}")
    tree = PLACE / name
    if not tree.exists():
        _log(f"making {tree.relative_to(ROOT)}")
        _output("git", "worktree", "prune")
        _output("git", "worktree", "add", "--detach", str(tree), name)
    if not (tree / ".venv").exists():
        (tree / ".venv").symlink_to(ROOT / ".venv")
    folder = tree / "build" / "release"
    _log(f"building {folder.relative_to(ROOT)} ({commit})")
    if not (folder / "build.ninja").exists():
        _output("cmake", "--preset", "release", "-DULPSCOPE_BUILD_TESTS=OFF", cwd=tree)
    _output("ninja", "-C", str(folder), *TARGETS)
    return folder


def _output(*command: str, cwd: pathlib.Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"[compare] {' '.join(command)}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout.strip()


def _log(text: str) -> None:
    print(f"[compare] {text}", file=sys.stderr, flush=True)


def instruction_sets(quick: bool) -> dict[str, dict[str, str]]:
    """Variables by the name of the set; "all" is what the processor has."""
    sys.path.insert(0, str(ROOT / "tests"))
    import instruction_sets as sets

    names = () if quick else [str(each.values[0]) for each in sets.parameters() if not each.marks]
    return {name: sets.settings(name) for name in ("all", *names)}


def _recorder(folder: pathlib.Path, settings: Mapping[str, str], *arguments: object) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **settings, "PYTHONPATH": str(folder / "python")}
    return subprocess.Popen([sys.executable, str(SCRIPTS / "record_bits.py"), *map(str, arguments)], env=environment)


def _wait(*processes: subprocess.Popen[bytes]) -> None:
    if any([process.wait() for process in processes]):
        sys.exit("[compare] a recorder failed; its words are above")


def differences(base: Record, other: Record) -> list[str]:
    """A line for each name whose digests differ, or that only one record has."""
    lines = []
    for name in sorted(base.keys() | other.keys()):
        a, b = base.get(name, "not recorded"), other.get(name, "not recorded")
        if a != b:
            lines.append(f"{name}: {a} -> {b}")
    return lines


def compare(records: Mapping[str, tuple[Record, Record]]) -> int:
    """Prints how two records differ on each instruction set; the exit code."""
    found, total = [], 0
    for name, (base, other) in records.items():
        total += len(base)
        found += [f"{line} ({name})" for line in differences(base, other)]
    for line in found[:SHOWN]:
        print(line)
    if len(found) > SHOWN:
        print(f"... and {len(found) - SHOWN} more")
    print(f"{len(found)} of {total} results differ (instruction sets: {', '.join(records)})")
    return 1 if found else 0


def _recorded(builds: list[pathlib.Path], inputs: pathlib.Path, quick: bool) -> dict[str, tuple[Record, Record]]:
    """Both at a time, each on one thread."""
    words = ["--quick"] if quick else []
    result = {}
    for name, settings in instruction_sets(quick).items():
        _log(f"recording, instruction set {name}")
        places = [inputs.with_name(f"{side}-{name}.json") for side in ("base", "other")]
        _wait(*(_recorder(folder, settings, inputs, place, *words) for folder, place in zip(builds, places)))
        base, other = (json.loads(place.read_text()) for place in places)
        result[name] = (base, other)
    return result


def _starts(folder: pathlib.Path) -> dict[str, float]:
    """Seconds until the program, and until Python with the package, is there and has ended."""
    environment = {**os.environ, "PYTHONPATH": str(folder / "python")}
    commands = {
        "start of the program": [str(folder / "bin" / "ulpscope"), "--version"],
        "import of the package": [sys.executable, "-c", "import ulpscope; ulpscope.Engine"],
    }
    result = {}
    for name, command in commands.items():
        start = time.perf_counter()
        subprocess.run(command, env=environment, check=True, capture_output=True)
        result[name] = time.perf_counter() - start
    return result


def print_times(builds: list[pathlib.Path], inputs: pathlib.Path, rounds: int) -> None:
    """Measures in turns: base, other, base, other."""
    measured: list[list[dict[str, float]]] = [[], []]
    for number in range(rounds):
        _log(f"measuring, round {number + 1} of {rounds}")
        for side, folder in enumerate(builds):
            place = inputs.with_name("times.json")
            _wait(_recorder(folder, {}, inputs, place, "--times"))
            measured[side].append({**json.loads(place.read_text()), **_starts(folder)})
    print(f"{'median of ' + str(rounds):40} {'base ms':>10} {'other ms':>10} {'other / base':>13}")
    for name in measured[0][0]:
        base, other = (statistics.median(times[name] for times in side) * 1e3 for side in measured)
        print(f"{name:40} {base:10.3f} {other:10.3f} {other / base:13.3f}")


def main() -> int:
    """Builds, makes the inputs, and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", metavar="BASE", help="a commit, or the folder of a build")
    parser.add_argument("other", metavar="OTHER", nargs="?", default="HEAD", help="another one")
    parser.add_argument("--quick", action="store_true", help="fewer networks, in fewer ways, on one instruction set")
    parser.add_argument("--times", type=int, default=0, metavar="N", help="measure in N rounds instead")
    options = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    builds = [build(options.base), build(options.other)]
    inputs = PLACE / "inputs.pickle"
    words = ["--quick"] if options.quick else []
    subprocess.run([sys.executable, str(SCRIPTS / "bits_inputs.py"), str(inputs), *words], check=True)
    if options.times:
        print_times(builds, inputs, options.times)
        return 0
    return compare(_recorded(builds, inputs, options.quick))


if __name__ == "__main__":
    sys.exit(main())
