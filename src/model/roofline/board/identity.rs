//! Which entry of the hardware registry a machine is, from what it says about itself. Pure: the texts are given.

use crate::units::Bytes;

/// A generation of NVIDIA's system on a chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chip {
    /// Tegra X2.
    Tegra186,
    /// Xavier.
    Tegra194,
    /// Orin.
    Tegra234,
    /// Thor.
    Tegra264,
    Other,
}

impl Chip {
    /// The chip among the strings of the device tree's `compatible`; `None` on a machine that is no Tegra.
    #[must_use]
    pub fn of(compatible: &[String]) -> Option<Self> {
        let named = |name: &str| compatible.iter().any(|entry| entry == name);
        let known = [
            ("nvidia,tegra186", Self::Tegra186),
            ("nvidia,tegra194", Self::Tegra194),
            ("nvidia,tegra234", Self::Tegra234),
            ("nvidia,tegra264", Self::Tegra264),
        ];
        let chip = known.into_iter().find(|(name, _)| named(name)).map(|(_, chip)| chip);
        chip.or_else(|| compatible.iter().any(|name| name.starts_with("nvidia,tegra")).then_some(Self::Other))
    }

    /// Texture-processing clusters that the gating mask counts, those fused off included; `None` where no mask in
    /// sysfs tells.
    #[must_use]
    pub const fn tpc_mask_bits(self) -> Option<u32> {
        match self {
            Self::Tegra194 => Some(4),
            Self::Tegra234 => Some(8),
            Self::Tegra186 | Self::Tegra264 | Self::Other => None,
        }
    }

    /// SMs that `mask` leaves, two to a cluster. `None` for a chip without such a mask, and for
    /// a mask with bits that the chip does not have or with nothing left.
    #[must_use]
    pub const fn sm_online(self, mask: u32) -> Option<u32> {
        match self.tpc_mask_bits() {
            Some(bits) if mask >> bits == 0 && mask.count_ones() < bits => {
                Some(2 * (bits - mask.count_ones()))
            }
            _ => None,
        }
    }
}

/// What a Tegra board says about itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// The strings of /proc/device-tree/compatible.
    pub compatible: &'a [String],
    /// /proc/device-tree/model.
    pub model: Option<&'a str>,
    /// Module number and SKU that the boot loader was flashed for, see [`boot_module`].
    pub boot_module: Option<&'a str>,
    /// `MemTotal`.
    pub memory: Option<Bytes>,
}

