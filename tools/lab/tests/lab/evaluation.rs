//! How good the models of operations are on measurements that others published, through the command that says so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a missing field fails the test that asked for it")]

use std::io::Write;
use std::process::{Command, Output};

use serde_json::Value;

const PUBLISHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/published_micro.csv");
const HEADER: &str = "device,op,shape,precision,m,n,k,time_us,engine,source\n";

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_rooflined-lab")).args(arguments).output().unwrap()
}

fn evaluation(op: &str) -> Value {
    let arguments = ["evaluate", op, PUBLISHED, "-o", "json"];
    let output = lab(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, lab(&arguments).stdout, "nothing is random");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"))
}

#[test]
fn products_of_shapes_that_were_not_calibrated_are_predicted_within_the_goal() {
    let answer = evaluation("gemm");
    for (design, groups) in [("shapes_27", 11), ("shapes_64", 8)] {
        let (all, rows) = answer[design]["rows"].as_array().unwrap().split_last().unwrap();
        assert_eq!((&all["device"], &all["faster_than_physics"]), (&"all".into(), &0.into()));
        assert!(
            number(all, "median_error_ratio") <= 0.08 && number(all, "mean_error_ratio") <= 0.15,
            "{all}"
        );
        assert_eq!(rows.len(), groups);
        for group in rows {
            let [median, mean, alone] =
                ["median_error_ratio", "mean_error_ratio", "constants_alone_mean_error_ratio"]
                    .map(|name| number(group, name));
            if design == "shapes_64" {
                assert!(mean < alone, "measured shapes help: {group}");
                assert!(median <= 0.08 && mean <= 0.15, "{group}");
            }
        }
    }
    let all = answer["shapes_64"]["rows"].as_array().unwrap().last().unwrap();
    assert!(number(all, "median_error_ratio") < 0.05 && number(all, "mean_error_ratio") < 0.08, "{all}");
}

#[test]
fn experts_that_tokens_read_together_follow_how_they_were_drawn() {
    let answer = evaluation("moe");
    let rows = answer["curves"]["rows"].as_array().unwrap();
    let (uniform, power_law, dealt) = ("E (1 - (1 - k/E)^T)", "the same over the power law", "min(E, T k)");
    let of = |draw: &str, rule: &str, figure: &str| {
        let row = rows.iter().find(|row| row["routing"] == draw && row["experts_read"] == rule).unwrap();
        number(row, figure)
    };
    for (draw, truth) in [("power law 1.2", power_law), ("balanced", dealt)] {
        for kind in ["explained", "predicted"] {
            let (median, mean) = (format!("{kind}_median_error_ratio"), format!("{kind}_mean_error_ratio"));
            // 8 % is the goal. Rules explain a whole curve so well; predicted from three points it is missed.
            let held = if kind == "explained" { 0.08 } else { 0.11 };
            assert!(of(draw, truth, &median) <= held, "{draw} {kind}");
            for other in [uniform, power_law, dealt].into_iter().filter(|rule| *rule != truth) {
                assert!(of(draw, truth, &mean) < of(draw, other, &mean), "{draw} {kind} {other}");
            }
        }
        assert!(of(draw, truth, "explained_mean_error_ratio") <= 0.08, "{draw}");
    }
    // Uniform routing is nearer to the truth of skewed loads than dealing is.
    let skewed = |rule: &str| of("power law 1.2", rule, "explained_median_error_ratio");
    assert!(skewed(uniform) < skewed(dealt));
}

#[test]
fn tables_for_people_have_the_figures_of_the_json() {
    let output = lab(&["evaluate", "moe", PUBLISHED]);
    let text = String::from_utf8(output.stdout).unwrap();
    let row = &evaluation("moe")["curves"]["rows"][0];
    let shown = format!("{:.1} %", 100.0 * number(row, "explained_median_error_ratio"));
    assert!(text.contains("explained median error") && text.contains(&shown), "{text}");
}

