//! What must not leave the machine: serial numbers, addresses, identifiers, its name.

use std::net::Ipv6Addr;

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
/// Words that name boards, makers and programs: as the name of a host or a user they tell nobody, and replacing them
/// would make a text unreadable.
const COMMON: &str = "absent agx class cpu daemon debian dev devices dgx etc failed gb10 gpu home igx jetson known linux \
                      localhost name nano nvidia nx orin proc reason root rooflined spark state super sys tegra thor \
                      ubuntu user value var xavier";
/// Users whose numbers are below belong to the system.
const FIRST_PERSON: u32 = 1000;
/// The user nobody.
const NOBODY: u32 = 65_534;

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
        let users = root.read("/etc/passwd").unwrap_or_default();
        users
            .lines()
            .filter_map(person)
            .fold(Self { secrets, host, names: Vec::new() }, |scrub, name| scrub.and_name(name, "user"))
    }

    /// The same with the identifiers of another root.
    #[must_use]
    pub fn also_of(mut self, root: &SysRoot) -> Self {
        let other = Self::of(root);
        self.secrets.extend(other.secrets);
        other.names.into_iter().fold(self, |scrub, (name, with)| scrub.and_name(&name, with))
    }

    /// The same with a name that messages must not hold, and what stands for it. Common words are none.
    #[must_use]
    pub fn and_name(mut self, name: &str, with: &'static str) -> Self {
        if name.len() < 2 || COMMON.split(' ').any(|common| name.eq_ignore_ascii_case(common)) {
            return self;
        }
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
        self.without_names(&self.apply("", text))
    }

    fn without_names(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (name, with)| replaced(&text, name, with))
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
            let line = without_people(&without_addresses(&without_serial(line)));
            // Elsewhere a machine that is called `orin` would lose the name of its chip.
            if !(path.starts_with("/etc/") && line.trim_start().starts_with('#')) {
                return line;
            }
            let line = self.without_names(&line);
            self.host.as_ref().map_or(line.clone(), |host| replaced(&line, host, "host"))
        });
        lines.collect()
    }
}

/// The name in a line of /etc/passwd that is a person's.
fn person(line: &str) -> Option<&str> {
    let mut fields = line.split(':');
    let (name, number) = (fields.next()?, fields.nth(1)?.parse().ok()?);
    (FIRST_PERSON..NOBODY).contains(&number).then_some(name)
}

/// `text` with `word`, in whichever case, replaced wherever it stands by itself. A number does behind letters too: `SN1421…`.
fn replaced(text: &str, word: &str, with: &str) -> String {
    let (lower, word) = (text.to_ascii_lowercase(), word.to_ascii_lowercase());
    let is_number = |c: char| c.is_ascii_digit() || c == '_';
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_';
    let is_joined = |own: Option<char>, next: Option<char>| match own {
        Some('0'..='9') => next.is_some_and(is_number),
        _ => next.as_ref().is_some_and(is_part),
    };
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    for (at, _) in lower.match_indices(&word) {
        let end = at + word.len();
        let before = is_joined(word.chars().next(), lower[..at].chars().next_back());
        if before || is_joined(word.chars().next_back(), lower[end..].chars().next()) {
            continue;
        }
        result.push_str(&text[done..at]);
        result.push_str(with);
        done = end;
    }
    result + &text[done..]
}

/// A line that gives a serial number, with 0 in its place: `Serial : 1421…`, `DGX_SERIAL_NUMBER="…"`, `S/N 1421…`.
fn without_serial(line: &str) -> String {
    let mut follows = false;
    let words = line.split_inclusive(|c: char| c.is_whitespace() || matches!(c, ':' | '='));
    let words = words.map(|word| {
        let bare = word.trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_number = bare.len() >= 6 && bare.bytes().filter(u8::is_ascii_digit).count() >= 4;
        if follows && is_number {
            return word.replace(bare, "0");
        }
        let lower = bare.to_ascii_lowercase();
        let is_between = matches!(lower.as_str(), "" | "no" | "nr" | "number");
        follows = matches!(lower.as_str(), "sn" | "s/n" | "serial") || follows && is_between;
        word.to_owned()
    });
    let line: String = words.collect();
    let lower = line.to_ascii_lowercase();
    let key = ["serial", "uuid", "asset_tag"].iter().filter_map(|key| lower.find(key)).min();
    match key.and_then(|key| Some(key + line[key..].find([':', '='])?)) {
        Some(at) => {
            let end = if line.ends_with('\n') { "\n" } else { "" };
            format!("{} 0{end}", &line[..=at])
        }
        None => line,
    }
}

