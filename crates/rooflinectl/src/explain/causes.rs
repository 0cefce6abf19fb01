//! The daemon's causes of a slow run.

use crate::failure::Failure;
use rooflined_api::{ExplainAnswer, ExplainRequest};
use rooflined_client::Client;

/// Asks the daemon why a run is slow.
///
/// # Errors
/// It cannot be reached or refuses.
pub async fn ask(client: &mut Client, request: &ExplainRequest) -> Result<ExplainAnswer, Failure> {
    Ok(client.post("/v1/explain", request).await?.parse()?)
}
