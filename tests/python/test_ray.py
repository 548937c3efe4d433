"""Searches whose samples run on a Ray cluster: the answer and the journal of a local one, whoever is lost on the way."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ray_cluster import Cluster, wait_for
from small_models import masked_attention, same_but_for_time, save_inputs, uneven
from limits import HANGS

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'ulpscope[ray]'")

UNEVEN = ("m.onnx", "--fp16", "--load-inputs", "in.json", "--metric", "rel-l2", "--threshold", "0.002", "--objective",
          "smallest", "--fusion", "none")  # fmt: skip
MASKED = ("m.onnx", "--fp16", "--int8", "--load-inputs", "in.json", "--metric", "rel-l2", "--threshold", "0.05")


def deep(path: pathlib.Path, blocks: int = 6, n: int = 384, rows: int = 256, samples: int = 12) -> list:
    """Blocks of which some lose their digits in float16, and large enough that a search takes seconds."""
    random = np.random.default_rng(5)
    nodes, constants, value = [], [], "x"
    for b in range(blocks):
        constants.append(numpy_helper.from_array(random.normal(0, n**-0.5, (n, n)).astype(np.float32), f"w{b}"))
        constants.append(numpy_helper.from_array(np.full(1, 200.0 * (b % 3), np.float32), f"big{b}"))
        for op, inputs, name in (
            ("MatMul", [value, f"w{b}"], "m"), ("Add", [f"m{b}", f"big{b}"], "a"), ("Sub", [f"a{b}", f"big{b}"], "s"),
            ("Tanh", [f"s{b}"], "t"),
        ):  # fmt: skip
            nodes.append(helper.make_node(op, inputs, [f"{name}{b}"], f"{op}{b}"))
        value = f"t{b}"
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, n]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "deep", infos[:1], infos[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return [{"x": random.uniform(-1, 1, (rows, n)).astype(np.float32)} for _ in range(samples)]


@pytest.fixture(scope="module")
def package(build_dir: pathlib.Path) -> dict[str, str]:
    """In which the processes of a cluster find ulpscope."""
    return {"PYTHONPATH": os.pathsep.join([str(build_dir / "python"), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture(scope="module")
def cluster(package: dict[str, str]):
    with Cluster(3, package) as running:
        yield running


def search(program, folder, words, *more, environment=None, code=0) -> str:
    """The program's words. Files: a.json and a.jsonl."""
    done = subprocess.run(
        [str(program), "precision", "search", *words, "--save-answer", "a.json", "--journal", "a.jsonl", *map(str, more)],
        cwd=folder, env={**os.environ, "ULPSCOPE_PYTHON": sys.executable, **(environment or {})}, capture_output=True,
        text=True, timeout=HANGS,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def taken(folder: pathlib.Path) -> tuple[dict, list[dict]]:
    """Answer and journal of the latest search, without what differs from run to run: seconds; the files go."""
    answer = same_but_for_time((folder / "a.json").read_text())
    journal = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    for trial in journal[1:]:
        trial["cost"] = trial["cost"][:2]
    (folder / "a.json").unlink()
    (folder / "a.jsonl").unlink()
    return answer, journal


@needs_ray
@pytest.mark.parametrize("words, make", [(UNEVEN, uneven), (MASKED, lambda path: masked_attention(path, blocks=2))])
def test_the_answer_and_the_journal_are_those_of_a_local_search(program, folder, cluster, words, make):
    save_inputs(folder / "in.json", make(folder / "m.onnx"))
    search(program, folder, words)
    local = taken(folder)
    output = search(program, folder, words, "--ray", cluster.address, environment=cluster.environment)
    assert taken(folder) == local and "[ray]" not in output
    assert wait_for(lambda: not cluster.workers()) is True  # nothing stays behind


@needs_ray
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(program, folder, cluster):
    save_inputs(folder / "in.json", deep(folder / "m.onnx"))
    words = (*UNEVEN, "--shrink")
    search(program, folder, words)
    local = taken(folder)
    killed = []

    def kill_one():
        # Each has begun, and there is a trial: it is the middle of the search.
        wait_for(lambda: (folder / "a.jsonl").exists())
        pid = cluster.workers()[0]
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    thread = threading.Thread(target=kill_one)
    thread.start()
    try:
        output = search(program, folder, words, "--ray", cluster.address, environment=cluster.environment)
    finally:
        thread.join()
    assert killed and f"(process {killed[0]}) is lost" in output
    assert taken(folder) == local


@needs_ray
def test_nodes_that_do_not_see_the_file_fetch_it_once(program, folder, cluster):
    save_inputs(folder / "in.json", deep(folder / "m.onnx"))
    words = UNEVEN
    search(program, folder, words)
    local = taken(folder)
    # Where the search runs, the file looks larger than it is to the others: they cannot see this one.
    (folder / "shim").mkdir()
    (folder / "shim" / "sitecustomize.py").write_text(
        "import os\nreal = os.path.getsize\nos.path.getsize = lambda path: real(path) + str(path).endswith('network.plan')\n"
    )
    pattern = "ulpscope-node-*/network.plan*"
    seen = set()

    def watch():
        wait_for(lambda: seen.update(pathlib.Path("/tmp").glob(pattern)) or (folder / "a.jsonl").exists())

    watching = threading.Thread(target=watch)
    watching.start()
    environment = {**cluster.environment, "PYTHONPATH": str(folder / "shim"), "TMPDIR": "/tmp"}
    search(program, folder, words, "--ray", cluster.address, environment=environment)
    watching.join()
    assert taken(folder) == local
    fetched = [path for path in seen if path.name == "network.plan"]
    assert len(fetched) == 1 and wait_for(lambda: not fetched[0].exists())


@needs_ray
def test_another_processor_is_refused_by_name(program, folder, package):
    save_inputs(folder / "in.json", uneven(folder / "m.onnx"))
    with Cluster(1, {**package, "ULPSCOPE_ISA": "baseline"}) as other:
        environment = {name: value for name, value in other.environment.items() if name != "ULPSCOPE_ISA"}
        output = search(program, folder, UNEVEN, "--ray", other.address, environment=environment, code=1)
    assert f"worker {socket.gethostname()} (process" in output and "is refused: expected the processor" in output
    assert "ULPSCOPE_ISA=baseline" in output and "expected a worker, got none" in output
    assert not (folder / "a.json").exists()
    search(program, folder, UNEVEN)


@needs_ray
def test_another_version_is_refused_by_name():
    from ulpscope.worker.ray_cluster import Pool

    pool = Pool.__new__(Pool)
    pool._identity = {"version": "1.2.3", "processor": "p"}
    assert pool._why_refused({"version": "1.2.3", "processor": "p"}) == ""
    assert "expected the version 1.2.3, which the search itself has, got 1.2.4" in pool._why_refused(
        {"version": "1.2.4", "processor": "p"}
    )
    assert "pip install 'ulpscope[ray]==1.2.3'" in pool._why_refused({"version": None, "processor": "", "why": "no"})


@needs_ray
def test_a_cluster_that_shrinks_to_nothing_loses_nothing(program, folder, package):
    save_inputs(folder / "in.json", deep(folder / "m.onnx"))
    words = (*UNEVEN, "--shrink")
    search(program, folder, words)
    local = taken(folder)
    cluster = Cluster(2, package)
    killer = threading.Thread(
        target=lambda: (wait_for(lambda: (folder / "a.jsonl").exists()), cluster.end(kill=True)), daemon=True
    )
    killer.start()
    impatient = {"ULPSCOPE_RAY_PATIENCE": "3", "RAY_gcs_rpc_server_reconnect_timeout_s": "5"}
    impatient.update(cluster.environment)
    output = search(program, folder, words, "--ray", cluster.address, environment=impatient, code=1)
    killer.join()
    assert "Ray cluster" in output and ("is gone" in output or "is left" in output)
    (folder / "a.json").unlink()
    assert len((folder / "a.jsonl").read_text().splitlines()) >= 2
    search(program, folder, words, "--continue")
    assert taken(folder)[0] == local[0]


@needs_ray
def test_ctrl_c_ends_it_with_the_best_so_far(program, folder, cluster):
    save_inputs(folder / "in.json", deep(folder / "m.onnx"))
    words = (*UNEVEN, "--shrink")
    running = subprocess.Popen(
        [str(program), "precision", "search", *words, "--save-answer", "a.json", "--journal", "a.jsonl", "--ray", cluster.address],
        cwd=folder, env={**os.environ, "ULPSCOPE_PYTHON": sys.executable, **cluster.environment}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    wait_for(lambda: (folder / "a.jsonl").exists() and cluster.workers())
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=HANGS)
    assert running.returncode == 130, output
    assert json.loads((folder / "a.json").read_text())["verdict"] == "unverified"
    assert wait_for(lambda: not cluster.workers())


@needs_ray
def test_from_python_with_a_function_that_judges(folder, cluster, monkeypatch):
    import ulpscope

    for name in ("HOME", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, cluster.environment[name])
    save_inputs(folder / "in.json", uneven(folder / "m.onnx"))

    def largest(golden, candidate):
        return {name: float(np.abs(golden[name] - candidate[name]).max()) for name in golden}

    task = dict(metric=largest, threshold=0.01, objective="smallest", fusion="none")
    local = ulpscope.search("m.onnx", "in.json", **task)
    answer = ulpscope.search("m.onnx", "in.json", **task, ray=cluster.address, ray_workers=2)
    assert same_but_for_time(answer.to_json()) == same_but_for_time(local.to_json()) and answer.layers


TASK = """
import sys
import ray
import ulpscope

ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)
answer = ulpscope.Answer.load("a.json")

@ray.remote
def there(answer):
    return answer, answer.nodes_to_exclude

back, names = ray.get(there.remote(answer))
assert back is not answer and back == answer
print(*names)
"""


@needs_ray
def test_answers_go_to_tasks_and_come_back(folder, cluster):
    import ulpscope

    task = {"threshold": 0.002, "objective": "smallest", "fusion": "none"}
    ulpscope.search("m.onnx", uneven(folder / "m.onnx"), **task).save("a.json")
    done = subprocess.run(
        [sys.executable, "-c", TASK, cluster.address],
        env=cluster.environment,
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert done.returncode == 0 and done.stdout.split() == ["Raise", "Lower"], done.stderr


def refusal(program, folder, address, **more) -> str:
    save_inputs(folder / "in.json", uneven(folder / "m.onnx"))
    return search(program, folder, UNEVEN, "--ray", address, code=1, **more)


def test_without_ray_a_sentence_says_what_to_install(program, folder):
    shadow = folder / "shadow" / "ray"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("raise ModuleNotFoundError(\"No module named 'ray'\", name='ray')")
    output = refusal(program, folder, "local", environment={"PYTHONPATH": str(shadow.parent)})
    assert "--ray needs the Python package ray, which is not installed: pip install 'ulpscope[ray]'" in output


@needs_ray
def test_an_address_where_nothing_answers_is_named(program, folder):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    output = refusal(program, folder, f"127.0.0.1:{port}")
    assert f"'127.0.0.1:{port}': expected a Ray cluster that answers within 10 s, got: " in output


@needs_ray
@pytest.mark.parametrize("variable", ["RAY_TMPDIR", "TMPDIR"])
def test_a_new_cluster_without_room_for_its_files_is_refused_at_once(program, folder, variable):
    save_inputs(folder / "in.json", uneven(folder / "m.onnx"))
    full = folder / "full"
    full.mkdir()
    environment = {name: value for name, value in os.environ.items() if name not in ("RAY_TMPDIR", "TMPDIR")}
    done = subprocess.run(
        [str(program), "precision", "search", *UNEVEN, "--no-journal", "--ray", "local"], cwd=folder, capture_output=True, text=True,
        env={**environment, "ULPSCOPE_PYTHON": sys.executable, variable: str(full)}, timeout=HANGS,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10)),
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"[ray] local: expected room for the files of Ray in '{full}' ({variable}), got: File too large" in done.stderr
    assert not list(full.glob("ray*")), "Ray was not asked"


@needs_ray
def test_an_address_that_is_not_of_ray_is_named(program, folder):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        output = refusal(program, folder, f"127.0.0.1:{port}")
    assert f"'127.0.0.1:{port}': expected a Ray cluster" in output


@needs_ray
def test_a_cluster_that_this_machine_is_no_part_of_is_named(program, folder, package):
    with Cluster(1, package) as other:
        other.end_node()
        output = refusal(program, folder, other.address, environment=other.environment)
    assert f"'{other.address}': expected a cluster that this machine belongs to, found none of its nodes here" in output
    assert f"ray start --address={other.address}" in output


@needs_ray
@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001", "127.0.0.1:port", ":6379", "h:0", "h:65536"])
def test_what_is_no_address_is_refused(program, folder, address):
    assert "expected auto, local or HOST:PORT" in refusal(program, folder, address)
