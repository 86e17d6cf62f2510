"""Answer programs of opendp_sim on a lomas server, from lomas' own budgets.

Imported in lomas' environment; opendp_sim runs in a worker process of its own (`charged.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from charged import RefusedError, charged_release, price
from fastapi import FastAPI, Header, Request
from lomas_core.constants import DPLibraries
from lomas_core.error_handler import (
    ExternalLibraryException,
    InvalidQueryException,
    UnauthorizedAccessException,
)
from lomas_core.models.collections import Metadata
from lomas_core.models.requests import OpenDPQueryModel
from lomas_core.models.responses import CostResponse
from lomas_server.data_connector.factory import data_connector_factory
from lomas_server.dp_queries.dp_querier import DPQuerier

ANALYST = {"measure", "budget", "steps", "release", "ask"}
"""Fields of a program that an analyst writes; the owner's metadata has the others."""


UserName = Annotated[str, Header()]


class SimAnswer(CostResponse):
    """The answers of a program, and their cost."""

    requested_by: str
    result: dict[str, Any]


def _free(epsilon: float, delta: float) -> None:
    """Charge nothing, as dummy data costs nothing."""
    del epsilon, delta


def columns_of(metadata: Metadata) -> dict[str, Any]:
    """Return the columns that have public bounds or keys."""
    found: dict[str, Any] = {}
    for name, column in metadata.columns.items():
        kind = {"float": "float64", "int": "int64"}.get(str(column.type))
        if getattr(column, "categories", None):
            found[name] = {"dtype": "category", "keys": list(column.categories)}
        elif kind is not None and getattr(column, "upper", None) is not None:
            found[name] = {"dtype": kind, "bounds": [column.lower, column.upper]}
    return found


class SimQuerier(DPQuerier):
    """Price a program in a worker, charge lomas' budget, then release."""

    def __init__(self, command: Sequence[str], data_connector: Any, admin_database: Any) -> None:
        super().__init__(data_connector, admin_database)
        self.command = command

    def program_of(self, query_json: OpenDPQueryModel) -> dict[str, Any]:
        """Return the program: the analyst's steps on the owner's columns."""
        try:
            given = json.loads(query_json.opendp_json)
            strange = set(given) ^ ANALYST
        except (ValueError, TypeError):
            strange = {"not a JSON object"}
        if strange:
            raise InvalidQueryException(f"a program has the fields {', '.join(sorted(ANALYST))}")
        metadata = self.data_connector.get_metadata()
        return {**given, "columns": columns_of(metadata), "contributions": int(metadata.max_ids)}

    def cost(self, query_json: OpenDPQueryModel) -> tuple[float, float]:
        """Return (epsilon, delta); the data is not opened."""
        try:
            return price(self.command, self.program_of(query_json))
        except RefusedError as error:
            raise InvalidQueryException(str(error)) from None

    def query(self, query_json: OpenDPQueryModel) -> dict[str, Any]:
        """Release without a charge: for lomas' dummy data only."""
        return self._released(query_json, _free)

    def handle_query(self, query_json: OpenDPQueryModel, user_name: str) -> SimAnswer:
        """Charge, then release; lomas' own order is the reverse."""
        admin, name = self.admin_database, query_json.dataset_name
        if not admin.get_and_set_may_user_query(user_name, False):
            raise UnauthorizedAccessException(f"User {user_name} has another query under way.")
        cost = []

        def charge(epsilon: float, delta: float) -> None:
            left = admin.get_remaining_budget(user_name, name)
            if epsilon > left[0] or delta > left[1]:
                raise InvalidQueryException("Not enough budget for this query.")
            admin.update_budget(user_name, name, epsilon, delta)
            cost.extend((epsilon, delta))

        try:
            result = self._released(query_json, charge)
            answer = SimAnswer(
                requested_by=user_name, result=result, epsilon=cost[0], delta=cost[1]
            )
            admin.save_query(user_name, query_json, answer)
        finally:
            admin.set_may_user_query(user_name, True)
        return answer

    def _released(self, query_json: OpenDPQueryModel, charge: Any) -> dict[str, Any]:
        program = self.program_of(query_json)
        try:
            return charged_release(self.command, program, charge, lambda: self._rows(program))
        except RefusedError as error:
            raise ExternalLibraryException(DPLibraries.OPENDP, f"opendp_sim: {error}") from None

    def _rows(self, program: Mapping[str, Any]) -> dict[str, list[Any]]:
        frame = self.data_connector.get_pandas_df()
        return {name: frame[name].tolist() for name in program["columns"]}


def add_routes(app: FastAPI, command: Sequence[str]) -> None:
    """Add the two endpoints of opendp_sim to a lomas server."""

    def querier(request: Request, name: str) -> SimQuerier:
        state = request.app.state
        connector = data_connector_factory(name, state.admin_database, state.private_credentials)
        return SimQuerier(command, connector, state.admin_database)

    def ask(user_name: UserName, request: Request, query: OpenDPQueryModel) -> SimAnswer:
        return querier(request, query.dataset_name).handle_query(query, user_name)

    def estimate(user_name: UserName, request: Request, query: OpenDPQueryModel) -> CostResponse:
        if not request.app.state.admin_database.has_user_access_to_dataset(
            user_name, query.dataset_name
        ):
            raise UnauthorizedAccessException(f"{user_name} has no access to {query.dataset_name}.")
        epsilon, delta = querier(request, query.dataset_name).cost(query)
        return CostResponse(epsilon=epsilon, delta=delta)

    # the annotations are local names: a route takes them as they are, not as text
    for function in (ask, estimate):
        function.__annotations__ = {
            "user_name": UserName, "request": Request, "query": OpenDPQueryModel,
        }  # fmt: skip
    app.post("/opendp_sim_query", response_model=SimAnswer)(ask)
    app.post("/estimate_opendp_sim_cost", response_model=CostResponse)(estimate)