#[test]
fn files_that_hold_nothing_to_evaluate_are_refused_with_what_to_give() {
    let mut many = HEADER.to_owned();
    for index in 1..60 {
        many.push_str(&format!("martian,gemm,s,fp16,{index},64,64,5.0,,me\n"));
    }
    for (text, found) in [
        (String::new(), "has no line"),
        ("a,b\n1,2\n".to_owned(), "missing field"),
        (HEADER.to_owned(), "has no line with op gemm"),
        (format!("{HEADER}h100-sxm,gemm,s,fp16,-1,2,3,5.0,,me\n"), "invalid digit"),
        (format!("{HEADER}h100-sxm,gemm,s,fp16,1,2,3,5.0,,me\n"), "no group"),
        (format!("{HEADER}h100-sxm,gemm,s,fp16,0,2,3,inf,,me\n"), "no group"),
        (format!("{HEADER}h100-sxm,gemm,s,fp16\n"), "found record with"),
        (many, "does not know the device"),
    ] {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let output = lab(&["evaluate", "gemm", file.path().to_str().unwrap()]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(found) && stderr.contains("hint:"), "{found}: {stderr}");
    }
    let output = lab(&["evaluate", "moe", "/nonexistent/file.csv"]);
    assert_eq!(output.status.code(), Some(1));
}

