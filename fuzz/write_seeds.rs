//! `seeds DIR` writes what every run starts from to `DIR/TARGET/NUMBER`.

use std::path::Path;

fn main() {
    let Some(dir) = std::env::args_os().nth(1) else { panic!("usage: seeds DIR") };
    rooflined_fuzz::seeds::write_all(Path::new(&dir));
}
