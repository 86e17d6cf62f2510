"""Ask a lomas server for two quantiles of bill lengths; run by the Python of lomas' environment.

``python try_lomas.py FOLDER PYTHON``: an empty folder, and the Python of opendp_sim's environment.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

PROGRAM = {
    "measure": "pure",
    "budget": {"epsilon": 1.0},
    "steps": [
        {"select": {"features": "bill"}},
        {"quantize": {"bits": 8}},
        {"distance_tree": {"levels": 8}},
    ],
    "release": {"noise": "laplace", "scale": "solve", "spend": "100%"},
    "ask": {"quantiles": {"shares": [0.25, 0.5]}},
}


def lay_out(folder: Path) -> None:
    """Write a dataset, its metadata, an administration database and a configuration."""
    rows = "\n".join(f"{30 + i % 25}.0,kind{i % 2}" for i in range(600))
    (folder / "birds.csv").write_text(f"bill,kind\n{rows}\n")
    bill = {"type": "float", "precision": 64, "lower": 30.0, "upper": 65.0}
    metadata = {"max_ids": 2, "rows": 600, "row_privacy": True, "columns": {"bill": bill}}
    access = {"database_type": "PATH_DB", "path": str(folder / "birds.csv")}
    about = {"database_type": "PATH_DB", "path": str(folder / "birds.yaml")}
    budget = {"initial_epsilon": 2.5, "initial_delta": 0.01}
    spent = {"total_spent_epsilon": 0.0, "total_spent_delta": 0.0}
    files = {
        "birds.yaml": metadata,
        "admin.yaml": {
            "users": [
                {
                    "user_name": "ann",
                    "may_query": True,
                    "datasets_list": [{"dataset_name": "birds", **budget, **spent}],
                }
            ],
            "datasets": [
                {"dataset_name": "birds", "dataset_access": access, "metadata_access": about}
            ],
            "queries": [],
        },
        "config.yaml": {
            "runtime_args": {
                "settings": {
                    "develop_mode": False,
                    "server": {
                        "time_attack": {"method": "jitter", "magnitude": 0.0},
                        "host_ip": "127.0.0.1",
                        "host_port": 0,
                        "log_level": "warning",
                        "reload": False,
                        "workers": 1,
                    },
                    "submit_limit": 1.0,
                    "admin_database": {"db_type": "yaml", "db_file": str(folder / "admin.yaml")},
                    "dp_libraries": {
                        "opendp": {
                            "contrib": True, "floating_point": False, "honest_but_curious": False,
                        }
                    },
                }
            }
        },
        "secrets.yaml": {"private_db_credentials": []},
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))  # JSON is YAML


def main(folder: Path, python: str) -> dict[str, Any]:
    """Start the server, ask it, and return what it said and what it charged."""
    lay_out(folder)
    os.environ |= {
        "LOMAS_CONFIG_PATH": str(folder / "config.yaml"),
        "LOMAS_SECRETS_PATH": str(folder / "secrets.yaml"),
        "OTEL_SDK_DISABLED": "true",
    }
    from charged import WORKER  # noqa: PLC0415 - lomas reads its environment as it is imported
    from fastapi.testclient import TestClient  # noqa: PLC0415
    from lomas_querier import add_routes  # noqa: PLC0415
    from lomas_server.app import app  # noqa: PLC0415

    command = [python, str(WORKER)]
    add_routes(app, command)
    said: dict[str, Any] = {}
    with TestClient(app) as client:
        client.headers["user-name"] = "ann"

        def asked(path: str, program: Any, dataset: str = "birds") -> Any:
            body = {"dataset_name": dataset, "opendp_json": json.dumps(program), "fixed_delta": 0.0}
            return client.post(path, json=body)

        def spent() -> float:
            found = client.post("/get_total_spent_budget", json={"dataset_name": "birds"}).json()
            return float(found["total_spent_epsilon"])

        said["cost"] = asked("/estimate_opendp_sim_cost", PROGRAM).json()
        said["spent after the estimate"] = spent()
        said["answer"] = asked("/opendp_sim_query", PROGRAM).json()
        said["spent after the answer"] = spent()
        command[:] = [python, "-c", DIES, str(WORKER)]
        said["dead worker"] = asked("/opendp_sim_query", PROGRAM).status_code
        said["spent after a worker died"] = spent()
        command[:] = [python, str(WORKER)]
        said["no budget left"] = asked("/opendp_sim_query", PROGRAM).status_code
        said["a file"] = asked("/opendp_sim_query", PROGRAM | {"data": "x.csv"}).status_code
        said["spent at the end"] = spent()
        before = client.post("/get_previous_queries", json={"dataset_name": "birds"}).json()
        said["archived"] = len(before["previous_queries"])
    return said


DIES = """
import os, runpy, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import worker
worker.Worker.release = lambda self, asked: os._exit(9)
sys.argv = sys.argv[1:]
worker.main()
"""
"""A worker that ends when it is handed the rows."""

if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]).absolute(), sys.argv[2])))
