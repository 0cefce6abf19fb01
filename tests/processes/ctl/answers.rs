//! Canned answers, made from the wire types so that they are what a daemon could say.

use std::collections::BTreeMap;

use rooflined_api::{
    AnalyzeAnswer, BoardAnswer, CalibrateAnswer, CalibrationAnswer, CandidateAnswer, CauseAnswer,
    CeilingAnswer, EstimateAnswer, EvidenceAnswer, ExplainAnswer, MeasureAnswer, MeasureRequest,
    MeasuredPowerAnswer, MeasuredRow, MemoryAnswer, PredictAnswer, RecommendAnswer, RegimeAnswer,
    RejectionAnswer, RooflineAnswer, StateAnswer, StateField, SweepAnswer, SweepRequest, SweepRow, Unseen,
};
use rooflined_core::operation::Op;
use serde_json::{Value, json};

use super::fake::{Received, Reply};

fn estimate(value: f64) -> EstimateAnswer {
    EstimateAnswer { value, low: value * 0.9, high: value * 1.1 }
}

fn ceiling(value: f64) -> CeilingAnswer {
    CeilingAnswer {
        value,
        low: value * 0.98,
        high: value * 1.02,
        provenance: "measured".into(),
        age_s: Some(300.0),
    }
}

pub fn state() -> StateAnswer {
    let known = |value: Value| StateField { value, age_s: Some(0.4), reason: None, reasons: BTreeMap::new() };
    let absent = |reason: &str| StateField {
        value: Value::Null,
        age_s: None,
        reason: Some(reason.into()),
        reasons: BTreeMap::new(),
    };
    StateAnswer {
        fields: BTreeMap::from([
            ("power_mode".to_owned(), absent("no nvpmodel on this machine")),
            ("cores_online".to_owned(), known(json!(2))),
            ("cpu_hz".to_owned(), absent("no cpufreq: /sys/devices/system/cpu/cpu0/cpufreq is missing")),
            ("memory_bytes".to_owned(), known(json!({"total": 16.6e9, "available": 12.5e9}))),
            ("load".to_owned(), known(json!({"average_1m": 0.25, "busy_ratio": 0.034, "steal_ratio": null}))),
        ]),
        sources: BTreeMap::new(),
        simulated: false,
        degraded: vec!["no message bus; start one or give --bus none".to_owned()],
        serial: 17,
    }
}

pub fn board() -> BoardAnswer {
    BoardAnswer {
        key: "cpu".into(),
        notes: Vec::new(),
        model: None,
        kernel: Some("6.1.0".into()),
        os: Some("Debian GNU/Linux 12".into()),
        module: None,
        l4t: None,
        gpu: None,
        accelerators: vec![json!({"kind": "cpu"})],
        cpu: json!({
            "model": "AMD EPYC 9654", "logical": 2, "max_hz": null, "features": ["avx2", "fma"],
            "caches": [{"level": 3, "kind": "unified", "size_bytes": 33554432, "instances": 1}],
        }),
        memory: json!({"total_bytes": 16.6e9, "unified": true}),
        modes: Vec::new(),
        simulated: false,
        sources: BTreeMap::from([("kernel".to_owned(), "/proc/sys/kernel/osrelease".to_owned())]),
        reasons: BTreeMap::from([("model".to_owned(), "no device tree".to_owned())]),
        serial: 17,
    }
}

pub fn roofline() -> RooflineAnswer {
    RooflineAnswer {
        bandwidth_bytes_per_s: ceiling(40e9),
        copy_bytes_per_s: Some(ceiling(60e9)),
        triad_bytes_per_s: None,
        compute_flops_per_s: BTreeMap::from([
            ("fp32".to_owned(), ceiling(500e9)),
            ("int8".to_owned(), ceiling(2e12)),
        ]),
        memory_limit_bytes_per_s: None,
        pull_limit_bytes_per_s: None,
        power_mode: None,
        launch_s: ceiling(2e-6),
        ridge_flops_per_byte: BTreeMap::from([("fp32".to_owned(), 12.5), ("int8".to_owned(), 50.0)]),
        bandwidth_curve: Vec::new(),
        workers: 2,
        clock_hz: Some(4.05e9),
        regimes: vec![RegimeAnswer {
            key: "near".into(),
            active: true,
            core_to_core_s: Some(50e-9),
            bandwidth_bytes_per_s: 40e9,
            measured_at_unix_s: 1_795_199_129.0,
        }],
        drift_ratio: Some(0.97),
        power: rooflined_api::PowerCostsAnswer::default(),
        simulated: false,
        serial: 17,
    }
}

