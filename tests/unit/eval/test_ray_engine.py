"""Ray: the rows of a cluster are those of this process, whoever dies on the way."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import toy_eval
from infinipot.errors import ConfigError, ModelError
from infinipot.eval import ray_engine
from infinipot.eval.evaluate import Evaluation, evaluate
from infinipot.eval.folder import read_rows
from infinipot.eval.ray_engine import RayWorkers
from toy_eval import GRID, Letters, told

TESTS = str(Path(__file__).parents[2])
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes on this machine, one CPU each; this process is a driver of the first."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0"}
    import ray
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    found = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    found.second = found.add_node(**size)
    ray.init(
        address=found.address,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([TESTS, *filter(None, sys.path)])}},
    )
    yield found
    ray.shutdown()
    found.shutdown()


def noting(seconds: float, folder: Path) -> Callable[[], Any]:
    """A toy model that takes its time, notes in a folder on which node it runs, and waits for two of them.

    A worker takes long to start on a busy machine: without the wait the other would do all examples alone.
    """
    folder.mkdir()

    def opened() -> Any:
        import ray

        engine, node = toy_eval.engine(), ray.get_runtime_context().get_node_id()
        forward, until = engine.model.forward, time.monotonic() + 90

        def waiting(tokens: Any, pot: Any) -> Any:
            (folder / node).touch()
            while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
                time.sleep(seconds)
            time.sleep(seconds)
            return forward(tokens, pot)

        engine.model.forward = waiting
        return engine

    return opened


@pytest.mark.ray
def test_a_node_killed_in_the_middle_costs_no_row(cluster: Any, tmp_path: Path) -> None:
    toy_eval.run(tmp_path / "here")
    workers = RayWorkers(noting(0.02, tmp_path / "nodes"))
    victim = cluster.second
    for _ in evaluate(Evaluation(Letters(), GRID, tmp_path / "ray"), workers):
        if victim and (tmp_path / "nodes" / victim.node_id).exists():
            cluster.remove_node(victim, allow_graceful=False)
            victim = None
    assert victim is None, "the second node never ran an example"
    rows = read_rows(tmp_path / "ray")
    assert len(rows) == 36
    assert told(rows) == told(read_rows(tmp_path / "here"))
    assert workers.deaths == 1  # only the example the node's worker was at is done again


@pytest.mark.ray
def test_an_example_that_kills_its_workers_is_given_up(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> Any:
        engine = toy_eval.engine()
        encode = engine.tokenizer.encode_stream

        def deadly(pieces: Any) -> Any:
            text = "".join(pieces)
            if len(text) == 270:
                os._exit(1)
            return encode([text])

        engine.tokenizer.encode_stream = deadly
        return engine

    monkeypatch.setattr(ray_engine, "TRIES", 2)
    wanted = Evaluation(Letters(count=4), toy_eval.Grid(("truncate",), (96,)), tmp_path)
    list(evaluate(wanted, RayWorkers(opened, workers=1)))
    wrong = {row["example"]: row.get("error") for row in read_rows(tmp_path)}
    assert wrong == {
        "letters-1": None,
        "letters-2": None,
        "letters-3": "its worker died 2 times, perhaps out of memory",
        "letters-4": None,
    }


def test_an_error_of_ours_comes_back_as_it_was() -> None:
    class WrappedError(ModelError):  # as Ray does: the worker's traceback in its text, the error beside it
        cause = ModelError("there is no such model")

    class Failing:
        def get(self, reference: Any) -> Any:
            raise WrappedError("Traceback: ...")

    with pytest.raises(ModelError, match=r"^there is no such model$"):
        ray_engine.result_of(Failing(), None)


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[ray\]'"):
        RayWorkers(toy_eval.engine)


class FakeRay:
    def __init__(self, *nodes: dict[str, float]) -> None:
        self.found = [{"Alive": True, "Resources": node} for node in nodes]

    def nodes(self) -> list[dict[str, Any]]:
        return self.found


def test_one_worker_a_card_or_else_one_a_node() -> None:
    def shares(*nodes: dict[str, float], workers: int | None = None) -> Any:
        return ray_engine.shares(FakeRay(*nodes), workers)

    assert shares({"CPU": 8, "GPU": 2}, {"CPU": 8, "GPU": 1}) == ({"num_gpus": 1}, 3)
    assert shares({"CPU": 8}, {"CPU": 4}) == ({"num_cpus": 4}, 2)
    assert shares({"CPU": 8}, workers=4) == ({"num_cpus": 2}, 4)
    with pytest.raises(ConfigError, match="neither GPUs nor CPUs"):
        shares({"memory": 1})
