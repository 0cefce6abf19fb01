//! The page's files, compiled into the program in gzip.

use std::path::PathBuf;

use http_body_util::Full;
use hyper::Response;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use rooflined_client::Bytes;

/// Every file of the page in gzip, by its path below `page/`: build.rs packs and lists them.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Where the page comes from.
pub struct Pages {
    /// A directory instead of what is compiled in.
    directory: Option<PathBuf>,
}

impl Pages {
    pub const fn new(directory: Option<PathBuf>) -> Self {
        Self { directory }
    }

    /// The file at `path` of a request, in gzip if it is compiled in; `None` where the page has none.
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
        if self.directory.is_none() {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Some(response)
    }
}

fn content_type(name: &str) -> Option<&'static str> {
    match name.rsplit_once('.')?.1 {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "json" => Some("application/json"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_page_is_compiled_in_and_served() {
        let pages = Pages::new(None);
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/dashboard/page");
        let mut folders = vec![root.clone()];
        let mut served = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                // Licences lie beside what they are of and are for who reads the sources.
                let is_served = pages.get(&format!("/{name}")).is_some();
                assert!(is_served != name.ends_with("LICENSE"), "{name}");
                assert!(is_plain(&name), "{name} would not be served from a directory");
                served += usize::from(is_served);
            }
        }
        assert_eq!(served, FILES.len());
        assert!(pages.get("/").is_some() && pages.get("/index.html").is_some());
    }

    #[test]
    fn nothing_outside_the_directory_of_the_page_has_a_name_here() {
        for name in [
            "",
            ".",
            "..",
            "../x.js",
            "a/../x.js",
            "a/b/x.js",
            "/x.js",
            "a//x.js",
            ".x.js",
            "x%2f.js",
            "a\\x.js",
            "x.js/",
        ] {
            assert!(!is_plain(name), "{name}");
        }
        assert!(is_plain("app.js") && is_plain("vendor/d3.min.js"));
    }
}