/// Part numbers (`p3767-0005-super`) in the strings of `compatible`: carrier and module, in the order given.
#[must_use]
pub fn part_numbers(compatible: &[String]) -> Vec<String> {
    let words = compatible.iter().flat_map(|entry| entry.split(['+', ',']));
    let mut found: Vec<String> = Vec::new();
    for word in words.filter(|word| is_part_number(word)) {
        if !found.iter().any(|known| known == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// `p` and four digits, `-` and four digits, then the end or `-` and a variant.
fn is_part_number(word: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| {
        word.as_bytes().get(range).is_some_and(|bytes| bytes.iter().all(u8::is_ascii_digit))
    };
    word.starts_with('p')
        && digits(1..5)
        && word.as_bytes().get(5) == Some(&b'-')
        && digits(6..10)
        && word.as_bytes().get(10).is_none_or(|byte| *byte == b'-')
}

/// The module among the part numbers: the one that is in the table of modules, else the last named beside a carrier.
#[must_use]
pub fn module(compatible: &[String]) -> Option<String> {
    let parts = part_numbers(compatible);
    let known = parts.iter().find(|part| MODULES.iter().any(|module| part.starts_with(module)));
    let beside_carrier = || parts.get(1).or_else(|| parts.first());
    known.or_else(beside_carrier).cloned()
}

/// Module numbers; what is not here is a carrier. p2972 is the AGX Xavier kit as a whole.
const MODULES: [&str; 6] = ["p2888", "p2972", "p3668", "p3701", "p3767", "p3834"];

/// Module number and SKU (`3834-0008`) from nv_boot_control.conf, whose TNSPEC starts with module, fab and SKU.
#[must_use]
pub fn boot_module(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("TNSPEC"))?;
    let mut fields = line.trim().split('-');
    let (module, _fab, sku) = (fields.next()?, fields.next()?, fields.next()?);
    let four_digits = |field: &str| field.len() == 4 && field.bytes().all(|byte| byte.is_ascii_digit());
    (four_digits(module) && four_digits(sku)).then(|| format!("{module}-{sku}"))
}

/// The registry key of a Jetson; `None` where nothing that it says is known.
///
/// The module's part number decides, because one carrier takes several modules and Thor's model string is the same
/// for both of its modules. The model's name is asked where no number is known, and memory only where a name stands
/// for two modules.
#[must_use]
pub fn jetson(evidence: Evidence<'_>) -> Option<&'static str> {
    // Thor's device tree may name the default module whatever is fitted, so what was flashed comes first.
    let flashed = evidence.boot_module.filter(|module| module.starts_with("3834-"));
    let by_flash = flashed.and_then(|module| by_number(module, false, evidence.memory));
    let by_part = || {
        let module = module(evidence.compatible)?;
        let number = module.get(1..10)?;
        let named_super = evidence.model.is_some_and(|model| model.ends_with("Super"));
        by_number(number, module.ends_with("-super") || named_super, evidence.memory)
    };
    by_flash.or_else(by_part).or_else(|| by_name(evidence.model?, evidence.memory))
}

/// The least memory of the larger of two modules; a part of it is reserved, so it is halfway between the two.
fn at_least(memory: Option<Bytes>, gibibytes: f64) -> Option<bool> {
    memory.map(|memory| memory.get() >= gibibytes * 1024.0 * 1024.0 * 1024.0)
}

fn by_number(number: &str, is_super: bool, memory: Option<Bytes>) -> Option<&'static str> {
    Some(match number {
        "3767-0000" | "3767-0002" => orin_nx_16(is_super),
        "3767-0001" => orin_nx_8(is_super),
        "3767-0003" | "3767-0005" => orin_nano_8(is_super),
        "3767-0004" => orin_nano_4(is_super),
        "3701-0005" => "jetson-agx-orin-64gb",
        "3701-0004" => "jetson-agx-orin-32gb",
        // The module of the first developer kits came with either.
        "3701-0000" => agx_orin(memory)?,
        "3834-0000" => "jetson-agx-thor-t4000",
        "3834-0008" => "jetson-agx-thor-t5000",
        "3834-0005" => thor(memory)?,
        // The industrial module (p2888-0008) has other clocks and is not claimed.
        "2888-0001" | "2888-0004" | "2888-0005" | "2972-0000" => "jetson-agx-xavier",
        "3668-0000" | "3668-0001" | "3668-0003" => "jetson-xavier-nx",
        _ => return None,
    })
}

const fn orin_nx_16(is_super: bool) -> &'static str {
    if is_super { "jetson-orin-nx-16gb-super" } else { "jetson-orin-nx-16gb" }
}

const fn orin_nx_8(is_super: bool) -> &'static str {
    if is_super { "jetson-orin-nx-8gb-super" } else { "jetson-orin-nx-8gb" }
}

const fn orin_nano_8(is_super: bool) -> &'static str {
    if is_super { "jetson-orin-nano-8gb-super" } else { "jetson-orin-nano-8gb" }
}

const fn orin_nano_4(is_super: bool) -> &'static str {
    if is_super { "jetson-orin-nano-4gb-super" } else { "jetson-orin-nano-4gb" }
}

fn agx_orin(memory: Option<Bytes>) -> Option<&'static str> {
    Some(if at_least(memory, 45.0)? { "jetson-agx-orin-64gb" } else { "jetson-agx-orin-32gb" })
}

fn thor(memory: Option<Bytes>) -> Option<&'static str> {
    Some(if at_least(memory, 96.0)? { "jetson-agx-thor-t5000" } else { "jetson-agx-thor-t4000" })
}

