//! What a daemon can be asked, once for both clients.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::body::{Encoded, route, setters};
use crate::error::{Error, Refused, Result};
use crate::stream::SWITCH;
use crate::types::{ErrorBody, ObservationsAnswer};

const CALIBRATION: Duration = Duration::from_secs(300);

/// A question, and how its answer is read.
pub(crate) struct Call<A> {
    pub(crate) request: Encoded,
    /// The time limit, where it is not the client's.
    pub(crate) limit: Option<Duration>,
    pub(crate) read: fn(&[u8]) -> Result<A>,
}

impl<A> Call<A> {
    fn on_control(self) -> Self {
        Self { request: self.request.control(), ..self }
    }

    fn once(self) -> Self {
        Self { request: self.request.once(), ..self }
    }

    fn within(self, limit: Duration) -> Self {
        Self { limit: Some(limit), ..self }
    }

    fn reading<B>(self, read: fn(&[u8]) -> Result<B>) -> Call<B> {
        Call { request: self.request, limit: self.limit, read }
    }
}

fn json<A: DeserializeOwned>(body: &[u8]) -> Result<A> {
    serde_json::from_slice(body).map_err(|why| Error::unreadable("the answer is not understood", why))
}

/// The fields of an object that are what this client knows; a later daemon may have others beside them.
pub(crate) fn known<'de, D: Deserializer<'de>, A: DeserializeOwned>(
    from: D,
) -> std::result::Result<BTreeMap<String, A>, D::Error> {
    let all = BTreeMap::<String, Value>::deserialize(from)?;
    Ok(all
        .into_iter()
        .filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?)))
        .collect())
}

/// Any JSON; null where there is none, as in the answer to HEAD.
fn any(body: &[u8]) -> Result<Value> {
    if body.is_empty() { Ok(Value::Null) } else { json(body) }
}

fn text(body: &[u8]) -> Result<String> {
    String::from_utf8(body.to_owned()).map_err(|why| Error::unreadable("the answer is no text", why))
}

/// A list that stands in an object under the only key.
macro_rules! listed {
    ($key:literal) => {
        |body| {
            #[derive(serde::Deserialize)]
            struct Answer<A> {
                #[serde(rename = $key)]
                list: Vec<A>,
            }
            $crate::verbs::json::<Answer<_>>(body).map(|answer| answer.list)
        }
    };
}

fn forgotten(body: &[u8]) -> Result<u64> {
    json::<crate::types::ForgottenAnswer>(body).map(|answer| answer.forgotten)
}

/// A report that was not accepted is refused, with the reason.
fn observed(body: &[u8]) -> Result<ObservationsAnswer> {
    let answer: ObservationsAnswer = json(body)?;
    let Some(refused) = answer.refused.first() else { return Ok(answer) };
    let said = |key: &str| refused[key].as_str().map(str::to_owned);
    let body = ErrorBody {
        code: said("code").unwrap_or_else(|| "refused".into()),
        message: said("reason").unwrap_or_else(|| "the report was not accepted".into()),
        field: said("field"),
        hint: said("hint"),
    };
    Err(Error::Refused(Refused { status: 200, body }))
}

fn get<A: DeserializeOwned>(route: String) -> Result<Call<A>> {
    Ok(Call { request: Encoded::new("GET", route, None::<&Value>)?, limit: None, read: json })
}

fn with_body<A: DeserializeOwned>(method: &str, route: String, body: &impl Serialize) -> Result<Call<A>> {
    Ok(Call { request: Encoded::new(method, route, Some(body))?, limit: None, read: json })
}

fn post<A: DeserializeOwned>(route: &str, body: &impl Serialize) -> Result<Call<A>> {
    with_body("POST", route.into(), body)
}

/// What changes something, on the control socket.
fn command<A: DeserializeOwned>(route: &str, body: &impl Serialize) -> Result<Call<A>> {
    Ok(post(route, body)?.on_control().once())
}

fn delete<A: DeserializeOwned>(route: String) -> Result<Call<A>> {
    let request = Encoded::new("DELETE", route, None::<&Value>)?.once();
    Ok(Call { request, limit: None, read: json })
}

/// Which ceilings of a roofline are asked for; all of this machine, as it is now, by default.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct RooflineQuery {
    /// A power mode; that of now where it is absent.
    pub mode: Option<String>,
    /// One precision alone.
    pub precision: Option<String>,
    /// A key of the hardware registry; this machine where it is absent.
    pub hardware: Option<String>,
}

setters!(RooflineQuery { ; mode: into String, precision: into String, hardware: into String });

/// How a model of the registry is stored.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelQuery {
    /// The format of its weights.
    pub format: Option<String>,
    /// The format of its cache.
    pub kv_format: Option<String>,
}