/// What is reached and no more: the goal is 2 % and no floor missed, which docs/accuracy.md says is not met.
#[test]
fn choosing_a_power_mode_costs_no_more_than_is_said() {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/published_llm.csv");
    let output = lab(&["evaluate", "decisions", table, "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [free, floored] = answer["choices"]["rows"].as_array().unwrap().as_slice() else {
        panic!("{answer}")
    };
    assert_eq!((&free["machine"], &free["files"]), (&"jetson-orin-nano-8gb-super".into(), &8.into()));
    assert_eq!(free["choices"], 672);
    let [kept, missed] = ["choices", "missed"].map(|name| floored[name].as_u64().unwrap());
    assert_eq!(kept + missed, 2688, "every choice keeps its floor or misses it");
    assert!(number(free, "mean_ratio") < 0.035 && number(floored, "mean_ratio") < 0.045, "{answer}");
    assert!(missed <= 5, "{floored}");

    let empty = lab(&["evaluate", "decisions", PUBLISHED]);
    assert_eq!(empty.status.code(), Some(1));
}

const CPU_ROWS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cpu_");

/// Each model is left out of the fit that it is predicted from. What is reached is held, a point or two above.
#[test]
fn engines_on_a_cpu_are_predicted_from_rows_of_other_models() {
    for (engine, runs, nothing, three, own) in [
        ("llama_cpp", 105, [0.05, 0.12], [0.07, 0.09], [0.07, 0.09]),
        ("torch", 112, [0.09, 0.07], [0.09, 0.06], [0.06, 0.05]),
        ("onnxruntime", 116, [0.08, 0.05], [0.08, 0.05], [0.07, 0.05]),
    ] {
        let output = lab(&["evaluate", "cpu", &format!("{CPU_ROWS}{engine}.csv"), "-o", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let answer = &answer["cpu"];
        assert_eq!((&answer["runs"], &answer["refused"]), (&Value::from(runs), &Value::from(0)), "{answer}");
        let stage = |observed: &str, asked: &str, name: &str| {
            let mut rows = answer["rows"].as_array().unwrap().iter();
            let row = rows.find(|row| row["observed"] == observed && row["asked"] == asked).unwrap();
            number(row, name)
        };
        let decodes = ["decode, one thread", "decode, all threads"];
        for (observed, most) in
            [("nothing", nothing), ("3 runs of others", three), ("1 run of the file", own)]
        {
            for (asked, most) in decodes.into_iter().zip(most).chain([("prompt", 0.10)]) {
                let error = stage(observed, asked, "median_error_ratio");
                assert!(error <= most, "{engine}, {observed}, {asked}: {error}");
                assert!(stage(observed, asked, "p90_error_ratio") <= 0.25, "{engine}, {observed}, {asked}");
                assert!(stage(observed, asked, "covered_ratio") >= 0.85, "{engine}, {observed}, {asked}");
            }
        }
    }
    let other = lab(&["evaluate", "cpu", PUBLISHED]);
    assert!(!other.status.success());
    assert!(
        String::from_utf8_lossy(&other.stderr).contains("cpu_llama_cpp.csv"),
        "the hint names a file that works"
    );
}

/// Rows of the table of published rates that hold this, below its header.
fn rows_with(text: &str) -> tempfile::NamedTempFile {
    let table = include_str!("../../../../tests/data/published_llm.csv");
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for (number, line) in table.lines().enumerate() {
        if number == 0 || line.contains(text) {
            writeln!(file, "{line}").unwrap();
        }
    }
    file
}

#[test]
fn new_rows_are_judged_before_they_join_and_a_known_row_is_refused() {
    let known = rows_with(",MLC");
    // The columns that `rooflinectl observations export` writes.
    let mut new = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        new,
        "arch,batch,depth,device,engine,id,model,phase,power_mode,power_w,prompt_len,quality,quant,source,tok_s\n\
         llama-3.1-8b,1,0,jetson-agx-orin-64gb,mlc,own-1,llama-3.1-8b,decode,MAXN,,,A,int4_g32,own measurement,40.2"
    )
    .unwrap();
    let refresh = |new: &tempfile::NamedTempFile| {
        lab(&["refresh", new.path().to_str().unwrap(), "--known", known.path().to_str().unwrap()])
    };
    let output = refresh(&new);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for expected in ["The new rows, from those known", "boards, mlc, dense, decode", "Shipped coefficients"] {
        assert!(text.contains(expected), "{text}");
    }
    let again = refresh(&known);
    let errors = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(2), "{errors}");
    assert!(errors.contains("is known already"), "{errors}");
}

#[test]
fn networks_and_boards_that_no_constant_saw_are_predicted() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data");
    let (rows, networks) = (format!("{data}/published_vision.csv"), format!("{data}/networks"));
    let output = lab(&["evaluate", "networks", &rows, "--networks", &networks, "-o", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = &answer["errors"];
    assert_eq!(errors["rows_without_a_known_board_or_layers"], 0);
    let rows = errors["rows"].as_array().unwrap();
    for generation in ["ampere", "orin", "xavier"] {
        let of = |rows_of: &str, name: &str| {
            let row = rows.iter().find(|row| row["generation"] == generation && row["rows_of"] == rows_of);
            number(row.unwrap(), name)
        };
        for judged in ["shipped constants", "families left out", "networks left out", "boards left out"] {
            let (median, p90) = (of(judged, "median_error_ratio"), of(judged, "p90_error_ratio"));
            // The rows of the two Xavier boards are of different releases of TensorRT.
            let others = judged == "boards left out" && generation == "xavier";
            let (most_median, most_p90, least) = if others { (0.10, 0.23, 0.78) } else { (0.08, 0.18, 0.84) };
            assert!(median <= most_median && p90 <= most_p90, "{generation}, {judged}: {median} {p90}");
            assert!(of(judged, "covered_ratio") >= least, "{generation}, {judged}");
        }
        // The shipped constants, which rest on more networks, are about as good as a fit to these rows.
        let [shipped, fitted] =
            ["shipped constants", "a fit to them"].map(|rows_of| of(rows_of, "median_error_ratio"));
        assert!(shipped <= fitted + 0.03, "{generation}: {shipped} {fitted}");
        for judged in ["after others of a board", "other sizes after one"] {
            assert!(of(judged, "p90_error_ratio") <= 0.15, "{generation}, {judged}");
            assert!(of(judged, "covered_ratio") >= 0.8, "{generation}, {judged}");
        }
        assert!(of("other sizes after one", "median_error_ratio") <= 0.05, "{generation}");
    }
    let orders = answer["orders"]["rows"].as_array().unwrap();
    let all: f64 = orders.iter().map(|row| number(row, "pairs")).sum();
    let kept: f64 = orders.iter().map(|row| number(row, "pairs") * number(row, "in_order_ratio")).sum();
    assert!(orders.len() == 3 && kept >= 0.95 * all, "{orders:?}");
}