fn by_name(model: &str, memory: Option<Bytes>) -> Option<&'static str> {
    let says = |words: &str| model.contains(words);
    let is_super = says("Super");
    if says("Industrial") {
        return None;
    }
    Some(if says("Xavier NX") {
        "jetson-xavier-nx"
    } else if says("AGX Xavier") {
        "jetson-agx-xavier"
    } else if says("Orin Nano") {
        if at_least(memory, 5.5)? { orin_nano_8(is_super) } else { orin_nano_4(is_super) }
    } else if says("Orin NX") {
        if at_least(memory, 11.0)? { orin_nx_16(is_super) } else { orin_nx_8(is_super) }
    } else if says("AGX Orin") {
        agx_orin(memory)?
    } else if says("AGX Thor") {
        thor(memory)?
    } else if says("T5000") {
        "jetson-agx-thor-t5000"
    } else if says("T4000") {
        "jetson-agx-thor-t4000"
    } else {
        return None;
    })
}

/// The registry key of a GPU by the name that NVML gives it; `None` for a name that says another part than one of the
/// registry. The registry need not have the key. Mobile and cut-down parts that share a name with a desktop card are
/// none of them.
#[must_use]
pub fn gpu_key(name: &str) -> Option<String> {
    let bare = name.trim().trim_start_matches("NVIDIA ").trim_start_matches("Tesla ");
    let bare = bare.trim_start_matches("GeForce ");
    let known = match bare {
        "GB10" => "gb10",
        "T4" => "t4",
        "L4" => "l4",
        "L40S" => "l40s",
        "A40" => "a40",
        "RTX A6000" => "rtx-a6000",
        "B200" => "b200",
        "H200" | "H200 NVL" => "h200",
        "H100 PCIe" => "h100-pcie",
        "H100 80GB HBM3" | "H100 SXM5 80GB" => "h100-sxm",
        _ if bare.starts_with("A100") && bare.contains("40GB") => "a100-40gb",
        _ if bare.starts_with("A100") && bare.contains("80GB") => "a100-80gb",
        _ if bare.starts_with("V100-SXM") => "v100",
        _ => return desktop_key(bare),
    };
    Some(known.to_owned())
}

/// `rtx-3080ti` of `RTX 3080 Ti`, `rtx-5000-ada` of `RTX 5000 Ada Generation`.
fn desktop_key(bare: &str) -> Option<String> {
    let mut words = bare.split(' ');
    let (family, number) = (words.next()?, words.next()?);
    let numbered = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(family, "RTX" | "GTX") || !numbered {
        return None;
    }
    let variant = match (words.next(), words.next(), words.next()) {
        (None, ..) => "",
        (Some("Ti"), None, _) => "ti",
        (Some("Ada"), Some("Generation"), None) => "-ada",
        _ => return None,
    };
    Some(format!("{}-{number}{variant}", family.to_ascii_lowercase()))
}

