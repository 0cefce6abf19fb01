//! Operators by name, and what kind of work each does.

use rooflined_core::keyed;

macro_rules! operators {
    ($($kind:ident: $($variant:ident)*;)*) => {
        /// An operator of ONNX's default set, or a common one of ONNX Runtime's own set.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Operator {
            $($($variant,)*)*
            /// One that no rule here describes, by its name, with its domain in front where it is not the default one.
            Other(String),
        }

        impl Operator {
            /// The operator of this name.
            #[must_use]
            pub fn of_name(name: &str) -> Self {
                match name { $($(stringify!($variant) => Self::$variant,)*)* _ => Self::Other(name.to_owned()) }
            }

            /// As files spell it.
            #[must_use]
            pub fn name(&self) -> &str {
                match self { $($(Self::$variant => stringify!($variant),)*)* Self::Other(name) => name }
            }

            /// What kind of work it does; [`Kind::Other`] where no rule describes it.
            #[must_use]
            pub const fn kind(&self) -> Kind {
                match self { $($(Self::$variant => Kind::$kind,)*)* Self::Other(_) => Kind::Other }
            }
        }
    };
}

keyed! {
    /// Kinds of work, by how their operations are counted.
    Kind {
        /// Convolutions, forward and transposed.
        Convolution = "convolution",
        /// Matrix products, `Einsum` and recurrent layers.
        Product = "product",
        /// Activations and arithmetic, element by element.
        Elementwise = "elementwise",
        /// Batch, layer, group, instance and local response normalisation.
        Normalization = "normalization",
        /// Softmax and its relatives.
        Softmax = "softmax",
        /// Pooling with a window or over the whole picture.
        Pooling = "pooling",
        /// Sums, means, maxima, the k largest.
        Reduction = "reduction",
        /// Interpolation: `Resize`, `GridSample` and the like.
        Resampling = "resampling",
        /// From and to integers of few bits.
        Quantization = "quantization",
        /// Copies and indices: no arithmetic that counts.
        Movement = "movement",
        /// The same bytes under another shape: free.
        View = "view",
        /// Work that is not counted.
        Other = "other",
    }
}

operators! {
    Convolution: Conv ConvTranspose ConvInteger QLinearConv DeformConv;
    Product: MatMul Gemm MatMulInteger QLinearMatMul Einsum Attention LSTM GRU RNN;
    Elementwise: Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu
        Clip Cos Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN
        LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow QLinearAdd QLinearMul QLinearSigmoid
        QuickGelu Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh
        ThresholdedRelu Where Xor;
    Normalization: BatchNormalization GroupNormalization InstanceNormalization LayerNormalization LRN LpNormalization
        MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization SkipLayerNormalization;
    Softmax: Softmax LogSoftmax Hardmax;
    Pooling: AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool QLinearAveragePool
        QLinearGlobalAveragePool RoiAlign MaxRoiPool;
    Reduction: ArgMax ArgMin CumSum ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
        ReduceSum ReduceSumSquare TopK NonMaxSuppression;
    Resampling: Resize Upsample GridSample AffineGrid;
    Quantization: QuantizeLinear DequantizeLinear DynamicQuantizeLinear;
    Movement: Cast CastLike CenterCropPad Col2Im Compress Concat Constant ConstantOfShape DepthToSpace Expand EyeLike Gather
        GatherElements GatherND NonZero OneHot Pad QLinearConcat RandomNormal RandomNormalLike RandomUniform
        RandomUniformLike Range ReverseSequence Scatter ScatterElements ScatterND Shape Size Slice SpaceToDepth Split Tile
        Transpose Trilu Unique;
    View: Dropout Flatten Identity Reshape Squeeze Unsqueeze;
    Other: If Loop Scan;
}
