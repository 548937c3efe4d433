"""The processes of a Ray cluster that run samples of a search: who has what to do, and what happens when one is lost."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict, deque
from typing import Any, Deque, Dict, List, Optional, Set, Tuple

from .errors import WorkerError

# Seconds: for a cluster to answer, and without any process to work with until the cluster counts as gone.
_ANSWER = 10.0
_PATIENCE = float(os.environ.get("ULPSCOPE_RAY_PATIENCE", "60"))
# Processes that one task may end (by taking all memory, say) before it is given up.
_ATTEMPTS = 4
# Tasks that a process has at a time: the next one is there when one is done.
_DEPTH = 2
# Bytes that a new cluster writes: logs and addresses.
_ROOM = 256 << 10
_CHUNK = 64 << 20
# Results that nobody asked for yet.
_KEPT_RESULTS, _KEPT_BYTES = 4096, 256 << 20

Item = Tuple[int, Any]  # sample, task

# Ends with the status 3 where no node of the cluster runs on this machine, for which ray.init would wait. Who is asked
# for a token is a cluster; whether it is let in, ray.init says.
_PROBE = """
import socket, sys
host, _, port = sys.argv[1].rpartition(":")
socket.create_connection((host.strip("[]"), int(port))).close()
from ray._private import services
from ray._raylet import GcsClient
try:
    nodes = GcsClient(address=sys.argv[1]).get_all_node_info()
except Exception as error:
    if type(error).__name__ != "AuthenticationError":
        raise
    sys.exit(0)
alive = {node.hex() for node, info in nodes.items() if info.state == 0}
if hasattr(services, "find_node_ids") and alive.isdisjoint(services.find_node_ids()):
    sys.exit(3)
