//! Descriptors that clients attach to their requests (`SCM_RIGHTS`).
//!
//! A connection keeps as many as a request may have and hands them to the request whose bytes they came with; whatever is
//! not asked for is closed behind the answer. The kernel drops what there is no room for, without our opening it.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::{MaybeUninit, take};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::server::model_files::{MAX_DESCRIPTORS, Received};

/// Most descriptors of one user that are open at a time on one socket, and of all users.
const MAX_OF_USER: usize = 32;
const MAX_OF_ALL: usize = 128;

/// Those open on one socket, by user.
#[derive(Debug, Default)]
pub struct Descriptors {
    all: Arc<AtomicUsize>,
    users: Mutex<HashMap<Option<u32>, Arc<AtomicUsize>>>,
}

impl Descriptors {
    /// An inbox for a connection of this user.
    pub fn inbox(&self, user: Option<u32>) -> Inbox {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        // Who has no connection and nothing open is forgotten.
        users.retain(|_, count| Arc::strong_count(count) > 1);
        let of_user = Arc::clone(users.entry(user).or_default());
        Inbox { of_user, all: Arc::clone(&self.all), kept: Mutex::default() }
    }
}

/// What came on one connection for the request in progress.
#[derive(Debug)]
pub struct Inbox {
    of_user: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
    kept: Mutex<Vec<Arc<Received>>>,
}

impl Inbox {
    /// Takes out all there is.
    pub fn take(&self) -> Vec<Arc<Received>> {
        take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads from a socket, with what is attached.
    pub fn receive(&self, socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = kept.len() >= MAX_DESCRIPTORS
            || self.of_user.load(Ordering::Relaxed) >= MAX_OF_USER
            || self.all.load(Ordering::Relaxed) >= MAX_OF_ALL;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut attached =
            if is_full { RecvAncillaryBuffer::default() } else { RecvAncillaryBuffer::new(&mut space) };
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(socket, &mut slices, &mut attached, flags)?;
        let rights = attached.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(rights) => Some(rights),
            _ => None,
        });
        for descriptor in rights.flatten() {
            let counted = vec![Arc::clone(&self.of_user), Arc::clone(&self.all)];
            let descriptor = Arc::new(Received::new(descriptor, counted));
            // Padding leaves the kernel room for one or two more than were asked for.
            if kept.len() < MAX_DESCRIPTORS {
                kept.push(descriptor);
            }
        }
        Ok(received.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    fn send(socket: &UnixStream, files: &[File]) {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        assert!(attached.push(SendAncillaryMessage::ScmRights(&files)));
        let bytes = [io::IoSlice::new(b"x")];
        assert_eq!(sendmsg(socket, &bytes, &mut attached, SendFlags::empty()), Ok(1));
    }

    fn files(count: usize) -> Vec<File> {
        (0..count).map(|_| File::open("/proc/self/exe").unwrap()).collect()
    }

    #[test]
    fn as_many_are_kept_as_a_request_may_have_and_all_are_given_back() {
        let descriptors = Descriptors::default();
        let inbox = descriptors.inbox(Some(7));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut buffer = [0; 16];
        for count in [1, 2, 3, 90] {
            send(&theirs, &files(count));
            assert_eq!(inbox.receive(&ours, &mut buffer).unwrap(), 1);
            let kept = inbox.take();
            assert_eq!(kept.len(), count.min(MAX_DESCRIPTORS));
            assert_eq!(descriptors.all.load(Ordering::Relaxed), kept.len());
        }
        assert_eq!(descriptors.all.load(Ordering::Relaxed), 0);
        assert!(inbox.take().is_empty());
    }

    #[test]
    fn a_user_has_no_more_open_than_its_share_however_many_connections_it_has() {
        let descriptors = Descriptors::default();
        let mut held = Vec::new();
        let mut kept = 0;
        for _ in 0..MAX_OF_USER {
            let inbox = descriptors.inbox(Some(7));
            let (ours, theirs) = UnixStream::pair().unwrap();
            send(&theirs, &files(2));
            inbox.receive(&ours, &mut [0; 16]).unwrap();
            kept += inbox.kept.lock().unwrap().len();
            held.push(inbox);
        }
        assert_eq!(kept, MAX_OF_USER);
        let other = descriptors.inbox(Some(8));
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&theirs, &files(1));
        other.receive(&ours, &mut [0; 16]).unwrap();
        assert_eq!(other.take().len(), 1);
        drop(held);
        assert_eq!(descriptors.all.load(Ordering::Relaxed), 0);
        drop(descriptors.inbox(None));
        assert!(descriptors.users.lock().unwrap().len() <= 2, "users without a connection are forgotten");
    }
}
