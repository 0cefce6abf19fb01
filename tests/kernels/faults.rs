//! Kernels that fault, hang, or take the device along: what becomes of all the others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fake_cuda::{Fault, FaultKind, Scenario};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_predict::calibration::{GemvCase, Kernel, Plan};
use serde_json::Value;

use crate::gpu::{FP16, READ, Run, gemv, plan, probe_in, told};

/// Entries by name, and a compute capability that each is offered on.
fn entries() -> BTreeMap<String, u32> {
    let text =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/kernels.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let mut entries = BTreeMap::new();
    for module in manifest["module"].as_array().unwrap() {
        let capability = module["architectures"].as_array().unwrap().iter().rev().find_map(|found| {
            // Enough to be offered everything somewhere: the fewer, the fewer runs to compare with.
            found.as_integer().filter(|found| [87, 89, 90, 100, 110, 121].contains(found))
        });
        let capability = u32::try_from(capability.unwrap()).unwrap();
        for entry in module["entry"].as_array().unwrap() {
            entries.insert(entry["name"].as_str().unwrap().to_owned(), capability);
        }
    }
    entries
}

/// A GPU whose kernels are launched and not interpreted, so that none of their results is right.
fn gpu(capability: u32) -> Scenario {
    let compute_capability = [capability / 10, capability % 10];
    Scenario { compute_capability, driver_version: 13000, execute: false, ..Scenario::toy() }
}

/// What `--verify` says of each entry: the key of its outcome, and the text of it.
fn verified(scenario: &Scenario) -> (BTreeMap<String, (String, Value)>, String, bool) {
    let dir = tempfile::tempdir().unwrap();
    let output = probe_in(dir.path(), Some(scenario), &["--verify"], "");
    let found = String::from_utf8(output.stdout).unwrap();
    let outcome = |line: &str| {
        let mut value: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        let entry = value.remove("entry").unwrap().as_str().unwrap().to_owned();
        let (key, what) = value.into_iter().next().unwrap();
        // An error is that of memory which nothing has written.
        let what = if key == "error" { Value::Null } else { what };
        (entry, (key, what))
    };
    let errors = String::from_utf8(output.stderr).unwrap();
    (found.lines().map(outcome).collect(), errors, output.status.success())
}

/// Whether the check of that name launches the entry.
fn launches(check: &str, entry: &str) -> bool {
    check == entry
        // What the other streams have written is summed by the one that reads.
        || (entry == "stream_read" && check.starts_with("stream_"))
}

/// Entries that are faulty in one run: the probe goes on for as long as it has lost fewer than sixteen workers.
const AT_ONCE: usize = 8;

#[test]
fn a_fault_and_a_hang_in_each_entry_leave_all_others_reported() {
    let entries = entries();
    let capabilities: std::collections::BTreeSet<u32> = entries.values().copied().collect();
    let undisturbed: BTreeMap<u32, _> = capabilities.iter().map(|&at| (at, verified(&gpu(at)).0)).collect();
    let mut by_capability = BTreeMap::<u32, Vec<&String>>::new();
    for (entry, at) in &entries {
        by_capability.entry(*at).or_default().push(entry);
    }
    let runs: Vec<(&[&String], u32, FaultKind)> = [FaultKind::Hang, FaultKind::Fault]
        .iter()
        .flat_map(|kind| {
            by_capability
                .iter()
                .flat_map(move |(at, all)| all.chunks(AT_ONCE).map(move |some| (some, *at, *kind)))
        })
        .collect();
    // A hang is mostly waited for.
    let (next, reported) = (AtomicUsize::new(0), Mutex::new(BTreeMap::<&str, usize>::new()));
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                while let Some(&(faulty, at, kind)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let fault = faulty.iter().map(|entry| Fault::new(entry, kind)).collect();
                    let (found, errors, success) = verified(&Scenario { fault, ..gpu(at) });
                    let key = if kind == FaultKind::Hang { "hung" } else { "faulted" };
                    assert!(!success && errors.contains(" kernels: "), "{faulty:?}: {errors}");
                    assert!(errors.contains("hang on this GPU"), "{faulty:?}: {errors}");
                    for entry in faulty {
                        let is_struck = undisturbed[&at].keys().any(|check| launches(check, entry));
                        assert!(is_struck, "{entry} is launched by no check");
                    }
                    for (check, outcome) in &undisturbed[&at] {
                        if faulty.iter().any(|entry| launches(check, entry)) {
                            assert_eq!(found[check].0, key, "{faulty:?}: {check}: {}", found[check].1);
                        } else {
                            assert_eq!(&found[check], outcome, "{faulty:?} {key}: {check}");
                        }
                    }
                    assert_eq!(found.len(), undisturbed[&at].len());
                    *reported.lock().unwrap().entry(key).or_default() += faulty.len();
                }
            });
        }
    });
    let reported = reported.into_inner().unwrap();
    println!("{} entries; with {AT_ONCE} at a time: {reported:?}, all others reported", entries.len());
    assert!(reported.values().all(|count| *count == entries.len()), "{reported:?}");
}

