//! CPU kernels that do without instructions of this CPU.

use super::suspect::{Change, Suspect, file, log_of};
use rooflined_api::RunEvidence;

/// Libraries that llama.cpp builds for one level of processors, and what their kernels do without.
const LIBRARIES: [(&[&str], &[&str]); 6] = [
    (
        &["-x64", "-sse42", "-sandybridge", "-ivybridge", "-piledriver"],
        &["avx2", "avx_vnni", "avx512_vnni", "amx_int8"],
    ),
    (&["-haswell"], &["avx_vnni", "avx512_vnni", "amx_int8"]),
    (&["-alderlake", "-skylakex", "-cannonlake"], &["avx512_vnni", "amx_int8"]),
    (&["-cascadelake", "-icelake", "-cooperlake", "-zen4"], &["amx_int8"]),
    (&["-armv8.0"], &["asimddp", "i8mm"]),
    (&["-armv8.2"], &["i8mm"]),
];

/// A feature of the CPU as Linux names it, and as `system_info` of llama.cpp does.
const INSTRUCTIONS: [(&str, &str); 6] = [
    ("avx2", "AVX2"),
    ("avx_vnni", "AVX_VNNI"),
    ("avx512_vnni", "AVX512_VNNI"),
    ("amx_int8", "AMX_INT8"),
    ("asimddp", "DOTPROD"),
    ("i8mm", "MATMUL_INT8"),
];

/// Kernels without instructions of a CPU with these `features`.
pub fn suspect(features: &[String], seen: &RunEvidence) -> Option<Suspect> {
    let is_here = |name: &str| features.iter().any(|feature| feature == name);
    let (what, without, source, value) = if let Some(used) = &seen.instructions {
        // An empty list is that of another engine.
        let is_unused = |name: &str| !used.is_empty() && !used.iter().any(|own| own == name);
        let unused = INSTRUCTIONS.iter().filter(|(name, own)| is_here(name) && is_unused(own));
        let without: Vec<&'static str> = unused.map(|(name, _)| *name).collect();
        let source = seen.instructions_file.clone().unwrap_or_else(|| log_of(seen));
        ("its kernels".to_owned(), without, source, used.join(" "))
    } else {
        let library = seen.kernels.as_ref()?;
        let (_, without) =
            LIBRARIES.iter().find(|(names, _)| names.iter().any(|name| library.contains(name)))?;
        let without = without.iter().copied().filter(|name| is_here(name)).collect();
        (format!("the kernels of {library}"), without, file(seen, "maps"), library.clone())
    };
    if without.is_empty() {
        return None;
    }
    let what = format!("{what} do not use {}, which this CPU has", without.join(", "));
    let fix = "build it on this machine (cmake -DGGML_NATIVE=ON), or with all variants (-DGGML_CPU_ALL_VARIANTS=ON)";
    Some(Suspect::new("kernels", what, Change::Without(without), fix).shown_by(source, value))
}

/// Kernels that were compiled for a debugger.
pub fn unoptimised(seen: &RunEvidence) -> Option<Suspect> {
    seen.is_unoptimised.filter(|is| *is)?;
    let suspect = Suspect::possible(
        "kernels",
        "its kernels were compiled without optimisation",
        "build it again with -DCMAKE_BUILD_TYPE=Release",
    );
    let source = seen.instructions_file.clone().unwrap_or_else(|| file(seen, "maps"));
    Some(
        suspect
            .shown_by(source, "its functions keep a frame and clear registers by moving zeros, as -O0 does"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(features: &[&str], seen: &RunEvidence) -> Option<String> {
        let features: Vec<String> = features.iter().map(|name| (*name).to_owned()).collect();
        suspect(&features, seen).map(|suspect| suspect.what)
    }

    #[test]
    fn only_instructions_that_this_cpu_has_are_missed() {
        let haswell =
            RunEvidence { kernels: Some("libggml-cpu-haswell.so".into()), ..RunEvidence::default() };
        assert_eq!(named(&["avx2"], &haswell), None);
        let what = named(&["avx2", "avx512_vnni"], &haswell).unwrap();
        assert!(what.contains("libggml-cpu-haswell.so do not use avx512_vnni,"), "{what}");
        let log = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>());
        let seen = RunEvidence { instructions: log(&["SSE3", "AVX2", "FMA"]), ..haswell };
        assert_eq!(named(&["avx2"], &seen), None);
        assert!(named(&["avx2", "amx_int8"], &seen).unwrap().contains("amx_int8"));
        let other = RunEvidence { instructions: log(&[]), ..RunEvidence::default() };
        assert_eq!(named(&["avx2"], &other), None);
        assert_eq!(named(&["avx2"], &RunEvidence::default()), None);
    }
}
