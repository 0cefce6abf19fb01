"""What a daemon can be asked. Written by make_types.py from _averbs.py."""
from typing import Any, Dict, List, Optional, Sequence, cast

from . import types as t
from ._wire import SWITCH_S, Network, Request, Work, given, path
from .errors import Refused


class Verbs:
    """Every verb raises Unreachable, Denied, TimedOut, ConnectionLost, Unexpected or Refused, whose `code` is stable.

    `timeout_s` limits the whole exchange, in seconds; the default is the client's. A workload may be a model alone.
    A model is a name, the fields of a config.json, the answer of `inspect_model`, an open file, or a path: text such as `"./x.gguf"`, or a
    path object. The client sends the first bytes of a file, or the config.json of a directory. The daemon opens
    a model given as `{"path": "..."}` itself, with its own rights.
    """

    def _ask(self, request: Request, timeout_s: Optional[float]) -> Any:
        raise NotImplementedError

    def _inspected(self, file: Any, timeout_s: Optional[float]) -> Any:
        raise NotImplementedError

    def _get(self, route: str, timeout_s: Optional[float]) -> Any:
        return self._ask(Request("GET", route), timeout_s)

    def request(
        self,
        method: str,
        route: str,
        body: Optional[Dict[str, Any]] = None,
        *,
        socket: str = "query",
        timeout_s: Optional[float] = None,
    ) -> Any:
        """Any route of the OpenAPI document that answers JSON; `socket` is query or control. It is sent only once."""
        return self._ask(Request(method, route, body, socket, changes=True), timeout_s)

    # Questions

    def predict(
        self,
        workload: Work,
        *,
        engine: Optional[str] = None,
        hardware: Optional[str] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        observations: Optional[Sequence[t.ObservationRequest]] = None,
        hypothetical: Optional[bool] = None,
        timeout_s: Optional[float] = None,
    ) -> t.PredictAnswer:
        """How long one operation or model takes: seconds, tokens/s, watts and joules, each with its 90 % interval."""
        body = given(workload=workload, engine=engine, hardware=hardware, operating_point=operating_point,
                     observations=observations, hypothetical=hypothetical)
        return cast(t.PredictAnswer, self._ask(Request("POST", "/v1/predict", body), timeout_s))

    def recommend(
        self,
        workload: Work,
        *,
        engine: Optional[str] = None,
        objective: Optional[str] = None,
        constraints: Optional[t.Constraints] = None,
        freedom: Optional[t.Freedom] = None,
        hardware: Optional[str] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        optimism: Optional[str] = None,
        hypothetical: Optional[bool] = None,
        timeout_s: Optional[float] = None,
    ) -> t.RecommendAnswer:
        """Format, power mode and batch that meet the constraints. If none does, `feasible` is false and `closest` has the nearest candidate.

        `objective`: latency, throughput, energy or power.
        """
        body = given(workload=workload, engine=engine, objective=objective, constraints=constraints, freedom=freedom,
                     hardware=hardware, operating_point=operating_point, optimism=optimism, hypothetical=hypothetical)
        return cast(t.RecommendAnswer, self._ask(Request("POST", "/v1/recommend", body), timeout_s))

    def sweep(self, body: t.SweepRequest, *, timeout_s: Optional[float] = None) -> t.SweepAnswer:
        """Predictions for every combination of shapes or models, formats, modes, batches and contexts."""
        return cast(t.SweepAnswer, self._ask(Request("POST", "/v1/sweep", dict(body)), timeout_s))

    def analyze(
        self,
        workload: Work,
        *,
        time_s: Optional[float] = None,
        tokens_per_s: Optional[float] = None,
        engine: Optional[str] = None,
        hardware: Optional[str] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        timeout_s: Optional[float] = None,
    ) -> t.AnalyzeAnswer:
        """Analysis of a measured time or rate: FLOP/s, bytes/s, share of the ceiling, and the limit."""
        body = given(workload=workload, time_s=time_s, tokens_per_s=tokens_per_s, engine=engine, hardware=hardware,
                     operating_point=operating_point)
        return cast(t.AnalyzeAnswer, self._ask(Request("POST", "/v1/analyze", body), timeout_s))

    def explain(
        self,
        workload: Work,
        *,
        time_s: Optional[float] = None,
        tokens_per_s: Optional[float] = None,
        engine: Optional[str] = None,
        engine_version: Optional[str] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        seen: Optional[t.RunEvidence] = None,
        timeout_s: Optional[float] = None,
    ) -> t.ExplainAnswer:
        """Why a run is slower than predicted: causes with their share, evidence and remedy."""
        body = given(workload=workload, time_s=time_s, tokens_per_s=tokens_per_s, engine=engine,
                     engine_version=engine_version, operating_point=operating_point, seen=seen)
        return cast(t.ExplainAnswer, self._ask(Request("POST", "/v1/explain", body), timeout_s))

    def tiling(
        self,
        m: int,
        n: int,
        k: int,
        *,
        format: Optional[str] = None,
        hardware: Optional[str] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        limit: Optional[int] = None,
        timeout_s: Optional[float] = None,
    ) -> t.TilingAnswer:
        """Tiles of an m x n x k product on a GPU, best first."""
        body = given(m=m, n=n, k=k, format=format, hardware=hardware, operating_point=operating_point, limit=limit)
        return cast(t.TilingAnswer, self._ask(Request("POST", "/v1/tiling", body), timeout_s))

    def predict_network(
        self,
        network: Network,
        *,
        engine: Optional[str] = None,
        precision: Optional[str] = None,
        batch: Optional[int] = None,
        scope: Optional[str] = None,
        threads: Optional[int] = None,
        hardware: Optional[str] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        timeout_s: Optional[float] = None,
    ) -> t.NetworkPredictAnswer:
        """Latency of a vision network with its interval, layer by layer.

        `network`: the path of an .onnx file below a directory of `[models] dirs`, which the daemon opens, or
        `{"path": ..., "dimensions": {"batch": 1}, "size": [640, 640]}`.
        `scope`: engine, copies or frame.
        """
        body = given(network=network, engine=engine, precision=precision, batch=batch, scope=scope, threads=threads,
                     hardware=hardware, operating_point=operating_point)
        return cast(t.NetworkPredictAnswer, self._ask(Request("POST", "/v1/networks/predict", body), timeout_s))

    def recommend_network(
        self, body: t.NetworkRecommendRequest, *, timeout_s: Optional[float] = None
    ) -> t.NetworkRecommendAnswer:
        """Precision, batch and power mode of a vision network that meet the constraints, or come closest."""
        answer = self._ask(Request("POST", "/v1/networks/recommend", dict(body)), timeout_s)
        return cast(t.NetworkRecommendAnswer, answer)

    # The machine and the registries

    def board(self, *, timeout_s: Optional[float] = None) -> t.BoardAnswer:
        """Identity, accelerators, memory and modes, with the file behind each value."""
        return cast(t.BoardAnswer, self._get("/v1/board", timeout_s))

    def state(self, *, timeout_s: Optional[float] = None) -> Dict[str, Any]:
        """Clocks, temperatures, memory, rails, load and throttling now, each with its age in seconds."""
        return cast(Dict[str, Any], self._get("/v1/state", timeout_s))

    def roofline(
        self,
        *,
        mode: Optional[str] = None,
        precision: Optional[str] = None,
        hardware: Optional[str] = None,
        timeout_s: Optional[float] = None,
    ) -> t.RooflineAnswer:
        """Ceilings in bytes/s and FLOP/s with interval and provenance, and ridge points in FLOP/byte."""
        route = path("v1", "roofline", mode=mode, precision=precision, hardware=hardware)
        return cast(t.RooflineAnswer, self._get(route, timeout_s))

    def modes(self, *, timeout_s: Optional[float] = None) -> t.ModesAnswer:
        """Power modes with their caps, ceilings and watts."""
        return cast(t.ModesAnswer, self._get("/v1/modes", timeout_s))

    def hardware(self, *, timeout_s: Optional[float] = None) -> List[t.HardwareSummary]:
        """Every accelerator of the registry."""
        return cast(List[t.HardwareSummary], (self._get("/v1/hardware", timeout_s))["hardware"])

    def hardware_entry(self, key: str, *, timeout_s: Optional[float] = None) -> t.HardwareAnswer:
        """One accelerator of the registry, with the source of each figure."""
        return cast(t.HardwareAnswer, self._get(path("v1", "hardware", key), timeout_s))

    def models(self, *, timeout_s: Optional[float] = None) -> List[t.ModelEntry]:
        """Every model of the registry."""
        return cast(List[t.ModelEntry], (self._get("/v1/models", timeout_s))["models"])

    def model(
        self, key: str, *, format: Optional[str] = None, kv_format: Optional[str] = None, timeout_s: Optional[float] = None
    ) -> t.ModelAnswer:
        """Bytes, parameters and cache of one model of the registry."""
        return cast(t.ModelAnswer, self._get(path("v1", "models", key, format=format, kv_format=kv_format), timeout_s))

    def inspect_model(self, file: Any, *, timeout_s: Optional[float] = None) -> t.ModelAnswer:
        """Bytes, parameters and cache of the model in a file: a path or an open file. See /v1/models/inspect."""
        return cast(t.ModelAnswer, self._inspected(file, timeout_s))

    def formats(self, *, timeout_s: Optional[float] = None) -> List[t.FormatAnswer]:
        """Every storage format of weights, with its bits a weight."""
        return cast(List[t.FormatAnswer], (self._get("/v1/formats", timeout_s))["formats"])

    def calibration(self, *, timeout_s: Optional[float] = None) -> t.CalibrationAnswer:
        """The last calibration, and what the next one waits for."""
        return cast(t.CalibrationAnswer, self._get("/v1/calibration", timeout_s))

    def metrics(self, *, timeout_s: Optional[float] = None) -> str:
        """Metrics in the Prometheus text format."""
        return cast(str, self._ask(Request("GET", "/metrics", text=True), timeout_s))

    def openapi(self, *, timeout_s: Optional[float] = None) -> Dict[str, Any]:
        """The OpenAPI document of the running daemon."""
        return cast(Dict[str, Any], self._get("/v1/openapi.json", timeout_s))

    # Reports

    def observe(
        self,
        workload: Work,
        *,
        engine: Optional[str] = None,
        tokens_per_s: Optional[float] = None,
        time_s: Optional[float] = None,
        power_w: Optional[float] = None,
        operating_point: Optional[t.OperatingPointRequest] = None,
        timeout_s: Optional[float] = None,
    ) -> t.ObservationsAnswer:
        """Reports one measured rate or time, so that later predictions learn from it.

        An impossible report raises Refused too, with status 200.
        """
        body = given(workload=workload, engine=engine, tokens_per_s=tokens_per_s, time_s=time_s, power_w=power_w,
                     operating_point=operating_point)
        request = Request("POST", "/v1/observations", body, changes=True)
        answer = cast(t.ObservationsAnswer, self._ask(request, timeout_s))
        for refused in answer["refused"]:
            raise Refused(200, {**refused, "message": refused.get("reason")})
        return answer

    def observations(
        self,
        *,
        scope: Optional[str] = None,
        engine: Optional[str] = None,
        model: Optional[str] = None,
        op: Optional[str] = None,
        format: Optional[str] = None,
        timeout_s: Optional[float] = None,
    ) -> t.ObservationListAnswer:
        """Reports with their author, and whose predictions they affect."""
        route = path("v1", "observations", scope=scope, engine=engine, model=model, op=op, format=format)
        return cast(t.ObservationListAnswer, self._get(route, timeout_s))

    def servers(self, *, timeout_s: Optional[float] = None) -> List[t.ServerEntry]:
        """Servers that were reported in the last hour, each with what slows it down."""
        return cast(List[t.ServerEntry], (self._get("/v1/servers", timeout_s))["servers"])

    def forget(
        self,
        id: Optional[int] = None,
        *,
        scope: Optional[str] = None,
        engine: Optional[str] = None,
        model: Optional[str] = None,
        op: Optional[str] = None,
        format: Optional[str] = None,
        timeout_s: Optional[float] = None,
    ) -> int:
        """Forgets one report by its number, or all own reports that match the filters; returns how many."""
        if id is not None:
            route = path("v1", "observations", str(id))
        else:
            route = path("v1", "observations", scope=scope, engine=engine, model=model, op=op, format=format)
        socket = "control" if scope == "all" else "query"
        return int((self._ask(Request("DELETE", route, None, socket, changes=True), timeout_s))["forgotten"])

    # What changes the machine or makes it work: the control socket

    def calibrate(
        self, *, wait: bool = True, force: bool = False, plan: Optional[str] = None, timeout_s: float = 300.0
    ) -> t.CalibrateAnswer:
        """Measures the ceilings; with `wait`, returns when they are measured."""
        body = given(wait=wait, force=force, plan=plan)
        return cast(t.CalibrateAnswer, self._ask(Request("POST", "/v1/calibrate", body, "control", True), timeout_s))

    def measure(
        self,
        op: Optional[Dict[str, Any]] = None,
        *,
        formats: Optional[Sequence[str]] = None,
        workload: Optional[t.Workload] = None,
        power: Optional[bool] = None,
        timeout_s: float = SWITCH_S,
    ) -> t.MeasureAnswer:
        """Runs an operation, or the step of a model, now: measured and predicted times in seconds."""
        body = given(op=op, formats=formats, workload=workload, power=power)
        return cast(t.MeasureAnswer, self._ask(Request("POST", "/v1/measure", body, "control", True), timeout_s))

    def set_mode(
        self,
        mode: str,
        *,
        confirm_within_s: Optional[float] = None,
        dry_run: bool = False,
        reason: str = "",
        timeout_s: float = SWITCH_S,
    ) -> t.SwitchAnswer:
        """Enters a power mode; with `confirm_within_s` it is undone unless `confirm` comes in time."""
        body = given(mode=mode, confirm_within_s=confirm_within_s, dry_run=dry_run, reason=reason)
        return cast(t.SwitchAnswer, self._ask(Request("POST", "/v1/mode", body, "control", True), timeout_s))

    def confirm(self, id: int, *, timeout_s: Optional[float] = None) -> None:
        """Keeps a mode that waits to be confirmed."""
        self._ask(Request("POST", "/v1/mode/confirm", {"id": id}, "control", True), timeout_s)

    def revert(self, id: Optional[int] = None, *, timeout_s: float = SWITCH_S) -> t.SwitchAnswer:
        """Restores the previous mode."""
        return cast(t.SwitchAnswer, self._ask(Request("POST", "/v1/mode/revert", given(id=id), "control", True), timeout_s))

    def holds(self, *, timeout_s: Optional[float] = None) -> t.HoldsAnswer:
        """Active holds, the active mode, and why it is active."""
        return cast(t.HoldsAnswer, self._get("/v1/holds", timeout_s))

    def post_hold(
        self,
        ttl_s: float,
        *,
        constraints: Optional[t.HoldConstraints] = None,
        query: Optional[t.RecommendRequest] = None,
        app_id: str = "python",
        reason: str = "",
        timeout_s: float = SWITCH_S,
    ) -> t.HeldAnswer:
        """Starts a hold that lasts `ttl_s` seconds, even after this process ends. Most programs should use `hold`."""
        body = given(ttl_s=ttl_s, constraints=constraints or {}, query=query, app_id=app_id, reason=reason)
        return cast(t.HeldAnswer, self._ask(Request("POST", "/v1/holds", body, "control", True), timeout_s))

    def renew_hold(self, id: int, ttl_s: float, *, timeout_s: Optional[float] = None) -> t.HeldAnswer:
        """Makes a hold of `post_hold` end `ttl_s` seconds from now."""
        request = Request("PUT", path("v1", "holds", str(id)), {"ttl_s": ttl_s}, "control", True)
        return cast(t.HeldAnswer, self._ask(request, timeout_s))

    def release_hold(self, id: int, *, timeout_s: float = SWITCH_S) -> None:
        """Ends a hold."""
        self._ask(Request("DELETE", path("v1", "holds", str(id)), None, "control", True), timeout_s)
