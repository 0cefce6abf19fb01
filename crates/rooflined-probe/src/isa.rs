//! Instruction sets that kernels are dispatched to at run time.

use std::sync::OnceLock;

use rooflined_core::keyed;
use rooflined_core::names::InstructionSet;

/// What this process may use of what the processor has. It is set once, before anything is measured.
static FORCED: OnceLock<&[Isa]> = OnceLock::new();

macro_rules! isas {
    ($($(#[$doc:meta])* $name:ident = $key:literal, $arch:tt, [$($feature:tt),*];)*) => {
        keyed! {
            /// One level of an instruction set, best first. A kernel exists for some of them; the tests run every supported one.
            Isa { $($(#[$doc])* $name = $key,)* }
        }

        impl Isa {
            /// Whether this processor (and the operating system's saved state) has it.
            fn is_present(self) -> bool {
                match self { $(Self::$name => isas!(@detect $arch $($feature)*),)* }
            }
        }
    };
    (@detect any) => { true };
    (@detect x86_64 $($feature:tt)*) => {{
        #[cfg(target_arch = "x86_64")]
        { true $(&& std::arch::is_x86_feature_detected!($feature))* }
        #[cfg(not(target_arch = "x86_64"))]
        { false }
    }};
    (@detect aarch64 $($feature:tt)*) => {{
        #[cfg(target_arch = "aarch64")]
        { true $(&& std::arch::is_aarch64_feature_detected!($feature))* }
        #[cfg(not(target_arch = "aarch64"))]
        { false }
    }};
}

isas! {
    /// AVX-512 with half-precision arithmetic.
    Avx512Fp16 = "avx512_fp16", x86_64, ["avx512f", "avx512bw", "avx512vl", "avx512fp16"];
    /// AVX-512 with bfloat16 dot products.
    Avx512Bf16 = "avx512_bf16", x86_64, ["avx512f", "avx512bw", "avx512vl", "avx512bf16", "fma", "f16c"];
    /// AVX-512 with 8-bit dot products.
    Avx512Vnni = "avx512_vnni", x86_64, ["avx512f", "avx512bw", "avx512vl", "avx512vnni", "fma", "f16c"];
    /// AVX-512 with byte and word operations.
    Avx512 = "avx512", x86_64, ["avx512f", "avx512bw", "avx512vl", "fma", "f16c"];
    /// 256-bit 8-bit dot products.
    AvxVnni = "avx_vnni", x86_64, ["avxvnni", "avx2", "fma", "f16c"];
    /// AVX2 with fused multiply-add and fp16 conversion.
    Avx2 = "avx2_fma", x86_64, ["avx2", "fma", "f16c"];
    /// The x86-64 baseline.
    Sse2 = "sse2", x86_64, ["sse2"];
    /// NEON with 8-bit matrix multiply.
    NeonI8mm = "neon_i8mm", aarch64, ["neon", "dotprod", "i8mm"];
    /// NEON with bfloat16 dot products and matrix multiply.
    NeonBf16 = "neon_bf16", aarch64, ["neon", "bf16"];
    /// NEON with 8-bit dot products.
    NeonDotprod = "neon_dotprod", aarch64, ["neon", "dotprod"];
    /// NEON with half-precision arithmetic.
    NeonFp16 = "neon_fp16", aarch64, ["neon", "fp16"];
    /// The aarch64 baseline.
    Neon = "neon", aarch64, ["neon"];
    Scalar = "scalar", any, [];
}

impl Isa {
    /// Whether this machine can run it, and no other set was forced.
    #[must_use]
    pub fn is_supported(self) -> bool {
        self.is_present() && FORCED.get().is_none_or(|sets| sets.contains(&self))
    }

    /// What a processor whose best instructions are `set` has, best first; nothing for `auto`.
    const fn of(set: InstructionSet) -> &'static [Self] {
        match set {
            InstructionSet::Auto => &[],
            InstructionSet::Avx512Vnni => {
                &[Self::Avx512Vnni, Self::Avx512, Self::Avx2, Self::Sse2, Self::Scalar]
            }
            InstructionSet::Avx512 => &[Self::Avx512, Self::Avx2, Self::Sse2, Self::Scalar],
            InstructionSet::AvxVnni => &[Self::AvxVnni, Self::Avx2, Self::Sse2, Self::Scalar],
            InstructionSet::Avx2 => &[Self::Avx2, Self::Sse2, Self::Scalar],
            InstructionSet::Sse2 => &[Self::Sse2, Self::Scalar],
            InstructionSet::NeonI8mm => &[Self::NeonI8mm, Self::NeonDotprod, Self::Neon, Self::Scalar],
            InstructionSet::NeonDotprod => &[Self::NeonDotprod, Self::Neon, Self::Scalar],
            InstructionSet::Neon => &[Self::Neon, Self::Scalar],
        }
    }

    /// What this machine can run, best first.
    pub fn supported() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|isa| isa.is_supported())
    }
}

/// Restricts this process to the instructions of the set named `name`.
///
/// # Errors
/// There is no such set, or this processor lacks it; which ones it has.
pub fn force(name: &str) -> Result<(), String> {
    let sets = InstructionSet::ALL
        .into_iter()
        .filter(|set| Isa::of(*set).first().is_some_and(|best| best.is_present()));
    let present: Vec<&str> =
        std::iter::once(InstructionSet::Auto).chain(sets).map(InstructionSet::key).collect();
    if !present.contains(&name) {
        return Err(format!(
            "this processor has no {name}: set [calibration] instruction_set to one of {}",
            present.join(", ")
        ));
    }
    let set = InstructionSet::ALL.into_iter().find(|set| set.key() == name).unwrap_or_default();
    if set != InstructionSet::Auto {
        let _ = FORCED.set(Isa::of(set));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_with_the_best_of_a_set_has_all_of_it() {
        for set in InstructionSet::ALL {
            let of = Isa::of(set);
            if of.first().is_some_and(|best| best.is_present()) {
                assert!(of.iter().all(|isa| isa.is_present()), "{set:?}");
            }
            assert!(set == InstructionSet::Auto || of.last() == Some(&Isa::Scalar), "{set:?}");
        }
    }

    #[test]
    fn a_set_of_another_architecture_is_refused_with_those_that_can_be_had() {
        let other = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
        for name in [other, "", "avx"] {
            let problem = force(name).unwrap_err();
            assert!(problem.contains("one of auto"), "{problem}");
        }
        assert_eq!(force("auto"), Ok(()));
    }
}
