//! What must not be in a report: who and which machine.

use rooflined_hw::SysRoot;
use rooflined_hw::bundle::{self, Scrub};
use serde_json::Value;

/// Lists whose entries tell what somebody runs, and where somebody keeps files.
const PROCESSES: &str = "gpu_processes";
const SWAP: &str = "swap";

/// The section that is scrubbed by itself, with rules for each file.
const BUNDLE: &str = "bundle";

pub(super) struct Private {
    scrub: Scrub,
}

impl Private {
    /// What this machine and its user are called, and the board under `root`, whose records `machine` stands for.
    pub fn of(root: &SysRoot, machine: Option<&str>) -> Self {
        let mut scrub = Scrub::of(root).also_of(&SysRoot::host());
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.map(|name| name.trim().to_owned());
        let short = host.as_ref().and_then(|host| host.split('.').next()).map(str::to_owned);
        let variables = ["USER", "LOGNAME", "SUDO_USER"].map(|name| (std::env::var(name).ok(), "user"));
        let home = std::env::var("HOME").ok().and_then(|home| home.rsplit('/').next().map(str::to_owned));
        let names = [(host, "host"), (short, "host"), (home, "user"), (account(), "user")];
        for (name, with) in names.into_iter().chain(variables) {
            if let Some(name) = name {
                scrub = scrub.and_name(&name, with);
            }
        }
        if let Some(machine) = machine {
            scrub = scrub.and_name(machine, "0");
        }
        Self { scrub }
    }

    /// A value without it, in every text and key.
    pub fn without(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.scrub.message(&text)),
            Value::Array(values) => values.into_iter().map(|value| self.without(value)).collect(),
            Value::Object(fields) => {
                let cleaned = fields.into_iter().map(|(key, value)| match value {
                    bundle @ Value::String(_) if key == BUNDLE => (key, bundle),
                    value if key == PROCESSES => (key, self.without(without_processes(value))),
                    value if key == SWAP => (key, self.without(without_places(value, 0))),
                    value => (self.scrub.key(&key), self.without(value)),
                });
                Value::Object(cleaned.collect())
            }
            other => other,
        }
    }
}

/// A list of processes without their names and numbers, in whichever form it is written.
fn without_processes(value: Value) -> Value {
    match value {
        Value::Object(mut process) if process.contains_key("pid") => {
            process.remove("pid");
            process.insert("name".into(), "process".into());
            Value::Object(process)
        }
        // Reasons stand under the number of their process.
        Value::Object(fields) => {
            let cleaned = fields.into_iter().map(|(key, value)| match key.split_once('.') {
                Some((pid, rest)) if is_number(pid) => (format!("process.{rest}"), without_processes(value)),
                _ => (key, without_processes(value)),
            });
            Value::Object(cleaned.collect())
        }
        Value::Array(values) => values.into_iter().map(without_processes).collect(),
        Value::String(text) => {
            let parts = text.split('/').map(|part| if is_number(part) { "PID" } else { part });
            Value::String(parts.collect::<Vec<_>>().join("/"))
        }
        other => other,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Areas of swap, the `index`th of them this, without the paths of their files.
fn without_places(value: Value, index: usize) -> Value {
    match value {
        Value::Object(fields) => {
            let cleaned = fields.into_iter().map(|(key, value)| match value {
                Value::String(path) if key == "name" => {
                    (key, Value::String(bundle::swap_area(&path, index).unwrap_or(path)))
                }
                value => (key, without_places(value, index)),
            });
            Value::Object(cleaned.collect())
        }
        Value::Array(values) => {
            values.into_iter().zip(1..).map(|(value, index)| without_places(value, index)).collect()
        }
        other => other,
    }
}

/// The name of this process's user.
fn account() -> Option<String> {
    let id = rustix::process::getuid().as_raw().to_string();
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    let mine = accounts.lines().find(|line| line.split(':').nth(2) == Some(id.as_str()))?;
    mine.split(':').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_serials_and_addresses_are_gone_from_every_text_and_boards_keep_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("proc/device-tree/serial-number", "1424922123456\0");
        put("etc/machine-id", "fedcba9876543210fedcba9876543210\n");
        let scrub =
            Scrub::of(&SysRoot::new(dir.path())).and_name("alices-bench", "host").and_name("alice", "user");
        let cleaned = Private { scrub }.without(json!({
            "message": "/home/alice/x on alices-bench: serial 1424922123456, 48:b0:2d:12:34:ef",
            "nested": [{"/home/alice/x": "GPU-d51f1f69-4063-9beb-b3e9-734334ec9006", "malice": 12}],
            "key": "jetson-orin-nano-8gb",
            "id": "fedcba9876543210fedcba9876543210",
            "bundle": "== /sys/x == alice in a bundle is the bundle's own business",
        }));
        let text = cleaned.to_string();
        for secret in
            ["1424922123456", "alices-bench", "/alice", "\"alice\"", "48:b0:2d", "d51f1f69", "fedcba98"]
        {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert_eq!(cleaned["key"], "jetson-orin-nano-8gb");
        assert_eq!(cleaned["nested"][0]["malice"], 12, "a longer word is another word");
    }

    #[test]
    fn keys_stay_whatever_the_user_is_called() {
        let private = Private { scrub: Scrub::default().and_name("rails", "user") };
        assert_eq!(private.without(json!({"rails": "of rails"})), json!({"rails": "of user"}));
    }

    #[test]
    fn what_somebody_runs_and_where_files_lie_is_in_no_section() {
        let private = Private { scrub: Scrub::default() };
        let cleaned = private.without(json!({
            "samples": [{"details": {
                "gpu_processes": {"known": [
                    {"pid": 4711, "name": {"known": "secret-app"}, "memory": {"known": 80.0}},
                    {"pid": 17, "name": {"absent": {"reason": "no /proc/4711/comm"}}, "memory": {"known": 1.0}},
                ]},
                "swap": {"known": [
                    {"name": "/dev/zram0", "kind": "zram"}, {"name": "/home/alice/swapfile", "kind": "file"},
                ]},
            }}],
            "daemon_state": {
                "gpu_processes": {
                    "value": [{"pid": 4711, "name": null, "memory_bytes": 80}], "reason": null,
                    "reasons": {"4711.name": "/proc/4711/comm: permission denied"},
                },
                "swap": {"value": [{"name": "/home/alice/swapfile"}]},
            },
        }));
        let text = cleaned.to_string();
        for secret in ["4711", "17", "secret-app", "alice"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let first = &cleaned["samples"][0]["details"];
        assert_eq!(first["gpu_processes"]["known"][0], json!({"name": "process", "memory": {"known": 80.0}}));
        assert_eq!(first["swap"]["known"][0]["name"], "/dev/zram0");
        assert_eq!(first["swap"]["known"][1]["name"], "/swap2");
        assert_eq!(
            cleaned["daemon_state"]["gpu_processes"]["reasons"],
            json!({"process.name": "/proc/PID/comm: permission denied"})
        );
    }
}
