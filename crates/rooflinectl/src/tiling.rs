//! `tiling`: ways to cut a matrix product, fastest first.

use serde_json::json;

use super::Context;
use super::args::TilingArgs;
use super::failure::{Failure, refused};
use super::hardware::load_registry;
use super::output::Format;
use super::table::{Column, Table};
use super::working::{Counted, Working};
use super::{headline, words};
use rooflined_advice::tiling;
use rooflined_api::{OperatingPointRequest, TileAnswer, TilingAnswer, TilingRequest};
use rooflined_core::operation::Op;
use rooflined_core::units::{Bytes, Hertz, significant};

/// `tiling M N K`
pub async fn run(context: &mut Context, args: &TilingArgs) -> Result<(), Failure> {
    let (op, [m, n, k]) = super::input::product(&args.sizes)?;
    let point =
        args.mode.clone().map(|mode| OperatingPointRequest { power_mode: Some(mode), ..Default::default() });
    let request = TilingRequest {
        hardware: args.hardware.clone(),
        operating_point: point,
        m,
        n,
        k,
        format: Some(args.format.key().to_owned()),
        limit: args.limit,
    };
    if request.hardware.is_some() {
        let answer = tiling::on_registered(&load_registry(), &request).map_err(refused)?;
        return match context.printer.format {
            Format::Human => context.printer.text(&render(&op, &answer)),
            _ => context.printer.value("tiling", &json!(answer)),
        };
    }
    let working = Working::new(&context.printer, Counted::Nothing, "waiting for the daemon's answer");
    let answer = context.client.post("/v1/tiling", &request).await?;
    drop(working);
    context.printer.answer("tiling", &answer, || Ok(render(&op, &answer.parse()?)))
}

fn render(op: &Op, answer: &TilingAnswer) -> String {
    let clock = answer.gpu_hz.map_or_else(String::new, |clock| format!(" at {}", Hertz(clock)));
    let limits = &answer.limits;
    let size = |bytes: u32| Bytes(f64::from(bytes)).to_string();
    let mut text = headline::tiling(answer);
    text += &format!(
        "{} {} on {}, {} SM{clock}, computed in {}\n  an SM of compute capability {} holds {} threads, {} blocks, {} \
         registers, {} of shared memory ({} for one block)\n\n",
        words::operation(op),
        answer.format,
        answer.name,
        answer.sm_online,
        answer.compute,
        limits.compute_capability,
        limits.threads,
        limits.blocks,
        limits.registers,
        size(limits.shared_memory_bytes),
        size(limits.block_shared_memory_bytes),
    );
    text.push_str(&Table::of(&answer.candidates, &COLUMNS).render());
    let rejected: Vec<String> = answer
        .rejected
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(what, count)| format!("{count} need too much of {}", words::name_field(what)))
        .collect();
    let rejected = if rejected.is_empty() { String::new() } else { format!(", {}", rejected.join(", ")) };
    text.push_str(&format!(
        "\n  {}\n  The roofline allows {}. {} variants were tried{rejected}. Times are for ranking: docs/internals/tiling.md \
         says what they leave out.\n",
        answer.reason,
        words::time(answer.roofline_time_s),
        answer.considered,
    ));
    for warning in &answer.warnings {
        text.push_str(&format!("  warning: {warning}\n"));
    }
    text
}

fn percent(ratio: f64) -> Option<String> {
    Some(format!("{:.0} %", ratio * 100.0))
}

const COLUMNS: [Column<TileAnswer>; 18] = [
    (">block", |tile| Some(format!("{}x{}", tile.m, tile.n))),
    (">step", |tile| Some(tile.k.to_string())),
    (">split", |tile| Some(tile.split_k.to_string())),
    (">stages", |tile| Some(tile.stages.to_string())),
    (">warps", |tile| Some(tile.warps.to_string())),
    (">tiles", |tile| Some(tile.tiles.to_string())),
    (">waves", |tile| Some(significant(tile.waves))),
    (">filled", |tile| percent(tile.wave_efficiency_ratio)),
    (">useful", |tile| percent(tile.tile_efficiency_ratio)),
    (">shared", |tile| Some(Bytes(f64::from(tile.shared_memory_bytes)).to_string())),
    (">regs", |tile| Some(tile.registers_per_thread.to_string())),
    (">resident", |tile| Some(tile.resident_blocks.to_string())),
    ("by", |tile| Some(words::name_field(&tile.resident_limited_by))),
    (">DRAM", |tile| Some(Bytes(tile.dram_bytes).to_string())),
    (">reuse", |tile| Some(significant(tile.l2_reuse_ratio))),
    (">flop/B", |tile| Some(significant(tile.tile_intensity_flops_per_byte))),
    (">time", |tile| Some(words::time(tile.time_s))),
    ("limit", |tile| Some(words::name_field(&tile.limit))),
];
