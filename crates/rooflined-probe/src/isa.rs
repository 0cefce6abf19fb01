//! Instruction sets that kernels are dispatched to at run time.

macro_rules! isas {
    ($($(#[$doc:meta])* $name:ident = $key:literal, $arch:tt, [$($feature:tt),*];)*) => {
        /// One level of an instruction set. A kernel exists for some of them; the tests run every supported one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Isa { $($(#[$doc])* $name,)* }

        impl Isa {
            /// Best first.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// Whether this processor (and the operating system's saved state) has it.
            #[must_use]
            pub fn is_supported(self) -> bool {
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
    /// What this machine can run, best first.
    pub fn supported() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|isa| isa.is_supported())
    }
}
