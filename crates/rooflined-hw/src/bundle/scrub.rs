//! What must not leave the machine: serial numbers, addresses, identifiers, its name.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::super::SysRoot;

/// Files that hold what identifies this machine. They are read in order to find it elsewhere, and never captured.
const SECRETS: &[&str] = &[
    "/proc/device-tree/serial-number",
    "/sys/class/dmi/id/product_serial",
    "/sys/class/dmi/id/board_serial",
    "/sys/class/dmi/id/chassis_serial",
    "/sys/class/dmi/id/product_uuid",
    "/proc/sys/kernel/random/boot_id",
    "/etc/machine-id",
    "/var/lib/dbus/machine-id",
];
/// What stands in the place of a machine id.
pub(super) const MACHINE_ID: &str = "0123456789abcdef0123456789abcdef";
/// Shorter ones are placeholders, and would be found by chance.
const SHORTEST: usize = 8;

/// The identifiers of one machine.
#[derive(Debug, Clone, Default)]
pub struct Scrub {
    secrets: Vec<String>,
    host: Option<String>,
    /// Names that are replaced in messages, with what stands for each.
    names: Vec<(String, &'static str)>,
}

impl Scrub {
    /// Those that can be read.
    #[must_use]
    pub fn of(root: &SysRoot) -> Self {
        let word = |path: &str| {
            let text = root.read(path).ok()?;
            let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
            (!text.is_empty()).then_some(text)
        };
        // A placeholder such as "Default string" is a name as well, and names of boards are wanted.
        let is_secret = |text: &String| text.len() >= SHORTEST && text.chars().any(|c| c.is_ascii_digit());
        let secrets = SECRETS.iter().filter_map(|path| word(path)).filter(is_secret).collect();
        let host = word("/proc/sys/kernel/hostname").or_else(|| word("/etc/hostname"));
        Self { secrets, host, names: Vec::new() }
    }

    /// The same with the identifiers of another root.
    #[must_use]
    pub fn also_of(mut self, root: &SysRoot) -> Self {
        self.secrets.extend(Self::of(root).secrets);
        self
    }

    /// The same with a name that messages must not hold, and what stands for it.
    #[must_use]
    pub fn and_name(mut self, name: &str, with: &'static str) -> Self {
        self.names.push((name.to_owned(), with));
        // Of two names that begin alike the longer one is replaced first.
        self.names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
        self
    }

    /// A key that programs define: without identifiers, and whatever a user is called it stays the key it is.
    #[must_use]
    pub fn key(&self, key: &str) -> String {
        // What stands for a machine is a key as well.
        let is_hash = key.len() >= SHORTEST && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_plain = key.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if is_plain && !is_hash { self.apply("", key) } else { self.message(key) }
    }

    /// A text that is no file of the board without identifiers and names.
    #[must_use]
    pub fn message(&self, text: &str) -> String {
        let text = self.apply("", text);
        self.names.iter().fold(text, |text, (name, with)| replaced(&text, name, with))
    }

    /// The text of the file at `path` without them. Its lines stay where they are.
    #[must_use]
    pub fn apply(&self, path: &str, text: &str) -> String {
        if path.ends_with("/machine-id") {
            let is_id = text.trim().len() == 32;
            return if is_id { format!("{MACHINE_ID}\n") } else { "uninitialized\n".into() };
        }
        let text = self.secrets.iter().fold(text.to_owned(), |text, secret| replaced(&text, secret, "0"));
        let lines = text.split_inclusive('\n').map(|line| {
            let line = without_serial(line);
            let line = without_network(&without_addresses(&line));
            match &self.host {
                // Elsewhere a machine that is called `orin` would lose the name of its chip.
                Some(host) if path.starts_with("/etc/") && line.trim_start().starts_with('#') => {
                    replaced(&line, host, "host")
                }
                _ => line,
            }
        });
        lines.collect()
    }
}

/// `text` with `word` replaced wherever it stands by itself.
fn replaced(text: &str, word: &str, with: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    while let Some(at) = rest.find(word) {
        let end = at + word.len();
        let before = rest[..at].chars().next_back().or_else(|| result.chars().next_back());
        let alone = !is_part(before) && !is_part(rest[end..].chars().next());
        result.push_str(&rest[..at]);
        result.push_str(if alone { with } else { word });
        rest = &rest[end..];
    }
    result + rest
}

/// A line that gives a serial number, with 0 in its place: `Serial : 1421…`, `DGX_SERIAL_NUMBER="…"`.
fn without_serial(line: &str) -> String {
    let names = |key: &str| {
        let key = key.to_ascii_lowercase();
        key.contains("serial") || key.contains("uuid") || key.contains("asset_tag")
    };
    match line.find([':', '=']) {
        Some(at) if names(&line[..at]) => {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            format!("{} 0{end}", &line[..=at])
        }
        _ => line.to_owned(),
    }
}

/// A line with zeros for MAC addresses (six pairs of digits) and UUIDs (groups of 8, 4, 4, 4 and 12).
fn without_addresses(line: &str) -> String {
    const FORMS: [(&[usize], char); 3] =
        [(&[2, 2, 2, 2, 2, 2], ':'), (&[2, 2, 2, 2, 2, 2], '-'), (&[8, 4, 4, 4, 12], '-')];
    let bytes = line.as_bytes();
    let mut result = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let begins = at == 0 || !bytes[at - 1].is_ascii_hexdigit();
        let found = FORMS.iter().find_map(|(groups, separator)| {
            let length = form(&bytes[at..], groups, *separator as u8)?;
            begins.then_some(length)
        });
        let Some(length) = found else {
            at += 1;
            continue;
        };
        for byte in result[at..at + length].iter_mut().filter(|byte| byte.is_ascii_hexdigit()) {
            *byte = b'0';
        }
        at += length;
    }
    // Only digits were replaced by others, so it is still text.
    String::from_utf8(result).unwrap_or_default()
}

