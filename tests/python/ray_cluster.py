"""A small Ray cluster on this machine, in processes that end with this one: for the tests of `--ray`, and bench/ray.py.

python ray_cluster.py CORES [NODES]: prints the address, and ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

_MEMORY = 80 << 20  # the least that Ray takes is 75 MiB


def descendants(pid: int) -> list[int]:
    """All processes that this one started, and those that they did."""
    children: dict[int, list[int]] = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found, left = [], [pid]
    while left:
        left += (more := children.get(left.pop(), []))
        found += more
    return found


def title(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


class Cluster:
    """Of one node with so many cores. `environment` is that of its processes."""

    def __init__(self, cores: int, environment: dict[str, str] | None = None) -> None:
        # Its sockets must have short names.
        self._folder = tempfile.TemporaryDirectory(prefix="ulpray", dir="/tmp", ignore_cleanup_errors=True)
        self.environment = {**os.environ, "HOME": self._folder.name, "RAY_AUTH_MODE": "token", **(environment or {})}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(cores), self._folder.name], env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("no cluster: " + self._process.communicate()[1][-2000:])
        self.address = json.loads(line)["address"]

    def workers(self) -> list[int]:
        """The processes that run samples."""
        return sorted(pid for pid in descendants(self._process.pid) if title(pid).startswith("ray::SampleWorker"))

    def end_node(self) -> None:
        """The head stays, and has no node."""
        for pid in descendants(self._process.pid):
            if pathlib.Path(title(pid).split(" ")[0]).name == "raylet":
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda pid=pid: not title(pid))

    def end(self, kill: bool = False) -> None:
        """`kill`: all of it at once, as a machine ends that loses its power."""
        started = descendants(self._process.pid)
        if kill:
            self._process.kill()
        else:
            self._process.stdin.close()
        try:
            self._process.wait(300)
        finally:
            for pid in started:
                # Of a number that belongs to somebody else by now, nothing is Ray's.
                if "ray" in title(pid):
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            # What they still write would keep the folder.
            end = time.monotonic() + 300
            while any("ray" in title(pid) for pid in started) and time.monotonic() < end:
                time.sleep(0.05)
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                stream.close()
            self._folder.cleanup()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def wait_for(condition, seconds: float = 600):
    """What `condition` gives as soon as it gives something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := condition():
            return result
        time.sleep(0.05)
    raise TimeoutError(condition)


def main() -> None:
    import ray

    context = ray.init(
        address="local", num_cpus=int(sys.argv[1]), include_dashboard=False, object_store_memory=_MEMORY,
        log_to_driver=False, _temp_dir=sys.argv[2], _node_ip_address="127.0.0.1",
    )  # fmt: skip
    print(json.dumps({"address": context.address_info["gcs_address"]}), flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
