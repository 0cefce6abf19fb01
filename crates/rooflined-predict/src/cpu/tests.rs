use super::*;
use crate::learning::cpu_run::CpuRun;
use rooflined_core::ceilings::{BandwidthPoint, Ceiling, Provenance};
use rooflined_core::precision::Precision;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;

fn exact<R: Copy>(value: R) -> Ceiling<R> {
    Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
}

/// Two cores of 3.7 GHz: one reads 30 GB/s, both 34 GB/s; 60 GB/s from the last-level cache.
fn two_cores() -> Roofline {
    let point = |working_set, threads, read| BandwidthPoint {
        working_set: Bytes(working_set),
        threads,
        read: BytesPerSecond(read),
    };
    Roofline {
        bandwidth: exact(BytesPerSecond(34e9)),
        memory_limit: None,
        pull_limit: None,
        curve: vec![point(1e9, 1, 30e9), point(32e3, 2, 400e9), point(16e6, 2, 60e9), point(1e9, 2, 34e9)],
        copy: None,
        triad: None,
        compute: std::collections::BTreeMap::from([(
            Precision::Fp32,
            exact(rooflined_core::units::FlopsPerSecond(236e9)),
        )]),
        launch: exact(Seconds(2e-6)),
        ramp: Seconds::ZERO,
        workers: 2,
        clock: Some(Hertz(3.7e9)),
    }
}

fn host(threads: u32) -> Host {
    Host { processor: Processor::Zen4, cores: 2, threads: Some(threads), far: false, costs: None }
}

fn tiny(format: &str) -> Model {
    models()
        .get("tinyllama-1.1b")
        .unwrap()
        .model(Recipe::Gguf(rooflined_models::recipe::Mix::of(format.parse().unwrap()).unwrap()))
}

fn rate(format: &str, threads: u32, request: &Request) -> f64 {
    let model = tiny(format);
    let machine = Machine::of(&two_cores(), &host(threads)).unwrap();
    let run = Run::new(&model, request).unwrap();
    let costs = cpu_costs(Engine::LlamaCpp, Processor::Zen4).unwrap();
    let time: f64 = repeated(&model, &run, request)
        .iter()
        .map(|part| part.work.time(&machine, &costs.log).total().get() * part.times)
        .sum();
    let tokens = if request.prompt_tokens > 0 { request.prompt_tokens } else { request.batch };
    f(tokens) / time
}

/// By hand for 22 layers and 1.03e9 weights of Q8_0, 34 bytes for 32: 1.1 GB at 0.96 x 30 GB/s = 38.1 ms; 0.178 cycles each at
/// 3.7 GHz = 49.8 ms; root 62.7 ms; 22 x 8.65 us of small operations; some 1e6 inputs of half a cycle.
#[test]
fn one_thread_takes_what_the_formula_gives_by_hand() {
    let rate = rate("q8_0", 1, &Request::decode(0));
    assert!((rate * 62.9e-3 - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn a_second_thread_helps_the_cores_and_hardly_the_memory() {
    let speedup = |format| rate(format, 2, &Request::decode(32)) / rate(format, 1, &Request::decode(32));
    assert!((1.1..1.4).contains(&speedup("fp16")), "{}", speedup("fp16"));
    assert!((1.2..1.7).contains(&speedup("q4_0")), "{}", speedup("q4_0"));
}

#[test]
fn two_sequences_of_q8_0_are_slower_than_one() {
    let at = |batch| rate("q8_0", 1, &Request { batch, ..Request::decode(32) });
    assert!(at(2) < 1.15 * at(1), "{} {}", at(1), at(2));
    assert!(at(8) > 1.5 * at(2), "{} {}", at(2), at(8));
}

#[test]
fn every_head_walks_a_long_cache_and_a_quantised_one_longer() {
    let at = |context, kv_cache| rate("q4_0", 1, &Request { kv_cache, ..Request::decode(context) });
    let (short, long) = (at(0, WeightFormat::Fp16), at(2048, WeightFormat::Fp16));
    // 22 layers x 32 heads x 2048 keys x 100 cycles = 39 ms.
    assert!((1.0 / long - 1.0 / short - 39e-3).abs() < 4e-3, "{}", 1.0 / long - 1.0 / short);
    assert!(at(2048, WeightFormat::Q8_0) < long);
}

#[test]
fn what_fits_in_the_cache_is_read_from_there() {
    let machine = Machine::of(&two_cores(), &host(2)).unwrap();
    assert_eq!(machine.read_rate(Bytes(16e6)), BytesPerSecond(60e9));
    assert_eq!(machine.read_rate(Bytes(4e9)), BytesPerSecond(34e9));
    let between = machine.read_rate(Bytes(100e6)).get();
    assert!((34e9..60e9).contains(&between), "{between}");
    // One thread was measured from main memory alone: the cache is as much faster for it.
    let one = Machine::of(&two_cores(), &host(1)).unwrap();
    assert!((one.read_rate(Bytes(16e6)).get() / (60e9 * 30.0 / 34.0) - 1.0).abs() < 1e-9);
    assert_eq!(one.read_rate(Bytes(4e9)), BytesPerSecond(30e9));
}

#[test]
fn no_time_lies_below_its_bound_with_few_threads_either() {
    let roofline = two_cores();
    for threads in [1, 2] {
        for (format, request) in
            [("fp16", Request::decode(0)), ("q4_k_m", Request::decode(4096)), ("q8_0", Request::prefill(512))]
        {
            let model = tiny(format);
            let machine = Machine::of(&roofline, &host(threads)).unwrap();
            let at = host(threads).roofline(&roofline);
            let costs = cpu_costs(Engine::LlamaCpp, Processor::Zen4).unwrap();
            for part in repeated(&model, &Run::new(&model, &request).unwrap(), &request) {
                let time = part.work.time(&machine, &costs.log).total();
                let (floor, fastest) = (part.work.floor(&machine, &at), part.work.fastest(&machine, &at));
                assert!(fastest <= floor, "{format} {threads}");
                assert!(request.prompt_tokens > 0 || floor <= time, "{format} {threads}: {floor} {time}");
            }
        }
    }
}

#[test]
fn doubt_is_what_the_coefficients_leave() {
    let model = tiny("q4_k_m");
    let request = Request::decode(32);
    let passes = repeated(&model, &Run::new(&model, &request).unwrap(), &request);
    let sd = |processor| {
        let machine = Machine::of(&two_cores(), &Host { processor, ..host(1) }).unwrap();
        let costs = cpu_costs(Engine::LlamaCpp, processor).unwrap();
        CpuRun { machine, passes: passes.clone() }.prior_log_sd(costs)
    };
    assert!((0.1..0.2).contains(&sd(Processor::Zen4)), "{}", sd(Processor::Zen4));
    assert!(sd(Processor::Other) > 2.0 * sd(Processor::Zen4));
}
