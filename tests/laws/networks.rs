//! Vision networks: predictions beside published latencies, and what requests about them are answered.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::LazyLock;

use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_core::hardware::registry;
use rooflined_core::refusal::{Code, Refusal};
use serde_json::{Value, json};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new(registry().clone(), Opener::Caller));

/// Layers of YOLOX and YOLOv8 at 640x640, read from graphs of our own after the published architectures, and of classifiers of three
/// classes at 224x224, exported from torchvision and timm.
const NETWORKS: [(&str, &str); 16] = [
    ("yoloxn", include_str!("../data/networks/yoloxn.json")),
    ("yoloxt", include_str!("../data/networks/yoloxt.json")),
    ("yoloxs", include_str!("../data/networks/yoloxs.json")),
    ("yoloxm", include_str!("../data/networks/yoloxm.json")),
    ("yolov8n", include_str!("../data/networks/yolov8n.json")),
    ("yolov8s", include_str!("../data/networks/yolov8s.json")),
    ("yolov8m", include_str!("../data/networks/yolov8m.json")),
    ("resnet18", include_str!("../data/networks/resnet18.json")),
    ("resnet34", include_str!("../data/networks/resnet34.json")),
    ("resnet50", include_str!("../data/networks/resnet50.json")),
    ("mobilenet_v3_small", include_str!("../data/networks/mobilenet_v3_small.json")),
    ("mobilenet_v3_large", include_str!("../data/networks/mobilenet_v3_large.json")),
    ("mixnet_s", include_str!("../data/networks/mixnet_s.json")),
    ("mixnet_m", include_str!("../data/networks/mixnet_m.json")),
    ("mixnet_l", include_str!("../data/networks/mixnet_l.json")),
    ("efficientformer_l1", include_str!("../data/networks/efficientformer_l1.json")),
];

/// The same network for pictures of `size`: every layer has rows and columns in proportion.
fn network(name: &str, size: f64) -> Value {
    let text = NETWORKS.iter().find(|(known, _)| *known == name).unwrap().1;
    let mut network: Value = serde_json::from_str(text).unwrap();
    let side = network["inputs"][0][1][3].as_f64().unwrap();
    let grow = |value: &mut Value, fields: &[&str]| {
        for field in fields {
            if let Some(number) = value[*field].as_f64() {
                value[*field] = json!(number * (size / side).powi(2));
            }
        }
    };
    grow(&mut network, &["input_elements", "output_elements", "live_elements"]);
    for layer in network["layers"].as_array_mut().unwrap() {
        grow(layer, &["flops", "reads", "writes"]);
    }
    network
}

fn answer(request: &Request) -> Result<Value, Refusal> {
    suppose(&CATALOGUE, request).map(|answer| serde_json::to_value(answer).unwrap())
}

fn predict(body: Value) -> Result<Value, Refusal> {
    answer(&Request::PredictNetwork(serde_json::from_value(body).unwrap()))
}

fn recommend(body: Value) -> Result<Value, Refusal> {
    answer(&Request::RecommendNetwork(Box::new(serde_json::from_value(body).unwrap())))
}

/// A published latency beside its prediction.
struct Row {
    device: String,
    network: String,
    size: u32,
    published: f64,
    predicted: f64,
    inside: bool,
}