/// A line without MAC addresses, UUIDs, and addresses of networks, whatever stands around them.
fn without_addresses(line: &str) -> String {
    let may_begin = |c: char| c.is_ascii_hexdigit() || c == ':';
    let mut result = String::with_capacity(line.len());
    let mut at = 0;
    while let Some(next) = line[at..].find(may_begin) {
        result.push_str(&line[at..at + next]);
        at += next;
        let (before, rest) = line.split_at(at);
        let found = identifier(before, rest).or_else(|| ipv4(before, rest)).or_else(|| ipv6(before, rest));
        let (length, with) = found.unwrap_or_else(|| (1, rest[..1].to_owned()));
        result.push_str(&with);
        at += length;
    }
    result + &line[at..]
}

/// Length of a MAC address or UUID that `rest` begins with, and zeros in its form.
fn identifier(before: &str, rest: &str) -> Option<(usize, String)> {
    const FORMS: [(&[usize], u8); 3] =
        [(&[2, 2, 2, 2, 2, 2], b':'), (&[2, 2, 2, 2, 2, 2], b'-'), (&[8, 4, 4, 4, 12], b'-')];
    /// A number may look like these, but for its digits.
    const MIXED: [(&[usize], u8); 6] = [
        (&[2, 2, 2, 2, 2, 2], b'_'),
        (&[2, 2, 2, 2, 2, 2], b' '),
        (&[4, 4, 4], b'.'),
        (&[12], 0),
        (&[16], 0),
        (&[32], 0),
    ];
    let length_of = |(groups, separator): &(&[usize], u8)| form(rest.as_bytes(), groups, *separator);
    // `x` ends 0x, and the enx and wlx that names of network devices begin with.
    let begins = |may_follow: fn(char) -> bool| before.chars().next_back().is_none_or(may_follow);
    let is_mixed = |length: &usize| {
        let text = &rest[..*length];
        let has = |kind: fn(&u8) -> bool| text.as_bytes().iter().any(kind);
        // Of sixteen digits those made of a MAC address.
        let is_kind = *length != 16 || text[6..10].eq_ignore_ascii_case("fffe");
        is_kind
            && (has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
                || *length == 12 && is_mac_named(before))
    };
    let plain = || FORMS.iter().find_map(length_of).filter(|_| begins(|c| !c.is_ascii_hexdigit()));
    let mixed = || {
        MIXED
            .iter()
            .find_map(length_of)
            .filter(is_mixed)
            .filter(|_| begins(|c| !c.is_alphanumeric() || c == 'x'))
    };
    let length = plain().or_else(mixed)?;
    let zero = |c: char| if c.is_ascii_hexdigit() { '0' } else { c };
    Some((length, rest[..length].chars().map(zero).collect()))
}

/// Whether the last word of `before` says that a MAC address follows, which may have digits alone.
fn is_mac_named(before: &str) -> bool {
    let words = before.trim_end_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase();
    ["mac", "mac address", "hwaddr", "ether"].iter().any(|name| words.ends_with(name))
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

/// Length of an address of version 4 that `rest` begins with, but for loopback and none: `10.0.0.7`, `ip-10-0-0-7`.
fn ipv4(before: &str, rest: &str) -> Option<(usize, String)> {
    let separator = if before.ends_with("ip-") { '-' } else { '.' };
    if before.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '.') {
        return None;
    }
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != separator).unwrap_or(rest.len());
    let text = rest[..end].trim_end_matches(separator);
    let parts: Option<Vec<u8>> = text.split(separator).map(|part| part.parse().ok()).collect();
    let is_alone = !rest[text.len()..].starts_with(char::is_alphanumeric);
    match parts?.as_slice() {
        [127, ..] | [0, 0, 0, 0] => None,
        [_, _, _, _] if is_alone => Some((text.len(), ["192", "0", "2", "1"].join(&separator.to_string()))),
        _ => None,
    }
}

/// Length of an address of version 6 that `rest` begins with, with the interface that it names.
fn ipv6(before: &str, rest: &str) -> Option<(usize, String)> {
    /// Of the longest address.
    const LONGEST: usize = 39;
    let is_part = |c: char| c.is_ascii_hexdigit() || c == ':';
    // Behind `addr:` one may begin.
    let word = before.strip_suffix(':').unwrap_or(before);
    if word.ends_with(is_part) || word.len() == before.len() && word.ends_with(char::is_alphanumeric) {
        return None;
    }
    let end = rest.chars().take(LONGEST + 1).take_while(|c| is_part(*c)).count();
    let is_address = |text: &&str| text.parse::<Ipv6Addr>().is_ok();
    let text = &rest[..end];
    let text = Some(text).filter(is_address).or_else(|| text.strip_suffix(':').filter(is_address))?;
    // Two names with `::` between them look like an address and are not.
    let groups: Vec<&str> = text.split(':').filter(|group| !group.is_empty()).collect();
    let is_number = |group: &&str| group.len() > 2 && group.bytes().any(|c| c.is_ascii_digit());
    if groups.len() < 2 || groups.len() == 2 && !groups.iter().any(is_number) {
        return None;
    }
    let zone = rest[text.len()..]
        .strip_prefix('%')
        .map_or(0, |zone| 1 + zone.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(zone.len()));
    Some((text.len() + zone, "2001:db8::1".into()))
}