pub fn prediction(flops: f64, bytes: f64) -> PredictAnswer {
    let time = (bytes / 40e9).max(flops / 500e9);
    PredictAnswer {
        engine: "none".into(),
        format: None,
        time_s: estimate(time * 1.1),
        tokens_per_s: estimate(1.0 / time),
        documents_per_s: None,
        time_per_document_s: None,
        time_to_first_token_s: None,
        time_per_token_s: None,
        power_w: None,
        power_source: None,
        energy_j_per_token: None,
        marginal_energy_j_per_token: None,
        energy_j: None,
        flops,
        bytes,
        arithmetic_intensity_flops_per_byte: flops / bytes,
        ridge_flops_per_byte: 12.5,
        bound: "memory".into(),
        limit: "dram".into(),
        compute: "fp32".into(),
        context_tokens: None,
        memory_bytes: MemoryAnswer {
            weights: bytes,
            kv_cache: 0.0,
            activations: 0.0,
            host: None,
            engine: None,
            available: Some(8e9),
            room: Some(8e9),
            total: bytes,
            fits: Some(true),
        },
        tier: "engine_calibrated".into(),
        interval_from: None,
        provenance: "measured".into(),
        breakdown: Vec::new(),
        roofline_time_s: time,
        simulated: false,
        mode_name: None,
        hardware: None,
        serial: 17,
        reports: None,
        warnings: vec!["fp16 runs as fp32 here".into()],
    }
}

/// Work and traffic of an operation in a format, roughly.
fn cost(op: &Op, format: &str) -> (f64, f64) {
    let bytes_per_weight = match format {
        "fp32" => 4.0,
        "fp16" | "bf16" => 2.0,
        "int8" => 1.0,
        _ => 0.5,
    };
    let (m, weights) = match *op {
        Op::Gemv { n, k } => (1.0, (n * k) as f64),
        Op::Gemm { m, n, k } => (m as f64, (n * k) as f64),
        Op::Attention { .. } => (1.0, 1e6),
    };
    (2.0 * m * weights, weights * bytes_per_weight)
}

fn sweep(request: &SweepRequest) -> SweepAnswer {
    let formats = request.formats.clone().unwrap_or_else(|| vec!["fp32".to_owned(), "int8".to_owned()]);
    let row = |op: &Op, format: &String| {
        let (flops, bytes) = cost(op, format);
        SweepRow {
            quality_loss_ratio: None,
            op: Some(*op),
            model: None,
            power_mode: None,
            threads: None,
            batch: 1,
            prediction: PredictAnswer { format: Some(format.clone()), ..prediction(flops, bytes) },
        }
    };
    let rows = request.ops.iter().flat_map(|op| formats.iter().map(move |format| row(op, format))).collect();
    SweepAnswer { rows, warnings: Vec::new(), simulated: false, serial: 17 }
}

fn metered(known: bool) -> MeasuredPowerAnswer {
    let number = |value: f64| known.then_some(value);
    MeasuredPowerAnswer {
        power_w: number(21.5),
        idle_power_w: number(6.25),
        energy_j: number(1.5e-3),
        total_energy_j: number(2.1e-3),
        duration_s: number(0.5),
        readings: known.then_some(9),
        period_s: number(0.02),
        scope: known.then(|| "module".into()),
        rails: Vec::new(),
        reason: (!known).then(|| "no power rail can be read".into()),
    }
}

fn measure(request: &MeasureRequest) -> MeasureAnswer {
    let named = request.op.iter().flat_map(|op| request.formats.iter().map(|format| (*op, format.clone())));
    let listed = request.workloads.iter().map(|work| (work.op.unwrap(), work.format.clone().unwrap()));
    let rows = named.chain(listed).map(|(op, format)| {
        let (flops, bytes) = cost(&op, &format);
        let predicted = prediction(flops, bytes);
        let power = request.power.then(|| metered(format == "fp32"));
        MeasuredRow {
            op: rooflined_api::MeasuredOp::Op(op),
            format,
            predicted_time_s: predicted.time_s,
            predicted_at_calibration_s: predicted.time_s.value,
            measured_time_s: estimate(predicted.time_s.value / 1.03),
            error_ratio: 0.03,
            error_at_calibration_ratio: 0.03,
            disturbed: None,
            drift_ratio: Some(0.98),
            regime: "near".into(),
            runs: 31,
            isa: "avx512".into(),
            bound: "memory".into(),
            limit: "dram".into(),
            roofline_time_s: predicted.roofline_time_s,
            power,
        }
    });
    MeasureAnswer {
        rows: rows.collect(),
        skipped: vec!["gemv 1x1 nf4: no kernel".into()],
        simulated: false,
        serial: 18,
    }
}

pub fn recommendation(feasible: bool) -> RecommendAnswer {
    let candidate = |format: &str| CandidateAnswer {
        format: Some(format.into()),
        power_mode: None,
        batch: 4,
        kv_format: None,
        threads: None,
        draft_tokens: None,
        cpu_moe_layers: None,
        quality_loss_ratio: Some(0.03),
        prediction: prediction(2e7, 1e7),
    };
    RecommendAnswer {
        engine: "none".into(),
        engines: Vec::new(),
        feasible,
        decision: feasible.then(|| candidate("int8")),
        energy_basis: "with_idle".into(),
        reason: "int8 it is.".into(),
        alternatives: vec![candidate("int4")],
        rejected: vec![RejectionAnswer {
            by: "max_time_s".into(),
            count: 12,
            closest: Some(1.5e-3),
            limit: Some(1e-3),
        }],
        closest: (!feasible).then(|| candidate("fp16")),
        violated: if feasible { Vec::new() } else { vec!["max_time_s".into()] },
        misses: Vec::new(),
        contradicting: Vec::new(),
        sensitivity: None,
        warnings: Vec::new(),
        apply: json!({
            "reboot_required": false,
            "settings": {"llama.cpp": "not available: no int8; nearest: q8_0", "torch": "quantize_(model, X())"},
        }),
        next_best_measurement: Some("rooflinectl measure gemv".into()),
        candidates: 64,
        simulated: false,
        serial: 17,
    }
}

