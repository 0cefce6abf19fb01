//! The heap of this process. Here because calling the allocator is `unsafe`, which no other crate is.

/// Gives free memory back to the system. glibc's allocator keeps what was freed below memory that is still in use;
/// others give it back by themselves.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            // SAFETY: any thread may call it at any time, for it takes the allocator's own locks and touches free memory only.
            safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        malloc_trim(0);
    }
}

// Under an emulator the memory is that of the emulator.
#[cfg(all(test, target_env = "gnu", target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// In a process of its own, in which nothing else takes memory meanwhile.
    const ALONE: &str = "ROOFLINED_TEST_ALONE";

    fn anonymous_kb() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    #[test]
    fn what_was_freed_below_memory_in_use_is_given_back() -> std::io::Result<()> {
        if std::env::var_os(ALONE).is_none() {
            let name = "heap::tests::what_was_freed_below_memory_in_use_is_given_back";
            let mut command = std::process::Command::new(std::env::current_exe()?);
            let output = command.args(["--exact", name]).env(ALONE, "1").output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return Ok(());
        }
        let mut blocks: Vec<Vec<u8>> = (0..64 << 10).map(|_| vec![1; 1000]).collect();
        // The last one keeps the heap from shrinking by itself.
        let last = blocks.pop();
        drop(blocks);
        let before = anonymous_kb();
        release_free_memory();
        let after = anonymous_kb();
        assert!(
            after.map(|after| after + (32 << 10)) < before && after.is_some(),
            "{before:?} kB, then {after:?} kB"
        );
        assert!(last.is_some_and(|last| last[0] == 1));
        Ok(())
    }
}
