//! The one table of routes, from which HTTP dispatches, D-Bus `Query` dispatches and the OpenAPI document is made.

use std::path::Path;

use super::Socket;
use rooflined_core::near::Near;
use rooflined_core::refusal::{Code, Refusal};

/// Where a request came in.
#[derive(Debug, Clone, Copy)]
pub enum Entrance<'a> {
    /// One of the two sockets.
    Socket(&'a Socket),
    /// The method `Query` of the bus.
    Bus,
}

/// How a route is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    /// With a JSON body.
    Post,
    /// With a JSON body; what it changes is named by the path.
    Put,
    /// Without a body; what it removes is named by the path.
    Delete,
}

impl Method {
    /// As HTTP writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }

    /// Whether the request carries a body.
    #[must_use]
    pub const fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }

    /// What a client may write for it. hyper drops the body of an answer to HEAD by itself.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Get => &["GET", "HEAD"],
            Self::Post => &["POST"],
            Self::Put => &["PUT"],
            Self::Delete => &["DELETE"],
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub route: Route,
    /// How it is called.
    pub method: Method,
    /// Where it is; one segment may be a parameter in braces, such as `/v1/hardware/{key}`.
    pub path: &'static str,
    /// Only on the control socket.
    pub control: bool,
    /// Name of the request's schema.
    pub request: Option<&'static str>,
    /// Name of the answer's schema; `None` where the answer is no JSON object of ours.
    pub answer: Option<&'static str>,
    pub summary: &'static str,
}

macro_rules! routes {
    ($($route:ident: $method:ident $path:literal, $control:expr, $request:expr => $answer:expr, $summary:literal;)*) => {
        /// What a route does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Route { $($route,)* }

        pub const ROUTES: &[Spec] = &[$(Spec {
            route: Route::$route,
            method: Method::$method,
            path: $path,
            control: $control,
            request: $request,
            answer: $answer,
            summary: $summary,
        },)*];
    };
}

/// Routes of both sockets, and those of the control socket alone.
const QUERY: bool = false;
const CONTROL: bool = true;