fn analysis() -> AnalyzeAnswer {
    AnalyzeAnswer {
        achieved_flops_per_s: 120e9,
        achieved_bytes_per_s: 38e9,
        ceiling_ratio: 0.95,
        predicted_ratio: 1.02,
        bound: "memory".into(),
        limit: "dram".into(),
        verdict: "as_predicted".into(),
        reason: "280 µs lies within what was predicted.".into(),
        simulated: false,
        prediction: prediction(2e7, 1e7),
    }
}

fn explanation() -> ExplainAnswer {
    let evidence = EvidenceAnswer { source: "/sys/kernel/gpu/clock".into(), value: "890000000".into() };
    let cause = |name: &str, what: &str, share: f64| CauseAnswer {
        cause: name.into(),
        what: what.into(),
        share_ratio: share,
        share_tokens_per_s: share * 35.0,
        without_tokens_per_s: 80.0,
        certainty: "predicted".into(),
        evidence: vec![evidence.clone()],
        fix: "cool it".into(),
    };
    ExplainAnswer {
        verdict: "slower_than_expected".into(),
        reason: "55 tokens/s are 39 % below the 90 that were expected.".into(),
        measured_tokens_per_s: 55.0,
        expected_tokens_per_s: EstimateAnswer { value: 90.0, low: 81.0, high: 99.0 },
        expected_at: "25W".into(),
        engine: "llama.cpp".into(),
        format: Some("q4_k_m".into()),
        causes: vec![
            cause("thermal", "GPU clock 890 MHz instead of 1.30 GHz under load: too hot", 0.7),
            cause("kv_format", "the cache is stored as q8_0 instead of fp16", 0.2),
        ],
        unexplained_ratio: Some(0.1),
        unexplained_tokens_per_s: Some(3.5),
        checked: Vec::new(),
        unseen: vec![Unseen {
            what: "memory clock".into(),
            reason: "permission denied".into(),
            grant: "run it as root".into(),
        }],
        simulated: false,
        serial: 18,
    }
}

fn calibration() -> CalibrationAnswer {
    CalibrationAnswer {
        record: json!({"wall": 1.9, "regimes": [{"key": "near"}], "rejected": [{"code": "steal"}]}),
        age_s: Some(12.0),
        status: json!({"running": 3, "fraction": 0.5, "step": "read 128 MB", "waiting_reason": null}),
        residuals: Vec::new(),
        simulated: false,
        serial: 18,
    }
}

/// Answers every route as a healthy daemon would.
pub fn healthy(asked: &Received) -> Reply {
    match asked.route.split('?').next().unwrap() {
        "/v1/state" => Reply::ok(&state()),
        "/v1/board" => Reply::ok(&board()),
        "/v1/roofline" => Reply::ok(&roofline()),
        "/v1/predict" => match asked.json().pointer("/workload/op") {
            Some(_) => Reply::ok(&prediction(2.0 * 4096.0 * 4096.0, 4096.0 * 4096.0)),
            None => Reply::error(400, "missing_field", Some("workload.op")),
        },
        "/v1/sweep" => Reply::ok(&sweep(&serde_json::from_str(&asked.body).unwrap())),
        "/v1/measure" => Reply::ok(&measure(&serde_json::from_str(&asked.body).unwrap())),
        "/v1/analyze" => Reply::ok(&analysis()),
        "/v1/explain" => Reply::ok(&explanation()),
        "/v1/recommend" => Reply::ok(&recommendation(true)),
        "/v1/observations" => Reply::ok(&json!({"accepted": 1, "refused": []})),
        "/v1/calibration" => Reply::ok(&calibration()),
        "/v1/calibrate" if asked.body.contains("none of the plans") => {
            Reply::error(400, "invalid_field", Some("plan"))
        }
        "/v1/calibrate" => {
            let finished = asked.body.contains("\"wait\":true");
            if finished {
                std::thread::sleep(std::time::Duration::from_millis(900));
            }
            Reply::ok(&CalibrateAnswer { job: 3, finished })
        }
        "/v1/events" => Reply::Events(vec![
            "event: state\ndata: {\"load\":1}\n\n".into(),
            ": keep-alive\n\n".into(),
            "event: calibration\ndata: {\"fraction\":0.5}\n\n".into(),
        ]),
        "/metrics" => Reply::Whole(200, "# TYPE rooflined_serial gauge\nrooflined_serial 17\n".into()),
        "/v1/openapi.json" => Reply::ok(&json!({"info": {"version": env!("CARGO_PKG_VERSION")}})),
        "/-/ready" | "/-/healthy" => Reply::ok(&json!({})),
        _ => Reply::error(404, "not_found", None),
    }
}