/// A line without addresses of mail and names of users in paths.
fn without_people(line: &str) -> String {
    const HOMES: [&str; 5] = ["/home/", "/Users/", "\\Users\\", "/media/", "/run/user/"];
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '.' | '@' | '_' | '%' | '+' | '-');
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = &rest[..end];
        let bare = word.trim_end_matches(['.', '-']);
        if end > 0 && HOMES.iter().any(|home| result.ends_with(home)) {
            result.push_str("user");
        } else if bare.split_once('@').is_some_and(|(user, host)| !user.is_empty() && is_host(host)) {
            result.push_str("user@host");
            result.push_str(&word[bare.len()..]);
        } else {
            result.push_str(word);
        }
        let next = rest[end..].find(is_part).map_or(rest.len(), |length| end + length);
        result.push_str(&rest[end..next]);
        rest = &rest[next..];
    }
    result
}

/// Whether this is a host's name behind an `@`, and neither an address on a bus (`i2c@31b0000`), a unit's instance nor a clock.
fn is_host(name: &str) -> bool {
    let is_name = name.starts_with(char::is_alphabetic)
        && name.contains(|c: char| c.is_alphabetic() && !c.is_ascii_hexdigit());
    is_name && !name.ends_with(".service") || name == "192.0.2.1"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_identifies_a_machine_is_replaced_and_the_rest_is_not() {
        let secrets = vec!["1421020048612".to_owned()];
        let scrub = Scrub { secrets, host: Some("orin".into()), names: Vec::new() }.and_name("ann", "user");
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
            ("/x", "C:\\Users\\ann\\x, /media/ann/USB", "C:\\Users\\user\\x, /media/user/USB"),
            (
                "/x",
                "addr:10.1.2.3 ip=10.1.2.3:10.0.0.1:::eth0",
                "addr:192.0.2.1 ip=192.0.2.1:192.0.2.1:::eth0",
            ),
            ("/x", "10.1.2.3-10.1.2.9, a_10.1.2.3%eth0", "192.0.2.1-192.0.2.1, a_192.0.2.1%eth0"),
            ("/x", "ip-10-1-2-3.internal v1.2.3.4 5.4.3.2.1", "ip-192-0-2-1.internal v1.2.3.4 5.4.3.2.1"),
            ("/x", "addr:2a02:8071::78, fe80::12%wlan0.", "addr:2001:db8::1, 2001:db8::1."),
            ("/x", "2001:db9::/32 ::ffff:10.1.2.3", "2001:db8::1/32 ::ffff:192.0.2.1"),
            (
                "/x",
                "enx48b02d1234ef 0x48b02d1234ef: a_48b02d1234ef_",
                "enx000000000000 0x000000000000: a_000000000000_",
            ),
            ("/x", "48b0.2d12.34ef 48_b0_2d_12_34_ef", "0000.0000.0000 00_00_00_00_00_00"),
            ("/x", "4ab02dfffe1234ef 1234567890123456", "0000000000000000 1234567890123456"),
            ("/x", "fedcba9876543210fedcba9876543210 a", "00000000000000000000000000000000 a"),
            ("/x", "by ann@bench, ännä@lab.example.org", "by user@host, user@host"),
            (
                "/x",
                "ann@10.1.2.3 cpu@2.4GHz observe@8080.service",
                "user@host cpu@2.4GHz observe@8080.service",
            ),
            ("/x", "id=SN1421020048612 S/N 0427123 SN:042712X", "id=SN0 S/N 0 SN:0"),
            ("/x", "Serial No. 0427123, root=PARTUUID=a1b2-02", "Serial No. 0, root= 0"),
            ("/x", "serial no 0427123", "serial no 0"),
            (
                "/x",
                "mac 482302114567, MAC address: 482302114568",
                "mac 000000000000, MAC address: 000000000000",
            ),
            (
                "/x",
                "bytes 48 b0 2d aa bb ca, 10 20 30 40 50 60",
                "bytes 00 00 00 00 00 00, 10 20 30 40 50 60",
            ),
            ("/x", "/run/user/ann and /run/user/", "/run/user/user and /run/user/"),
            ("/etc/x", "# ANN at ORIN\nann at orin\n", "# user at host\nann at orin\n"),
        ] {
            assert_eq!(scrub.apply(path, text), expected, "{path}: {text}");
        }
    }
}