// Method and path, socket, the schemas of request and answer, what it is for.
routes! {
    Predict: Post "/v1/predict", QUERY, Some("PredictRequest") => Some("PredictAnswer"), "Predicted time of an operation or a model, with its interval";
    Recommend: Post "/v1/recommend", QUERY, Some("RecommendRequest") => Some("RecommendAnswer"), "Format, batch size and power mode that meet a target";
    RecommendWatch: Post "/v1/recommend/watch", QUERY, Some("RecommendRequest") => None, "The same, re-evaluated as the machine changes: events recommend (RecommendAnswer), then advice_stale (AdviceStale) and recommend at each change";
    Sweep: Post "/v1/sweep", QUERY, Some("SweepRequest") => Some("SweepAnswer"), "Predictions over shapes or models, formats, power modes, batch sizes and contexts";
    Tiling: Post "/v1/tiling", QUERY, Some("TilingRequest") => Some("TilingAnswer"), "Ways to cut a matrix product on a GPU, fastest first";
    Analyze: Post "/v1/analyze", QUERY, Some("AnalyzeRequest") => Some("AnalyzeAnswer"), "Analysis of a measured time: share of the ceiling reached, what limits it";
    Explain: Post "/v1/explain", QUERY, Some("ExplainRequest") => Some("ExplainAnswer"), "Why a run is slower than predicted: causes with their share, evidence and remedy";
    PredictNetwork: Post "/v1/networks/predict", QUERY, Some("NetworkPredictRequest") => Some("NetworkPredictAnswer"), "Predicted latency of a vision network, layer by layer";
    RecommendNetwork: Post "/v1/networks/recommend", QUERY, Some("NetworkRecommendRequest") => Some("NetworkRecommendAnswer"), "Precision, batch and power mode of a vision network that meet a target";
    State: Get "/v1/state", QUERY, None => Some("StateAnswer"), "Clocks, temperatures, memory, rails, load, throttling";
    Roofline: Get "/v1/roofline", QUERY, None => Some("RooflineAnswer"), "Ceilings and ridge points";
    Board: Get "/v1/board", QUERY, None => Some("BoardAnswer"), "Hardware of this machine, and where each value comes from";
    Modes: Get "/v1/modes", QUERY, None => Some("ModesAnswer"), "Power modes, each with the ceilings it would give";
    Formats: Get "/v1/formats", QUERY, None => Some("FormatsAnswer"), "Storage formats and their measured costs";
    HardwareList: Get "/v1/hardware", QUERY, None => Some("HardwareListAnswer"), "Every known accelerator in short";
    Hardware: Get "/v1/hardware/{key}", QUERY, None => Some("HardwareAnswer"), "One accelerator: figures with their sources, power modes and their ceilings";
    Models: Get "/v1/models", QUERY, None => Some("ModelsAnswer"), "Models that are known by a key";
    Model: Get "/v1/models/{key}", QUERY, None => Some("ModelAnswer"), "One model in ?format=, with its cache in ?kv_format=";
    InspectModel: Post "/v1/models/inspect", QUERY, Some("ModelFile") => Some("ModelAnswer"), "The model in a file of which the body is the beginning: GGUF, safetensors or a config.json, called ?name=; requests may name the model by the answer";
    Calibration: Get "/v1/calibration", QUERY, None => Some("CalibrationAnswer"), "Current calibration record, and the job that runs or waits";
    Observations: Post "/v1/observations", QUERY, Some("ObservationRequest") => Some("ObservationsAnswer"), "Learn from what a service measured: one, a list, or {\"observations\": […]}";
    ObservationList: Get "/v1/observations", QUERY, None => Some("ObservationListAnswer"), "Reports that move the caller's answers, with ?scope=all everybody's: by whom, and what they moved";
    Servers: Get "/v1/servers", QUERY, None => Some("ServersAnswer"), "Servers that were reported in the last hour, each with what slows it down";
    ForgetObservations: Delete "/v1/observations", QUERY, None => Some("ForgottenAnswer"), "Forget the caller's reports, or everybody's: by engine, model, operation, format";
    ForgetObservation: Delete "/v1/observations/{id}", QUERY, None => Some("ForgottenAnswer"), "Forget one report";
    Calibrate: Post "/v1/calibrate", CONTROL, Some("CalibrateRequest") => Some("CalibrateAnswer"), "Measure this machine's ceilings";
    Measure: Post "/v1/measure", CONTROL, Some("MeasureRequest") => Some("MeasureAnswer"), "Run operations now: predicted vs. measured";
    SetMode: Post "/v1/mode", CONTROL, Some("ModeRequest") => Some("SwitchAnswer"), "Enter a power mode";
    Confirm: Post "/v1/mode/confirm", CONTROL, Some("ConfirmRequest") => Some("DoneAnswer"), "Keep a mode that was entered with confirm_within_s";
    Revert: Post "/v1/mode/revert", CONTROL, Some("RevertRequest") => Some("SwitchAnswer"), "Restore the previous mode from one that waits to be confirmed";
    Holds: Get "/v1/holds", QUERY, None => Some("HoldsAnswer"), "Active holds, and why the active mode is active";
    Hold: Post "/v1/holds", CONTROL, Some("HoldRequest") => Some("HeldAnswer"), "Hold the machine to constraints, or to a query, for a time";
    HoldAttached: Post "/v1/holds/attached", CONTROL, Some("HoldRequest") => Some("HeldAnswer"), "Hold for as long as this answer is being read; it is a stream of JSON lines";
    Renew: Put "/v1/holds/{id}", CONTROL, Some("RenewRequest") => Some("HeldAnswer"), "Renew a hold";
    Release: Delete "/v1/holds/{id}", CONTROL, None => Some("DoneAnswer"), "Release a hold";
    Events: Get "/v1/events", QUERY, None => None, "Server-sent events: state, mode, throttle, roofline, calibration, hold, degraded, advice_stale";
    OpenApi: Get "/v1/openapi.json", QUERY, None => None, "This document";
    Metrics: Get "/metrics", QUERY, None => None, "Metrics in the Prometheus text format";
    Ready: Get "/-/ready", QUERY, None => None, "200 once the machine has been read, else 503";
    Healthy: Get "/-/healthy", QUERY, None => None, "200 while the server runs";
}

impl Spec {
    /// Name of the parameter in its path.
    #[must_use]
    pub fn parameter(&self) -> Option<&'static str> {
        self.path.split('/').find_map(parameter)
    }

    /// What stands in `path` for the parameter, as it was sent; `None` where `path` is another one.
    fn argument<'p>(&self, path: &'p str) -> Option<&'p str> {
        let (mut template, mut segments) = (self.path.split('/'), path.split('/'));
        let mut argument = None;
        loop {
            match (template.next(), segments.next()) {
                (None, None) => return argument,
                (Some(name), Some(segment)) if parameter(name).is_some() && !segment.is_empty() => {
                    argument = Some(segment);
                }
                (Some(literal), Some(segment)) if literal == segment => {}
                _ => return None,
            }
        }
    }
}

