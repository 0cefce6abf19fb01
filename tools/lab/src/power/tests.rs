use super::judge::four_points;
use super::*;
use rooflined_core::hardware::registry;

const TRUTH: Energies =
    Energies { idle_w: 60.0, active_w: 0.0, byte_j: 110e-12, flop_j: None, weight_j: 40e-12, busy_w: None };

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

/// Decodes of three models on a board that is in the registry.
fn point(hardware: &str, mode: &str, clock_hz: f64) -> Point {
    let known = registry().get(hardware).unwrap();
    let reference = Reference::of(registry().get("jetson-agx-orin-64gb").unwrap());
    let place = Place { clock_hz, workers: known.sm, memory_bytes_per_s: known.bandwidth.get() };
    let of = TRUTH.at(&reference.factors(&place, size(known), reference.clock_hz));
    // Bytes and weights that always went together could not be told apart where the voltage is another one.
    let run = |model: &str, bits: f64, dequantized: f64, tokens_per_s: f64| {
        let mut sample = Sample { bytes: dequantized * bits / 8.0, flops: 0.0, dequantized, power: 0.0 };
        sample.power = sample.predicted(&of);
        let (model, file) = (model.to_owned(), "q4_0".to_owned());
        Measured { model, file, decode: true, tokens_per_s, lab: String::new(), sample }
    };
    Point {
        hardware: hardware.to_owned(),
        rails: Rails::Module,
        mode: mode.to_owned(),
        place,
        size: size(known),
        precision: Precision::Int8,
        runs: vec![run("x", 4.5, 1e10, 10.0), run("y", 8.5, 3e10, 20.0), run("z", 2.5, 7e10, 5.0)],
        kernels: Vec::new(),
    }
}

const AGX: &str = "jetson-agx-orin-64gb";
const NANO: &str = "jetson-orin-nano-8gb-super";

#[test]
fn exact_powers_of_what_was_left_out_are_predicted_exactly() {
    let mut points = [point(AGX, "a", 1e9), point(AGX, "b", 6e8), point(NANO, "c", 6e8)];
    for point in &mut points {
        // Half of what stands is that of busy cores where no idle board was measured.
        let idle =
            Sample::idle(TRUTH.at(&point.factors(&Reference::of(registry().get(AGX).unwrap()))).idle_w);
        let (model, file, lab) = (String::new(), String::new(), String::new());
        point.runs.push(Measured { model, file, decode: false, tokens_per_s: 0.0, lab, sample: idle });
    }
    let families = families(&points, registry());
    assert_eq!((families.len(), families[0].hardware), (1, AGX));
    let errors = left_out_errors(&families[0]);
    assert_eq!(errors.len(), 9);
    assert!(errors.iter().all(|left_out| left_out.error.abs() < 1e-6), "{errors:?}");
    let boards = judge_boards(&families[0]);
    assert_eq!(boards.len(), 2);
    for board in boards {
        assert!(board.alone.mean < 1e-6 && board.anchored.unwrap().mean < 1e-6, "{board:?}");
    }
}
