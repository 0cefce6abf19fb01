//! The schemas of the OpenAPI document: derived from the types of this crate by a test, which keeps `schemas.json` up to date.
//!
//! The daemon serves that file, so no program needs utoipa. Keys of enumerations come from the enumerations themselves. Answers
//! that are built as JSON have their shape here; tests/server/openapi.rs holds real answers against it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use rooflined_core::precision::Precision as CorePrecision;
use rooflined_core::refusal::Code;
use rooflined_core::{board, ceilings, hardware, names};
use rooflined_models::{class, network, registry, transformer};
use rooflined_predict as predict;
use serde::Serialize;
use serde::de::value::Error as ValueError;
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{OpenApi, PartialSchema, ToSchema};

use crate::*;

/// Tells a caller the variants that a type asks for, as the error.
struct Variants<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Variants<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, ValueError> {
        Err(de::Error::custom("not an enumeration"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ValueError> {
        *self.0 = variants;
        Err(de::Error::custom("the variants are known now"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The keys that an enumeration has on the wire.
fn keys_of<T: for<'de> Deserialize<'de>>() -> Vec<&'static str> {
    let mut variants: &'static [&'static str] = &[];
    let _ = T::deserialize(Variants(&mut variants));
    assert!(!variants.is_empty(), "{} is not an enumeration", std::any::type_name::<T>());
    variants.to_vec()
}

fn enumeration(description: &str, keys: impl IntoIterator<Item = &'static str>) -> RefOr<Schema> {
    let object = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(keys));
    object.description(Some(description.trim())).build().into()
}

macro_rules! enumerations {
    ($($(#[doc = $doc:literal])+ $name:ident = $keys:expr;)+) => {$(
        pub struct $name;

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                enumeration(concat!($($doc),+), $keys)
            }
        }

        impl ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )+};
}

enumerations! {
    /// An inference engine; `none` for the daemon's own kernels.
    Engine = keys_of::<names::Engine>();
    /// An engine of models or of vision networks.
    AnyEngine = keys_of::<names::Engine>().into_iter().chain([names::NetworkEngine::TensorRt.key()]);
    /// An engine that runs vision networks.
    NetworkEngine = keys_of::<names::NetworkEngine>();
    /// What a latency of a vision network covers: the engine alone, with the copies of input and output, or everything from a
    /// decoded picture to boxes.
    NetworkScope = keys_of::<names::NetworkScope>();
    /// What kind of kernel runs a layer of a network.
    LayerKind = keys_of::<predict::network::LayerKind>();
    /// What takes most of the time of a layer.
    LayerBound = [
        predict::network::LayerBound::Memory,
        predict::network::LayerBound::Compute,
        predict::network::LayerBound::Launch,
    ].map(predict::network::LayerBound::key);
    /// What a recommendation optimizes.
    Objective = keys_of::<names::Objective>();
    /// What the energy of a token counts.
    EnergyBasis = keys_of::<names::EnergyBasis>();
    /// End of the prediction interval that must meet the constraints.
    Optimism = keys_of::<names::Optimism>();
    /// Extent of a calibration.
    PlanKind = keys_of::<names::PlanKind>();
    /// Which part of generating text.
    Phase = keys_of::<transformer::Phase>();
    /// What a model is asked for.
    Task = keys_of::<transformer::Task>();
    /// What drafts tokens ahead.
    DraftKind = keys_of::<transformer::DraftKind>();
    /// Stable code of an error.
    ErrorCode = Code::ALL.iter().map(|code| code.key());
    /// Where a ceiling comes from, the most trustworthy first.
    Provenance = keys_of::<ceilings::Provenance>();
    /// Side of the roofline.
    Bound = keys_of::<ceilings::Bound>();
    /// The ceiling that takes most of the time.
    Limit = keys_of::<predict::Limit>();
    /// What a prediction rests on, the weakest first.
    Tier = keys_of::<predict::Tier>();
    /// Whose errors an interval was taken from.
    IntervalSource = keys_of::<predict::costs::IntervalSource>();
    /// What a precision is called.
    Precision = CorePrecision::ALL.iter().map(|precision| precision.key());
    /// Kinds of work of a network, by how their operations are counted.
    WorkKind = network::Kind::ALL.iter().map(|kind| kind.key());
    /// What a power meter covers.
    Rails = keys_of::<predict::power::Rails>();
    /// What a power covers; `rail:NAME` is one rail.
    PowerScope = predict::power::Rails::ALL.map(predict::power::Rails::scope);
    /// Whose measurements power rests on.
    PowerSource = keys_of::<predict::power::PowerSource>();
    /// A load that was held while the power meter was read.
    LoadKind = keys_of::<predict::calibration::LoadKind>();
    /// Where the worst power of a mode comes from.
    WorstSource = [
        predict::snapshot::WorstSource::Measured,
        predict::snapshot::WorstSource::Carried,
        predict::snapshot::WorstSource::Prior,
    ].map(predict::snapshot::WorstSource::key);
    /// Why the active mode is active.
    ModeCause = keys_of::<predict::snapshot::ModeCause>();
    /// What the daemon does by itself for holds with a query.
    Automatic = keys_of::<predict::snapshot::Automatic>();
    /// What a calibration waits for.
    Gate = keys_of::<predict::calibration::Gate>();
    /// A limit that excludes candidates.
    Constraint = predict::optimize::Constraint::ALL.map(predict::optimize::Constraint::key);
    /// What limits the number of blocks that an SM holds.
    Resource = [
        predict::tiling::Resource::Blocks,
        predict::tiling::Resource::Threads,
        predict::tiling::Resource::SharedMemory,
        predict::tiling::Resource::Registers,
    ].map(predict::tiling::Resource::key);
    /// What takes most of the time of a tile.
    TileLimit = [
        predict::tiling::TileLimit::Dram,
        predict::tiling::TileLimit::SharedMemory,
        predict::tiling::TileLimit::Compute,
        predict::tiling::TileLimit::Launch,
    ].map(predict::tiling::TileLimit::key);
    /// What came of a switch.
    SwitchOutcome = keys_of::<board::SwitchOutcome>();
    /// The program or file that describes a GPU.
    GpuDriver = keys_of::<board::GpuDriver>();
    /// How memory and accelerator belong together.
    HardwareKind = keys_of::<hardware::Kind>();
    /// How sure the figures of a model are.
    Confidence = keys_of::<registry::Confidence>();
    /// Use of weights.
    WeightClass = class::Class::ALL.iter().map(|class| class.key());
    /// Kind of an operation.
    OpKind = ["gemv", "gemm", "attention"];
    /// How a measured time compares with the prediction.
    Verdict = ["impossible", "at_ceiling", "as_predicted", "slower_than_predicted", "faster_than_predicted"];
    /// How a measured rate compares with the one that was expected.
    ExplainVerdict = ["as_expected", "slower_than_expected", "faster_than_expected", "not_measured"];
    /// Why a run is slower than expected.
    Cause = [
        "power_mode", "gpu_clock_cap", "memory_clock", "sm_gated", "thermal", "power_limit", "current", "supply", "gpu_clock",
        "memory_bandwidth", "slow_state", "gpu_shared", "cpu_clock", "cores_offline", "steal", "memory_pressure", "model", "kv_format",
        "context", "batch", "chunk", "offload", "speculation", "engine_version", "threads", "affinity", "smt", "cpu_quota",
        "slow_cores", "numa", "low_priority", "cpu_weight", "other_process", "kernels", "gpu_unused", "page_faults", "swap", "warming", "options",
        "disturbed",
    ];
    /// How sure the effect of a cause is.
    Certainty = ["predicted", "estimated", "possible"];
    /// Whose reports moved a prediction.
    ReportScope = ["own", "shared"];
    /// Whose answers a report moves.
    Moves = ["everyone", "own"];
    /// What made an answer stale.
    StaleCause = [
        "mode", "throttle", "calibration", "observations", "clocks", "ceilings", "memory", "modes", "other",
    ];
    /// Power modes that are not listed by name.
    ModesKind = ["all", "live"];
}

/// One operation.
#[derive(Debug, PartialEq, Serialize, serde::Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// `y = W x`: the weights are `n` rows of `k`.
    Gemv { n: u64, k: u64 },
    /// `C = A W`: A is `m x k`, W is `k x n`.
    Gemm { m: u64, n: u64, k: u64 },
    /// Scaled dot-product attention of one layer, causal.
    Attention {
        batch: u64,
        heads: u64,
        kv_heads: u64,
        query_tokens: u64,
        context_tokens: u64,
        head_dim: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<u64>,
    },
}

macro_rules! shapes {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)+ })+) => {$(
        #[derive(ToSchema)]
        $(#[$meta])*
        #[expect(dead_code, reason = "the shape of JSON that is built elsewhere")]
        pub struct $name { $($(#[$field_meta])* $field: $type,)+ }
    )+};
}

shapes! {
    /// What a holder needs. At least one field; every one given is met or nothing is held.
    #[serde(deny_unknown_fields)]
    HoldConstraints {
        /// Name of the one mode that meets it.
        mode: Option<String>,
        /// A mode with no less compute and no less memory bandwidth than this one.
        min_mode: Option<String>,
        /// Maximum power of the worst load in the mode, at the pessimistic end; the watts in its name are a label and do not count.
        max_power_w: Option<f64>,
        /// Minimum of the cap on the GPU clock.
        min_gpu_hz: Option<f64>,
        /// Minimum memory bandwidth that the mode must give.
        min_bandwidth_bytes_per_s: Option<f64>,
        /// Minimum fp16 peak (fp32 without an fp16 unit).
        min_compute_flops_per_s: Option<f64>,
    }
    /// The GPU of the machine.
    BoardGpu {
        /// Name that the driver gives it.
        name: Option<String>,
        /// Who describes it.
        #[schema(value_type = GpuDriver)]
        driver: String,
        /// Version of the driver.
        driver_version: Option<String>,
        /// Number of streaming multiprocessors (SM) with nothing gated.
        sm_total: Option<u32>,
        /// Highest clock.
        max_hz: Option<f64>,
        /// Clocks that the driver admits, ascending.
        clocks_hz: Vec<f64>,
    }
    /// The processor.
    BoardCpu {
        /// Model name.
        model: Option<String>,
        /// Instruction set, such as `aarch64`.
        architecture: String,
        /// Number of logical CPUs.
        logical: u32,
        /// Number of physical cores.
        cores: Option<u32>,
        /// Highest clock.
        max_hz: Option<f64>,
        /// Caches of each level.
        caches: Vec<BoardCache>,
        /// Size of the last level over all its instances.
        last_level_cache_bytes: Option<u64>,
        /// Extensions of the instruction set.
        features: Vec<String>,
    }
    /// A cache of the processor.
    BoardCache {
        /// Level, counted from 1.
        level: u32,
        /// What the kernel says that it holds: data, instructions or both.
        kind: String,
        /// Size of one instance.
        size_bytes: u64,
        /// CPUs that share one instance.
        shared_by: u32,
        /// Number of instances.
        instances: u32,
    }
    /// Memory of the machine.
    BoardMemory {
        /// Size.
        total_bytes: Option<f64>,
        /// CPU and GPU share it.
        unified: bool,
    }
    /// How to put a recommendation into practice.
    Apply {
        /// The machine is in the mode of the choice already.
        active: bool,
        /// The mode needs a reboot.
        reboot_required: bool,
        /// Expected cost of entering the mode; `null` if infeasible.
        entering_s: Option<f64>,
        /// Command that sets the clock cap or power limit of the choice, which the daemon does not set itself; `null` without one.
        enter: Option<String>,
        /// Command that lifts it; `null` where that is unknown.
        leave: Option<String>,
        /// Command line or settings by engine.
        settings: BTreeMap<String, Value>,
    }
    /// What a calibration measured.
    CalibrationRecord {
        /// Version of this layout.
        schema: u32,
        /// Machine that it holds for.
        key: BTreeMap<String, Value>,
        /// Time of the newest measurement, in seconds since 1970.
        measured_at_unix_s: f64,
        /// Duration of the newest run in seconds.
        wall: f64,
        /// Extent of the newest run.
        #[schema(value_type = PlanKind)]
        plan: String,
        /// Measured on a simulated accelerator.
        simulated: bool,
        /// The newest run was made during other work.
        loaded: bool,
        /// That work; `null` where there was none, or it is unknown.
        other_work: Option<BTreeMap<String, Value>>,
        /// Regimes of the machine, the active one first.
        regimes: Vec<BTreeMap<String, Value>>,
        /// Samples of the newest run that were not used.
        rejected: Vec<BTreeMap<String, Value>>,
        /// Steps of the newest run that this machine cannot do.
        skipped: Vec<String>,
        /// Power and energy coefficients; `null` without a power meter.
        power: Option<BTreeMap<String, Value>>,
    }
    /// The calibration that is running or waiting, and the last one.
    CalibrationStatus {
        /// Number of the running job.
        running: Option<u64>,
        /// Part of it that is done, 0 to 1.
        fraction: Option<f64>,
        /// Step that is running.
        step: Option<String>,
        /// Why a wanted calibration has not started.
        #[schema(value_type = Option<Gate>)]
        waiting_for: Option<String>,
        /// The same in a sentence.
        waiting_reason: Option<String>,
        /// Number of the last finished job.
        last_job: Option<u64>,
        /// Why the last job failed; `null` if it did not.
        last_error: Option<String>,
    }
    /// The operation of a report, with its shape where that was kept.
    ObservedOp {
        #[schema(value_type = OpKind)]
        kind: String,
        m: Option<u64>,
        n: Option<u64>,
        k: Option<u64>,
        batch: Option<u64>,
        heads: Option<u64>,
        kv_heads: Option<u64>,
        query_tokens: Option<u64>,
        context_tokens: Option<u64>,
        head_dim: Option<u64>,
        window: Option<u64>,
    }
}

/// An accelerator of the machine.
#[derive(ToSchema)]
#[schema(rename_all = "snake_case")]
#[serde(tag = "kind")]
#[expect(dead_code, reason = "the shape of JSON that is built elsewhere")]
pub enum BoardAccelerator {
    /// The GPU.
    Gpu { name: Option<String>, sm_total: Option<u32> },
    /// The processor.
    Cpu {
        name: Option<String>,
        workers: u32,
        #[schema(value_type = Vec<Precision>)]
        precisions: Vec<String>,
    },
}

/// A model: its key, or an object with the path of a file or the fields of a configuration.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the shape of JSON that is parsed elsewhere")]
pub enum ModelRequest {
    /// A key of `GET /v1/models`.
    Key(String),
    /// `{"path": FILE}`, or the fields of a Hugging Face `config.json`.
    Fields(BTreeMap<String, Value>),
}

/// A vision network.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the shape of JSON that is parsed elsewhere")]
pub enum NetworkChoice {
    /// In a file that the daemon opens.
    File(NetworkFile),
    /// The layers of an ONNX file, as `rooflinectl` reads them.
    Layers(BTreeMap<String, Value>),
}

/// Power modes to consider: all, those that need no reboot, or modes by name or by number in digits.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the shape of JSON that is parsed elsewhere")]
pub enum ModesChoice {
    Kind(ModesKind),
    Listed(Vec<String>),
}

#[derive(OpenApi)]
#[openapi(components(schemas(
    AdviceStale,
    AnalyzeAnswer,
    AnalyzeRequest,
    BoardAnswer,
    CalibrateAnswer,
    CalibrateRequest,
    CalibrationAnswer,
    ConfirmRequest,
    DoneAnswer,
    ErrorAnswer,
    ExplainAnswer,
    ExplainRequest,
    ForgottenAnswer,
    FormatsAnswer,
    HeldAnswer,
    HoldRequest,
    HoldsAnswer,
    HardwareAnswer,
    HardwareListAnswer,
    MeasureAnswer,
    MeasureRequest,
    ModelAnswer,
    ModelsAnswer,
    ModeRequest,
    ModesAnswer,
    NetworkAnswer,
    NetworkPredictAnswer,
    NetworkPredictRequest,
    NetworkRecommendAnswer,
    NetworkRecommendRequest,
    ObservationListAnswer,
    ObservationRequest,
    ObservationsAnswer,
    PredictAnswer,
    PredictRequest,
    RecommendAnswer,
    RecommendRequest,
    RenewRequest,
    RevertRequest,
    RooflineAnswer,
    ServersAnswer,
    StateAnswer,
    SweepAnswer,
    SweepRequest,
    SwitchAnswer,
    TilingAnswer,
    TilingRequest,
)))]
struct Schemas;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/schemas.json");

