//! An answer of HTTP/1.1 as its bytes come. No socket is touched here.

use crate::error::{Error, Result};

const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 64;
/// The longest line before a chunk, or behind the last one.
const MAX_LINE_BYTES: usize = 4 << 10;

/// What of the body is still to come.
#[derive(Debug, PartialEq)]
enum Rest {
    /// The head is not complete.
    Head,
    /// So many bytes.
    Length(u64),
    /// Everything until the connection ends.
    UntilEnd,
    /// The line with the length of the next chunk.
    ChunkLine,
    /// So many bytes of a chunk, and the end of its line.
    Chunk(u64),
    /// The end of the line behind a chunk.
    ChunkEnd,
    /// Lines behind the last chunk, up to an empty one.
    Trailers,
    Nothing,
}

/// Takes bytes as they come and gives the body's.
#[derive(Debug)]
pub(crate) struct Response {
    status: u16,
    keeps: bool,
    rest: Rest,
    pending: Vec<u8>,
    has_body: bool,
}

impl Response {
    /// Of a request of that method: the answer to HEAD has no body, whatever length it tells.
    pub(crate) fn to(method: &str) -> Self {
        Self { status: 0, keeps: true, rest: Rest::Head, pending: Vec::new(), has_body: method != "HEAD" }
    }

    /// The status; 0 until the head is complete.
    pub(crate) const fn status(&self) -> u16 {
        self.status
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.rest == Rest::Nothing
    }

    /// Whether the connection may be used again.
    pub(crate) fn keeps(&self) -> bool {
        self.is_complete() && self.keeps && self.pending.is_empty()
    }

    /// The connection has ended: whether the answer had.
    pub(crate) fn end(&mut self) -> bool {
        if self.rest == Rest::UntilEnd {
            (self.rest, self.keeps) = (Rest::Nothing, false);
        }
        self.is_complete()
    }

    /// Appends the part of the body in `data` to `body`.
    ///
    /// # Errors
    /// It is no HTTP.
    pub(crate) fn feed(&mut self, data: &[u8], body: &mut Vec<u8>) -> Result<()> {
        self.pending.extend_from_slice(data);
        let mut used = 0;
        while let Some(more) = self.step(used, body)? {
            used += more;
        }
        self.pending.drain(..used);
        Ok(())
    }

    /// How many of the pending bytes from `from` on one step has used; `None` where it needs more.
    fn step(&mut self, from: usize, body: &mut Vec<u8>) -> Result<Option<usize>> {
        let pending = &self.pending[from..];
        match self.rest {
            Rest::Head => self.head(from),
            Rest::UntilEnd => {
                body.extend_from_slice(pending);
                Ok((!pending.is_empty()).then_some(pending.len()))
            }
            Rest::Length(left) => {
                let (taken, left) = take(pending, left, body);
                self.rest = if left == 0 { Rest::Nothing } else { Rest::Length(left) };
                Ok((taken > 0).then_some(taken))
            }
            Rest::Chunk(left) => {
                let (taken, left) = take(pending, left, body);
                self.rest = if left == 0 { Rest::ChunkEnd } else { Rest::Chunk(left) };
                Ok((taken > 0).then_some(taken))
            }
            Rest::ChunkEnd => match pending {
                [b'\r', b'\n', ..] => {
                    self.rest = Rest::ChunkLine;
                    Ok(Some(2))
                }
                [] | [b'\r'] => Ok(None),
                _ => Err(Error::unexpected("a chunk of the answer is longer than it says")),
            },
            Rest::ChunkLine => self.chunk_line(from),
            Rest::Trailers => {
                let Some(line) = line(pending)? else { return Ok(None) };
                if line.is_empty() {
                    self.rest = Rest::Nothing;
                }
                Ok(Some(line.len() + 2))
            }
            Rest::Nothing => Ok(None),
        }
    }

    fn head(&mut self, from: usize) -> Result<Option<usize>> {
        let pending = &self.pending[from..];
        let no_http = |what: &str| Error::unexpected(format!("what answers is no HTTP server: {what}"));
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut headers);
        let used = match parsed.parse(pending) {
            Ok(httparse::Status::Complete(used)) if used <= MAX_HEAD_BYTES => used,
            Ok(httparse::Status::Partial) if pending.len() <= MAX_HEAD_BYTES => return Ok(None),
            Ok(_) => return Err(no_http("its head is larger than 64 KiB")),
            Err(why) => return Err(Error::unreadable("what answers is no HTTP server", why)),
        };
        let status = parsed.code.unwrap_or_default();
        if status == 101 {
            return Err(no_http("it changes to another protocol, which nobody asked for"));
        }
        let is_interim = (100..200).contains(&status);
        let header = |name: &str| {
            let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
            found.map(|header| String::from_utf8_lossy(header.value).trim().to_ascii_lowercase())
        };
        let coding = header("transfer-encoding");
        let rest = if is_interim {
            // 100 Continue and the like: the answer follows.
            Rest::Head
        } else if !self.has_body || status == 204 || status == 304 {
            Rest::Nothing
        } else if let Some(coding) = coding {
            if coding != "chunked" {
                return Err(no_http("its answer has a coding that nobody asked for"));
            }
            Rest::ChunkLine
        } else if let Some(length) = header("content-length") {
            // No sign, which Rust's own parser would take.
            let plain = length.bytes().all(|digit| digit.is_ascii_digit());
            let length = length.parse().ok().filter(|_| plain);
            match length.ok_or_else(|| no_http("the length of its answer is no number"))? {
                0 => Rest::Nothing,
                length => Rest::Length(length),
            }
        } else {
            Rest::UntilEnd
        };
        let says_close =
            header("connection").is_some_and(|says| says.split(',').any(|word| word.trim() == "close"));
        let closes = says_close || parsed.version == Some(0);
        if !is_interim {
            (self.status, self.keeps) = (status, !closes);
        }
        self.rest = rest;
        Ok(Some(used))
    }

    fn chunk_line(&mut self, from: usize) -> Result<Option<usize>> {
        let Some(line) = line(&self.pending[from..])? else { return Ok(None) };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
        let digits = std::str::from_utf8(digits).unwrap_or_default().trim();
        let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let length = u64::from_str_radix(digits, 16).ok().filter(|_| plain);
        self.rest = match length {
            Some(0) => Rest::Trailers,
            Some(length) => Rest::Chunk(length),
            None => return Err(Error::unexpected("the length of a chunk of the answer is no number")),
        };
        Ok(Some(line.len() + 2))
    }
}

