use super::*;
use rooflined_api::{PredictRequest, RecommendRequest, SweepRequest};

fn wrong<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> (&'static str, String, String) {
    let error = parse::<T>(body.as_bytes()).unwrap_err();
    (error.code.key(), error.field.unwrap_or_default(), error.hint)
}

#[test]
fn a_wrong_type_is_named_in_words_of_json() {
    let said = |body: &str| parse::<PredictRequest>(body.as_bytes()).unwrap_err().message;
    for (field, value, expected) in [
        ("batch", r#""two""#, "workload.batch is \"two\"; it must be a whole number, 0 or more"),
        ("batch", "1.5", "workload.batch is 1.5; it must be a whole number, 0 or more"),
        ("format", "4", "workload.format is 4; it must be text in quotes"),
    ] {
        let body = format!(r#"{{"workload":{{"model":"llama-3.2-1b","{field}":{value}}}}}"#);
        assert_eq!(said(&body), expected);
    }
}

#[test]
fn whole_numbers_may_be_written_with_a_point_and_no_others() {
    let read = |body: &str| parse::<PredictRequest>(body.as_bytes());
    let whole = read(
        r#"{"workload":{"op":{"kind":"gemv","n":4096.0,"k":4.096E3},"format":"int8","batch":-0.0e2,"threads":2.0}}"#,
    );
    let plain = read(
        r#"{"workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8","batch":0,"threads":2}}"#,
    );
    assert_eq!(whole.unwrap(), plain.unwrap());
    // Texts stay what they are.
    let named =
        read(r#"{"workload":{"model":{"path":"/a \"1.0\" 2.0.gguf"},"context_tokens":8.0}}"#).unwrap();
    assert_eq!(named.workload.model.unwrap()["path"], "/a \"1.0\" 2.0.gguf");
    assert_eq!(named.workload.context_tokens, Some(8));
    // Nor is a model only what this program knows of it: its fields are kept as they are, numbers apart.
    let fields = |number: &str| {
        let body = format!(
            r#"{{"workload":{{"model":{{"hidden_size":{number},"mlp_only_layers":[{number},0.5],
            "rope_scaling":{{"factor":{number}}}}}}}}}"#
        );
        read(&body).unwrap().workload.model
    };
    assert_eq!(fields("4096.0"), fields("4096"));
    assert_eq!(fields("4.096e3"), fields("4096"));
    assert_ne!(fields("4096.5"), fields("4096"));
    let models = |number: &str| {
        let body = format!(r#"{{"models":[{{"hidden_size":{number}}}]}}"#);
        parse::<SweepRequest>(body.as_bytes()).unwrap().models
    };
    assert_eq!(models("4096.0"), models("4096"));
    for (body, field) in [
        (r#"{"workload":{"op":{"kind":"gemv","n":4096.5,"k":8.0}}}"#, "workload.op.n"),
        (r#"{"workload":{"model":"m","batch":1.5,"context_tokens":8.0}}"#, "workload.batch"),
        (r#"{"workload":{"model":"m","context_tokens":1e300}}"#, "workload.context_tokens"),
    ] {
        let refused = read(body).unwrap_err();
        assert!(refused.field.unwrap_or_default().starts_with(field), "{body}");
    }
}

#[test]
fn every_wrong_field_is_named() {
    let op = |op: &str| format!(r#"{{"workload":{{"op":{op}}}}}"#);
    let cases = [
        (op(r#"{"kind":"gemv","n":-1,"k":1}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":1e18,"k":1}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":1.5,"k":1}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":"1","k":1}"#), "invalid_dimension", "workload.op.n"),
        (op(r#"{"kind":"gemv","n":1}"#), "missing_field", "workload.op.k"),
        (op(r#"{"kind":"gemv","n":1,"k":1,"kk":1}"#), "unknown_field", "workload.op.kk"),
        (op(r#"{"kind":"gemw","n":1,"k":1}"#), "invalid_field", "workload.op.kind"),
        (op(r#"{"n":1,"k":1}"#), "missing_field", "workload.op.kind"),
        (op("3"), "invalid_field", "workload.op"),
        (op("NaN"), "invalid_json", ""),
        (r#"{"workload":{"format":8}}"#.into(), "invalid_field", "workload.format"),
        (r#"{"workload":{"formt":"int8"}}"#.into(), "unknown_field", "workload.formt"),
        (r#"{"worload":{}}"#.into(), "unknown_field", "worload"),
        ("{}".into(), "missing_field", "workload"),
        (r#"{"workload":{},"engine":"lama.cpp"}"#.into(), "invalid_field", "engine"),
        (r#"{"workload":{}} x"#.into(), "invalid_json", ""),
        (r#"{"workload":{}"#.into(), "invalid_json", ""),
        (String::new(), "invalid_json", ""),
        ("[".repeat(1000), "invalid_json", ""),
        ("[]".into(), "invalid_field", "body"),
    ];
    for (body, code, field) in cases {
        let found = wrong::<PredictRequest>(&body);
        assert_eq!((found.0, found.1.as_str()), (code, field), "{body:.60} {found:?}");
    }
}

#[test]
fn every_mistake_is_listed_and_none_that_only_follows_from_another() {
    fn fields<T: DeserializeOwned + std::fmt::Debug>(body: &str) -> Vec<String> {
        let error = parse::<T>(body.as_bytes()).unwrap_err();
        let first = (error.message, error.field, error.hint);
        let listed = error.problems.into_iter().map(|problem| (problem.message, problem.field, problem.hint));
        let listed: Vec<_> = listed.collect();
        assert!(listed.is_empty() || listed[0] == first, "{listed:?}");
        let all = if listed.is_empty() { vec![first] } else { listed };
        all.into_iter().map(|(_, field, _)| field.unwrap()).collect()
    }
    assert_eq!(
        fields::<RecommendRequest>(
            r#"{"workload":{"formt":"int8","batch":"two"},"engine":5,"objective":"latenzy","optimism":"expected","x":1}"#
        ),
        ["engine", "objective", "workload.batch", "workload.formt", "x"],
    );
    assert_eq!(
        fields::<SweepRequest>(
            r#"{"ops":[{"kind":"gemv","n":1,"k":-2,"kk":1},{"kind":"gemv","n":1,"k":1}],"batches":[1,"2",-3],"engin":"vllm"}"#
        ),
        ["batches[1]", "engin", "ops[0].k", "ops[0].kk"],
    );
    // What is missing ends the list of what is around it, and that is not called missing as well.
    assert_eq!(
        fields::<PredictRequest>(r#"{"workload":{"op":{"kind":"gemv","n":1}},"engine":1}"#),
        ["engine", "workload.op.k"],
    );
    assert_eq!(
        fields::<PredictRequest>(r#"{"workload":7,"hypothetical":"no"}"#),
        ["hypothetical", "workload"]
    );
    assert_eq!(fields::<PredictRequest>("{}"), ["workload"]);
    let many: Vec<String> = (0..100).map(|n| format!(r#""x{n}":1"#)).collect();
    assert_eq!(fields::<PredictRequest>(&format!("{{{}}}", many.join(","))).len(), MOST_READINGS);
}

#[test]
fn what_is_no_text_where_a_name_is_wanted_is_a_wrong_field_and_no_bad_json() {
    use rooflined_core::names::Engine;
    for found in ["5", "true", r#"["llama.cpp"]"#, "{}", "1.5"] {
        let body = format!(r#"{{"workload":{{"model":"m"}},"engine":{found}}}"#);
        let error = parse::<RecommendRequest>(body.as_bytes()).unwrap_err();
        assert_eq!((error.code, error.field.as_deref()), (Code::InvalidField, Some("engine")), "{error}");
        assert!(error.message.contains(found), "{error}");
        assert!(Engine::ALL.iter().all(|engine| error.hint.contains(engine.key())), "{error}");
    }
    for (name, known) in [("objective", "latency"), ("optimism", "expected")] {
        let (code, field, hint) = wrong::<RecommendRequest>(&format!(r#"{{"workload":{{}},"{name}":5}}"#));
        assert_eq!((code, field.as_str()), ("invalid_field", name));
        assert!(hint.contains(known), "{hint}");
    }
    // Nor is a number beyond all that a computer's are one of JSON's here, or a key that comes twice.
    for body in [
        r#"{"workload":{},"constraints":{"max_power_w":1e999}}"#,
        r#"{"workload":{"model":"m","batch":1.0,"batch":2.0}}"#,
    ] {
        assert_eq!(wrong::<RecommendRequest>(body).0, "invalid_json", "{body}");
    }
    // Text that is not JSON is still reported as that.
    for body in [
        r#"{"workload":{},"engine":5"#,
        r#"{"workload":{},"engine":nul}"#,
        r#"{"workload":{},"engine":5,}"#,
        r#"{"workload":{},"engine":5} {"#,
        "{\"workload\":{\"format\":\"\u{1}\"},\"engine\":5}",
    ] {
        assert_eq!(wrong::<RecommendRequest>(body).0, "invalid_json", "{body}");
    }
    let deep = format!(r#"{{"workload":{{"model":{}1{}}}}}"#, "[".repeat(200), "]".repeat(200));
    assert_eq!(wrong::<RecommendRequest>(&deep).0, "invalid_json");
}

/// Whatever may be left out may be null: each field of a request that is read without it.
#[test]
fn null_is_the_same_as_leaving_it_out() {
    fn check<T: DeserializeOwned + std::fmt::Debug + PartialEq>(least: &str, optional: &[&str]) {
        let plain = parse::<T>(least.as_bytes()).unwrap();
        for name in optional {
            let body = format!(
                r#"{}{}"{name}":null}}"#,
                &least[..least.len() - 1],
                if least.len() > 2 { "," } else { "" }
            );
            assert_eq!(parse::<T>(body.as_bytes()).as_ref(), Ok(&plain), "{body}");
        }
        let unknown = format!(
            r#"{}{}"unheard_of":null}}"#,
            &least[..least.len() - 1],
            if least.len() > 2 { "," } else { "" }
        );
        assert_eq!(parse::<T>(unknown.as_bytes()).unwrap_err().code, Code::UnknownField);
    }
    let workload = r#"{"workload":{}}"#;
    let of_all = ["hardware", "operating_point", "engine", "hypothetical"];
    check::<PredictRequest>(workload, &[&of_all[..], &["observations"]].concat());
    check::<RecommendRequest>(
        workload,
        &[&of_all[..], &["objective", "constraints", "freedom", "optimism"]].concat(),
    );
    check::<SweepRequest>("{}", &[&of_all[..], &["ops", "models", "formats", "batches"]].concat());
    check::<rooflined_api::Freedom>("{}", &["formats", "allow_reboot", "batch", "run_s"]);
    check::<rooflined_api::BatchRange>("{}", &["min", "max"]);
    check::<rooflined_api::ObservationRequest>(workload, &["engine", "operating_point", "tokens_per_s"]);
    check::<rooflined_api::AnalyzeRequest>(workload, &["engine", "time_s"]);
    check::<rooflined_api::CalibrateRequest>("{}", &["plan", "wait", "force"]);
    check::<rooflined_api::MeasureRequest>("{}", &["op", "formats", "workload", "workloads", "power"]);
    check::<rooflined_api::HoldRequest>(r#"{"app_id":"a"}"#, &["constraints", "query", "reason", "ttl_s"]);
    check::<rooflined_api::ModeRequest>(r#"{"mode":"a"}"#, &["confirm_within_s", "dry_run", "reason"]);
}

#[test]
fn a_hint_names_what_was_probably_meant() {
    let (_, _, hint) = wrong::<PredictRequest>(r#"{"workload":{"formt":"int8"}}"#);
    assert!(hint.contains("did you mean format?"), "{hint}");
    let (_, _, hint) = wrong::<RecommendRequest>(r#"{"workload":{},"objective":"latenzy"}"#);
    assert!(hint.contains("did you mean latency?"), "{hint}");
}

#[test]
fn an_element_of_a_list_is_named_by_its_place() {
    let found =
        wrong::<SweepRequest>(r#"{"ops":[{"kind":"gemv","n":1,"k":1},{"kind":"gemv","n":1,"k":-2}]}"#);
    assert_eq!(found.1, "ops[1].k");
}
