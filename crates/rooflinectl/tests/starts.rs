//! The program starts. Cargo builds it for this test, and the tests of the root package start it where it then lies.

use std::process::Command;

#[test]
fn the_client_prints_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_rooflinectl")).arg("--version").output().unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("rooflinectl {}\n", env!("CARGO_PKG_VERSION"))
    );
}
