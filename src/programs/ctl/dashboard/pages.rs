//! The page's files, compiled into the program.

use std::path::PathBuf;

use http_body_util::Full;
use hyper::Response;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use wire::client::Bytes;

/// Every file of the page, by its path below the root.
const FILES: &[(&str, &[u8])] = &[
    ("index.html", include_bytes!("page/index.html")),
    ("app.css", include_bytes!("page/app.css")),
    ("app.js", include_bytes!("page/app.js")),
];

/// Where the page comes from.
pub struct Pages {
    /// A directory instead of what is compiled in.
    directory: Option<PathBuf>,
}

impl Pages {
    pub const fn new(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }

    /// The file at `path` of a request; `None` where the page has none.
    pub fn get(&self, path: &str) -> Option<Response<Full<Bytes>>> {
        let name = path.strip_prefix('/')?;
        let name = if name.is_empty() { "index.html" } else { name };
        let kind = content_type(name)?;
        let bytes = match &self.directory {
            Some(directory) if is_plain(name) => Bytes::from(std::fs::read(directory.join(name)).ok()?),
            Some(_) => return None,
            None => Bytes::from_static(FILES.iter().find(|(file, _)| *file == name)?.1),
        };
        let mut response = Response::new(Full::new(bytes));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Some(response)
    }
}

fn content_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

/// A file or one in a directory, without anything that climbs.
fn is_plain(name: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    name.split('/').count() <= 2 && name.split('/').all(part)
}
