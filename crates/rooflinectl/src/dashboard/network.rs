//! The layers of a vision network whose ONNX file was chosen in the browser, which sends the file without its weights.

use std::io::Cursor;
use std::path::Path;

use hyper::Response;

use super::reply::{self, Body};
use rooflined_advice::networkfile::{self, NetworkFileError};
use rooflined_api::NetworkFile;
use rooflined_client::Bytes;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::network::NetworkError;
use rooflined_predict::network::{Layers, fuse};

/// The route whose body is a line of JSON as [`NetworkFile`], where the path is the name of the file, and the file itself.
pub const ROUTE: &str = "/dashboard/network";

/// What requests take as the network.
pub async fn answer(body: Bytes) -> Result<Response<Body>, Refusal> {
    let reading = tokio::task::spawn_blocking(move || layers(&body)).await;
    let layers =
        reading.map_err(|_| Code::Internal.error("the network was not read to the end", "report this"))??;
    Ok(reply::json(&layers))
}

fn layers(body: &[u8]) -> Result<Layers, Refusal> {
    const AT: &str = "network";
    let end = body.iter().position(|byte| *byte == b'\n').unwrap_or(body.len());
    let (head, graph) = (&body[..end], body.get(end + 1..).unwrap_or_default());
    let file: NetworkFile = serde_json::from_slice(head).map_err(|error| {
        Code::InvalidField.at(
            AT,
            format!("{AT}: {error}"),
            "send {\"path\": NAME}, a line feed, and the file",
        )
    })?;
    let dimensions = networkfile::dimensions(&file, AT)?;
    networkfile::read(Cursor::new(graph), graph.len() as u64, Path::new(&file.path), &dimensions)
        .map(|network| fuse(&network))
        .map_err(|error| refusal(&error, AT))
}

fn refusal(error: &NetworkFileError, at: &str) -> Refusal {
    let refusal = error.refusal(at);
    match error {
        // The numbers would be those of what was sent.
        NetworkFileError::Network { path, source: NetworkError::Cut { .. } } => {
            Refusal { message: format!("{} is cut", path.display()), ..refusal }
        }
        _ => refusal,
    }
}
