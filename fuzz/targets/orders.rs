//! Bytes from a client of the privileged helper: every line is answered with a line of JSON.
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::thread;

use crate::{board_tree, unpacked};
use rooflined_actuator::Options;
use serde_json::Value;

static OPTIONS: LazyLock<(tempfile::TempDir, Options)> = LazyLock::new(|| {
    let dir = unpacked(&board_tree("orin-nano-8gb-super"));
    let config = dir.path().join("rooflined.toml");
    fs::write(&config, "[control]\nenabled = true\n").expect("a file");
    let options = Options {
        stdio: true,
        recover: false,
        root: dir.path().to_owned(),
        state_dir: dir.path().join("state"),
        config,
        user: "0".into(),
        idle: 0.1,
        time_limit: 0.1,
    };
    (dir, options)
});

pub fn run(bytes: &[u8]) {
    let (_dir, options) = &*OPTIONS;
    let (client, server) = UnixStream::pair().expect("a pair of sockets");
    // The helper's client is its standard input.
    rustix::stdio::dup2_stdin(&server).expect("a socket");
    drop(server);
    let answers = client.try_clone().expect("a socket");
    let reader = thread::spawn(move || {
        // Descriptors that come with a line are closed by the kernel, for nobody takes them.
        let mut lines = Vec::new();
        for line in BufReader::new(answers).split(b'\n').map_while(Result::ok) {
            lines.push(line);
        }
        lines
    });
    let mut sender = &client;
    // It may have closed the connection for a line that is too long.
    let _ = sender.write_all(bytes);
    let _ = client.shutdown(Shutdown::Write);
    // Its filter of system calls, which allows no new sockets, is that of a thread.
    thread::scope(|scope| scope.spawn(|| rooflined_actuator::main(options)).join().map(drop))
        .expect("a helper that ends");
    rustix::stdio::dup2_stdin(fs::File::open("/dev/null").expect("a device")).expect("a device");
    for line in reader.join().expect("a reader") {
        let answer: Value = serde_json::from_slice(&line).expect("an answer is JSON");
        assert!(answer.get("order").is_some_and(Value::is_u64), "{answer}");
    }
    drop(client);
}
