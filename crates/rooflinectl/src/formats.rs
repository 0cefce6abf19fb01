//! `formats`: how weights are stored, from the definition of each format; no daemon is asked.

use serde_json::json;

use super::failure::Failure;
use super::output::{Format, Printer};
use super::table::Table;
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;

/// Whose files the bits of a file are counted for. Files mix block types, and the embedding's share differs between models.
const EXAMPLE: &str = "llama-3.1-8b";

/// Bits that a file of the example in this format takes for a weight.
fn bits_in_file(format: WeightFormat) -> Option<f64> {
    let model = models().get(EXAMPLE).ok()?.model(Recipe::of(format));
    Some(model.bytes().get() * 8.0 / model.parameters() as f64)
}

pub fn run(printer: &Printer) -> Result<(), Failure> {
    if printer.format != Format::Human {
        let each = WeightFormat::ALL.iter().map(|format| {
            let layout = format.layout();
            json!({
                "key": format.key(), "bits_per_weight": format.bits_per_weight(),
                "file_bits_per_weight": bits_in_file(*format), "block_elements": layout.elements,
                "block_bytes": layout.block_bytes(), "native_precision": format.native_precision().key(),
            })
        });
        return printer.value("formats", &json!({ "formats": each.collect::<Vec<_>>() }));
    }
    let mut table = Table::new(&[
        "format",
        ">bits in a file",
        ">in a block",
        ">weights/block",
        ">bytes/block",
        "native precision",
    ]);
    for format in WeightFormat::ALL {
        let layout = format.layout();
        table.row([
            format.key().to_owned(),
            bits_in_file(*format).map_or_else(|| "-".to_owned(), |bits| format!("{bits:.2}")),
            format!("{}", format.bits_per_weight()),
            layout.elements.to_string(),
            layout.block_bytes().to_string(),
            format.native_precision().key().to_owned(),
        ]);
    }
    printer.text(&format!(
        "{}  bits per weight; in a file: of {EXAMPLE}, all its parts counted\n",
        table.render()
    ))
}
