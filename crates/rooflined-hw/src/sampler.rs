//! The machine as it is now.

use super::SysRoot;
use super::answers::Files;
use super::discover::Discovered;
use super::hidden::Hidden;
use super::modes::ModeRule;
use super::nvml::Nvml;
use super::source::Reader;
use super::state::StateBuilder;
use rooflined_core::board::BoardState;
use rooflined_core::units::Seconds;

/// Reads one machine again and again: keeps the descriptors, and its sources the counters of the sample before.
pub struct Sampler {
    readers: Vec<Reader>,
    nvml: Option<Nvml>,
    files: Files,
    modes: ModeRule,
    no_gpu: String,
    hidden: Hidden,
}

/// Reads the machine once more. `now` is the CLOCK_BOOTTIME of the sample, see [`super::boot_time`].
#[must_use]
pub fn read_state(sampler: &mut Sampler, now: Seconds) -> BoardState {
    sampler.sample(now)
}

impl Sampler {
    /// Prepares to read what was discovered under `root`. Reads nothing yet.
    #[must_use]
    pub fn new(root: &SysRoot, discovered: Discovered) -> Self {
        let Discovered { plan, readers, nvml, modes, no_gpu, .. } = discovered;
        Self {
            readers,
            nvml,
            files: Files::new(root, plan.files),
            modes,
            no_gpu,
            hidden: Hidden::under(root),
        }
    }

    /// Sources that have stopped answering; each keeps one helper thread waiting.
    #[must_use]
    pub fn stuck_sources(&self) -> usize {
        self.files.stuck()
    }

    /// Reads everything once. Takes as long as the sensors need, at most a fifth of a second.
    pub fn sample(&mut self, now: Seconds) -> BoardState {
        // It works while files are read.
        if let Some(nvml) = &self.nvml {
            nvml.begin();
        }
        let answers = self.files.read(now);
        let mut state = StateBuilder::new(now, &self.no_gpu, &self.hidden);
        for read in &mut self.readers {
            read(&answers, &mut state);
        }
        state.finish(&self.modes)
    }
}