/// The release of NVIDIA's board support in the first line of nv_tegra_release: `36.4.3` of
/// `# R36 (release), REVISION: 4.3, …`.
#[must_use]
pub fn l4t_release(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let major = line.trim_start_matches('#').trim().strip_prefix('R')?.split(' ').next()?;
    let revision = line.split("REVISION:").nth(1)?.split(',').next()?.trim();
    let is_number =
        |part: &str| !part.is_empty() && part.len() <= 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    (is_number(major) && revision.split('.').all(is_number)).then(|| format!("{major}.{revision}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

    fn key(compatible: &str, model: &str, boot: Option<&str>, gibibytes: f64) -> Option<&'static str> {
        let compatible: Vec<String> = compatible.split(' ').map(str::to_owned).collect();
        let boot = boot.and_then(boot_module);
        jetson(Evidence {
            compatible: &compatible,
            model: Some(model),
            boot_module: boot.as_deref(),
            memory: Some(Bytes(gibibytes * GIB)),
        })
    }

    #[test]
    fn a_module_is_known_by_its_part_number_not_by_its_carrier() {
        let cases = [
            ("nvidia,p3768-0000+p3767-0000 nvidia,p3767-0000 nvidia,tegra234", "jetson-orin-nx-16gb"),
            ("nvidia,p3768-0000+p3767-0000-super nvidia,tegra234", "jetson-orin-nx-16gb-super"),
            ("nvidia,p3768-0000+p3767-0001 nvidia,tegra234", "jetson-orin-nx-8gb"),
            ("nvidia,p3768-0000+p3767-0003 nvidia,tegra234", "jetson-orin-nano-8gb"),
            ("nvidia,p3768-0000+p3767-0004-super nvidia,tegra234", "jetson-orin-nano-4gb-super"),
            ("nvidia,p3768-0000+p3767-0005 nvidia,tegra234", "jetson-orin-nano-8gb"),
            (
                "nvidia,p3768-0000+p3767-0005-super nvidia,p3767-0005 nvidia,tegra234",
                "jetson-orin-nano-8gb-super",
            ),
            ("nvidia,p3737-0000+p3701-0005 nvidia,tegra234", "jetson-agx-orin-64gb"),
            ("nvidia,p3737-0000+p3701-0004 nvidia,tegra234", "jetson-agx-orin-32gb"),
            ("nvidia,p3971-0089+p3834-0008 nvidia,tegra264", "jetson-agx-thor-t5000"),
            ("nvidia,p3971-0089+p3834-0000 nvidia,tegra264", "jetson-agx-thor-t4000"),
            ("nvidia,p3449-0000+p3668-0000 nvidia,tegra194", "jetson-xavier-nx"),
            ("nvidia,p2822-0000+p2888-0004 nvidia,tegra194", "jetson-agx-xavier"),
            ("nvidia,p2972-0000 nvidia,tegra194", "jetson-agx-xavier"),
        ];
        for (compatible, expected) in cases {
            assert_eq!(key(compatible, "a kit", None, 1.0), Some(expected), "{compatible}");
        }
    }

    #[test]
    fn memory_decides_where_a_number_stands_for_two_modules() {
        let kit = "nvidia,p3737-0000+p3701-0000 nvidia,tegra234";
        assert_eq!(key(kit, "", None, 61.4), Some("jetson-agx-orin-64gb"));
        assert_eq!(key(kit, "", None, 29.8), Some("jetson-agx-orin-32gb"));
        assert_eq!(key("nvidia,p3834-0005 nvidia,tegra264", "", None, 122.8), Some("jetson-agx-thor-t5000"));
    }

    #[test]
    fn what_was_flashed_tells_the_thor_modules_apart() {
        let tree = "nvidia,p3971-0089+p3834-0008 nvidia,tegra264";
        let t4000 = "TNSPEC 3834-300-0000-A.0-1-0-jetson-agx-thor-devkit-\n";
        let t5000 = "COMPATIBLE_SPEC x\nTNSPEC 3834-300-0008-A.0-1-0-jetson-agx-thor-devkit-\n";
        assert_eq!(
            key(tree, "NVIDIA Jetson AGX Thor Developer Kit", Some(t4000), 61.0),
            Some("jetson-agx-thor-t4000")
        );
        assert_eq!(
            key(tree, "NVIDIA Jetson AGX Thor Developer Kit", Some(t5000), 122.0),
            Some("jetson-agx-thor-t5000")
        );
        for garbage in ["", "TNSPEC", "TNSPEC 3834", "TNSPEC 3834--x", "TNSPEC a-b-c-d"] {
            assert_eq!(boot_module(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn a_name_helps_where_no_number_is_known() {
        let name = |model: &str, gibibytes| key("nvidia,tegra234", model, None, gibibytes);
        assert_eq!(
            name("NVIDIA Jetson Orin Nano Developer Kit Super", 7.4),
            Some("jetson-orin-nano-8gb-super")
        );
        assert_eq!(name("NVIDIA Jetson Orin Nano Developer Kit", 7.4), Some("jetson-orin-nano-8gb"));
        assert_eq!(name("NVIDIA Jetson Orin Nano Developer Kit", 3.4), Some("jetson-orin-nano-4gb"));
        assert_eq!(name("NVIDIA Orin NX Developer Kit", 15.0), Some("jetson-orin-nx-16gb"));
        assert_eq!(name("NVIDIA Orin NX Developer Kit", 7.0), Some("jetson-orin-nx-8gb"));
        assert_eq!(name("Jetson AGX Orin Developer Kit", 61.0), Some("jetson-agx-orin-64gb"));
        assert_eq!(name("Jetson-AGX", 31.0), None);
        assert_eq!(name("NVIDIA Jetson AGX Orin Industrial", 61.0), None);
        assert_eq!(name("NVIDIA Jetson Example Developer Kit", 7.0), None);
    }

    #[test]
    fn unknown_numbers_are_not_claimed() {
        let industrial = "nvidia,p3740-0002+p3701-0008 nvidia,tegra234";
        assert_eq!(key(industrial, "NVIDIA IGX Orin Development Kit", None, 61.0), None);
        let strings: Vec<String> = industrial.split(' ').map(str::to_owned).collect();
        assert_eq!(module(&strings), Some("p3701-0008".into()), "but named");
        for odd in ["", "p", "pé67-0005", "p3767", "p3767-", "p3767-00050", "p37670005", "nvidia,"] {
            assert_eq!(key(odd, "", None, 8.0), None, "{odd}");
        }
    }

    #[test]
    fn a_mask_leaves_two_sms_for_each_cluster_not_gated() {
        // 2 x (8 - bits set) on Orin, 2 x (4 - bits set) on Xavier.
        for (mask, sm) in [(0, 16), (128, 14), (240, 8), (248, 6), (252, 4)] {
            assert_eq!(Chip::Tegra234.sm_online(mask), Some(sm), "{mask}");
        }
        for (mask, sm) in [(0, 8), (1, 6), (5, 4)] {
            assert_eq!(Chip::Tegra194.sm_online(mask), Some(sm), "{mask}");
        }
        for (chip, mask) in
            [(Chip::Tegra234, 255), (Chip::Tegra234, 256), (Chip::Tegra194, 240), (Chip::Tegra264, 512)]
        {
            assert_eq!(chip.sm_online(mask), None, "{mask}");
        }
    }

    #[test]
    fn a_gpu_is_known_by_its_whole_name() {
        let cases = [
            ("NVIDIA GB10", Some("gb10")),
            ("Tesla T4", Some("t4")),
            ("NVIDIA H100 80GB HBM3", Some("h100-sxm")),
            ("NVIDIA H100 PCIe", Some("h100-pcie")),
            ("NVIDIA A100-SXM4-40GB", Some("a100-40gb")),
            ("NVIDIA A100 80GB PCIe", Some("a100-80gb")),
            ("NVIDIA GeForce RTX 4090", Some("rtx-4090")),
            ("NVIDIA GeForce RTX 3080 Ti", Some("rtx-3080ti")),
            ("NVIDIA RTX 5000 Ada Generation", Some("rtx-5000-ada")),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
            ("NVIDIA GeForce RTX 4090 D", None),
            ("NVIDIA H100 NVL", None),
            ("Orin (nvgpu)", None),
            ("NVIDIA Thor", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(gpu_key(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_release_is_read_from_its_first_line() {
        let line =
            "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x\n# KERNEL";
        assert_eq!(l4t_release(line), Some("36.4.3".into()));
        assert_eq!(l4t_release("# R38 (release), REVISION: 4.0, GCID: 2"), Some("38.4.0".into()));
        for odd in
            ["", "R36", "# R36 (release)", "# R (release), REVISION: 1", "# R36, REVISION: x.y", "\u{fffd}"]
        {
            assert_eq!(l4t_release(odd), None, "{odd:?}");
        }
    }
}
