//! `formats`: how weights are stored, from the definition of each format; no daemon is asked.

use serde_json::json;

use super::failure::Failure;
use super::output::{Format, Printer};
use super::table::Table;
use roofline::precision::WeightFormat;

pub fn run(printer: &Printer) -> Result<(), Failure> {
    if printer.format != Format::Human {
        let each = WeightFormat::ALL.iter().map(|format| {
            let layout = format.layout();
            json!({
                "key": format.key(), "bits_per_weight": format.bits_per_weight(), "block_elements": layout.elements,
                "block_bytes": layout.block_bytes(), "native_precision": format.native_precision().key(),
            })
        });
        return printer.value("formats", &json!({ "formats": each.collect::<Vec<_>>() }));
    }
    let mut table =
        Table::new(&["format", ">bits/weight", ">weights/block", ">bytes/block", "native precision"]);
    for format in WeightFormat::ALL {
        let layout = format.layout();
        table.row([
            format.key().to_owned(),
            format!("{}", format.bits_per_weight()),
            layout.elements.to_string(),
            layout.block_bytes().to_string(),
            format.native_precision().key().to_owned(),
        ]);
    }
    printer.text(&table.render())
}
