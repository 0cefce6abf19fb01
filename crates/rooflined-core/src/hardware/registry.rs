//! The entries that are built in, and a user's own beside them.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use super::Hardware;
use crate::board::identity::gpu_key;
use crate::near::Near;

macro_rules! built_in {
    ($($key:literal,)*) => {
        /// Key and text of every file of `config/hardware`.
        pub(super) const FILES: &[(&str, &str)] =
            &[$(($key, include_str!(concat!("../../config/hardware/", $key, ".toml"))),)*];
    };
}

built_in! {
    "a10", "a100-40gb", "a100-80gb", "a100-pcie-80", "a10g", "a40", "altra-max-m128-30", "altra-q80-30",
    "ampereone-a192-32x", "b200", "b300", "core-i5-12400", "core-i9-13900k", "core-i9-14900k",
    "core-ultra-7-155h", "core-ultra-7-258v", "core-ultra-9-285k", "cpu", "epyc-7742", "epyc-7763",
    "epyc-9554", "epyc-9654", "epyc-9755", "epyc-9965", "gb10", "gh200", "grace", "graviton2", "graviton3",
    "graviton4", "gtx-1050ti", "h100-nvl", "h100-pcie", "h100-sxm", "h20", "h200", "igx-orin", "igx-thor",
    "jetson-agx-orin-32gb", "jetson-agx-orin-32gb-super", "jetson-agx-orin-64gb",
    "jetson-agx-orin-devkit-32gb", "jetson-agx-orin-industrial", "jetson-agx-orin-unlisted",
    "jetson-agx-thor-t4000", "jetson-agx-thor-t5000", "jetson-agx-thor-unlisted", "jetson-agx-xavier",
    "jetson-agx-xavier-8gb", "jetson-agx-xavier-industrial", "jetson-agx-xavier-unlisted",
    "jetson-orin-nano-4gb", "jetson-orin-nano-4gb-super", "jetson-orin-nano-8gb",
    "jetson-orin-nano-8gb-super", "jetson-orin-nx-16gb", "jetson-orin-nx-16gb-super", "jetson-orin-nx-8gb",
    "jetson-orin-nx-8gb-super", "jetson-orin-nx-unlisted", "jetson-xavier-nx", "jetson-xavier-nx-unlisted",
    "l4", "l40", "l40s", "n100", "n100-ddr4", "n150", "n150-ddr4", "p40", "raspberry-pi-5",
    "raspberry-pi-5-16gb", "raspberry-pi-5-4gb", "rk3588", "rtx-2080", "rtx-2080ti", "rtx-3060",
    "rtx-3060-laptop", "rtx-3070", "rtx-3070-laptop", "rtx-3080", "rtx-3080-laptop", "rtx-3080ti",
    "rtx-3090", "rtx-3090ti", "rtx-4000-ada", "rtx-4050-laptop", "rtx-4060", "rtx-4060-laptop",
    "rtx-4060ti", "rtx-4070", "rtx-4070-laptop", "rtx-4070-super", "rtx-4070ti", "rtx-4070ti-super",
    "rtx-4080", "rtx-4080-laptop", "rtx-4080-super", "rtx-4090", "rtx-4090-laptop", "rtx-5000-ada",
    "rtx-5060", "rtx-5060-laptop", "rtx-5060ti", "rtx-5070", "rtx-5070-laptop", "rtx-5070ti",
    "rtx-5070ti-laptop", "rtx-5080", "rtx-5080-laptop", "rtx-5090", "rtx-5090-laptop", "rtx-6000-ada",
    "rtx-a2000", "rtx-a4000", "rtx-a5000", "rtx-a6000", "rtx-pro-6000-bse", "rtx-pro-6000-bwe",
    "rtx-pro-6000-maxq", "ryzen-7-5800x", "ryzen-7-7700x", "ryzen-9-5950x", "ryzen-9-7950x",
    "ryzen-9-9950x", "ryzen-ai-9-hx-370", "ryzen-ai-max-395", "t4", "threadripper-pro-5995wx", "v100",
    "xeon-6980p", "xeon-8380", "xeon-8480", "xeon-8592",
}

/// What people mean most often by a part of a name, such as `orin`.
const USUAL: [&str; 12] = [
    "rtx-4090",
    "rtx-5090",
    "rtx-3090",
    "jetson-orin-nano-8gb-super",
    "jetson-agx-orin-64gb",
    "jetson-orin-nx-16gb",
    "jetson-agx-thor-t5000",
    "jetson-orin-nano-8gb",
    "jetson-agx-xavier",
    "jetson-xavier-nx",
    "h100-sxm",
    "a100-80gb",
];

