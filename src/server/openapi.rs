//! The OpenAPI 3.1 document: `openapi.json`, which a test writes from the table of routes, with the version and the schemas of
//! rooflined-api.

use std::sync::OnceLock;

use serde_json::Value;

use rooflined_api::SCHEMAS;

/// The document as bytes; made at the first call.
pub fn document() -> &'static [u8] {
    static DOCUMENT: OnceLock<Vec<u8>> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        // Tests read both files.
        let mut document: Value =
            serde_json::from_str(include_str!("openapi/openapi.json")).unwrap_or_default();
        document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
        document["components"]["schemas"] = serde_json::from_str(SCHEMAS).unwrap_or_default();
        serde_json::to_vec(&document).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests;
