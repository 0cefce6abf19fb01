//! `formats`: how weights are stored, from the definition of each format; no daemon is asked.

use serde_json::json;

use super::failure::Failure;
use super::output::{Format, Printer};
use super::table::Table;
use rooflined_core::precision::WeightFormat;
use rooflined_models::recipe::{Mix, Recipe};
use rooflined_models::registry::models;

/// Whose files the bits of a file are counted for. Files mix block types, and the embedding's share differs between models.
const EXAMPLE: &str = "llama-3.1-8b";

/// Bits that a file of the example in this format takes for a weight.
fn bits_in_file(recipe: Recipe) -> Option<f64> {
    let model = models().get(EXAMPLE).ok()?.model(recipe);
    Some(model.bytes().get() * 8.0 / model.parameters() as f64)
}

/// Every name that `--format` takes, with the format of the blocks that most of its weights are in.
fn all() -> impl Iterator<Item = (Recipe, WeightFormat)> {
    let formats = WeightFormat::ALL.iter().map(|format| (Recipe::of(*format), *format));
    let mixes = Mix::ALL.iter().filter(|mix| mix.key().parse::<WeightFormat>().is_err());
    formats.chain(mixes.filter_map(|mix| Some((Recipe::Gguf(*mix), mix.base().format()?))))
}

pub fn run(printer: &Printer) -> Result<(), Failure> {
    if printer.format != Format::Human {
        let each = all().map(|(recipe, format)| {
            let layout = format.layout();
            json!({
                "key": recipe.key(), "bits_per_weight": format.bits_per_weight(),
                "file_bits_per_weight": bits_in_file(recipe), "block_elements": layout.elements,
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
    for (recipe, format) in all() {
        let layout = format.layout();
        table.row([
            recipe.key().to_owned(),
            bits_in_file(recipe).map_or_else(|| "-".to_owned(), |bits| format!("{bits:.2}")),
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
