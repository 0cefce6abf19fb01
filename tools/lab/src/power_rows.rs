//! Tables of published power: runs of models, and steady kernels.

use std::path::Path;

use serde::Deserialize;

use super::power::{Capped, Kernel, add_capped, points, sort};
use super::published;
use rooflinectl::failure::Failure;
use rooflined_core::hardware::registry;
use rooflined_core::precision::Precision;
use rooflined_models::registry::models;
use rooflined_predict::learning::power::Point;

/// Tables of published power.
#[derive(Debug, Clone, Copy)]
pub struct Tables<'a> {
    /// Runs of models.
    pub data: &'a Path,
    /// Further runs in the same columns, whose power alone is of use.
    pub power: Option<&'a Path>,
    /// Steady kernels.
    pub micro: Option<&'a Path>,
    /// Runs of cards under power limits.
    pub caps: Option<&'a Path>,
}

/// What the tables say of power.
#[derive(Debug)]
pub struct PowerRows {
    /// By operating point and meter.
    pub points: Vec<Point>,
    /// Steady kernels of every device.
    pub kernels: Vec<Kernel>,
    /// Rows with power that are of no use, with the reason.
    pub unusable: Vec<String>,
}

/// Reads the tables.
pub fn read(tables: &Tables<'_>) -> Result<PowerRows, Failure> {
    let mut rows = published::read(tables.data)?.rows;
    if let Some(power) = tables.power {
        rows.extend(published::read(power)?.rows);
    }
    let kernels = tables.micro.map(kernels).transpose()?.unwrap_or_default();
    let (mut points, unusable) = points(&rows, &kernels, registry(), models());
    for run in tables.caps.map(capped).transpose()?.unwrap_or_default() {
        add_capped(&mut points, &run, registry());
    }
    sort(&mut points);
    Ok(PowerRows { points, kernels, unusable })
}

/// A line about one kernel; columns that are not named here are not read.
#[derive(Debug, Deserialize)]
struct Line {
    device: String,
    op: String,
    precision: String,
    tflops: Option<f64>,
    gbps: Option<f64>,
    power_w: Option<f64>,
}

impl Line {
    fn kernel(self) -> Option<Kernel> {
        let positive = |value: Option<f64>| value.filter(|value| value.is_finite() && *value > 0.0);
        let key = match self.device.as_str() {
            "a100-sxm-40" => "a100-40gb",
            other => other,
        };
        Some(Kernel {
            hardware: registry().get(key).map(|hardware| hardware.key.clone()),
            precision: self.precision.parse::<Precision>().ok()?,
            bytes_per_s: positive(self.gbps)? * 1e9,
            flops_per_s: positive(self.tflops)? * 1e12,
            power_w: positive(self.power_w)?,
            device: self.device,
        })
    }
}

/// Kernels of growing intensity. Their meter is NVML's; other lines with power are of whole systems at a socket.
fn kernels(path: &Path) -> Result<Vec<Kernel>, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::failed(
            format!("{}: {why}", path.display()),
            "give a CSV file with the columns device, op, precision, tflops, gbps and power_w",
        )
    };
    let mut reader =
        csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(|error| unreadable(&error))?;
    let mut kernels = Vec::new();
    for line in reader.deserialize::<Line>() {
        let line = line.map_err(|error| unreadable(&error))?;
        if line.op == "roofline" {
            kernels.extend(line.kernel());
        }
    }
    Ok(kernels)
}

/// Runs of cards under power limits.
fn capped(path: &Path) -> Result<Vec<Capped>, Failure> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Failure::failed(
            format!("{}: {why}", path.display()),
            "give a CSV file with the columns device, gpu_mhz, model, phase, tok_s, power_w, bytes_per_token, \
             weights_per_token and flops_per_token",
        )
    };
    let mut reader =
        csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(path).map_err(|error| unreadable(&error))?;
    reader.deserialize().collect::<Result<_, _>>().map_err(|error| unreadable(&error))
}