#[test]
fn kernels_after_a_faulty_one_are_not_only_reported_but_right() {
    let fault = vec![Fault::new("gemv_q4_0_b2", FaultKind::Fault), Fault::new("mma_i8", FaultKind::Hang)];
    let dir = tempfile::tempdir().unwrap();
    let output = probe_in(dir.path(), Some(&Scenario { fault, ..Scenario::toy() }), &["--verify"], "");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    let counted = errors.lines().find(|line| line.contains(" kernels: ")).unwrap();
    assert!(counted.contains(" 0 wrong, 1 faulted, 1 hung, 0 not run,"), "{errors}");
    let right = counted.split(": ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(right.parse::<u32>().unwrap() > 50, "{counted}");
}

const INT8: Kernel = Kernel::Peak { precision: Precision::Int8 };
const FP8: Kernel = Kernel::Peak { precision: Precision::Fp8 };

fn measured(dir: &Path, scenario: &Scenario, plan: &Plan) -> Run {
    let known = dir.join("gpu-kernels.json").display().to_string();
    let input = format!("{}\n", serde_json::to_string(plan).unwrap());
    told(probe_in(dir, Some(scenario), &["--known", &known], &input))
}

fn kernels(run: &Run) -> Vec<Kernel> {
    run.samples.iter().map(|sample| sample.kernel).collect()
}

/// Kernels of wgmma that the mock driver has struck so far.
fn struck(dir: &Path) -> usize {
    let faults = fs::read_to_string(dir.join("gpu.faults")).unwrap_or_default();
    faults.lines().filter(|line| line.starts_with("wgmma")).count()
}

#[test]
fn what_nobody_has_run_comes_last_and_costs_itself_and_not_every_time() {
    let dram = gemv(WeightFormat::Fp16, GemvCase::Dram);
    let plan = plan(&[INT8, READ, FP8, dram]);
    for (kind, says) in [
        (FaultKind::Fault, "LAUNCH_FAILED"),
        (FaultKind::Hang, "has not ended within"),
        (FaultKind::Lost, "CUDA_ERROR_UNKNOWN"),
        (FaultKind::Gone, "CUDA_ERROR_UNKNOWN"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let fault = ["wgmma_i8", "wgmma_f8"].map(|entry| Fault::new(entry, kind)).into();
        let scenario = Scenario { compute_capability: [9, 0], fault, ..Scenario::toy() };
        let run = measured(dir.path(), &scenario, &plan);
        assert!(run.success && run.finished, "{kind:?}: {}", run.errors);
        // Whatever became of the device, what was measured before is there.
        assert_eq!(kernels(&run), [READ, dram], "{kind:?}: {:?}", run.skipped);
        assert!(run.skipped[0].contains(says), "{kind:?}: {:?}", run.skipped);
        if kind == FaultKind::Gone {
            assert!(run.skipped[1].contains("cannot be opened again"), "{:?}", run.skipped);
            fs::remove_file(dir.path().join("gpu.lost")).unwrap();
        } else {
            assert!(run.skipped[1].contains(says), "{kind:?}: {:?}", run.skipped);
            let before = struck(dir.path());
            assert!(before >= 2);
            // They are not run again,
            let run = measured(dir.path(), &scenario, &plan);
            assert_eq!(kernels(&run), [READ, dram], "{kind:?}: {:?}", run.skipped);
            for (said, module) in run.skipped.iter().zip(["wgmma_i8 ", "wgmma_f8 "]) {
                assert!(
                    said.contains(module) && said.contains("with driver 560.35.03 (CUDA 12.6) on 2"),
                    "{said}"
                );
                assert!(said.contains("gpu-kernels.json is removed"), "{said}");
            }
            assert_eq!(struck(dir.path()), before, "{kind:?}");
        }
        // until the driver is another one.
        let mut newer = Scenario { fault: Vec::new(), ..scenario };
        newer.nvml.driver_version = "999.1".into();
        let run = measured(dir.path(), &newer, &plan);
        assert_eq!(kernels(&run)[..2], [READ, dram], "{:?}", run.skipped);
        assert!(run.skipped.iter().all(|said| !said.contains("with driver")), "{:?}", run.skipped);
    }
}

#[test]
fn an_ordinary_kernel_that_faults_costs_its_own_steps() {
    let (bad, good) = (gemv(WeightFormat::Q4_0, GemvCase::Cache), gemv(WeightFormat::Fp16, GemvCase::Cache));
    let fault = vec![Fault::new("gemv_q4_0_b1", FaultKind::Fault)];
    let dir = tempfile::tempdir().unwrap();
    let scenario = Scenario { fault, ..Scenario::toy() };
    let run = measured(dir.path(), &scenario, &plan(&[READ, bad, FP16, bad, good]));
    assert!(run.success && run.finished, "{}", run.errors);
    assert_eq!(kernels(&run), [READ, FP16, good], "{:?}", run.skipped);
    assert_eq!(run.skipped.len(), 2);
    assert!(run.skipped[1].contains("have cost the GPU already"), "{:?}", run.skipped);
    // Nobody remembers it: what everybody runs deserves another try.
    assert!(!dir.path().join("gpu-kernels.json").exists());
}

/// What was right in a worker of its own shares one with the others from then on.
#[test]
fn what_was_right_is_remembered_too() {
    let fp4 = Kernel::Peak { precision: Precision::Fp4 };
    let scenario = Scenario { compute_capability: [12, 1], driver_version: 13000, ..Scenario::toy() };
    let dir = tempfile::tempdir().unwrap();
    let run = measured(dir.path(), &scenario, &plan(&[fp4, READ]));
    assert_eq!(kernels(&run), [READ, fp4], "{:?}", run.skipped);
    assert_eq!(run.samples[1].max_error_ratio, Some(0.0));
    let known: Value =
        serde_json::from_slice(&fs::read(dir.path().join("gpu-kernels.json")).unwrap()).unwrap();
    assert_eq!(known["kernels"][0]["module"], "mma_nvf4", "{known}");
    assert_eq!(known["kernels"][0]["outcome"], "right", "{known}");
    // Hence it is in its place.
    assert_eq!(kernels(&measured(dir.path(), &scenario, &plan(&[fp4, READ]))), [fp4, READ]);
}
