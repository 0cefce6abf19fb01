//! CPUs by their data sheets: laws, and published rates.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fmt::Write as _;
use std::sync::LazyLock;

use rooflined_advice::{Catalogue, Opener, Request, suppose};
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::{Hardware, Kind, Registry, registry};
use serde_json::{Value, json};

static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| catalogue(registry().clone()));

fn catalogue(hardware: Registry) -> Catalogue {
    Catalogue::new(hardware, Opener::Caller)
}

/// The entries that describe a CPU.
fn cpus() -> impl Iterator<Item = &'static Hardware> {
    registry().entries().filter(|entry| entry.kind == Kind::Cpu && entry.is_described())
}

fn predict(catalogue: &Catalogue, body: &Value) -> Value {
    let request = Request::Predict(serde_json::from_value(body.clone()).unwrap());
    let answer = suppose(catalogue, &request).unwrap_or_else(|refusal| panic!("{body}: {refusal}"));
    serde_json::to_value(answer).unwrap()
}

fn decode(hardware: &str, model: &str, format: &str, threads: Option<u32>) -> Value {
    let mut workload = json!({"model": model, "format": format, "context_tokens": 256});
    if let Some(threads) = threads {
        workload["threads"] = threads.into();
    }
    json!({"hardware": hardware, "engine": "llama.cpp", "workload": workload})
}

fn number(answer: &Value, path: &str) -> f64 {
    answer.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {answer}"))
}

#[test]
fn every_cpu_answers_what_people_ask_about_it() {
    for cpu in cpus() {
        let answer = predict(&CATALOGUE, &decode(&cpu.key, "qwen3-0.6b", "q4_k_m", None));
        let [low, value, high] =
            ["low", "value", "high"].map(|end| number(&answer, &format!("/tokens_per_s/{end}")));
        assert!(0.0 < low && low < value && value < high && high.is_finite(), "{}", cpu.key);
        assert_eq!(answer["tier"], "prior", "{}", cpu.key);
        assert!(answer["limit"].is_string() && answer["power_w"].is_null(), "{}", cpu.key);
        let fits = &answer["memory_bytes"]["fits"];
        assert_eq!(fits.is_null(), cpu.memory.is_none(), "{}: {fits}", cpu.key);
        let asked = json!({"hardware": cpu.key, "engine": "llama.cpp", "workload": {"model": "qwen3-0.6b"}});
        let asked = Request::Recommend(serde_json::from_value(asked).unwrap());
        let advice = suppose(&CATALOGUE, &asked).unwrap_or_else(|refusal| panic!("{}: {refusal}", cpu.key));
        assert_eq!(serde_json::to_value(advice).unwrap()["feasible"], true, "{}", cpu.key);
    }
}

#[test]
fn networks_and_bare_operations_are_predicted_on_every_cpu() {
    let network: Value = serde_json::from_str(include_str!("../data/networks/resnet18.json")).unwrap();
    for cpu in cpus() {
        let body = json!({"hardware": cpu.key, "network": network, "engine": "onnxruntime"});
        let asked = Request::PredictNetwork(serde_json::from_value(body).unwrap());
        let answer = suppose(&CATALOGUE, &asked).unwrap_or_else(|refusal| panic!("{}: {refusal}", cpu.key));
        let answer = serde_json::to_value(answer).unwrap();
        assert!(number(&answer, "/latency_s/value") > 0.0, "{}", cpu.key);
        let op = json!({"op": {"kind": "gemv", "n": 4096, "k": 4096}, "format": "int8"});
        let answer = predict(&CATALOGUE, &json!({"hardware": cpu.key, "workload": op}));
        let least = number(&answer, "/roofline_time_s");
        assert!(number(&answer, "/time_s/value") >= least && least > 0.0, "{}", cpu.key);
    }
}

#[test]
fn a_cpu_without_an_entry_is_hinted_to_the_nearest_and_to_a_file() {
    for (asked, near) in [
        ("AMD EPYC 9334", "epyc-9554"),
        ("xeon gold 6530", "xeon-8592"),
        ("Intel Core Ultra 5 225", "core-ultra-9-285k"),
        ("rk3566", "rk3588"),
        ("n95", "n100"),
        ("cpu", "hardware list cpu"),
    ] {
        let hint = CATALOGUE.snapshot_of(None, asked).unwrap_err().hint;
        assert!(hint.contains(near), "{asked}: {hint}");
        assert!(asked == "cpu" || hint.contains("in a file"), "{asked}: {hint}");
    }
    for (asked, key) in [
        ("rpi5", "raspberry-pi-5"),
        ("orange pi 5", "rk3588"),
        ("Intel Core Ultra 9 285K", "core-ultra-9-285k"),
        ("AMD Ryzen 9 7950X", "ryzen-9-7950x"),
        ("Tesla T4", "t4"),
        ("gx10", "gb10"),
    ] {
        assert_eq!(CATALOGUE.snapshot_of(None, asked).unwrap().unwrap().board.key, key, "{asked}");
    }
    for other in ["m4", "rx 7900 xtx", "intel arc b580", "mi300x"] {
        let hint = CATALOGUE.snapshot_of(None, other).unwrap_err().hint;
        assert!(!hint.contains("did you mean") && hint.contains("in a file"), "{other}: {hint}");
    }
}

