//! Writes `openapi.json` from the table of routes, and holds it to that.

use serde_json::{Map, json};

use super::*;
use crate::server::routes::{Method, ROUTES, Route, Spec};
use rooflined_core::refusal::Code;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/server/openapi/openapi.json");

/// Everything but the version and the schemas.
fn build() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for spec in ROUTES {
        let method = spec.method.name().to_ascii_lowercase();
        let methods = paths.entry(spec.path).or_insert_with(|| json!({}));
        methods[method] = operation(spec);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "rooflined",
            "description": "Performance advice on the device itself, as HTTP/1.1 over a Unix socket. Every number \
                carries its unit in its key, null is unknown, and enumerations may grow new members. Routes marked \
                control answer on the control socket only.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "servers": [
            { "url": "http://localhost", "description": "unix:/run/rooflined/query.sock: anyone local" },
            {
                "url": "http://localhost",
                "description": "unix:/run/rooflined-control/control.sock: root and group rooflined",
            },
        ],
        "paths": paths,
    })
}

/// The path in words; the method comes first where the path has several.
fn operation_id(spec: &Spec) -> String {
    let path = spec.path.trim_start_matches("/v1/").trim_matches(['/', '-']);
    let path = path.replace(['/', '.'], "_").replace(['{', '}'], "");
    if ROUTES.iter().filter(|other| other.path == spec.path).count() == 1 {
        return path;
    }
    format!("{}_{path}", spec.method.name().to_ascii_lowercase())
}

fn operation(spec: &Spec) -> Value {
    let mut operation = json!({
        "operationId": operation_id(spec),
        "summary": spec.summary,
        "tags": [if spec.control { "control" } else { "query" }],
        "responses": responses(spec),
    });
    if let Some(request) = spec.request {
        operation["requestBody"] = json!({
            "required": !matches!(spec.route, Route::Calibrate | Route::Revert),
            "content": request_content(spec.route, request),
        });
    }
    if spec.route == Route::Roofline {
        operation["parameters"] = json!([
            parameter(
                "mode",
                "Power mode by name or number [default: the present operating point]; nothing is switched"
            ),
            parameter("precision", "Precision whose ceiling is returned, such as fp16 [default: all]"),
            parameter("hardware", "Other hardware, by its data sheet, such as jetson-agx-orin-64gb"),
        ]);
    }
    if spec.route == Route::InspectModel {
        operation["parameters"] = json!([
            parameter(
                "name",
                "Name or path of the file, under which runs of the model are filed [default: model]"
            ),
            parameter("kv_format", "Key/value cache format of the figures [default: fp16]"),
        ]);
    }
    if spec.route == Route::Observations {
        operation["parameters"] = json!([parameter(
            "server_user",
            "Number of the user whose server was measured: a report that would count for everybody counts for this user instead, unless this user's do too"
        )]);
    }
    if matches!(spec.route, Route::ObservationList | Route::ForgetObservations) {
        operation["parameters"] = json!([
            parameter(
                "scope",
                "own or all; all is for those who may calibrate [default: own, listed with the shared ones]"
            ),
            parameter("user", "Reports of this user, by number"),
            parameter("engine", "Reports of this inference engine"),
            parameter("model", "Reports of this model: its key or path"),
            parameter("op", "Reports of this kind of operation: gemv, gemm or attention"),
            parameter("format", "Reports of this weight format, as a listed report names it"),
        ]);
    }
    if let Some(name) = spec.parameter() {
        let mut parameters =
            vec![json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })];
        if spec.route == Route::Model {
            parameters.push(parameter("format", "Weight format [default: bf16]"));
            parameters.push(parameter("kv_format", "Key/value cache format [default: fp16]"));
        }
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