/// `key` for `{key}`.
fn parameter(segment: &'static str) -> Option<&'static str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

/// A route and what its path says.
#[derive(Debug, Clone)]
pub struct Found {
    pub spec: &'static Spec,
    /// What stands in the path for the parameter, decoded; `None` for a path without.
    pub argument: Option<String>,
}

/// Why a request goes nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoRoute {
    pub refusal: Box<Refusal>,
    /// The `Allow` header of the answer; `None` where another method would not help.
    pub allow: Option<String>,
    /// The route that is answered elsewhere; `None` where there is none.
    pub elsewhere: Option<Route>,
}

impl From<Refusal> for NoRoute {
    fn from(refusal: Refusal) -> Self {
        Self { refusal: refusal.into(), allow: None, elsewhere: None }
    }
}

impl From<NoRoute> for Refusal {
    fn from(none: NoRoute) -> Self {
        *none.refusal
    }
}

/// The route for a method and a path that came in here. A path without a parameter wins over one that could take it as an
/// argument.
///
/// # Errors
/// `not_found` with the nearest path, `method_not_allowed` with the right methods, `malformed_request` for a parameter that
/// is no text, or why the route is answered elsewhere.
pub fn find(method: &str, path: &str, entrance: Entrance<'_>) -> Result<Found, NoRoute> {
    let mut candidates: Vec<(&'static Spec, Option<&str>)> =
        ROUTES.iter().filter(|spec| spec.path == path).map(|spec| (spec, None)).collect();
    if candidates.is_empty() {
        candidates = ROUTES.iter().filter_map(|spec| Some((spec, Some(spec.argument(path)?)))).collect();
    }
    let Some((spec, argument)) = candidates.iter().find(|(spec, _)| spec.method.names().contains(&method))
    else {
        return Err(no_route(path, &candidates.iter().map(|(spec, _)| spec.method).collect::<Vec<_>>()));
    };
    let decoded = argument.map(|argument| {
        percent_decoded(argument, false).ok_or_else(|| {
            Code::MalformedRequest.error("the path is not UTF-8 in percent-encoding", "encode it as %XX")
        })
    });
    let found = Found { spec, argument: decoded.transpose()? };
    let refusal = match entrance {
        _ if !spec.control => return Ok(found),
        Entrance::Socket(Socket::Control) => return Ok(found),
        Entrance::Socket(Socket::Query { control }) => wrong_socket(spec.path, control.as_deref()),
        Entrance::Socket(Socket::Unsafe { refusal }) => refusal.clone(),
        Entrance::Bus => {
            let hint = "call Run of io.github.rooflined.Rooflined1.Calibration, or use the control socket";
            Code::WrongSocket.error(format!("{path} is not a query"), hint)
        }
    };
    Err(NoRoute { elsewhere: Some(spec.route), ..refusal.into() })
}

/// `methods`: what the path takes.
fn no_route(path: &str, methods: &[Method]) -> NoRoute {
    let short: String = path.chars().take(60).collect();
    if methods.is_empty() {
        let near = Near::of(&short, ROUTES.iter().map(|spec| spec.path));
        let hint = near.hint("GET /v1/openapi.json lists all routes");
        return Code::NotFound.error(format!("there is nothing at {short:?}"), hint).into();
    }
    let wanted = methods.iter().map(|method| method.name()).collect::<Vec<_>>().join(" or ");
    let allow = methods.iter().flat_map(|method| method.names()).copied().collect::<Vec<_>>().join(", ");
    let refusal =
        Code::MethodNotAllowed.error(format!("{short} takes {wanted}"), format!("send it as {wanted}"));
    NoRoute { allow: Some(allow), ..refusal.into() }
}

fn wrong_socket(path: &str, control: Option<&Path>) -> Refusal {
    let socket = control
        .map_or_else(|| "/run/rooflined-control/control.sock".to_owned(), |path| path.display().to_string());
    Code::WrongSocket.error(
        format!("{path} is answered on the control socket only"),
        format!("send it to {socket}: curl --unix-socket {socket} …"),
    )
}

/// `POST /v1/mode`.
#[must_use]
pub fn name_of(route: Route) -> String {
    let spec = ROUTES.iter().find(|spec| spec.route == route);
    spec.map(|spec| format!("{} {}", spec.method.name(), spec.path)).unwrap_or_default()
}

/// The pairs of a query string, decoded.
///
/// # Errors
/// A key that is not in `known`, or bytes that are no text.
pub fn query_pairs(query: &str, known: &[&str]) -> Result<Vec<(String, String)>, Refusal> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((percent_decoded(key, true)?, percent_decoded(value, true)?))
    });
    let pairs: Option<Vec<_>> = pairs.collect();
    let pairs = pairs.ok_or_else(|| {
        Code::MalformedRequest.error("the query string is not UTF-8 in percent-encoding", "encode it as %XX")
    })?;
    match pairs.iter().find(|(key, _)| !known.contains(&key.as_str())) {
        None => Ok(pairs),
        Some((key, _)) => {
            let key: String = key.chars().take(40).collect();
            let hint = if known.is_empty() {
                "this route takes none; leave it out".to_owned()
            } else {
                format!("known: {}", known.join(", "))
            };
            Err(Code::UnknownField.at(&key, format!("{key:?} is not a parameter of this route"), hint))
        }
    }
}

