use super::judge::four_points;
use super::*;

fn truth() -> Coefficients {
    Coefficients { static_w: 60.0, byte_j: 110e-12, flop_j: Some(5e-12), weight_j: 40e-12, busy_w: None }
}

#[test]
fn four_kernels_are_the_extremes_and_what_lies_farthest_from_them() {
    let sample = |bytes, flops| Sample { bytes, flops, dequantized: 0.0, power: 1.0 };
    let kernels = [
        sample(10.0, 1.0),
        sample(9.9, 2.0),
        sample(9.5, 9.0),
        sample(5.0, 9.5),
        sample(1.0, 10.0),
        sample(1.1, 9.9),
    ];
    let chosen = four_points(&kernels);
    assert_eq!(&chosen[..2], &[0, 4]);
    assert_eq!(chosen.len(), 4);
    assert!(four_points(&kernels[..1]).len() == 1 && four_points(&[]).is_empty());
}

fn point(mode: &str, clock: f64, scale: f64) -> Point {
    let run = |model: &str, dequantized: f64, speed: f64| {
        let mut sample = Sample { bytes: dequantized * 0.6, flops: 0.0, dequantized, power: 0.0 };
        let of = Coefficients { weight_j: 40e-12 * scale, byte_j: 110e-12 * scale, ..truth() };
        sample.power = sample.predicted(&of);
        Measured {
            model: model.to_owned(),
            file: "q4_0".to_owned(),
            decode: true,
            tokens_per_s: speed,
            sample,
        }
    };
    Point {
        hardware: "a".to_owned(),
        rails: Rails::Module,
        mode: mode.to_owned(),
        clock,
        sm: 8,
        memory: 1e11,
        precision: Precision::Int8,
        runs: vec![run("x", 1e11, 10.0), run("y", 3e11, 20.0), run("z", 7e11, 5.0)],
        kernels: Vec::new(),
        tie: None,
    }
}

#[test]
fn exact_powers_of_a_left_out_model_are_predicted_exactly() {
    let errors = left_out_errors(&point("a", 1e9, 1.0));
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|(_, error)| error.abs() < 1e-6), "{errors:?}");
}

#[test]
fn models_alike_are_given_their_best_mode() {
    let mut points = [point("slow", 6e8, 1.0), point("fast", 1e9, 1.5)];
    for point in &mut points {
        // Alike in what they draw; how fast they are differs.
        let sample = point.runs[0].sample;
        point.runs.iter_mut().for_each(|run| run.sample = sample);
    }
    points[1].runs.iter_mut().for_each(|run| run.tokens_per_s *= 1.2);
    let choices = choose_modes(&points);
    assert_eq!((choices.len(), choices[0].files, choices[0].missed), (1, 3, 0));
    assert!(choices[0].free.worst < 1e-9, "{choices:?}");
}