setters!(ModelQuery { ; format: into String, kv_format: into String });

/// Which reports are meant; all own ones by default.
///
/// ```
/// use rooflined_client::Filter;
///
/// let filter = Filter::default().engine("llama.cpp").format("q4_k_m");
/// assert_eq!(filter.engine.as_deref(), Some("llama.cpp"));
/// ```
///
/// It may gain fields, so it is not written out, like the bodies of requests:
///
/// ```compile_fail,E0639
/// # use rooflined_client::Filter;
/// let filter = Filter { engine: Some("llama.cpp".into()), ..Filter::default() };
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Filter {
    /// `own` or `all`; to forget all takes the control socket.
    pub scope: Option<String>,
    /// The reports of one user.
    pub user: Option<String>,
    /// Of one inference engine.
    pub engine: Option<String>,
    /// Of one model.
    pub model: Option<String>,
    /// Of one kind of operation.
    pub op: Option<String>,
    /// Of one format.
    pub format: Option<String>,
}

setters!(Filter { ; scope: into String, user: into String, engine: into String, model: into String, op: into String, format: into String });

impl Filter {
    fn route(&self) -> String {
        let fields = [
            ("scope", &self.scope),
            ("user", &self.user),
            ("engine", &self.engine),
            ("model", &self.model),
            ("op", &self.op),
            ("format", &self.format),
        ];
        route(&["v1", "observations"], &fields.map(|(key, value)| (key, value.as_deref())))
    }
}

/// Calls `$then!` with every verb: `/// documentation` `name(arguments) -> answer = the call`.
macro_rules! every_verb {
    ($then:ident) => {
        $then! {
            /// How long one operation or model takes: seconds, tokens/s, watts and joules, each with its 90 % interval.
            predict(body: &impl Body<PredictRequest>) -> PredictAnswer = verbs::predict(body);
            /// Format, power mode and batch that meet the constraints; `feasible` is false, and `closest` told, where none does.
            recommend(body: &impl Body<RecommendRequest>) -> RecommendAnswer = verbs::recommend(body);
            /// Choices for several workloads that share the machine.
            recommend_joint(body: &impl Body<JointRequest>) -> JointAnswer = verbs::recommend_joint(body);
            /// Predictions for every combination of shapes or models, formats, modes, batches and contexts.
            sweep(body: &impl Body<SweepRequest>) -> SweepAnswer = verbs::sweep(body);
            /// What a measured time (or rate) comes to: FLOP/s, bytes/s, the part of the ceiling reached, what limits it.
            analyze(body: &impl Body<AnalyzeRequest>) -> AnalyzeAnswer = verbs::analyze(body);
            /// Tiles of an m x n x k product on a GPU, best first.
            tiling(body: &impl Body<TilingRequest>) -> TilingAnswer = verbs::tiling(body);
            /// Identity, accelerators, memory, modes, and which file each value comes from.
            board() -> BoardAnswer = verbs::board();
            /// Clocks, temperatures, memory, rails, load and throttling of this moment, each with its age in seconds.
            state() -> StateAnswer = verbs::state();
            /// Ceilings in bytes/s and FLOP/s with interval and provenance, and ridge points in FLOP/byte.
            roofline(query: &RooflineQuery) -> RooflineAnswer = verbs::roofline(query);
            /// Power modes with their caps, ceilings and watts.
            modes() -> ModesAnswer = verbs::modes();
            /// Every accelerator of the registry.
            hardware() -> Vec<HardwareSummary> = verbs::hardware();
            /// One accelerator of the registry, with the source of each figure.
            hardware_entry(key: &str) -> HardwareAnswer = verbs::hardware_entry(key);
            /// Every model of the registry.
            models() -> Vec<ModelEntry> = verbs::models();
            /// Bytes, parameters and cache of one model of the registry.
            model(key: &str, query: &ModelQuery) -> ModelAnswer = verbs::model(key, query);
            /// Every storage format of weights, with its bits a weight.
            formats() -> Vec<FormatAnswer> = verbs::formats();
            /// The record of the last calibration and what the next one waits for.
            calibration() -> CalibrationAnswer = verbs::calibration();
            /// Metrics in the Prometheus text format.
            metrics() -> String = verbs::metrics();
            /// The OpenAPI document of the running daemon.
            openapi() -> Value = verbs::openapi();
            /// Reports a measured rate or time, so that later predictions learn from it.
            ///
            /// Is [`Error::Refused`](crate::Error::Refused), with status 200, also where the report cannot be true. `doubted` of the
            /// first of `learnt` says that it is far off and waits for others that agree.
            observe(body: &impl Body<ObservationRequest>) -> ObservationsAnswer = verbs::observe(body);
            /// What was reported, by whom, and whose answers it moves.
            observations(filter: &Filter) -> ObservationListAnswer = verbs::observations(filter);
            /// Forgets one report by its number; how many there were.
            forget(id: u64) -> u64 = verbs::forget(id);
            /// Forgets all own reports that the filter takes, or everybody's with the scope `all`; how many there were.
            forget_all(filter: &Filter) -> u64 = verbs::forget_all(filter);
            /// Measures the ceilings; with `wait`, answers when that is done. Has 300 s by default.
            calibrate(body: &impl Body<CalibrateRequest>) -> CalibrateAnswer = verbs::calibrate(body);
            /// Runs an operation, or the step of a model, now: measured beside predicted times. Has 120 s by default.
            measure(body: &impl Body<MeasureRequest>) -> MeasureAnswer = verbs::measure(body);
            /// Enters a power mode; with `confirm_within_s` it is undone unless `confirm` comes in time. Has 120 s by default.
            set_mode(body: &impl Body<ModeRequest>) -> SwitchAnswer = verbs::set_mode(body);
            /// Keeps a mode that waits to be confirmed.
            confirm(id: u64) -> DoneAnswer = verbs::confirm(id);
            /// Goes back to the mode from before. Has 120 s by default.
            revert(id: Option<u64>) -> SwitchAnswer = verbs::revert(id);
            /// The holds in force, the mode in force, and why it is.
            holds() -> HoldsAnswer = verbs::holds();
            /// A hold that lasts `ttl_s` seconds whether or not this process lives; `hold` is what programs want. Has 120 s by
            /// default.
            post_hold(body: &impl Body<HoldRequest>) -> HeldAnswer = verbs::post_hold(body);
            /// Has a hold with an end of its own last `ttl_s` seconds from now.
            renew_hold(id: u64, ttl_s: f64) -> HeldAnswer = verbs::renew_hold(id, ttl_s);
            /// Ends a hold. Has 120 s by default.
            release_hold(id: u64) -> DoneAnswer = verbs::release_hold(id);
            /// Any route of the OpenAPI document that answers JSON; null where the answer has no body. Sent once only.
            request(method: &str, route: &str, body: Option<&Value>, socket: Socket) -> Value = verbs::request(method, route, body, socket);
        }
    };
}
pub(crate) use every_verb;

