//! Boards.

use rooflined::hw::{self, SysRoot};

#[test]
fn this_machine_tells_what_it_is_and_why_it_does_not_tell_more() {
    let root = SysRoot::host();
    let (board, discovered) = hw::discover(&root);
    println!("{}", serde_json::to_string_pretty(&board).unwrap());
    let mut sampler = hw::Sampler::new(&root, discovered);
    let state = hw::read_state(&mut sampler, hw::boot_time());
    println!("{}", serde_json::to_string_pretty(&state).unwrap());
    println!("{:?}", hw::busy_processes(&root, 5));
    println!("{:?}", hw::online_cpus(&root));
}
