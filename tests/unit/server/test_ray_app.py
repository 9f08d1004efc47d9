"""The app that a replica on Ray serves, made without Ray's processes: e2e/test_server_ray.py has those."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from infinipot.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


def variables(folder: Path, **more: str) -> dict[str, str]:
    (folder / "spool").mkdir()
    given = {"MODEL": "toy", "CAPACITY": "256", "STORE": str(folder / "pots"), "SPOOL": str(folder / "spool")}
    return {f"INFINIPOT_{name}": value for name, value in (given | more).items()}


def test_a_replica_is_the_app_of_the_variables(tmp_path: Path) -> None:
    from infinipot.server.ray_app import make_app

    app = make_app(variables(tmp_path, BUILD="toy_server:ray_build"))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/ready").status_code == 200  # Ray sends requests as soon as the app is up
        assert client.get("/v1/models").json()["data"][0]["id"] == "toy"


@pytest.mark.parametrize("address", ["nowhere", "nowhere:build", "toy_server:nothing", ""])
def test_a_build_that_is_none_is_one_line(address: str, tmp_path: Path) -> None:
    from infinipot.server.ray_app import make_app

    with pytest.raises(ConfigError, match="use MODULE:FUNCTION"):
        make_app(variables(tmp_path, BUILD=address))