"""


def _ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        if getattr(error, "name", None) not in ("ray", None):
            raise
        raise WorkerError("not_found", "[ray] --ray needs the Python package ray, which is not installed: pip install 'ulpscope[ray]'") from None
    return ray


def _resolve(address: str) -> Optional[str]:
    """HOST:PORT of the cluster, which answers; None for a new one on this machine."""
    if address == "local":
        return None
    where = address
    if address == "auto":
        from ray._private import services  # what ray.init does with it, which does not end when the cluster is dead

        try:
            where = services.canonicalize_bootstrap_address("auto") or ""
        except ConnectionError:
            where = ""
        if not where:
            raise WorkerError("invalid_argument", "[ray] auto: expected a cluster that this machine belongs to, found none; try `ray start --head` here, HOST:PORT, or local")
    host, _, port = where.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise WorkerError("invalid_argument", f"[ray] address: expected auto, local or HOST:PORT, got '{address}'")
    _check_health(where, f"'{address}'" if address == where else f"'{address}' ({where})")
    return where


def _check_health(where: str, place: str) -> None:
    """In a process that can be ended: names may take long to resolve, and Ray's library waits for what is not Ray."""
    process = subprocess.Popen([sys.executable, "-c", _PROBE, where], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        _, errors = process.communicate(timeout=_ANSWER)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise WorkerError("invalid_argument", f"[ray] {place}: expected a Ray cluster that answers within {_ANSWER:g} s, got nothing; is it running (`ray status`), and is this the port of its head (6379)?") from None
    if process.returncode == 3:
        raise WorkerError("invalid_argument", f"[ray] {place}: expected a cluster that this machine belongs to, found none of its nodes here; try `ray start --address={where}` on this machine first")
    if process.returncode != 0:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise WorkerError("invalid_argument", f"[ray] {place}: expected a Ray cluster that answers within {_ANSWER:g} s, got: {lines[-1] if lines else 'no answer'}; is it running (`ray status`), and is this the port of its head (6379)?")


def _check_room() -> None:
    """For the files of a new cluster. Where there is none, Ray waits for half a minute and names one of them."""
    variable = next((name for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "")
    folder = existing = os.path.abspath(os.environ.get(variable, "/tmp"))
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        raise WorkerError("io", f"[ray] local: expected room for the files of Ray in '{folder}'{f' ({variable})' if variable else ''}, got: {error.strerror}; try RAY_TMPDIR=FOLDER with another folder") from None


def _make_actor_class() -> Any:
    """Made here, so that it travels by value: nodes need the package ulpscope, not this module of the same version."""

    class SampleWorker:
        """In a process of the cluster."""

        def hello(self) -> Dict[str, Any]:
            about = {"host": socket.gethostname(), "pid": os.getpid(), "version": None, "processor": "", "why": ""}
            try:
                from ulpscope.native import _core

                about["version"], about["processor"] = _core.process_identity()
            except Exception as error:
                about["why"] = str(error)
            return about

        def sees(self, path: str, size: int) -> bool:
            try:
                return os.path.getsize(path) == size
            except OSError:
                return False

        def load(self, path: str, key: str, chunks: Any, setup: Any, threads: int) -> bool:
            import ray
            from ulpscope.native import _core

            self.made = None
            if chunks:
                # Once per node, whoever is first.
                folder = os.path.join(tempfile.gettempdir(), f"ulpscope-node-{key}")
                os.makedirs(folder, mode=0o700, exist_ok=True)
                self.made = path = os.path.join(folder, "network.plan")
                with open(path + ".lock", "w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if not os.path.exists(path):
                        with open(path + ".part", "wb") as file:
                            for chunk in chunks:
                                file.write(ray.get(chunk))
                        os.replace(path + ".part", path)
            self.server = _core.SampleServer(path, setup, threads)
            return True

        def run(self, task: Any) -> Any:
            return self.server.run(task)

        def tidy(self) -> None:
            if self.made is not None:
                shutil.rmtree(os.path.dirname(self.made), ignore_errors=True)

    return SampleWorker


class _Process:
    """One worker: what it is, and what it does."""

    def __init__(self, handle: Any, first: Any) -> None:
        self.handle = handle
        self.stage = "hello"  # then "sees", "load", "ready"
        self.name = "a worker that did not start"
        self.pending: Dict[Any, Optional[bytes]] = {first: None}  # what it was asked for, and of which task


class Pool:
    """Tasks over processes. Equal tasks have equal results, so that any process may run any of them, and again."""

    def __init__(self, address: str, workers: int, gpus: bool, version: str, processor: str) -> None:
        self._ray = ray = _ray()
        where = _resolve(address)
        settings: Dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
        if where is None:
            settings.update(include_dashboard=False)
            _check_room()
        try:
            # By this name, Ray looks for the token of the cluster by itself.
            ray.init(address=address if address == "auto" else where or "local", **settings)
        except Exception as error:
            raise WorkerError("invalid_argument", f"[ray] '{address}': expected to join the cluster, got {type(error).__name__}: {error}") from None
        self._limit, self._gpus = workers, gpus
        self._identity = {"version": version, "processor": processor}
        self._actor = ray.remote(_make_actor_class())
        self._processes: List[_Process] = []
        self._notes: List[str] = []
        self._refused: List[str] = []
        self._lost = ""
        self._alone_since: Optional[float] = None
        self._chunks: List[Any] = []
        self._tasks: Dict[bytes, Item] = {}
        self._wanted: Dict[bytes, List[int]] = {}
        self._queue: Deque[bytes] = deque()
        self._later: Deque[bytes] = deque()
        self._results: "OrderedDict[bytes, Any]" = OrderedDict()
        self._done: List[Tuple[int, Any]] = []
        self._attempts: Dict[bytes, int] = {}
        self._home: Dict[int, _Process] = {}

    # -- processes

    def start(self, network: str, setup: Any, samples: int) -> None:
        self._network, self._size = network, os.path.getsize(network)
        self._key = hashlib.blake2b(os.urandom(16), digest_size=8).hexdigest()
        self._setup = self._ray.put(setup)
        self._cpus, count = self._shares(samples)
        for _ in range(count):
            self._add_process()

    def _shares(self, samples: int) -> Tuple[int, int]:
        """Cores per process, and how many processes: one per core and sample, and what is left shared out."""
        nodes = [int(node["Resources"].get("CPU", 0)) for node in self._ray.nodes() if node["Alive"]]
        wanted = min(self._limit or max(samples, 1), max(1, sum(nodes)))
        cpus = max(1, sum(nodes) // wanted)
        while cpus > 1 and sum(node // cpus for node in nodes) < wanted:
            cpus -= 1
        return cpus, wanted

    def _add_process(self) -> None:
        handle = self._actor.options(num_cpus=self._cpus, num_gpus=1 if self._gpus else 0, scheduling_strategy="SPREAD", max_restarts=0).remote()
        self._processes.append(_Process(handle, handle.hello.remote()))

    def _advance(self, process: _Process, digest: Optional[bytes], result: Any) -> None:
        """The next stage of its start, or the result of its task."""
        if process.stage == "hello":
            process.name = f"{result['host']} (process {result['pid']})"
            reason = self._why_refused(result)
            if reason:
                self._refused.append(f"{process.name}: {reason}")
                self._notes.append(f"[ray] worker {process.name} is refused: {reason}")
                self._end(process)
                return
            process.stage, process.pending = "sees", {process.handle.sees.remote(self._network, self._size): None}
        elif process.stage == "sees":
            chunks = [] if result else self._chunk_references()
            process.stage = "load"
            process.pending = {process.handle.load.remote(self._network, self._key, chunks, self._setup, self._cpus): None}
        elif process.stage == "load":
            process.stage = "ready"
        elif digest is not None:
            self._take(digest, result)

    def _why_refused(self, about: Dict[str, Any]) -> str:
        if about["version"] is None:
            return f"expected ulpscope {self._identity['version']}, got none there ({about['why']}); try pip install 'ulpscope[ray]=={self._identity['version']}' on that node"
        for what, advice in (("version", "try the same version on all nodes"), ("processor", "try nodes of the same kind: others give other bits")):
            if about[what] != self._identity[what]:
                return f"expected the {what} {self._identity[what]}, which the search itself has, got {about[what]}; {advice}"
        return ""

    def _chunk_references(self) -> List[Any]:
        if not self._chunks:
            with open(self._network, "rb") as file:
                while piece := file.read(_CHUNK):
                    self._chunks.append(self._ray.put(piece))
        return self._chunks

    def _end(self, process: _Process) -> None:
        self._processes.remove(process)
        self._home = {sample: home for sample, home in self._home.items() if home is not process}
        try:
            self._ray.kill(process.handle)
        except Exception:
            pass  # it has ended

    def _lose(self, process: _Process, error: BaseException) -> None:
        self._lost = f"{process.name}: {_first_line(error)}"
        self._end(process)
        for digest in process.pending.values():
            if digest is None:
                continue
            self._attempts[digest] = self._attempts.get(digest, 0) + 1
            if self._attempts[digest] >= _ATTEMPTS:
                raise WorkerError("script", f"[ray] sample {self._tasks[digest][0]} ended {_ATTEMPTS} workers, the last on {self._lost}; do they have enough memory? try fewer --ray-workers")
            (self._queue if digest in self._wanted else self._later).appendleft(digest)
        self._notes.append(f"[ray] worker {process.name} is lost ({_first_line(error)}); what it had to do runs again")
        self._add_process()

    # -- tasks

    def submit(self, items: List[Item]) -> None:
        self._wanted.clear()
        self._queue.clear()
        self._done.clear()
        running = self._running()
        for index, (sample, task) in enumerate(items):
            digest = _digest(task)
            if digest in self._results:
                self._done.append((index, self._results.pop(digest)))
                continue
            if digest not in self._wanted and digest not in running:
                self._tasks[digest] = (sample, task.copy())
                self._queue.append(digest)
            self._wanted.setdefault(digest, []).append(index)
        self._later = deque(digest for digest in self._later if digest not in self._wanted)
        self._assign()

    def expect(self, items: List[Item]) -> None:
        running = self._running()
        self._later.clear()
        for sample, task in items:
            digest = _digest(task)
            if digest not in self._results and digest not in running and digest not in self._wanted:
                self._tasks[digest] = (sample, task.copy())
                self._later.append(digest)
        self._assign()

    def _take(self, digest: bytes, result: Any) -> None:
        self._tasks.pop(digest, None)
        self._attempts.pop(digest, None)
        if digest in self._wanted:
            self._done += [(index, result) for index in self._wanted.pop(digest)]
            return
        self._results[digest] = result
        while len(self._results) > _KEPT_RESULTS or sum(each.nbytes for each in self._results.values()) > _KEPT_BYTES:
            self._results.popitem(last=False)

    def _assign(self) -> None:
        """What is asked for first; each sample, if it can be, where its activations are."""
        running = self._running()
        ready = [process for process in self._processes if process.stage == "ready"]
        for depth in range(_DEPTH):
            for strangers in (False, True):
                for process in ready:
                    if len(process.pending) == depth:
                        self._give(process, self._queue, strangers, running)
        if len(ready) > 1:  # one by itself would only be late for what is asked for next
            for process in ready:
                if not process.pending:
                    self._give(process, self._later, True, running)
        if len(self._tasks) > 2 * _KEPT_RESULTS:
            needed = {*self._queue, *self._later, *running}
            self._tasks = {digest: task for digest, task in self._tasks.items() if digest in needed}

    def _running(self) -> Set[Optional[bytes]]:
        return {digest for process in self._processes for digest in process.pending.values()}

    def _give(self, process: _Process, tasks: Deque[bytes], strangers: bool, running: Set[Optional[bytes]]) -> None:
        for digest in tasks:
            sample, task = self._tasks[digest]
            home = self._home.get(sample)
            if digest in running or not (home is process or home is None or strangers):
                continue
            tasks.remove(digest)
            running.add(digest)
            self._home[sample] = process
            process.pending[process.handle.run.remote(task)] = digest
            return

    def poll(self, limit: float) -> Dict[str, Any]:
        """What has been done, waiting for something for so many seconds."""
        ray = self._ray
        pending = {reference: process for process in self._processes for reference in process.pending}
        if not self._done:
            if pending:
                ready, _ = ray.wait(list(pending), num_returns=1, timeout=limit, fetch_local=True)
                if ready and len(pending) > 1:
                    ready, _ = ray.wait(list(pending), num_returns=len(pending), timeout=0, fetch_local=True)
                for reference in ready:
                    if pending[reference] in self._processes:  # not lost with the one before
                        self._finish(pending[reference], reference)
            else:
                time.sleep(limit)
        self._assign()
        done, self._done = self._done, []
        notes, self._notes = self._notes, []
        ready_count = sum(process.stage == "ready" for process in self._processes)
        return {"done": [list(each) for each in done], "notes": notes, "ready": ready_count, "gone": self._gone()}

    def _finish(self, process: _Process, reference: Any) -> None:
        exceptions = self._ray.exceptions
        try:
            result = self._ray.get(reference)
        except exceptions.RayTaskError as error:
            cause = error.cause if getattr(error, "cause", None) is not None else error
            if isinstance(cause, exceptions.RayError):
                return self._lose(process, cause)
            digest = process.pending[reference]
            what = f"sample {self._tasks[digest][0]}" if digest in self._tasks else "its start"
            raise WorkerError("script", f"[ray] worker {process.name}, {what}: {type(cause).__name__}: {_first_line(cause)}") from None
        except exceptions.RayError as error:
            return self._lose(process, error)
        self._advance(process, process.pending.pop(reference), result)

    def _gone(self) -> Optional[str]:
        """Why there is nobody left to work; None while there is, or may be soon."""
        if any(process.stage != "hello" for process in self._processes):
            self._alone_since = None
            return None
        refused = "; ".join(self._refused[:4])
        if not self._processes:
            return f"every worker of the Ray cluster was refused: {refused}"
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since < _PATIENCE:
            return None
        why = "; ".join(each for each in (f"lost: {self._lost}" if self._lost else "", f"refused: {refused}" if refused else "") if each)
        return f"no worker of the Ray cluster is left, and none came within {_PATIENCE:g} s ({why or 'it has no free core'})"

    def close(self) -> None:
        ray = self._ray
        try:
            if self._chunks:
                idle = [process.handle.tidy.remote() for process in self._processes if process.stage == "ready"]
                ray.wait(idle, num_returns=len(idle), timeout=5) if idle else None
            for process in list(self._processes):
                self._end(process)
        finally:
            ray.shutdown()


def _digest(task: Any) -> bytes:
    return hashlib.blake2b(task, digest_size=16).digest()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


_pool: Optional[Pool] = None


def _opened() -> Pool:
    if _pool is None:
        raise WorkerError("script", "[ray] expected an open cluster")
    return _pool


def ray_open(server: Any, address: str, workers: int, gpus: bool, version: str, processor: str) -> None:
    """Joins the cluster."""
    global _pool
    _pool = Pool(address, workers, gpus, version, processor)


def ray_start(server: Any, network: str, setup: Any, samples: int) -> None:
    """Starts the processes, which all get these."""
    _opened().start(network, setup.copy(), samples)


def ray_submit(server: Any, items: List[Item]) -> None:
    """Tasks whose results ray_poll gives; those of an earlier call are forgotten."""
    _opened().submit(items)


def ray_expect(server: Any, items: List[Item]) -> None:
    """Tasks that may be submitted soon."""
    _opened().expect(items)


def ray_poll(server: Any) -> Dict[str, Any]:
    """Results, and what is to be told."""
    return _opened().poll(0.05)


def ray_close(server: Any) -> None:
    """Ends the processes and leaves the cluster."""
    global _pool
    pool, _pool = _pool, None
    if pool is not None:
        pool.close()