/// What stands behind the names above.
pub(crate) mod calls {
    use serde_json::Value;

    use super::{
        CALIBRATION, Call, Encoded, Filter, ModelQuery, Result, RooflineQuery, SWITCH, any, command, delete,
        forgotten, get, observed, post, route, text, with_body,
    };
    use crate::address::Socket;
    use crate::body::Body;
    use crate::types::*;

    pub(crate) fn predict(body: &impl Body<PredictRequest>) -> Result<Call<PredictAnswer>> {
        post("/v1/predict", body)
    }

    pub(crate) fn recommend(body: &impl Body<RecommendRequest>) -> Result<Call<RecommendAnswer>> {
        post("/v1/recommend", body)
    }

    pub(crate) fn recommend_joint(body: &impl Body<JointRequest>) -> Result<Call<JointAnswer>> {
        post("/v1/recommend/joint", body)
    }

    pub(crate) fn sweep(body: &impl Body<SweepRequest>) -> Result<Call<SweepAnswer>> {
        post("/v1/sweep", body)
    }

    pub(crate) fn analyze(body: &impl Body<AnalyzeRequest>) -> Result<Call<AnalyzeAnswer>> {
        post("/v1/analyze", body)
    }

    pub(crate) fn tiling(body: &impl Body<TilingRequest>) -> Result<Call<TilingAnswer>> {
        post("/v1/tiling", body)
    }

    pub(crate) fn board() -> Result<Call<BoardAnswer>> {
        get("/v1/board".into())
    }

    pub(crate) fn state() -> Result<Call<StateAnswer>> {
        get("/v1/state".into())
    }

    pub(crate) fn roofline(query: &RooflineQuery) -> Result<Call<RooflineAnswer>> {
        let fields = [("mode", &query.mode), ("precision", &query.precision), ("hardware", &query.hardware)];
        get(route(&["v1", "roofline"], &fields.map(|(key, value)| (key, value.as_deref()))))
    }

    pub(crate) fn modes() -> Result<Call<ModesAnswer>> {
        get("/v1/modes".into())
    }

    pub(crate) fn hardware() -> Result<Call<Vec<HardwareSummary>>> {
        Ok(get::<Value>("/v1/hardware".into())?.reading(listed!("hardware")))
    }

