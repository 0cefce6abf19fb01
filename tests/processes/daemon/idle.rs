//! What the daemon does when nobody asks: as little as possible.

use super::bus::PrivateBus;
use super::harness::{Home, eventually, get};

/// Samples often, so that there is something to see, and says what it does.
fn idle(home: &Home) -> super::harness::Daemon {
    home.configure("[calibration]\nautomatic = false\n[sampling]\nidle_period_s = 0.2\nperiod_s = 0.1\n");
    home.start_with(|command| {
        command.env("ROOFLINED_LOG", "info,rooflined=trace");
    })
}

fn samples(home: &Home) -> usize {
    home.log().lines().filter(|line| line.contains("sampled")).count()
}

fn wait_for_samples(home: &Home, more: usize) {
    let enough = samples(home) + more;
    eventually("more samples", || (samples(home) >= enough).then_some(()));
}

#[test]
fn a_look_makes_sampling_fast_and_no_look_leaves_it_slow() {
    let home = Home::new();
    let _daemon = idle(&home);
    wait_for_samples(&home, 5);
    assert!(!home.log().contains("somebody looks"), "{}", home.log());
    get(&home.query(), "/v1/state");
    eventually("the look to be noticed", || home.log().contains("somebody looks").then_some(()));
    eventually("fast sampling", || home.log().contains("period_s=0.1").then_some(()));
}

#[test]
fn telling_the_bus_of_a_sample_is_no_look() {
    let mut home = Home::new();
    let Some(bus) = PrivateBus::start() else { return };
    home.bus = bus.address();
    let _daemon = idle(&home);
    eventually("the bus", || home.log().contains("serving on the bus").then_some(()));
    // Properties are announced at most once a second, so two of these announcements are among the samples.
    wait_for_samples(&home, 15);
    assert!(!home.log().contains("somebody looks"), "{}", home.log());
}
