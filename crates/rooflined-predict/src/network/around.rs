//! What a frame takes beside the engine: copies, and the work before and after it.

use super::costs::table;
use super::layers::Layers;
use super::prediction::{NetworkError, bandwidth};
use crate::estimate::Estimate;
use rooflined_core::ceilings::Roofline;
use rooflined_core::hardware::Hardware;
use rooflined_core::names::{NetworkEngine, NetworkScope};
use rooflined_core::units::{Hertz, Seconds};

/// Bytes of an element that an application hands over or takes.
const ELEMENT: f64 = 4.0;

/// What a scope adds to the time inside the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    pub time: Estimate<Seconds>,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// What `scope` adds to a run of `batch` pictures, on a machine whose CPU runs at `cpu`.
///
/// # Errors
/// A CPU that has to prepare frames and whose clock is not known, or an engine that does not run there.
pub fn around(
    layers: &Layers,
    engine: NetworkEngine,
    hardware: Option<&Hardware>,
    roofline: &Roofline,
    scope: NetworkScope,
    batch: u64,
    cpu: Option<Hertz>,
) -> Result<Surroundings, NetworkError> {
    let known = table(engine).and_then(|table| table.around(hardware)).ok_or(NetworkError::NeedsGpu)?;
    if scope == NetworkScope::Engine {
        let none = Estimate { value: Seconds::ZERO, low: Seconds::ZERO, high: Seconds::ZERO };
        return Ok(Surroundings { time: none, warnings: Vec::new() });
    }
    #[expect(clippy::cast_precision_loss, reason = "batches are small numbers")]
    let (pictures, times) = (batch as f64, batch as f64 / layers.batch as f64);
    let bytes = (layers.input_elements + layers.output_elements) * times * ELEMENT;
    let rate = known.copy_bytes_per_s.or_else(|| Some(known.copy? * bandwidth(roofline).get()));
    let copies = rate.map_or(0.0, |rate| 2.0 * known.copy_s + bytes / rate);
    let spread = |seconds: f64| Estimate {
        value: Seconds(seconds),
        low: Seconds(seconds / known.factor),
        high: Seconds(seconds * known.factor),
    };
    if scope == NetworkScope::Copies {
        let warnings = vec!["the time of copies is an estimate: no measurement is behind it".to_owned()];
        return Ok(Surroundings { time: spread(copies), warnings });
    }
    // Three channels a pixel.
    let pixels = layers.input_elements * times / 3.0;
    let mut warnings = Vec::new();
    let prepared = if let Some(cycles) = known.cpu_cycles {
        let clock = cpu.filter(|clock| clock.is_positive()).ok_or(NetworkError::CpuClock)?;
        (cycles * pictures + known.cpu_cycles_per_pixel * pixels) / clock.get()
    } else {
        let words = "the CPU next to the card is not known: the work before and after the network is that of the machines that were published";
        warnings.push(words.to_owned());
        known.cpu_s * pictures + known.cpu_s_per_pixel * pixels
    };
    let by_cpu = prepared + copies;
    if let Some(cuda) = known.cuda_s {
        let by_cuda = cuda * pictures + known.cuda_s_per_pixel * pixels;
        warnings.push(format!(
            "a frame counts OpenCV on the CPU before and after the network, {:.1} ms; CUDA kernels take about {:.1} ms",
            by_cpu * 1e3,
            by_cuda * 1e3
        ));
    }
    if known.rows == 0 {
        warnings.push("the time around the network is an estimate: no measurement is behind it".to_owned());
    }
    Ok(Surroundings { time: spread(by_cpu), warnings })
}