    pub(crate) fn hardware_entry(key: &str) -> Result<Call<HardwareAnswer>> {
        get(route(&["v1", "hardware", key], &[]))
    }

    pub(crate) fn models() -> Result<Call<Vec<ModelEntry>>> {
        Ok(get::<Value>("/v1/models".into())?.reading(listed!("models")))
    }

    pub(crate) fn model(key: &str, query: &ModelQuery) -> Result<Call<ModelAnswer>> {
        let fields = [("format", query.format.as_deref()), ("kv_format", query.kv_format.as_deref())];
        get(route(&["v1", "models", key], &fields))
    }

    pub(crate) fn formats() -> Result<Call<Vec<FormatAnswer>>> {
        Ok(get::<Value>("/v1/formats".into())?.reading(listed!("formats")))
    }

    pub(crate) fn calibration() -> Result<Call<CalibrationAnswer>> {
        get("/v1/calibration".into())
    }

    pub(crate) fn metrics() -> Result<Call<String>> {
        Ok(get::<Value>("/metrics".into())?.reading(text))
    }

    pub(crate) fn openapi() -> Result<Call<Value>> {
        get("/v1/openapi.json".into())
    }

    pub(crate) fn observe(body: &impl Body<ObservationRequest>) -> Result<Call<ObservationsAnswer>> {
        Ok(post::<ObservationsAnswer>("/v1/observations", body)?.once().reading(observed))
    }

    pub(crate) fn observations(filter: &Filter) -> Result<Call<ObservationListAnswer>> {
        get(filter.route())
    }

    pub(crate) fn forget(id: u64) -> Result<Call<u64>> {
        Ok(delete::<Value>(format!("/v1/observations/{id}"))?.reading(forgotten))
    }

    pub(crate) fn forget_all(filter: &Filter) -> Result<Call<u64>> {
        let call = delete::<Value>(filter.route())?.reading(forgotten);
        Ok(if filter.scope.as_deref() == Some("all") { call.on_control() } else { call })
    }

    pub(crate) fn calibrate(body: &impl Body<CalibrateRequest>) -> Result<Call<CalibrateAnswer>> {
        Ok(command("/v1/calibrate", body)?.within(CALIBRATION))
    }

    pub(crate) fn measure(body: &impl Body<MeasureRequest>) -> Result<Call<MeasureAnswer>> {
        Ok(command("/v1/measure", body)?.within(SWITCH))
    }

    pub(crate) fn set_mode(body: &impl Body<ModeRequest>) -> Result<Call<SwitchAnswer>> {
        Ok(command("/v1/mode", body)?.within(SWITCH))
    }

    pub(crate) fn confirm(id: u64) -> Result<Call<DoneAnswer>> {
        command("/v1/mode/confirm", &ConfirmRequest { id })
    }

    pub(crate) fn revert(id: Option<u64>) -> Result<Call<SwitchAnswer>> {
        Ok(command("/v1/mode/revert", &RevertRequest { id })?.within(SWITCH))
    }

    pub(crate) fn holds() -> Result<Call<HoldsAnswer>> {
        get("/v1/holds".into())
    }

    pub(crate) fn post_hold(body: &impl Body<HoldRequest>) -> Result<Call<HeldAnswer>> {
        Ok(command("/v1/holds", body)?.within(SWITCH))
    }

    pub(crate) fn renew_hold(id: u64, ttl_s: f64) -> Result<Call<HeldAnswer>> {
        Ok(with_body("PUT", format!("/v1/holds/{id}"), &RenewRequest { ttl_s })?.on_control().once())
    }

    pub(crate) fn release_hold(id: u64) -> Result<Call<DoneAnswer>> {
        Ok(delete(format!("/v1/holds/{id}"))?.on_control().within(SWITCH))
    }

    pub(crate) fn request(
        method: &str,
        route: &str,
        body: Option<&Value>,
        socket: Socket,
    ) -> Result<Call<Value>> {
        let request = Encoded { socket, ..Encoded::new(method, route.into(), body)?.once() };
        Ok(Call { request, limit: None, read: any })
    }

    /// What changes, beginning with the state.
    pub(crate) fn events() -> Result<Encoded> {
        Encoded::new("GET", "/v1/events".into(), None::<&Value>)
    }

    /// A recommendation kept true.
    pub(crate) fn watch(body: &impl Body<RecommendRequest>) -> Result<Encoded> {
        Encoded::new("POST", "/v1/recommend/watch".into(), Some(body))
    }

    /// A hold for as long as its connection lives.
    pub(crate) fn hold(body: &impl Body<HoldRequest>) -> Result<Encoded> {
        Ok(Encoded::new("POST", "/v1/holds/attached".into(), Some(body))?.control().once())
    }
}