fn request_content(route: Route, request: &str) -> Value {
    if route == Route::InspectModel {
        return json!({ "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } });
    }
    json!({ "application/json": { "schema": request_schema(route, request) } })
}

fn request_schema(route: Route, request: &str) -> Value {
    if route != Route::Observations {
        return reference(request);
    }
    let list = json!({ "type": "array", "items": reference(request), "minItems": 1 });
    let wrapped = json!({
        "type": "object", "required": ["observations"], "properties": { "observations": list.clone() },
    });
    json!({ "oneOf": [reference(request), list, wrapped] })
}

fn parameter(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "query", "required": false, "description": description, "schema": { "type": "string" },
    })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn responses(spec: &Spec) -> Value {
    let header = json!({
        "X-Rooflined-Serial": {
            "description": "Serial of the snapshot that the answer was given from",
            "schema": { "type": "integer", "format": "int64", "minimum": 0 },
        },
        "X-Rooflined-Simulated": {
            "description": "Present, as `true`, where the board is simulated and no value describes hardware",
            "schema": { "type": "string", "enum": ["true"] },
        },
    });
    let content = match (spec.route, spec.answer) {
        (Route::HoldAttached, Some(answer)) => {
            json!({ "application/x-ndjson": { "schema": reference(answer) } })
        }
        (_, Some(answer)) => json!({ "application/json": { "schema": reference(answer) } }),
        (Route::Events | Route::RecommendWatch, None) => {
            json!({ "text/event-stream": { "schema": { "type": "string" } } })
        }
        (Route::Metrics, None) => json!({ "text/plain; version=0.0.4": { "schema": { "type": "string" } } }),
        (_, None) => json!({ "application/json": { "schema": { "type": "object" } } }),
    };
    let mut responses = Map::new();
    responses.insert(
        "200".to_owned(),
        json!({ "description": "The answer", "headers": header.clone(), "content": content }),
    );
    let error = |description: String| {
        json!({
            "description": description,
            "headers": header.clone(),
            "content": { "application/json": { "schema": reference("ErrorAnswer") } },
        })
    };
    for status in statuses(spec) {
        let codes: Vec<_> =
            Code::ALL.iter().filter(|code| code.status() == status).map(|code| code.key()).collect();
        responses.insert(status.to_string(), error(codes.join(", ")));
    }
    responses.insert("default".to_owned(), error("Any other error".to_owned()));
    Value::Object(responses)
}

fn statuses(spec: &Spec) -> Vec<u16> {
    match (spec.control, spec.method, spec.route) {
        (true, _, Route::Calibrate | Route::Measure) => vec![400, 403, 408, 409, 413, 500, 503],
        (true, ..) => vec![400, 403, 404, 408, 409, 413, 503],
        (_, _, Route::Observations) => vec![400, 403, 408, 409, 413, 503],
        (_, _, Route::ObservationList | Route::ForgetObservations) => vec![400, 403, 503],
        (_, _, Route::ForgetObservation) => vec![400, 403, 404, 503],
        (_, Method::Post | Method::Put, _) => vec![400, 408, 409, 413, 503],
        (_, _, Route::Roofline) => vec![400, 503],
        // An unknown key is not found; a path that is no text, or an unknown format of a model, is a bad request.
        (_, _, Route::Hardware | Route::Model) => vec![400, 404, 503],
        (_, Method::Get | Method::Delete, _) => vec![503],
    }
}

/// The text of the file: a line for each path.
fn written() -> String {
    let mut document = build();
    let paths = document["paths"].take();
    let lines = paths.as_object().unwrap().iter().map(|(path, methods)| format!("{}:{methods}", json!(path)));
    let lines = format!("\"paths\":{{\n{}\n}}", lines.collect::<Vec<_>>().join(",\n"));
    document.to_string().replace("\"paths\":null", &lines) + "\n"
}

/// `ROOFLINED_UPDATE_DOCS=1` writes the file.
#[test]
fn the_file_is_up_to_date() {
    let wanted = written();
    if std::env::var_os("ROOFLINED_UPDATE_DOCS").is_some() {
        std::fs::write(FILE, &wanted).unwrap();
    }
    let hint = "ROOFLINED_UPDATE_DOCS=1 cargo test -p rooflined --lib openapi writes it";
    assert!(std::fs::read_to_string(FILE).unwrap() == wanted, "openapi.json is out of date: {hint}");
}

/// Every `$ref` must lead somewhere: a schema that rooflined-api does not list would not.
#[test]
fn every_reference_resolves() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document: Value = serde_json::from_slice(document()).unwrap();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 40, "{}", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn every_route_is_described() {
    let document: Value = serde_json::from_slice(document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    for spec in ROUTES {
        let operation = &document["paths"][spec.path][spec.method.name().to_ascii_lowercase()];
        assert!(operation["responses"]["200"].is_object(), "{}", spec.path);
    }
}

#[test]
fn what_a_path_may_name_wrongly_is_refused() {
    let document: Value = serde_json::from_slice(document()).unwrap();
    for spec in ROUTES.iter().filter(|spec| spec.parameter().is_some()) {
        let operation = &document["paths"][spec.path][spec.method.name().to_ascii_lowercase()];
        assert!(operation["responses"]["400"].is_object(), "{}", spec.path);
    }
    // tests/server/http.rs asks for an unknown model, and for a known one in an unknown format.
    assert!(document["paths"]["/v1/models/{key}"]["get"]["responses"]["404"].is_object());
}

#[test]
fn operations_have_names_of_their_own() {
    let names: std::collections::BTreeSet<_> = ROUTES.iter().map(operation_id).collect();
    assert_eq!(names.len(), ROUTES.len());
}
