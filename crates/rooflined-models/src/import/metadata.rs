//! What the metadata of a GGUF file say about its model, as fields that `config/families/gguf.toml` reads.

use serde_json::{Map, Value, json};

use super::Tensor;
use super::families::FIELDS_OF_TENSORS;
use super::header::{Header, TAGS, Value as Metadata};
use crate::foreign::{self, Foreign};

/// Tensors whose presence or shape says what the metadata do not: whole names, or a part between dots.
const TELLING: &[&str] = &[
    "cls.output.weight",
    "ffn_gate",
    "ffn_gate_exps",
    "ffn_gate_up_exps",
    "ffn_up",
    "ffn_down",
    "ssm_x",
    "ssm_ba",
    "ssm_beta",
];

/// The keys of the architecture that are read, with `_` for each dot, and the rows and columns of the tensors that tell something.
pub(super) fn fields(header: &Header, architecture: &str) -> Map<String, Value> {
    let field = |(key, value): (&String, &Metadata)| {
        let name = key.strip_prefix(architecture)?.strip_prefix('.')?.replace('.', "_");
        FIELDS_OF_TENSORS.contains(name.as_str()).then_some(())?;
        let value = match value {
            Metadata::Unsigned(number) => (*number).into(),
            Metadata::Negative(number) => (*number).into(),
            Metadata::Float(number) => (*number).into(),
            Metadata::Text(text) => text.clone().into(),
            Metadata::Numbers(numbers) => numbers.clone().into(),
            Metadata::Array(_) | Metadata::Skipped => return None,
        };
        Some((name, value))
    };
    let mut fields: Map<String, Value> = header.metadata.iter().filter_map(field).collect();
    if let Some(Metadata::Array(count)) = header.metadata.get("tokenizer.ggml.tokens") {
        fields.entry("vocab_size").or_insert_with(|| (*count).into());
    }
    let card: Vec<&str> =
        [TAGS, "general.name", "general.basename"].iter().filter_map(|key| header.text(key)).collect();
    if !card.is_empty() {
        fields.insert("card".to_owned(), card.join(" ").to_ascii_lowercase().into());
    }
    let shape = |wanted: &&str| {
        let is_wanted =
            |tensor: &&Tensor| tensor.name == *wanted || tensor.name.split('.').any(|part| part == *wanted);
        let (_, rows, columns) = header.tensors.iter().find(is_wanted)?.matrix();
        Some(((*wanted).to_owned(), json!([rows, columns])))
    };
    fields.insert("tensors".to_owned(), TELLING.iter().filter_map(shape).collect::<Map<_, _>>().into());
    fields
}

/// What a file holds that is no model of text; `None` where it may be one.
pub(super) fn other_kind(header: &Header) -> Option<Foreign> {
    match (header.text("general.type"), header.text("general.architecture")) {
        (Some("adapter"), _) => Some(foreign::ADAPTER),
        (Some("imatrix"), _) => Some(Foreign {
            what: "an importance matrix (imatrix) for quantising a model",
            instead: "give the model's own .gguf file",
        }),
        (Some("mmproj"), _) | (_, Some("clip")) => Some(foreign::PROJECTOR),
        (_, Some(_)) if header.tensors.is_empty() => Some(foreign::VOCABULARY),
        (_, family) => foreign::of_family(family?),
    }
}

#[cfg(test)]
mod tests {
    use super::super::families::Described;
    use super::super::fields::Fields;
    use super::*;

    fn header(fields: &[(&str, Metadata)]) -> Header {
        let metadata = fields.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        Header { version: 3, big_endian: false, metadata, tensors: Vec::new() }
    }

    #[test]
    fn what_generates_no_text_is_named() {
        let of = |key, value: &str| header(&[(key, Metadata::Text(value.to_owned()))]);
        assert!(other_kind(&of("general.architecture", "clip")).unwrap().what.contains("mmproj"));
        assert!(other_kind(&of("general.type", "adapter")).unwrap().what.contains("LoRA"));
        assert!(other_kind(&of("general.architecture", "llama")).unwrap().what.contains("vocabulary"));
    }

    #[test]
    fn keys_of_the_architecture_are_fields() {
        let found = fields(
            &header(&[
                ("llama.attention.head_count", Metadata::Unsigned(4)),
                ("llama4.block_count", Metadata::Unsigned(9)),
                ("tokenizer.ggml.tokens", Metadata::Array(96)),
            ]),
            "llama",
        );
        assert_eq!(json!(found), json!({"attention_head_count": 4, "vocab_size": 96, "tensors": {}}));
        let seeing = header(&[(TAGS, Metadata::Text("Image-Text-to-Text conversational ".to_owned()))]);
        let seeing = [fields(&seeing, "llama"), found.clone()];
        let sees = |map| Described::by_tensors(Some("llama"), &Fields { map }).unwrap().flag("sees");
        assert_eq!([sees(&seeing[0]), sees(&seeing[1])], [true, false]);
        let is_encoder = |architecture| {
            Described::by_tensors(Some(architecture), &Fields { map: &found }).unwrap().flag("encoder")
        };
        assert_eq!(["bert", "llama", "oracular"].map(is_encoder), [true, false, false]);
    }
}