#[test]
fn no_prediction_beats_the_roofline_and_threads_beyond_the_cores_gain_nothing() {
    for cpu in cpus() {
        let parts = cpu.cpu.as_ref().unwrap();
        let (cores, most) = (parts.cores, parts.threads);
        let rate = |threads| {
            let answer = predict(&CATALOGUE, &decode(&cpu.key, "llama-3.2-1b", "q8_0", Some(threads)));
            let least = number(&answer, "/roofline_time_s");
            assert!(number(&answer, "/time_s/low") >= least * 0.999_999, "{} with {threads}", cpu.key);
            number(&answer, "/tokens_per_s/value")
        };
        assert!(rate(most) <= rate(cores) * 1.000_001, "{}", cpu.key);
    }
}

#[test]
fn lower_clocks_and_fewer_cores_are_never_faster() {
    for cpu in cpus() {
        let time = |point: Value| {
            let mut body = decode(&cpu.key, "llama-3.2-1b", "q4_k_m", None);
            body["operating_point"] = point;
            number(&predict(&CATALOGUE, &body), "/time_s/value")
        };
        let own = cpu.cpu.as_ref().unwrap();
        let whole = time(json!({}));
        assert!(time(json!({"cpu_hz": own.clock_hz / 2.0})) >= whole, "{}", cpu.key);
        assert!(time(json!({"cores_online": own.cores.div_ceil(2)})) >= whole * 0.9, "{}", cpu.key);
    }
}

#[test]
fn more_channels_or_cores_are_never_slower() {
    for cpu in cpus() {
        let own = cpu.cpu.clone().unwrap();
        let with = |key: &str, channels: u32, cores: u32| {
            let mut entry = cpu.clone();
            key.clone_into(&mut entry.key);
            entry.aliases.clear();
            entry.bus_bits = cpu.bus_bits * channels / 4;
            let parts = entry.cpu.as_mut().unwrap();
            (parts.cores, parts.threads) = (cores, own.threads.max(cores));
            entry.bandwidth = entry.memory_bandwidth(None);
            entry
        };
        let (few, most) = ((own.cores / 2).max(1), own.cores);
        let registry = Registry::with(vec![
            with("few-channels", 2, most),
            with("few-cores", 4, few),
            with("whole", 4, most),
        ]);
        let catalogue = catalogue(registry);
        for phase in ["decode", "prefill"] {
            let time = |key: &str| {
                let mut body = decode(key, "llama-3.2-1b", "q4_0", None);
                body["workload"]["phase"] = phase.into();
                if phase == "prefill" {
                    body["workload"]["prompt_tokens"] = 256.into();
                }
                number(&predict(&catalogue, &body), "/time_s/value")
            };
            let whole = time("whole");
            assert!(whole <= time("few-channels") * 1.000_001, "{} {phase}", cpu.key);
            // More threads wait for each other: a memory that few cores fill gains nothing from the rest.
            assert!(whole <= time("few-cores") * 1.1, "{} {phase}", cpu.key);
        }
    }
}

#[test]
fn ceilings_are_those_of_the_data_sheet() {
    for cpu in cpus() {
        let roofline = datasheet(cpu, &Default::default());
        let nominal = cpu.memory_bandwidth(None);
        assert_eq!(roofline.physical_bandwidth(), nominal, "{}", cpu.key);
        assert!(roofline.bandwidth.low < roofline.bandwidth.value && roofline.bandwidth.high < nominal);
    }
}

/// Rows of `published_cpu.csv`: the errors of predictions from data sheets alone.
#[test]
fn published_rates_are_as_predicted_from_data_sheets() {
    let (mut errors, mut covered, mut table) = (Vec::new(), 0, String::new());
    for line in include_str!("../data/published_cpu.csv").lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [device, threads, model, format, rate, quality, source, notes] = fields[..] else {
            panic!("{line}")
        };
        assert!(["A", "B"].contains(&quality) && !source.is_empty(), "{line}");
        let answer = predict(&CATALOGUE, &decode(device, model, format, threads.parse().ok()));
        let [low, value, high] =
            ["low", "value", "high"].map(|end| number(&answer, &format!("/tokens_per_s/{end}")));
        let rate: f64 = rate.parse().unwrap();
        assert!(rate * number(&answer, "/roofline_time_s") <= 1.0, "called impossible: {line}");
        let error = value / rate - 1.0;
        covered += usize::from((low..=high).contains(&rate));
        errors.push(error.abs());
        let mark = if (low..=high).contains(&rate) { ' ' } else { '*' };
        writeln!(table, "{mark}{device:24}{threads:>3} {model:14}{format:8}{rate:8.2}{value:8.2} ({low:.2} to {high:.2}) {:+5.0} % {notes}", error * 100.0).unwrap();
    }
    errors.sort_by(f64::total_cmp);
    let (median, covered) = (errors[errors.len() / 2], covered as f64 / errors.len() as f64);
    println!(
        "{table}{} rows: median {:.1} %, p90 {:.0} %, covered {:.0} %",
        errors.len(),
        median * 100.0,
        errors[errors.len() * 9 / 10] * 100.0,
        covered * 100.0
    );
    assert!(median <= 0.2 && covered >= 0.86, "median {median:.3}, covered {covered:.2}\n{table}");
}