/// Moves up to `left` bytes; how many, and how many are left.
fn take(pending: &[u8], left: u64, body: &mut Vec<u8>) -> (usize, u64) {
    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(pending.len());
    body.extend_from_slice(&pending[..taken]);
    (taken, left - taken as u64)
}

/// The first line, without its end; `None` until that is there.
fn line(pending: &[u8]) -> Result<Option<&[u8]>> {
    let end = pending.windows(2).position(|pair| pair == b"\r\n");
    if end.unwrap_or(pending.len()) > MAX_LINE_BYTES {
        return Err(Error::unexpected("a line between the chunks of the answer has no end"));
    }
    Ok(end.map(|end| &pending[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fed(parts: &[&[u8]]) -> Result<(Response, Vec<u8>)> {
        let (mut response, mut body) = (Response::to("GET"), Vec::new());
        for part in parts {
            response.feed(part, &mut body)?;
        }
        Ok((response, body))
    }

    #[test]
    fn an_answer_survives_any_cut() {
        let texts: [&[u8]; 4] = [
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        ];
        for text in texts {
            for cut in 0..text.len() {
                let (response, body) = fed(&[&text[..cut], &text[cut..]]).unwrap();
                assert!(response.keeps(), "cut at {cut}");
                assert_eq!((response.status(), &*body), (200, &b"hello"[..]), "cut at {cut}");
            }
            let bytes: Vec<&[u8]> = text.chunks(1).collect();
            assert_eq!(fed(&bytes).unwrap().1, b"hello");
        }
    }

    #[test]
    fn what_ends_with_its_connection_is_not_kept() {
        let (mut response, body) = fed(&[b"HTTP/1.1 200 OK\r\n\r\nhello"]).unwrap();
        assert!(!response.is_complete());
        assert!(response.end() && !response.keeps());
        assert_eq!(body, b"hello");
        for says in ["Close", "keep-alive, close"] {
            let closing = format!("HTTP/1.1 200 OK\r\nConnection: {says}\r\nContent-Length: 0\r\n\r\n");
            let found = fed(&[closing.as_bytes()]);
            assert!(found.is_ok_and(|(response, _)| response.is_complete() && !response.keeps()), "{says}");
        }
        // What follows an answer was not asked for.
        let more = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 ";
        assert!(fed(&[more]).is_ok_and(|(response, _)| response.is_complete() && !response.keeps()));
    }

    #[test]
    fn what_has_no_body_is_complete_with_its_head() {
        let head = |method: &str, text: &str| {
            let mut response = Response::to(method);
            response.feed(text.as_bytes(), &mut Vec::new()).unwrap();
            response.keeps()
        };
        for rest in ["content-length: 5\r\n\r\n", "transfer-encoding: chunked\r\n\r\n", "\r\n"] {
            assert!(head("HEAD", &format!("HTTP/1.1 200 OK\r\n{rest}")), "{rest}");
            assert!(!head("GET", &format!("HTTP/1.1 200 OK\r\n{rest}")), "{rest}");
            for status in ["204 No Content", "304 Not Modified"] {
                assert!(head("GET", &format!("HTTP/1.1 {status}\r\n{rest}")), "{status} {rest}");
            }
        }
    }

    #[test]
    fn what_is_no_http_is_an_error() {
        let endless = [b"HTTP/1.1 200 OK\r\nx: ".as_slice(), &vec![b'a'; MAX_HEAD_BYTES]].concat();
        let many = [b"HTTP/1.1 200 OK\r\n".as_slice(), &b"x: y\r\n".repeat(MAX_HEADERS + 1)].concat();
        let line = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let texts: [&[u8]; 12] = [
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            b"220 mail.example.org ESMTP\r\n",
            b"HTTP/1.1 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
            &endless,
            &many,
            &[line.as_slice(), b"zz\r\n"].concat(),
            &[line.as_slice(), b"1\r\nab\r\n"].concat(),
            &[line.as_slice(), &[b'0'; MAX_LINE_BYTES + 1]].concat(),
        ];
        for text in texts {
            let found = fed(&[text]);
            assert!(matches!(found, Err(Error::Unexpected { .. })), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn an_early_end_is_noticed() {
        let texts: [&[u8]; 3] = [
            b"HT",
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel",
        ];
        for text in texts {
            let (mut response, _) = fed(&[text]).unwrap();
            assert!(!response.end(), "{}", text.escape_ascii());
        }
    }
}
