//! What a client does at the end of its connection.

use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{Shutdown, shutdown};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::watch;

/// Between two looks at a client that has closed its sending half.
const LOOK: Duration = Duration::from_millis(250);
/// Most bytes that are read and thrown away behind the last answer.
const MAX_DISCARDED: usize = 64 << 20;

/// Resolves when the client has closed the connection. One that has only closed its sending half still reads.
pub async fn client_gone(stream: &UnixStream) {
    loop {
        // What ends the wait is the end of its sending; urgent data there is none on such a socket.
        if stream.ready(Interest::PRIORITY).await.is_err() || hung_up(stream) {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Both halves are closed.
fn hung_up(stream: &UnixStream) -> bool {
    let mut looked = [PollFd::new(stream, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut looked, Some(&now)).is_ok() && looked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

/// Says that nothing more comes, and waits until the client closes too, which it does when it has read the answer. Closing
/// at once would make what it still writes fail, and many clients do not read an answer then.
pub async fn drain(stream: &UnixStream, time: Duration, stopped: &mut watch::Receiver<bool>) {
    // It may have gone already.
    let _ = shutdown(stream, Shutdown::Write);
    let rest = async {
        let (mut left, mut buffer) = (MAX_DISCARDED, [0; 4096]);
        while left > 0 && stream.readable().await.is_ok() {
            match stream.try_read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => left = left.saturating_sub(length),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = rest => {}
        // A client that does not close in time is not waited for.
        () = tokio::time::sleep(time) => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}
