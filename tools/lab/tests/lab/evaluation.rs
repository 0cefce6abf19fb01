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

fn errors(score: &Value) -> [f64; 2] {
    ["median_error_ratio", "mean_error_ratio"].map(|name| score[name].as_f64().unwrap())
}

#[test]
fn products_of_shapes_that_were_not_calibrated_are_predicted_within_the_goal() {
    let answer = evaluation("gemm");
    let designs = answer["designs"].as_array().unwrap();
    assert_eq!(designs.len(), 2);
    for design in designs {
        assert_eq!(design["faster_than_physics"], 0);
        assert_eq!(design["reached"], true, "{design}");
        for group in design["groups"].as_array().unwrap() {
            let [median, mean] = errors(&group["score"]["score"]);
            let [_, alone] = errors(&group["score"]["constants_alone"]);
            if design["calibrated_shapes"] == 64 {
                assert!(mean < alone, "measured shapes help: {group}");
                assert!(median <= 0.08 && mean <= 0.15, "{group}");
            }
        }
    }
    let [median, mean] = errors(&designs[1]["all"]);
    assert!(median < 0.05 && mean < 0.08, "{median} {mean}");
    assert_eq!(designs[1]["groups"].as_array().unwrap().len(), 8);
    assert_eq!(designs[0]["groups"].as_array().unwrap().len(), 11);
}

#[test]
fn experts_that_tokens_read_together_follow_how_they_were_drawn() {
    let answer = evaluation("moe");
    let scores = answer["devices"][0]["scores"].as_array().unwrap();
    let of = |draw: &str, rule: &str| {
        scores.iter().find(|score| score["draw"] == draw && score["rule"] == rule).unwrap()
    };
    for (draw, truth) in [("skewed", "power_law"), ("balanced", "dealt")] {
        for kind in ["explained", "predicted"] {
            let [median, mean] = errors(&of(draw, truth)[kind]);
            // 8 % is the goal. Rules explain a whole curve so well; predicted from three points it is missed.
            let held = if kind == "explained" { 0.08 } else { 0.11 };
            assert!(median <= held, "{draw} {kind} {median}");
            for other in ["uniform", "power_law", "dealt"].into_iter().filter(|rule| *rule != truth) {
                assert!(mean < errors(&of(draw, other)[kind])[1], "{draw} {kind} {other}");
            }
        }
        assert!(errors(&of(draw, truth)["explained"])[1] <= 0.08, "{draw}");
    }
    // Uniform routing is nearer to the truth of skewed loads than dealing is.
    assert!(
        errors(&of("skewed", "uniform")["explained"])[1] < errors(&of("skewed", "dealt")["explained"])[1]
    );
}

#[test]
fn tables_for_people_have_the_goal_beside_the_scores() {
    for op in ["gemm", "moe"] {
        let output = lab(&["evaluate", op, PUBLISHED]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("goal") && text.contains("prototype"), "{text}");
    }
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
    let [board] = answer["boards"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&board["hardware"], &board["files"]), (&"jetson-orin-nano-8gb-super".into(), &8.into()));
    let mean = |of: &str| board[of]["mean_ratio"].as_f64().unwrap();
    assert_eq!(board["free"]["choices"], 672);
    let kept = board["floored"]["choices"].as_u64().unwrap();
    let missed = board["missed_floors"].as_u64().unwrap();
    assert_eq!(kept + missed, 2688, "every choice keeps its floor or misses it");
    assert!(mean("free") < 0.035 && mean("floored") < 0.045 && missed <= 5, "{board}");

    let empty = lab(&["evaluate", "decisions", PUBLISHED]);
    assert_eq!(empty.status.code(), Some(1));
}

const CPU_ROWS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/cpu_");

/// Each model is left out of the fit that it is predicted from. What is reached is held, a point or two above.
#[test]
fn engines_on_a_cpu_are_predicted_from_rows_of_other_models() {
    for (engine, runs, nothing, three, own) in [
        ("llama_cpp", 105, [0.05, 0.12], [0.07, 0.09], [0.07, 0.09]),
        ("torch", 103, [0.09, 0.07], [0.09, 0.06], [0.06, 0.05]),
        ("onnxruntime", 106, [0.08, 0.05], [0.08, 0.05], [0.07, 0.05]),
    ] {
        let output = lab(&["evaluate", "cpu", &format!("{CPU_ROWS}{engine}.csv"), "-o", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["runs"], &answer["refused"]), (&Value::from(runs), &Value::from(0)), "{answer}");
        let stage = |observed: &str, asked: &str, name: &str| {
            let stages = answer["stages"].as_array().unwrap();
            let stage = stages.iter().find(|stage| stage["observed"] == observed).unwrap();
            stage["asked"][asked][name].as_f64().unwrap()
        };
        let decodes = ["decode, one thread", "decode, all threads"];
        for (observed, most) in
            [("nothing", nothing), ("3 runs of others", three), ("1 run of the file", own)]
        {
            for (asked, most) in decodes.into_iter().zip(most).chain([("prompt", 0.10)]) {
                let error = stage(observed, asked, "median_error_ratio");
                assert!(error <= most, "{engine}, {observed}, {asked}: {error}");
                assert!(stage(observed, asked, "p90_error_ratio") <= 0.25, "{engine}, {observed}, {asked}");
                assert!(stage(observed, asked, "inside_ratio") >= 0.85, "{engine}, {observed}, {asked}");
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
    for expected in ["The new rows, from those known:", "boards, mlc, dense, decode", "Shipped coefficients"]
    {
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
    assert_eq!(answer["others"], 0, "every row has its board and its layers");
    let generations = answer["generations"].as_array().unwrap();
    assert_eq!(generations.len(), 3);
    let mut order = [0, 0];
    for generation in generations {
        let of = |errors: &str, name: &str| generation[errors][name].as_f64().unwrap();
        let mut judged = vec!["shipped", "family_left_out", "network_left_out"];
        judged.extend(generation["board_left_out"].is_object().then_some("board_left_out"));
        for errors in judged {
            let (median, p90) = (of(errors, "median"), of(errors, "p90"));
            // The rows of the two Xavier boards are of different releases of TensorRT.
            let others = errors == "board_left_out" && generation["name"] == "xavier";
            let (most_median, most_p90, least) = if others { (0.10, 0.23, 0.78) } else { (0.08, 0.18, 0.84) };
            assert!(median <= most_median && p90 <= most_p90, "{errors}: {median} {p90} {generation}");
            assert!(of(errors, "inside") >= least, "{errors} {generation}");
        }
        // The shipped constants, which rest on more networks, are about as good as a fit to these rows.
        assert!(of("shipped", "median") <= of("fitted", "median") + 0.03, "{generation}");
        for errors in ["after_others", "after_own"] {
            assert!(of(errors, "p90") <= 0.15 && of(errors, "inside") >= 0.8, "{errors} {generation}");
        }
        assert!(of("after_own", "median") <= 0.05, "{generation}");
        for (sum, count) in order.iter_mut().zip(generation["order"].as_array().unwrap()) {
            *sum += count.as_u64().unwrap();
        }
    }
    assert!(order[0] * 100 >= order[1] * 95, "{order:?}");
}
