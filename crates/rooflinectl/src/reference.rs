//! Reference kernels: run by the daemon now, over what the calibration found.

use crate::measure::TIME_LIMIT;
use rooflined_api::{MeasureAnswer, MeasureRequest, MeasuredRow, Workload};
use rooflined_client::{Client, ClientError};
use rooflined_core::operation::Op;
use rooflined_core::precision::WeightFormat;

/// The operation that shows the memory's bandwidth: larger than most caches, over in a second.
pub const MEMORY: Op = Op::Gemv { n: 8192, k: 8192 };
/// One that computes more than it reads.
pub const PRODUCT: Op = Op::Gemm { m: 64, n: 4096, k: 4096 };
/// What is missing where a reference has nothing to be compared with, and what makes it.
pub const UNCALIBRATED: (&str, &str) =
    ("nothing was calibrated in this mode", "calibrate in it: rooflinectl calibrate --wait");
const DOCTOR: &str = "look for the cause: rooflinectl doctor";

/// The operations as the daemon measures them, which only some may ask for.
///
/// # Errors
/// Why they were not measured, with what to do about it.
pub async fn measure(client: &Client, ops: &[Op]) -> Result<Vec<MeasuredRow>, (String, String)> {
    let fp32 = |op: &Op| Workload {
        op: Some(*op),
        format: Some(WeightFormat::Fp32.key().to_owned()),
        ..Workload::default()
    };
    let request = MeasureRequest { workloads: ops.iter().map(fp32).collect(), ..MeasureRequest::default() };
    let in_words = |error: ClientError| {
        let hint = error.hint().unwrap_or_else(|| DOCTOR.to_owned());
        (error.to_string(), hint)
    };
    let answer = client.another(TIME_LIMIT).command("/v1/measure", &request).await.map_err(in_words)?;
    let answer: MeasureAnswer = answer.parse().map_err(in_words)?;
    if answer.rows.is_empty() {
        let why = answer.skipped.into_iter().next();
        return Err((why.unwrap_or_else(|| "nothing was measured".to_owned()), DOCTOR.to_owned()));
    }
    Ok(answer.rows)
}

/// The memory's bandwidth now over that of the calibration.
pub async fn memory_ratio(client: &Client, reason: &mut Option<String>) -> Option<f64> {
    let rows = measure(client, &[MEMORY]).await;
    let uncalibrated = || (UNCALIBRATED.0.to_owned(), UNCALIBRATED.1.to_owned());
    let ratio = rows.and_then(|rows| rows[0].drift_ratio.ok_or_else(uncalibrated));
    ratio.map_err(|(why, hint)| *reason = Some(format!("{why}; {hint}"))).ok()
}
