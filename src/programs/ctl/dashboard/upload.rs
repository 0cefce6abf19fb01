//! A model file of which the page sends the beginning: the file lies where the browser runs, and only its header is wanted.

use hyper::header::HeaderMap;
use serde_json::{Value, json};

use answer::modelfile::{Beginning, MAX_HEADER_BYTES};
use answer::{begun, models};
use roofline::precision::WeightFormat;
use roofline::refusal::{Code, Refusal};
use wire::client::Bytes;

pub const PATH: &str = "/dashboard/model";
/// Most bytes of a beginning.
#[expect(clippy::cast_possible_truncation, reason = "64 MiB")]
pub const MAX_BYTES: usize = MAX_HEADER_BYTES as usize;
/// Longest name of a file, decoded.
const MAX_NAME: usize = 255;

/// What a file is called and how long it is.
pub struct Upload {
    name: String,
    length: u64,
}

impl Upload {
    /// As the header of the request says it.
    ///
    /// # Errors
    /// It does not, or not so that it can be.
    pub fn announced(headers: &HeaderMap) -> Result<Self, Refusal> {
        let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let length = said("x-file-bytes").filter(is_number).and_then(|text| text.parse().ok());
        let length = length.ok_or_else(|| {
            Code::MissingField
                .error("X-File-Bytes is no number of bytes", "send the length of the whole file")
        })?;
        let name = said("x-file-name").and_then(decoded).filter(|name| name.len() <= MAX_NAME);
        // A name alone, in one line: answers and reports of other programs show it.
        let name = name
            .map(|name| name.rsplit('/').next().unwrap_or_default().replace(char::is_control, "?"))
            .filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            let message = format!("X-File-Name is no name of at most {MAX_NAME} bytes, percent-encoded");
            Code::MissingField.error(message, "send what encodeURIComponent(file.name) gives")
        })?;
        Ok(Self { name, length })
    }

    /// The model as requests name it, with a summary; or how many bytes more are needed. Blocks while they are looked at.
    ///
    /// # Errors
    /// These are not the first bytes of a model file.
    pub fn read(&self, start: &Bytes) -> Result<Value, Refusal> {
        if start.len() as u64 > self.length {
            let message = format!("{} bytes were sent of a file of {} bytes", start.len(), self.length);
            return Err(
                Code::InvalidField.error(message, "send the length of the whole file in X-File-Bytes")
            );
        }
        let file = match begun(start, self.length, &self.name)? {
            Beginning::Model(file) => file,
            Beginning::More(bytes) => return Ok(json!({ "more_bytes": bytes })),
        };
        let summary = models::of(&file.model, WeightFormat::Fp16);
        Ok(json!({
            "model": { "path": self.name, "contents": file.contents() },
            "exact": file.exact,
            "summary": summary,
        }))
    }
}

/// Percent-decoded; `None` where that is no text.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = if byte == b'%' {
            let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
            u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?
        } else {
            byte
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_decoded_and_cut_to_their_last_part() {
        for (sent, name) in [
            ("m.gguf", Some("m.gguf")),
            ("mod%C3%A8le%20%231.gguf", Some("modèle #1.gguf")),
            ("..%2F..%2Fm.gguf", Some("m.gguf")),
            ("a%0ab", Some("a?b")),
            ("%zz", None),
            ("%f", None),
            ("%ff", None),
            ("", None),
            ("a%2F", None),
            ("%2f", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-file-name", sent.parse().unwrap());
            headers.insert("x-file-bytes", "9".parse().unwrap());
            let upload = Upload::announced(&headers).ok();
            assert_eq!(upload.map(|upload| upload.name).as_deref(), name, "{sent}");
        }
    }

    #[test]
    fn lengths_are_digits_alone() {
        for (sent, length) in [
            ("5", Some(5)),
            ("+5", None),
            ("-5", None),
            ("", None),
            ("5 5", None),
            ("18446744073709551616", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-file-name", "m.gguf".parse().unwrap());
            headers.insert("x-file-bytes", sent.parse().unwrap());
            assert_eq!(Upload::announced(&headers).ok().map(|upload| upload.length), length, "{sent}");
        }
    }
}
