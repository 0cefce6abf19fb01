//! The targets without libFuzzer.

use rooflined_fuzz::{TARGETS, repository, seeds};

/// One test, for some targets replace the standard input of the process.
#[test]
fn every_target_takes_its_seeds_and_the_kept_corpus() {
    let seeds = seeds::all();
    assert_eq!(seeds.each_ref().map(|(name, _)| *name), TARGETS.map(|(name, _)| name));
    for ((name, seeds), (_, run)) in seeds.into_iter().zip(TARGETS) {
        assert!(!seeds.is_empty(), "{name} has no seeds");
        let kept = std::fs::read_dir(repository("fuzz/corpus").join(name)).into_iter().flatten().flatten();
        let kept: Vec<Vec<u8>> = kept.filter_map(|entry| std::fs::read(entry.path()).ok()).collect();
        println!("{name}: {} seeds, {} kept inputs", seeds.len(), kept.len());
        // The privileged helper leaves its filter of system calls to the thread that it ran in.
        let inputs = seeds.iter().chain(&kept);
        std::thread::scope(|scope| scope.spawn(|| inputs.for_each(|input| run(input))).join()).expect(name);
    }
}