/// A line without addresses of networks and of mail, MAC addresses without separators, and names of users in paths.
fn without_network(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '.' | '@' | '_' | '%' | '+' | '-');
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        if result.ends_with("/home/") && end > 0 {
            result.push_str("user");
        } else {
            result.push_str(&without_network_in(&rest[..end]));
        }
        let next = rest[end..].find(is_part).map_or(rest.len(), |length| end + length);
        result.push_str(&rest[end..next]);
        rest = &rest[next..];
    }
    result
}

/// One word with what stands for it.
fn without_network_in(word: &str) -> String {
    let bare = word.trim_end_matches(['.', ':', ',']);
    let end = &word[bare.len()..];
    let with = |text: &str| format!("{text}{end}");
    if let Some((user, host)) = bare.split_once('@')
        && !user.is_empty()
        && host.contains('.')
    {
        return with("user@host");
    }
    let (host, port) = match bare.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (bare, None),
    };
    if let Ok(address) = host.parse::<Ipv4Addr>()
        && !address.is_loopback()
        && !address.is_unspecified()
    {
        return with(&port.map_or_else(|| "192.0.2.1".to_owned(), |port| format!("192.0.2.1:{port}")));
    }
    // Two names with `::` between them look like an address and are not.
    let groups = bare.split(':').filter(|group| !group.is_empty()).count();
    if groups > 2 && bare.split('%').next().is_some_and(|bare| bare.parse::<Ipv6Addr>().is_ok()) {
        return with("2001:db8::1");
    }
    let has = |kind: fn(&u8) -> bool| bare.as_bytes().iter().any(kind);
    if bare.len() == 12
        && bare.bytes().all(|byte| byte.is_ascii_hexdigit())
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_alphabetic)
    {
        return with("000000000000");
    }
    word.to_owned()
}

/// Length of the groups of digits that `bytes` begin with; `None` where they do not.
fn form(bytes: &[u8], groups: &[usize], separator: u8) -> Option<usize> {
    let mut at = 0;
    for (index, length) in groups.iter().enumerate() {
        if index > 0 {
            if bytes.get(at) != Some(&separator) {
                return None;
            }
            at += 1;
        }
        let group = bytes.get(at..at + length)?;
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        at += length;
    }
    (!bytes.get(at).is_some_and(u8::is_ascii_hexdigit)).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_identifies_a_machine_is_replaced_and_the_rest_is_not() {
        let secrets = vec!["1421020048612".to_owned()];
        let scrub = Scrub { secrets, host: Some("orin".into()), names: Vec::new() };
        for (path, text, expected) in [
            ("/proc/cpuinfo", "Serial\t\t: 1421\nHardware : x\n", "Serial\t\t: 0\nHardware : x\n"),
            (
                "/etc/dgx-release",
                "DGX_SERIAL_NUMBER=\"ABC\"\nDGX_NAME=\"S\"\n",
                "DGX_SERIAL_NUMBER= 0\nDGX_NAME=\"S\"\n",
            ),
            ("/x", "a 1421020048612 b\n", "a 0 b\n"),
            ("/x", "91421020048612\n", "91421020048612\n"),
            ("/x", "eth0 48:b0:2d:12:34:ef.\n", "eth0 00:00:00:00:00:00.\n"),
            ("/x", "GPU-d51f1f69-4063-9beb-b3e9-734334ec9006", "GPU-00000000-0000-0000-0000-000000000000"),
            ("/x", "0000:01:00.0 22:36:38 cpu0 1 2\n", "0000:01:00.0 22:36:38 cpu0 1 2\n"),
            (
                "/etc/nvpmodel.conf",
                "# on orin\n< POWER_MODEL ID=0 NAME=orin >\n",
                "# on host\n< POWER_MODEL ID=0 NAME=orin >\n",
            ),
            ("/proc/device-tree/compatible", "nvidia,orin\0", "nvidia,orin\0"),
            ("/etc/machine-id", "fedcba9876543210fedcba9876543210\n", "0123456789abcdef0123456789abcdef\n"),
            ("/etc/machine-id", "secret", "uninitialized\n"),
            ("/x", "größe\u{fffd}\n", "größe\u{fffd}\n"),
            ("/proc/cmdline", "ip=10.1.2.3:8080, gw 10.1.2.3.\n", "ip=192.0.2.1:8080, gw 192.0.2.1.\n"),
            ("/x", "127.0.0.1 0.0.0.0 1.2.3 36.4.3-2025\n", "127.0.0.1 0.0.0.0 1.2.3 36.4.3-2025\n"),
            ("/x", "[fe80::4ab0:2dff:fe12:34ef%eth0] ::1 a::b", "[2001:db8::1] ::1 a::b"),
            (
                "/x",
                "mac 48b02d1234ef 48B02D1234EF 123456789012",
                "mac 000000000000 000000000000 123456789012",
            ),
            ("/x", "sha 48b02d1234ef0 and 0x48b02d1234", "sha 48b02d1234ef0 and 0x48b02d1234"),
            ("/x", "<ann.b@lab.example.org>, i2c@31b0000", "<user@host>, i2c@31b0000"),
            ("/x", "/home/ann/x and /home/", "/home/user/x and /home/"),
        ] {
            assert_eq!(scrub.apply(path, text), expected, "{path}: {text}");
        }
    }
}
