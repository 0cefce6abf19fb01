//! Ways to cut a matrix product.

use super::task::model_at;
use crate::answer::error::Code;
use crate::api::{ErrorBody, TilingAnswer, TilingRequest};
use crate::calibration::Accelerator;
use crate::hardware::Registry;
use crate::snapshot::Snapshot;

/// `POST /v1/tiling`.
pub fn tiling(
    snapshot: &Snapshot,
    registry: &Registry,
    request: &TilingRequest,
) -> Result<TilingAnswer, ErrorBody> {
    let other = request.hardware.as_deref().is_some_and(|key| key != snapshot.board.key);
    let mut answer = if other {
        request.on_registered(registry)?
    } else {
        let gpu = snapshot.hardware.as_deref().filter(|_| snapshot.accelerator == Accelerator::Gpu);
        let hardware = gpu.ok_or_else(|| {
            Code::UnsupportedWorkload.at(
                "hardware",
                "this machine's accelerator is its CPU, and tiles are a GPU's: a CPU's blocks follow its caches and \
                 are its library's choice",
                "name a GPU in hardware, such as jetson-orin-nano-8gb-super; for this CPU, rooflinectl compare gemm M \
                 N K measures",
            )
        })?;
        let model = model_at(snapshot, request.operating_point.as_ref(), "operating_point")?;
        TilingAnswer { simulated: snapshot.board.simulated, ..request.on(hardware, &model.roofline)? }
    };
    answer.serial = snapshot.serial;
    Ok(answer)
}