fn rows() -> Vec<Row> {
    let text = include_str!("../data/published_vision.csv");
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [device, name, size, latency, precision, batch, _] = fields[..] else { panic!("{line}") };
        let size: u32 = size.parse().unwrap();
        let published = latency.parse::<f64>().unwrap() / 1e3;
        let answer = predict(json!({
            "hardware": device, "network": network(name, f64::from(size)), "precision": precision,
            "batch": batch.parse::<u64>().unwrap(),
        }));
        let answer = answer.unwrap();
        let end = |end: &str| answer["latency_s"][end].as_f64().unwrap();
        Row {
            device: device.to_owned(),
            network: name.to_owned(),
            size,
            published,
            predicted: end("value"),
            inside: (end("low")..=end("high")).contains(&published),
        }
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn published_latencies_are_predicted_and_lie_in_their_intervals() {
    let all = rows();
    for generation in [
        &["jetson-orin-nano-8gb", "jetson-orin-nx-16gb", "jetson-agx-orin-64gb"][..],
        &["jetson-xavier-nx", "jetson-agx-xavier"],
        &["rtx-3090", "rtx-3080ti"],
    ] {
        let of: Vec<&Row> = all.iter().filter(|row| generation.contains(&row.device.as_str())).collect();
        let mut errors: Vec<f64> = of.iter().map(|row| (row.predicted / row.published - 1.0).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let (median, p90) = (errors[errors.len() / 2], errors[errors.len() * 9 / 10]);
        let outside = of.iter().filter(|row| !row.inside).count();
        println!("{generation:?}: {} rows, median {median:.3}, p90 {p90:.3}, outside {outside}", of.len());
        assert!(median <= 0.08 && p90 <= 0.18, "{generation:?}: {median} {p90}");
        assert!(outside * 100 <= of.len() * 14, "{generation:?}: {outside} of {} outside", of.len());
    }
}

#[test]
fn classifiers_are_predicted_as_well_as_detectors() {
    let all = rows();
    let mut errors: Vec<f64> = all
        .iter()
        .filter(|row| row.device.starts_with("jetson") && !row.network.starts_with("yolo"))
        .map(|row| row.predicted / row.published - 1.0)
        .collect();
    errors.sort_by(f64::total_cmp);
    let (count, bias) = (errors.len(), errors[errors.len() / 2]);
    assert_eq!(count, 27);
    assert!(bias.abs() < 0.08, "{bias}");
    let off = errors.iter().filter(|error| error.abs() > 0.25).count();
    assert!(off * 10 <= count, "{off} of {count} are far off: {errors:?}");
}

#[test]
fn the_slower_of_two_networks_is_told() {
    let all = rows();
    let (mut pairs, mut right) = (0, 0);
    for (index, a) in all.iter().enumerate() {
        for b in
            all[..index].iter().filter(|b| b.device == a.device && b.size == a.size && b.network != a.network)
        {
            pairs += 1;
            right += usize::from((a.published > b.published) == (a.predicted > b.predicted));
        }
    }
    assert!(right * 100 >= pairs * 95, "{right} of {pairs}");
}

const NANO: &str = "jetson-orin-nano-8gb-super";

#[test]
fn an_answer_says_its_scope_its_layers_and_what_it_rests_on() {
    let ask = |scope| {
        predict(json!({"hardware": NANO, "network": network("yoloxs", 640.0), "scope": scope})).unwrap()
    };
    let (engine, frame) = (ask("engine"), ask("frame"));
    assert_eq!(engine["scope"], "engine");
    assert_eq!(
        (&engine["engine"], &engine["precision"], &engine["generation"]),
        (&json!("tensorrt"), &json!("fp16"), &json!("orin"))
    );
    let layers = engine["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 112);
    let shares: f64 =
        ["memory", "compute", "launch"].map(|key| engine["shares"][key].as_f64().unwrap()).iter().sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert_eq!(engine["latency_s"], engine["engine_s"]);
    assert_eq!(frame["engine_s"], engine["engine_s"]);
    assert!(frame["latency_s"]["value"].as_f64() > engine["latency_s"]["value"].as_f64());
    assert!(engine["memory_bytes"]["runtime"].is_null(), "nobody knows it");
    assert!(engine["power_w"]["value"].as_f64().unwrap() > 5.0);
}

#[test]
fn eight_bits_gain_what_was_measured_and_ask_for_a_calibration_set() {
    for name in ["yolov8n", "yolov8s", "yolov8m"] {
        let of = |precision| {
            predict(json!({"hardware": NANO, "network": network(name, 640.0), "precision": precision}))
                .unwrap()
        };
        let (fp16, int8) = (of("fp16"), of("int8"));
        let gain =
            fp16["latency_s"]["value"].as_f64().unwrap() / int8["latency_s"]["value"].as_f64().unwrap();
        assert!((1.1..1.7).contains(&gain), "{name} {gain}");
        assert!(int8["warnings"].to_string().contains("calibration set"));
        assert!(!fp16["warnings"].to_string().contains("calibration set"));
    }
}

#[test]
fn the_mode_that_draws_least_is_chosen_and_its_clocks_are_told() {
    let of = |fps: f64, power: f64, streams: u64| {
        recommend(json!({
            "workload": {"hardware": NANO, "network": network("yoloxs", 640.0)}, "power_modes": "all", "streams": streams,
            "constraints": {"min_pictures_per_s": fps, "max_power_w": power},
        }))
        .unwrap()
    };
    let easy = of(30.0, 25.0, 1);
    assert_eq!(
        (&easy["feasible"], &easy["choice"]["precision"]),
        (&json!(true), &json!("fp16")),
        "8 bits are not needed"
    );
    assert!(
        easy["command"]
            .as_str()
            .unwrap()
            .starts_with("trtexec --onnx=yoloxs.onnx --saveEngine=yoloxs.engine --fp16")
    );
    assert!(
        easy["choice"]["clock_hz"].as_f64().unwrap() > 1e8 && easy["choice"]["workers"].as_u64().unwrap() > 0
    );
    let power = |answer: &Value| answer["choice"]["power_w"]["value"].as_f64().unwrap();
    let meets = |row: &&Value| row["misses"] == json!([]) && row["precision"] == "fp16";
    for other in easy["alternatives"].as_array().unwrap().iter().filter(meets) {
        assert!(other["power_w"]["value"].as_f64().unwrap() >= power(&easy));
    }
    let hard = of(500.0, 15.0, 1);
    assert_eq!(hard["feasible"], false);
    assert!(hard["choice"]["misses"].to_string().contains("min_pictures_per_s"));
    // Four cameras at 10 frames need what one at 40 does, and may share a run.
    assert_eq!(of(10.0, 25.0, 4)["feasible"], true);
}

/// A cap that is named is the point that is predicted, alone and as a candidate, and a higher clock is never slower.
#[test]
fn a_cap_on_the_clock_is_a_point_and_a_limit_of_power_is_refused() {
    for hardware in ["gb10", "rtx-4090"] {
        let work = |point: Option<&str>| {
            let point = point.map(|name| json!({ "power_mode": name }));
            let size = network("yolov8s", 640.0);
            json!({ "hardware": hardware, "network": size, "precision": "fp16", "batch": 1, "operating_point": point })
        };
        let chosen = |modes: Value| recommend(json!({ "workload": work(None), "power_modes": modes }));
        let mut last = f64::INFINITY;
        for mhz in [600, 1200, 1800] {
            let name = format!("lgc-{mhz}");
            let alone = predict(work(Some(&name))).unwrap();
            let answer = chosen(json!([name])).unwrap();
            assert_eq!(answer["choice"]["clock_hz"], json!(f64::from(mhz) * 1e6), "{hardware} {name}");
            assert_eq!(answer["choice"]["latency_s"], alone["latency_s"], "{hardware} {name}");
            let latency = alone["latency_s"]["value"].as_f64().unwrap();
            assert!(latency <= last, "{hardware} {name}");
            last = latency;
        }
        let all = chosen(json!("all")).unwrap();
        assert!(all["considered"].as_u64().unwrap() > 3, "{hardware}");
        assert!(predict(work(Some("pl-250"))).is_err() && chosen(json!(["pl-250"])).is_err(), "{hardware}");
    }
}

/// What does not fit is no choice, and is predicted with a warning.
#[test]
fn a_network_that_needs_more_memory_than_there_is_misses_it() {
    let (mut fit, mut missed) = (0, 0);
    for batch in [1, 32, 128, 512] {
        for size in [320.0, 640.0, 1280.0] {
            let work = json!({ "hardware": "jetson-orin-nano-4gb", "network": network("yolov8s", size), "batch": batch });
            let answer = recommend(json!({ "workload": work })).unwrap();
            let memory = &answer["prediction"]["memory_bytes"];
            let of = |field: &str| memory[field].as_f64().unwrap();
            let lacks = of("weights") + of("activations") > of("available");
            assert_eq!(answer["feasible"], !lacks, "{batch} of {size}");
            let misses = answer["choice"]["misses"].to_string();
            assert_eq!(misses.contains("memory_available"), lacks, "{batch} of {size}: {misses}");
            assert_eq!(
                answer["warnings"].to_string().contains("take a smaller batch"),
                lacks,
                "{batch} of {size}"
            );
            *if lacks { &mut missed } else { &mut fit } += 1;
        }
    }
    assert!(fit > 2 && missed > 2, "{fit} {missed}");
}

#[test]
fn trtexec_is_given_the_sizes_of_open_inputs_alone() {
    let command = |open: &[&str]| {
        let mut network = network("resnet18", 224.0);
        network["inputs"] = json!([["images", [1, 3, 224, 224]], ["state", [1, 8]]]);
        network["open_inputs"] = json!(open);
        let answer = recommend(json!({
            "workload": {"hardware": NANO, "network": network, "batch": 2}, "constraints": {"min_pictures_per_s": 30},
        }));
        answer.map(|answer| answer["command"].as_str().unwrap().to_owned())
    };
    let open = command(&["images"]).unwrap();
    assert!(open.contains(" --shapes=images:2x3x224x224") && !open.contains("state"), "{open}");
    let both = command(&["images", "state"]).unwrap();
    assert!(both.contains(" --shapes=images:2x3x224x224,state:2x8"), "{both}");
    assert!(!command(&[]).is_ok_and(|fixed| fixed.contains("--shapes")));
}

#[test]
fn what_cannot_be_is_refused_by_its_field() {
    let good = || network("yoloxn", 640.0);
    let mut broken = good();
    broken["layers"][0]["flops"] = json!(-1);
    for (body, code, field) in [
        (json!({"hardware": NANO}), Code::MissingField, "network"),
        (json!({"hardware": NANO, "network": broken}), Code::InvalidModel, "network"),
        (json!({"hardware": NANO, "network": {"name": "x"}}), Code::InvalidModel, "network"),
        (
            json!({"hardware": NANO, "network": good(), "precision": "fp15"}),
            Code::UnknownPrecision,
            "precision",
        ),
        (json!({"hardware": NANO, "network": good(), "precision": "fp4"}), Code::NoUnit, "precision"),
        (json!({"hardware": NANO, "network": good(), "batch": 0}), Code::InvalidField, "batch"),
    ] {
        let refusal = predict(body).unwrap_err();
        assert_eq!((refusal.code, refusal.field.as_deref()), (code, Some(field)), "{refusal}");
    }
}