/// Enumerations may gain members, which the marker tells to generators of clients.
fn mark_extensible(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("enum").and_then(Value::as_array).is_some_and(|keys| keys.len() > 1) {
                fields.insert("x-extensible-enum".to_owned(), true.into());
            }
            fields.values_mut().for_each(mark_extensible);
        }
        Value::Array(values) => values.iter_mut().for_each(mark_extensible),
        _ => {}
    }
}

fn schemas() -> Map<String, Value> {
    let mut document = serde_json::to_value(Schemas::openapi()).unwrap();
    let mut schemas = document["components"]["schemas"].take();
    mark_extensible(&mut schemas);
    schemas.as_object().unwrap().clone()
}

/// The schema behind references, lists and `null`: each alternative that a value may have.
fn alternatives<'a>(schemas: &'a Map<String, Value>, schema: &'a Value) -> Vec<&'a Value> {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap();
        return alternatives(schemas, &schemas[name]);
    }
    for keyword in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema[keyword].as_array() {
            return parts.iter().flat_map(|part| alternatives(schemas, part)).collect();
        }
    }
    if schema["items"].is_object() { alternatives(schemas, &schema["items"]) } else { vec![schema] }
}

/// Every property with the schema that has it.
fn properties(schemas: &Map<String, Value>) -> Vec<(&str, &str, &Value)> {
    fn visit<'a>(owner: &'a str, value: &'a Value, found: &mut Vec<(&'a str, &'a str, &'a Value)>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::Object(properties)) = fields.get("properties") {
                    found.extend(properties.iter().map(|(name, schema)| (owner, name.as_str(), schema)));
                }
                fields.values().for_each(|value| visit(owner, value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| visit(owner, value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (owner, schema) in schemas {
        visit(owner, schema, &mut found);
    }
    found
}

/// `ROOFLINED_UPDATE_DOCS=1` writes the file.
#[test]
fn the_file_of_schemas_is_up_to_date() {
    let wanted = serde_json::to_string_pretty(&schemas()).unwrap() + "\n";
    if std::env::var_os("ROOFLINED_UPDATE_DOCS").is_some() {
        fs::write(FILE, &wanted).unwrap();
    }
    let hint = "ROOFLINED_UPDATE_DOCS=1 cargo test -p rooflined-api writes it, and clients/python/make_types.py the Python types";
    assert!(fs::read_to_string(FILE).unwrap() == wanted, "src/schemas.json is out of date: {hint}");
}

#[test]
fn no_property_is_a_bare_object() {
    let schemas = schemas();
    let properties = properties(&schemas);
    let is_bare = |schema: &&Value| {
        schema["type"].to_string().contains("\"object\"")
            && schema["properties"].is_null()
            && schema["additionalProperties"].is_null()
    };
    let bare: Vec<_> = properties
        .iter()
        .filter(|(.., schema)| alternatives(&schemas, schema).iter().any(is_bare))
        .map(|(owner, name, _)| format!("{owner}.{name}"))
        .collect();
    assert!(bare.is_empty(), "{bare:?}");
    assert!(properties.len() > 500, "{}", properties.len());
}

/// A name stands for one concept, so where one property of a name is an enumeration all texts of that name are.
#[test]
fn a_property_that_is_an_enumeration_somewhere_is_one_everywhere() {
    // The kernel's own word for a cache, a label of a part of the work, and names of modes without `all`.
    const FREE: [(&str, &str); 3] =
        [("BoardCache", "kind"), ("BreakdownEntry", "op"), ("SweepRequest", "power_modes")];
    let schemas = schemas();
    let (mut enumerations, mut texts) = (BTreeSet::new(), Vec::new());
    let mut count = 0;
    for (owner, name, schema) in properties(&schemas) {
        let parts = alternatives(&schemas, schema);
        if parts.iter().any(|part| part["enum"].is_array()) {
            enumerations.insert(name);
            count += 1;
        } else if parts.iter().any(|part| part["type"] == "string" || part["type"][0] == "string") {
            texts.push((owner, name));
        }
    }
    let plain: Vec<_> =
        texts.into_iter().filter(|of| enumerations.contains(of.1) && !FREE.contains(of)).collect();
    assert!(plain.is_empty(), "{plain:?}");
    assert!(count > 60, "{count} properties are enumerations");
}

#[test]
fn operations_are_described_as_they_are() {
    let ops = [
        names::Op::Gemv { n: 2, k: 3 },
        names::Op::Gemm { m: 1, n: 2, k: 3 },
        names::Op::Attention {
            batch: 1,
            heads: 8,
            kv_heads: 2,
            query_tokens: 1,
            context_tokens: 9,
            head_dim: 64,
            window: Some(4),
        },
    ];
    for op in ops {
        let written = serde_json::to_value(op).unwrap();
        let described: Op = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(described).unwrap(), written);
    }
}
