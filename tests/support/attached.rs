//! Requests with descriptors attached, as a client of the daemon sends them.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::Value;

/// Sends a request whose first byte has these descriptors attached.
pub fn send(stream: &UnixStream, target: &str, body: &Value, descriptors: &[BorrowedFd<'_>]) {
    let body = body.to_string();
    let request =
        format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || attached.push(SendAncillaryMessage::ScmRights(descriptors)));
    let bytes = [IoSlice::new(request.as_bytes())];
    assert_eq!(sendmsg(stream, &bytes, &mut attached, SendFlags::empty()).unwrap(), request.len());
}

/// Reads one answer and leaves the connection open: status and body.
pub fn answer(stream: &mut UnixStream) -> (u16, Value) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

/// One request on a connection of its own.
pub fn ask(
    socket: &std::path::Path,
    target: &str,
    body: &Value,
    descriptors: &[BorrowedFd<'_>],
) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
    send(&stream, target, body, descriptors);
    answer(&mut stream)
}
