//! Types of the elements of tensors, by their numbers in ONNX.

use rooflined_core::precision::Precision;

macro_rules! elements {
    ($($variant:ident = $number:literal $key:literal $bits:expr, $precision:expr;)*) => {
        /// What a tensor holds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ElementType {
            $($variant,)*
            /// The file does not say, or a type newer than this program.
            Unknown,
        }

        impl ElementType {
            /// The type with this number in `TensorProto.DataType`.
            #[must_use]
            pub const fn of_number(number: u64) -> Self {
                match number { $($number => Self::$variant,)* _ => Self::Unknown }
            }

            /// Short name, such as `fp16`.
            #[must_use]
            pub const fn key(self) -> &'static str {
                match self { $(Self::$variant => $key,)* Self::Unknown => "unknown" }
            }

            /// Bits of an element; `None` for strings and unknown types.
            #[must_use]
            pub const fn bits(self) -> Option<u64> {
                match self { $(Self::$variant => $bits,)* Self::Unknown => None }
            }

            /// What a unit computes in that takes such operands; `None` for indices, masks and strings.
            #[must_use]
            pub const fn precision(self) -> Option<Precision> {
                match self { $(Self::$variant => $precision,)* Self::Unknown => None }
            }
        }
    };
}

elements! {
    Float32 = 1 "fp32" Some(32), Some(Precision::Fp32);
    Uint8 = 2 "uint8" Some(8), Some(Precision::Int8);
    Int8 = 3 "int8" Some(8), Some(Precision::Int8);
    Uint16 = 4 "uint16" Some(16), None;
    Int16 = 5 "int16" Some(16), None;
    Int32 = 6 "int32" Some(32), None;
    Int64 = 7 "int64" Some(64), None;
    Text = 8 "text" None, None;
    Bool = 9 "bool" Some(8), None;
    Float16 = 10 "fp16" Some(16), Some(Precision::Fp16);
    Float64 = 11 "fp64" Some(64), Some(Precision::Fp64);
    Uint32 = 12 "uint32" Some(32), None;
    Uint64 = 13 "uint64" Some(64), None;
    Complex64 = 14 "complex64" Some(64), None;
    Complex128 = 15 "complex128" Some(128), None;
    Bfloat16 = 16 "bf16" Some(16), Some(Precision::Bf16);
    Float8E4m3 = 17 "fp8_e4m3" Some(8), Some(Precision::Fp8);
    Float8E4m3Fnuz = 18 "fp8_e4m3fnuz" Some(8), Some(Precision::Fp8);
    Float8E5m2 = 19 "fp8_e5m2" Some(8), Some(Precision::Fp8);
    Float8E5m2Fnuz = 20 "fp8_e5m2fnuz" Some(8), Some(Precision::Fp8);
    Uint4 = 21 "uint4" Some(4), Some(Precision::Int4);
    Int4 = 22 "int4" Some(4), Some(Precision::Int4);
    Float4E2m1 = 23 "fp4" Some(4), Some(Precision::Fp4);
}

impl ElementType {
    /// Whether its values are rounded reals.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(
            self,
            Self::Float32
                | Self::Float16
                | Self::Float64
                | Self::Bfloat16
                | Self::Float8E4m3
                | Self::Float8E4m3Fnuz
                | Self::Float8E5m2
                | Self::Float8E5m2Fnuz
                | Self::Float4E2m1
        )
    }

    /// Whether it stores quantised numbers: 8 bits or fewer.
    #[must_use]
    pub const fn is_narrow(self) -> bool {
        matches!(self.precision(), Some(Precision::Int8 | Precision::Int4 | Precision::Fp8 | Precision::Fp4))
    }
}