/// Prefix of the keys of Jetson modules, which may be left out when one asks for them.
const JETSON: &str = "jetson-";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registry {
    entries: BTreeMap<String, Hardware>,
    aliases: BTreeMap<String, String>,
}

/// The entries that are built in.
#[must_use]
pub fn registry() -> &'static Registry {
    static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
        // A test holds that every file parses; a file that did not would be missing here and nothing else.
        Registry::of(FILES.iter().filter_map(|(_, text)| Hardware::parse(text).ok()))
    });
    &REGISTRY
}

/// What this machine may be, where a user has described hardware beside what is built in.
static DECLARED: OnceLock<Registry> = OnceLock::new();

/// The entries among which this machine is looked for: those built in, and what [`declare`] has added.
#[must_use]
pub fn known() -> &'static Registry {
    DECLARED.get().unwrap_or_else(|| registry())
}

/// Adds a user's own hardware to what this machine may be, once in the life of a process and before it is looked for.
pub fn declare(user: &[Hardware]) {
    if !user.is_empty() {
        // Another thread that gets here reads the same files.
        let _ = DECLARED.set(Registry::with(user.to_vec()));
    }
}

impl Registry {
    fn of(entries: impl IntoIterator<Item = Hardware>) -> Self {
        let mut registry = Self::default();
        for entry in entries {
            registry.insert(entry);
        }
        registry
    }

    /// What is built in and a user's own. An entry replaces an earlier one with the same key.
    #[must_use]
    pub fn with(user: Vec<Hardware>) -> Self {
        let mut registry = registry().clone();
        for entry in user {
            registry.insert(entry);
        }
        registry
    }

    fn insert(&mut self, entry: Hardware) {
        self.aliases.retain(|_, key| *key != entry.key);
        for alias in &entry.aliases {
            self.aliases.insert(alias.clone(), entry.key.clone());
        }
        self.entries.insert(entry.key.clone(), entry);
    }

    /// The entry with this key; failing that, the Jetson of this name without its prefix, the entry with this alias, or the one that
    /// a driver calls so. Upper and lower case are alike.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Hardware> {
        let name = key.trim();
        let key = name.to_ascii_lowercase();
        let jetson = || self.entries.get(&format!("{JETSON}{key}"));
        let alias = || {
            let bare = key.strip_prefix(JETSON).unwrap_or(&key);
            let name = self.aliases.get(&key).or_else(|| self.aliases.get(bare))?;
            self.entries.get(name)
        };
        let by_driver = || self.named(name).or_else(|| self.entries.get(&gpu_key(name)?));
        self.entries
            .get(&key)
            .or_else(jetson)
            .or_else(alias)
            .or_else(|| self.of_letters(&key))
            .or_else(by_driver)
    }

    /// The entry whose key or alias has the same letters and digits: `RTX 4090`, `orinnano`.
    fn of_letters(&self, name: &str) -> Option<&Hardware> {
        let letters = |name: &str| {
            let all: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
            all.strip_prefix("jetson").map(str::to_owned).unwrap_or(all)
        };
        let wanted = letters(name);
        let is_meant = |name: &&String| !wanted.is_empty() && letters(name) == wanted;
        let alias = self.aliases.keys().find(is_meant).and_then(|alias| self.aliases.get(alias));
        self.entries.get(self.entries.keys().find(is_meant).or(alias)?)
    }

    /// The entry whose name is what a driver calls the part, with or without the vendor's.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Hardware> {
        let bare = |name: &str| name.trim().trim_start_matches("NVIDIA ").to_ascii_lowercase();
        let name = bare(name);
        self.entries.values().find(|entry| bare(&entry.name) == name)
    }

    /// The same without one entry.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        Self::of(self.entries().filter(|entry| entry.key != key).cloned())
    }

    /// Every key in order, aliases not counted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Every entry in the order of its key.
    pub fn entries(&self) -> impl Iterator<Item = &Hardware> {
        self.entries.values()
    }

    /// The keys, and failing them the aliases, that `key` was probably meant to be.
    #[must_use]
    pub fn near(&self, key: &str) -> Near {
        let near = Near::with_usual(key, self.keys(), &USUAL);
        if near.is_empty() { Near::of(key, self.aliases.keys().map(String::as_str)) } else { near }
    }
}