/// `None` for what is no text. In a query string a plus sign stands for a space, in a path for itself.
fn percent_decoded(text: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'+' if plus_is_space => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let value = digit(bytes.next()?)? * 16 + digit(bytes.next()?)?;
                u8::try_from(value).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_is_told_the_route() {
        let find = |method, path| find(method, path, Entrance::Bus);
        let error = find("GET", "/v1/rooflin").unwrap_err();
        assert_eq!(error.refusal.code, Code::NotFound);
        assert!(error.refusal.hint.contains("/v1/roofline"));
        assert_eq!(find("GET", "/v1/predict").unwrap_err().allow.as_deref(), Some("POST"));
        assert_eq!(find("HEAD", "/v1/state").unwrap().spec.route, Route::State);
    }

    const CONTROL: Entrance<'_> = Entrance::Socket(&Socket::Control);

    #[test]
    fn a_parameter_takes_one_segment_of_the_path() {
        let found = |method, path| find(method, path, CONTROL).unwrap();
        let put = found("PUT", "/v1/holds/a%20b+c");
        assert_eq!((put.spec.route, put.argument.as_deref()), (Route::Renew, Some("a b+c")));
        assert_eq!(put.spec.parameter(), Some("id"));
        assert_eq!(found("DELETE", "/v1/holds/7").spec.route, Route::Release);
        // Two methods on one path, and a plain path that the parameter could swallow.
        let attached = found("POST", "/v1/holds/attached");
        assert_eq!((attached.spec.route, attached.argument), (Route::HoldAttached, None));
        assert_eq!(found("POST", "/v1/holds").spec.route, Route::Hold);
        assert_eq!(found("GET", "/v1/holds").spec.route, Route::Holds);
        assert_eq!(attached.spec.parameter(), None);
    }

    #[test]
    fn a_parameter_is_neither_empty_nor_two_segments_nor_bytes_that_are_no_text() {
        let code = |path| find("DELETE", path, CONTROL).unwrap_err().refusal.code;
        for path in ["/v1/holds/", "/v1/holds/1/2", "/v1/holds/1/", "//v1/holds/1", "/v1/hold/1", "", "/"] {
            assert_eq!(code(path), Code::NotFound, "{path}");
        }
        for path in ["/v1/holds/%ff", "/v1/holds/%", "/v1/holds/%4"] {
            assert_eq!(code(path), Code::MalformedRequest, "{path}");
        }
    }

    #[test]
    fn a_wrong_method_is_told_every_right_one() {
        let error = |method, path| find(method, path, CONTROL).unwrap_err();
        let wrong = error("GET", "/v1/holds/7");
        assert_eq!(wrong.refusal.message, "/v1/holds/7 takes PUT or DELETE");
        assert_eq!(wrong.allow.as_deref(), Some("PUT, DELETE"));
        let wrong = error("PUT", "/v1/holds");
        assert_eq!(wrong.refusal.message, "/v1/holds takes GET or POST");
        assert_eq!(wrong.allow.as_deref(), Some("GET, HEAD, POST"));
        assert_eq!(error("DELETE", "/v1/holds/attached").refusal.code, Code::MethodNotAllowed);
        assert_eq!(error("GET", "/nowhere").allow, None);
    }

    #[test]
    fn a_route_that_is_answered_elsewhere_is_named() {
        let query = Socket::Query { control: Some("/run/c.sock".into()) };
        for entrance in [Entrance::Bus, Entrance::Socket(&query)] {
            let error = find("POST", "/v1/holds", entrance).unwrap_err();
            assert_eq!((error.refusal.code, error.elsewhere), (Code::WrongSocket, Some(Route::Hold)));
        }
        assert_eq!(find("POST", "/v1/hold", CONTROL).unwrap_err().elsewhere, None);
    }

    #[test]
    fn query_strings_are_decoded_and_checked() {
        let pairs = query_pairs("mode=15W%20max&precision=fp16", &["mode", "precision"]).unwrap();
        assert_eq!(pairs[0], ("mode".into(), "15W max".into()));
        assert_eq!(query_pairs("x=1", &["mode"]).unwrap_err().code, Code::UnknownField);
        assert_eq!(query_pairs("mode=%f", &["mode"]).unwrap_err().code, Code::MalformedRequest);
        assert_eq!(query_pairs("mode=%ff", &["mode"]).unwrap_err().code, Code::MalformedRequest);
    }
}
