//! Names that are almost right, against every key that exists.

use rooflined_core::hardware::registry;
use rooflined_core::near::Near;
use rooflined_core::precision::WeightFormat;

use crate::registry::models;

fn hardware(name: &str) -> String {
    registry().near(name).to_string()
}

fn model(name: &str) -> String {
    models().near(name).to_string()
}

#[test]
fn a_part_of_a_key_means_the_keys_that_have_it() {
    assert_eq!(model("llama-3.1"), "llama-3.1-8b, llama-3.1-70b or llama-3.1-405b");
    let nanos = "jetson-orin-nano-8gb-super, jetson-orin-nano-8gb or jetson-orin-nano-4gb";
    for written in ["orin-nano", "orin nano", "ORIN_NANO", "jetson orin nano"] {
        assert_eq!(hardware(written), nanos, "{written}");
    }
}

#[test]
fn what_people_ask_for_most_comes_first() {
    for (part, first) in [
        ("orin", "jetson-orin-nano-8gb-super, jetson-agx-orin-64gb or jetson-orin-nx-16gb"),
        ("agx", "jetson-agx-orin-64gb, jetson-agx-thor-t5000 or jetson-agx-xavier"),
        ("rtx", "rtx-4090, rtx-5090 or rtx-3090"),
        ("4090", "rtx-4090 or rtx-4090-laptop"),
    ] {
        assert_eq!(hardware(part), first, "{part}");
    }
    assert_eq!(model("llama"), "llama-3.1-8b, llama-3.2-3b or llama-3.3-70b");
}

#[test]
fn the_name_on_a_hub_means_the_model() {
    for written in ["meta-llama/Llama-3.1-8B-Instruct", "Llama_3.1_8B", "unsloth/Llama-3.1-8B-Instruct-GGUF"]
    {
        assert_eq!(model(written), "llama-3.1-8b", "{written}");
    }
}

#[test]
fn letters_that_are_wrong_are_put_right() {
    let format = |name: &str| Near::of(name, WeightFormat::ALL.iter().map(|format| format.key())).to_string();
    assert_eq!(format("q4km"), "q4_k_m");
    assert_eq!(format("int9"), "int8 or int4");
    assert_eq!(Near::of("gemw", ["gemv", "gemm", "attention"]).to_string(), "gemv or gemm");
    assert_eq!(Near::of("perod_s", ["period_s", "enabled"]).to_string(), "period_s");
    assert_eq!(
        Near::of("smapling", ["sampling", "daemon"]).to_string(),
        "sampling",
        "two letters changed places"
    );
}

#[test]
fn what_is_far_off_is_not_suggested() {
    assert_eq!(hardware("nosuch"), "");
    assert_eq!(model("nosuchmodel"), "");
    for name in ["", "-", "x", "q", "/", "☃", "aaaaaaaaaaaaaaaaaaaa"] {
        assert!(Near::of(name, ["15W", "gemv", "jetson-xavier-nx"]).is_empty(), "{name}");
    }
    assert!(Near::of(&"x".repeat(1_000_000), models().keys()).is_empty());
    assert!(Near::of("gemv", []).is_empty());
    assert_eq!(Near::of("gemw", ["gemv", "gemv"]).to_string(), "gemv", "once is enough");
}

#[test]
fn every_key_is_near_itself_and_its_shouted_form() {
    for key in models().keys().chain(registry().keys()) {
        let near = Near::of(&key.to_uppercase().replace('-', "_"), models().keys().chain(registry().keys()));
        assert_eq!(near.first(), Some(key));
    }
}

#[test]
fn a_hint_has_a_question_only_where_there_is_something_to_ask() {
    let near = Near::of("gemw", ["gemv", "attention"]);
    assert_eq!(near.hint("There are gemv and attention"), "did you mean gemv? There are gemv and attention");
    assert_eq!(near.hint(""), "did you mean gemv?");
    assert_eq!(Near::default().hint("see the list"), "see the list");
    assert_eq!((near.or("no"), Near::default().or("no")), ("did you mean gemv?".into(), "no".into()));
    assert_eq!(near.written("`", "`").to_string(), "`gemv`");
}
