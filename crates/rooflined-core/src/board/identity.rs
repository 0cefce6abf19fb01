//! Which entry of the hardware registry a machine is, from what it says about itself. Pure: the texts are given.

use crate::hardware::MIG;
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

/// What a Tegra board says about itself. Its model string is no evidence: that of an Orin Nano may say Orin NX, that
/// of an industrial module is the developer kit's, and Thor's modules share one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// The strings of /proc/device-tree/compatible.
    pub compatible: &'a [String],
    /// Module number and SKU that the boot loader was flashed for, see [`boot_module`].
    pub boot_module: Option<&'a str>,
    /// `MemTotal`.
    pub memory: Option<Bytes>,
    /// Logical CPUs present.
    pub cpus: Option<u32>,
    /// The kernel has a device for the GPU's clock, or something else tells that the chip is this one.
    pub has_gpu: bool,
    /// The file that power modes are read from, links followed.
    pub modes: Option<&'a str>,
}

/// What a Tegra board is taken for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// Key of the registry's entry.
    pub key: &'static str,
    /// The entry stands for a family of modules: what they differ in has to be read from the board.
    pub unlisted: bool,
    /// What was taken for what, in sentences; empty where the part number says all.
    pub notes: Vec<String>,
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

/// The module among the part numbers: one that plays another, else one of a family that is known, else the last named
/// beside a carrier.
#[must_use]
pub fn module(compatible: &[String]) -> Option<String> {
    let parts = part_numbers(compatible);
    let playing = || parts.iter().find(|part| part.contains(AS));
    let known = || parts.iter().find(|part| part.get(1..5).is_some_and(|number| family(number).is_some()));
    let beside_carrier = || parts.get(1).or_else(|| parts.first());
    playing().or_else(known).or_else(beside_carrier).cloned()
}

/// The entries that a part number may stand for, as device trees, boards or shops write it: `p3768-0000+p3767-0005`,
/// `699-13767-0005-300`, `900-13767-0050-000`. Empty for a carrier board; `None` for anything that is not a part number.
#[must_use]
pub fn of_part_number(text: &str) -> Option<Vec<&'static str>> {
    let text = text.to_ascii_lowercase();
    let mut parts = text.split('-');
    let label = match (parts.next()?, parts.next()?.get(1..5), parts.next().unwrap_or_default()) {
        ("699", Some(family), sku) => Some(format!("p{family}-{sku}")),
        // Shops have the digits of the variant one place further left.
        ("900", Some(family), sku) => Some(format!("p{family}-0{}", sku.get(..3)?)),
        _ => None,
    };
    let part = module(&[label.unwrap_or(text)])?;
    let number = part.get(1..10)?;
    let gibibytes = [None, Some(Bytes(f64::INFINITY))];
    let mut keys: Vec<&'static str> = Vec::new();
    for (is_super, memory) in [false, true].into_iter().flat_map(|own| gibibytes.map(|memory| (own, memory)))
    {
        let is_super = is_super || part.ends_with("-super");
        let key =
            listed(number, is_super, false, memory).map(|(key, _)| key).or_else(|| Some(family(number)?.1));
        keys.extend(key.filter(|key| !keys.contains(key)));
    }
    Some(keys)
}

/// Stands between a module and the one that its device tree makes it play: `p3701-0000-as-p3767-0004`.
const AS: &str = "-as-";

/// Chip and entry of an unlisted module of each family; what is not here is a carrier. 2972 is the AGX Xavier kit as
/// a whole.
const FAMILIES: [(&str, Chip, &str); 6] = [
    ("2888", Chip::Tegra194, AGX_XAVIER),
    ("2972", Chip::Tegra194, AGX_XAVIER),
    ("3668", Chip::Tegra194, XAVIER_NX),
    ("3701", Chip::Tegra234, AGX_ORIN),
    ("3767", Chip::Tegra234, ORIN_NX),
    ("3834", Chip::Tegra264, AGX_THOR),
];

const AGX_XAVIER: &str = "jetson-agx-xavier-unlisted";
const XAVIER_NX: &str = "jetson-xavier-nx-unlisted";
const AGX_ORIN: &str = "jetson-agx-orin-unlisted";
const ORIN_NX: &str = "jetson-orin-nx-unlisted";
const AGX_THOR: &str = "jetson-agx-thor-unlisted";

fn family(number: &str) -> Option<(Chip, &'static str)> {
    FAMILIES.iter().find(|(prefix, ..)| number.starts_with(prefix)).map(|(_, chip, key)| (*chip, *key))
}

/// Module number and SKU (`3834-0008`) from nv_boot_control.conf, whose TNSPEC starts with module, fab and SKU.
#[must_use]
pub fn boot_module(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("TNSPEC"))?;
    let mut fields = line.trim().split('-');
    let (module, _fab, sku) = (fields.next()?, fields.next()?, fields.next()?);
    let four_digits = |field: &str| field.len() == 4 && field.bytes().all(|byte| byte.is_ascii_digit());
    (four_digits(module) && four_digits(sku)).then(|| format!("{module}-{sku}"))
}

/// The entry of a Jetson or an IGX; `None` where the chip is none that the registry has, or where neither a part
/// number nor a GPU is there.
///
/// The module's part number decides, because one carrier takes several modules. Memory is asked where a number stands
/// for two modules. A number that is not listed is never taken for a sibling: it gets the entry of its family.
#[must_use]
pub fn jetson(evidence: Evidence<'_>) -> Option<Identified> {
    let chip = Chip::of(evidence.compatible)?;
    let parts = part_numbers(evidence.compatible);
    let module = module(evidence.compatible);
    let mut notes = Vec::new();
    let (host, target) = match module.as_deref().map(|module| module.split_once(AS).unwrap_or((module, ""))) {
        Some((host, target)) => (Some(host), Some(target).filter(|target| !target.is_empty())),
        None => (None, None),
    };
    // Behind `-as-` it is the module played that is a super one, not the one fitted.
    let is_super = host.is_some_and(|host| host.ends_with("-super"));
    let mut number = host.and_then(|host| host.get(1..10)).map(str::to_owned);
    let is_of_chip = |number: &str| family(number).is_some_and(|(of, _)| of == chip);
    // Thor's device tree may name the default module whatever is fitted, so what was flashed comes first.
    if let Some(flashed) =
        evidence.boot_module.filter(|flashed| chip == Chip::Tegra264 && is_of_chip(flashed))
    {
        number = Some(flashed.to_owned());
    }
    let mut played = target.map(str::to_owned);
    if chip == Chip::Tegra194 {
        let of_kit = number.as_deref().is_none_or(|number| ["2888", "2972"].contains(&&number[..4]));
        let named = |words: &[&str]| evidence.compatible.iter().any(|entry| words.contains(&entry.as_str()));
        if named(&["nvidia,p3668-emul"]) {
            played = Some("p3668".into());
            number = number.filter(|_| of_kit).or_else(|| Some("2888-0004".into()));
        } else if of_kit && named(&["nvidia,jetson-xavier-industrial", "nvidia,galen-industrial"]) {
            number = Some("2888-0008".into());
        } else if !number.as_deref().is_some_and(is_of_chip)
            && named(&["nvidia,jetson-xavier", "nvidia,galen"])
        {
            number = Some("2888-0004".into());
        }
    }
    if let Some(played) = &played {
        notes.push(format!(
            "the device tree makes module {} play {played}: power modes and memory are those of {played}, SMs follow \
             from the mode's mask, and the width of the memory bus is the fitted module's",
            module.as_deref().unwrap_or("p2888"),
        ));
    }
    let igx = parts.iter().any(|part| part.starts_with("p3740") || part.starts_with("p4071-0008"));
    let memory = evidence.memory.filter(|_| played.is_none());
    let number = number.as_deref();
    if let Some((key, note)) =
        number.filter(|number| is_of_chip(number)).and_then(|number| listed(number, is_super, igx, memory))
    {
        notes.extend(note);
        // The file follows the device tree, which on Thor need not name the module.
        let of = played.as_deref().or(number).filter(|_| chip != Chip::Tegra264).and_then(conf_of);
        notes.extend(of.zip(evidence.modes).and_then(|(of, file)| foreign_modes(of, file)));
        return Some(Identified { key, unlisted: false, notes });
    }
    let (key, why) = unlisted(number, chip, &evidence)?;
    let what = match (&module, number) {
        (_, Some(number)) if is_of_chip(number) => {
            format!("module p{number} is not in the hardware registry")
        }
        (Some(part), _) => format!("{part} is not in the hardware registry"),
        (None, _) => "no module's part number is known".to_owned(),
    };
    notes.push(format!(
        "{what}: taken for its family{why}; values that no file of this board shows are the family's highest, so ceilings are \
         upper bounds until a calibration"
    ));
    Some(Identified { key, unlisted: true, notes })
}

/// The module whose file of power modes NVIDIA's scripts link for a module, as `3767-0003` or with the text before it.
fn conf_of(module: &str) -> Option<&str> {
    let number = module.trim_start_matches('p').get(..9)?;
    Some(match number {
        "3767-0002" => "3767-0000",
        "3767-0005" => "3767-0003",
        "3701-0005" => "3701-0000",
        _ => number,
    })
}

/// Says that a file of power modes is, by its name, that of another module than `of`.
fn foreign_modes(of: &str, file: &str) -> Option<String> {
    let named = file.rsplit('/').next()?.strip_prefix("nvpmodel_p")?.get(..9)?;
    let (family, sku) = named.split_once('_')?;
    let digits = |part: &str| part.len() == 4 && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_foreign = digits(family) && digits(sku) && format!("{family}-{sku}") != of;
    is_foreign.then(|| {
        format!(
            "power modes are read from {file}, which by its name is that of p{family}-{sku} and not of p{of}"
        )
    })
}

/// The entry of a family, with what it rests on where no part number tells.
fn unlisted(
    number: Option<&str>,
    chip: Chip,
    evidence: &Evidence<'_>,
) -> Option<(&'static str, &'static str)> {
    if let Some((_, key)) = number.and_then(family).filter(|(of, _)| *of == chip) {
        return Some((key, ""));
    }
    // Without a number there has to be a GPU that values can be read of.
    let chip = Some(chip).filter(|_| evidence.has_gpu)?;
    let large = |gibibytes| at_least(evidence.memory, gibibytes) == Some(true);
    Some(match chip {
        Chip::Tegra234 if large(20.0) => (AGX_ORIN, " (Orin with more than 16 GB)"),
        Chip::Tegra234 => (ORIN_NX, " (Orin with 16 GB or less)"),
        Chip::Tegra194 if large(18.0) || evidence.cpus.is_some_and(|cpus| cpus > 6) => {
            (AGX_XAVIER, " (Xavier with more than 6 CPUs or 16 GB)")
        }
        Chip::Tegra194 => (XAVIER_NX, " (Xavier with 6 CPUs and 16 GB or less)"),
        Chip::Tegra264 => (AGX_THOR, " (Thor)"),
        Chip::Tegra186 | Chip::Other => return None,
    })
}

/// Whether a machine has the memory of the larger of two modules; a part of it is reserved, so the bound lies halfway
/// between the two.
fn at_least(memory: Option<Bytes>, gibibytes: f64) -> Option<bool> {
    memory.map(|memory| memory.get() >= gibibytes * GIB)
}

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

/// The entry of a module, and what had to be assumed.
fn listed(
    number: &str,
    is_super: bool,
    igx: bool,
    memory: Option<Bytes>,
) -> Option<(&'static str, Option<String>)> {
    let either = |larger: (&'static str, f64), smaller: &'static str| {
        let large = at_least(memory, larger.1) == Some(true);
        let key = if large { larger.0 } else { smaller };
        let size = memory.map_or_else(
            || "MemTotal does not show which is fitted".to_owned(),
            |memory| format!("MemTotal is {:.1} GiB", memory.get() / GIB),
        );
        (key, Some(format!("module p{number} stands for two sizes of memory, and {size}: taken for {key}")))
    };
    let key = match number {
        "3767-0000" | "3767-0002" if is_super => "jetson-orin-nx-16gb-super",
        "3767-0000" | "3767-0002" => "jetson-orin-nx-16gb",
        "3767-0001" if is_super => "jetson-orin-nx-8gb-super",
        "3767-0001" => "jetson-orin-nx-8gb",
        "3767-0003" | "3767-0005" if is_super => "jetson-orin-nano-8gb-super",
        "3767-0003" | "3767-0005" => "jetson-orin-nano-8gb",
        "3767-0004" if is_super => "jetson-orin-nano-4gb-super",
        "3767-0004" => "jetson-orin-nano-4gb",
        "3701-0005" => "jetson-agx-orin-64gb",
        "3701-0004" if is_super => "jetson-agx-orin-32gb-super",
        "3701-0004" => "jetson-agx-orin-32gb",
        // The module of the first developer kits; JetPack 5 gives this number to p3701-0005 as well. Both have the
        // whole chip: only p3701-0004 has a part of it.
        "3701-0000" => return Some(either(("jetson-agx-orin-64gb", 45.0), "jetson-agx-orin-devkit-32gb")),
        "3701-0002" => "igx-orin",
        "3701-0008" if igx => "igx-orin",
        "3701-0008" => "jetson-agx-orin-industrial",
        "3834-0000" => "jetson-agx-thor-t4000",
        "3834-0008" if igx => "igx-thor",
        "3834-0008" => "jetson-agx-thor-t5000",
        "3834-0005" => return Some(either(("jetson-agx-thor-t5000", 96.0), "jetson-agx-thor-t4000")),
        "2888-0001" | "2888-0003" | "2888-0004" | "2888-0005" | "2972-0000" => "jetson-agx-xavier",
        "2888-0006" | "2972-0006" => "jetson-agx-xavier-8gb",
        "2888-0008" => "jetson-agx-xavier-industrial",
        "3668-0000" | "3668-0001" | "3668-0003" => "jetson-xavier-nx",
        _ => return None,
    };
    Some((key, None))
}

/// Whether a GPU's name in NVML is that of a Tegra itself, and not of a card beside one.
#[must_use]
pub fn is_integrated(name: &str) -> bool {
    name.contains("nvgpu")
        || name.split(|c: char| !c.is_alphanumeric()).any(|word| word == "Orin" || word == "Thor")
}

/// The registry key of a GPU by the name that NVML gives it; `None` for a name that says another part than one of the
/// registry. The registry need not have the key. Mobile and cut-down parts that share a name with a desktop card are
/// none of them.
#[must_use]
pub fn gpu_key(name: &str) -> Option<String> {
    let whole = name.split_once(MIG).map_or(name, |(whole, _)| whole);
    let bare = whole.trim().trim_start_matches("NVIDIA ").trim_start_matches("Tesla ");
    let bare = bare.trim_start_matches("GeForce ");
    let is_a100 = bare.starts_with("A100") || bare.starts_with("A800");
    let known = match bare {
        "GB10" => "gb10",
        "T4" => "t4",
        "L4" => "l4",
        "L40" => "l40",
        "L40S" => "l40s",
        "A10" => "a10",
        "A10G" => "a10g",
        "A40" => "a40",
        "P40" => "p40",
        "RTX A2000" | "RTX A2000 12GB" => "rtx-a2000",
        "RTX A4000" => "rtx-a4000",
        "RTX A5000" => "rtx-a5000",
        "RTX A6000" => "rtx-a6000",
        "RTX PRO 6000 Blackwell Server Edition" => "rtx-pro-6000-bse",
        "RTX PRO 6000 Blackwell Workstation Edition" => "rtx-pro-6000-bwe",
        "RTX PRO 6000 Blackwell Max-Q Workstation Edition" => "rtx-pro-6000-maxq",
        "B200" => "b200",
        // The rest of its name is the form and the cooling.
        _ if bare.split(' ').next() == Some("B300") => "b300",
        // The number is the memory of its CPU; the variant with more GPU memory is called by that of the GPU.
        "GH200 480GB" | "GH200 120GB" => "gh200",
        "H100 NVL" => "h100-nvl",
        "H200" | "H200 NVL" => "h200",
        "H100 PCIe" => "h100-pcie",
        // The 800s have slower links between cards, and no less of what is counted here.
        "H100 80GB HBM3" | "H100 SXM5 80GB" | "H800" => "h100-sxm",
        _ if is_a100 && bare.contains("40GB") => "a100-40gb",
        _ if is_a100 && bare.contains("80GB") => "a100-80gb",
        // The newer one has faster memory, as NVML reports.
        "H20" | "H20-3e" => "h20",
        // SXM3 has faster memory and clocks.
        _ if bare.starts_with("V100-SXM2") => "v100",
        _ => return desktop_key(bare),
    };
    Some(known.to_owned())
}

/// What a hypervisor gives a virtual machine of a card, by the name of its profile.
#[derive(Debug, Clone, PartialEq)]
pub struct VirtualGpu {
    /// Registry key of the card, as far as its name tells.
    pub card: Option<String>,
    /// Slices of its own, where the card is divided (MIG) below the hypervisor.
    pub slices: Option<usize>,
    pub gibibytes: u32,
}

/// `GRID T4-8Q` has 8 GB of a T4, and `GRID A100D-3-40C` three slices and 40 GB of an A100 (NVIDIA virtual GPU software, types of
/// virtual GPUs). `None` for the name of a card.
#[must_use]
pub fn virtual_gpu(name: &str) -> Option<VirtualGpu> {
    let bare = name.trim().trim_start_matches("NVIDIA ").trim_start_matches("GRID ");
    let (of, profile) = bare.rsplit_once('-')?;
    let gibibytes = profile.strip_suffix(['A', 'B', 'C', 'Q'])?.parse().ok()?;
    let sliced = of.rsplit_once('-').filter(|(_, slices)| slices.len() == 1);
    let sliced = sliced.and_then(|(card, slices)| Some((card, Some(slices.parse().ok()?))));
    let (card, slices) = sliced.unwrap_or((of, None));
    let whole = match card {
        "A100" | "A100X" => "A100-SXM4-40GB".to_owned(),
        "A100D" | "A100DX" => "A100-SXM4-80GB".to_owned(),
        "H100" => "H100 PCIe".to_owned(),
        "H100XM" => "H100 80GB HBM3".to_owned(),
        "H100L" => "H100 NVL".to_owned(),
        "H200X" => "H200".to_owned(),
        "V100X" | "V100DX" => "V100-SXM2-32GB".to_owned(),
        _ => match card.strip_prefix("RTX") {
            Some(number) => format!("RTX {}", number.trim().replace("-Ada", " Ada Generation")),
            None => card.to_owned(),
        },
    };
    Some(VirtualGpu { card: gpu_key(&whole), slices, gibibytes })
}

/// `rtx-3080ti` of `RTX 3080 Ti`, `rtx-5000-ada` of `RTX 5000 Ada Generation`, `rtx-4070-laptop` of `RTX 4070 Laptop GPU`.
fn desktop_key(bare: &str) -> Option<String> {
    let mut words = bare.split(' ');
    let (family, number) = (words.next()?, words.next()?);
    let numbered = number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    if !matches!(family, "RTX" | "GTX") || !numbered {
        return None;
    }
    let rest: Vec<&str> = words.collect();
    let variant = match rest.as_slice() {
        [] => "",
        ["Ti"] => "ti",
        ["SUPER"] => "-super",
        ["Ti", "SUPER"] => "ti-super",
        ["Laptop", "GPU"] => "-laptop",
        ["Ti", "Laptop", "GPU"] => "ti-laptop",
        ["Ada", "Generation"] => "-ada",
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

    fn found(compatible: &str, gibibytes: f64, boot: Option<&str>) -> Option<Identified> {
        let compatible: Vec<String> = compatible.split(' ').map(str::to_owned).collect();
        let boot = boot.and_then(boot_module);
        jetson(Evidence {
            compatible: &compatible,
            boot_module: boot.as_deref(),
            memory: Some(Bytes(gibibytes * GIB)),
            cpus: Some(8),
            has_gpu: true,
            modes: None,
        })
    }

    /// What `compatible` holds, MemTotal in GiB, and the entry. `*` after it: something is said about it.
    #[rustfmt::skip]
    const BOARDS: [(&str, f64, &str); 57] = [
        ("nvidia,p3768-0000+p3767-0000 nvidia,p3767-0000 nvidia,tegra234", 15.3, "jetson-orin-nx-16gb"),
        ("nvidia,p3768-0000+p3767-0000-super nvidia,tegra234", 15.3, "jetson-orin-nx-16gb-super"),
        ("nvidia,p3509-0000+p3767-0000 nvidia,tegra234", 15.3, "jetson-orin-nx-16gb"),
        ("nvidia,p3768-0000+p3767-0002 nvidia,tegra234", 15.3, "jetson-orin-nx-16gb"),
        ("nvidia,p3768-0000+p3767-0001 nvidia,tegra234", 7.2, "jetson-orin-nx-8gb"),
        ("nvidia,p3768-0000+p3767-0001-super nvidia,tegra234", 7.2, "jetson-orin-nx-8gb-super"),
        ("nvidia,p3768-0000+p3767-0003 nvidia,tegra234", 7.2, "jetson-orin-nano-8gb"),
        ("nvidia,p3768-0000+p3767-0003-super nvidia,tegra234", 7.2, "jetson-orin-nano-8gb-super"),
        ("nvidia,p3768-0000+p3767-0004 nvidia,tegra234", 3.4, "jetson-orin-nano-4gb"),
        ("nvidia,p3768-0000+p3767-0004-super nvidia,tegra234", 3.4, "jetson-orin-nano-4gb-super"),
        ("nvidia,p3768-0000+p3767-0005 nvidia,tegra234", 7.4, "jetson-orin-nano-8gb"),
        ("nvidia,p3768-0000+p3767-0005-super nvidia,p3767-0005 nvidia,tegra234", 7.4, "jetson-orin-nano-8gb-super"),
        ("vendor,carrier+p3767-0004 nvidia,tegra234", 3.4, "jetson-orin-nano-4gb"),
        // Only -0004 has a part of the chip.
        ("nvidia,p3737-0000+p3701-0005 nvidia,tegra234", 61.4, "jetson-agx-orin-64gb"),
        ("nvidia,p3737-0000+p3701-0004 nvidia,tegra234", 29.9, "jetson-agx-orin-32gb"),
        ("nvidia,p3737-0000+p3701-0004-super nvidia,tegra234", 29.9, "jetson-agx-orin-32gb-super"),
        ("nvidia,p3737-0000+p3701-0000 nvidia,tegra234", 29.9, "jetson-agx-orin-devkit-32gb*"),
        ("nvidia,p3737-0000+p3701-0000 nvidia,tegra234 nvidia,tegra23x", 61.4, "jetson-agx-orin-64gb*"),
        ("nvidia,p3737-0000+p3701-0008 nvidia,p3701-0008 nvidia,tegra234", 57.0, "jetson-agx-orin-industrial"),
        ("nvidia,p3740-0002+p3701-0008 nvidia,p3701-0008 nvidia,tegra234", 57.0, "igx-orin"),
        ("nvidia,p3740-0002-b01+p3701-0002 nvidia,tegra234", 57.0, "igx-orin"),
        ("nvidia,p3740-0000+p3701-0000 nvidia,tegra234", 29.9, "jetson-agx-orin-devkit-32gb*"),
        ("nvidia,p3971-0089+p3834-0008 nvidia,tegra264", 122.8, "jetson-agx-thor-t5000"),
        ("nvidia,p3971-0080+p3834-0008 nvidia,p3834-0008 nvidia,tegra264", 122.8, "jetson-agx-thor-t5000"),
        ("nvidia,p4071-0000+p3834-0008 nvidia,p3834-0008 nvidia,tegra264", 122.8, "jetson-agx-thor-t5000"),
        ("nvidia,p4071-0000+p3834-0000 nvidia,tegra264", 60.0, "jetson-agx-thor-t4000"),
        ("nvidia,p3834-0005 nvidia,tegra264", 122.8, "jetson-agx-thor-t5000*"),
        ("nvidia,p3834-0005 nvidia,tegra264", 60.0, "jetson-agx-thor-t4000*"),
        ("nvidia,p4071-0008+p3834-0008 nvidia,tegra264", 122.8, "igx-thor"),
        ("nvidia,p3740-0002+p3834-0008 nvidia,tegra264", 122.8, "igx-thor"),
        ("nvidia,p3449-0000+p3668-0000 nvidia,tegra194", 6.8, "jetson-xavier-nx"),
        ("nvidia,p3509-0000+p3668-0003 nvidia,tegra194", 14.8, "jetson-xavier-nx"),
        ("nvidia,p2822-0000+p2888-0001 nvidia,tegra194", 15.3, "jetson-agx-xavier"),
        ("nvidia,p2822-0000+p2888-0004 nvidia,tegra194", 31.0, "jetson-agx-xavier"),
        ("nvidia,p2972-0000 nvidia,tegra194", 31.0, "jetson-agx-xavier"),
        ("nvidia,galen nvidia,jetson-xavier nvidia,tegra194", 31.0, "jetson-agx-xavier"),
        ("nvidia,e3900-0000+p2888-0004 nvidia,tegra194", 31.0, "jetson-agx-xavier"),
        ("nvidia,p2972-0006 nvidia,tegra194", 7.4, "jetson-agx-xavier-8gb"),
        ("nvidia,p2822-0000+p2888-0006 nvidia,tegra194", 7.4, "jetson-agx-xavier-8gb"),
        ("nvidia,p2822-0000+p2888-0008 nvidia,tegra194", 30.0, "jetson-agx-xavier-industrial"),
        ("nvidia,jetson-xavier-industrial nvidia,tegra194", 30.0, "jetson-agx-xavier-industrial"),
        ("nvidia,galen-industrial nvidia,jetson-xavier-industrial nvidia,p2972-0000 nvidia,tegra194", 30.0, "jetson-agx-xavier-industrial"),
        // The silicon is the host's.
        ("nvidia,p3737-0000+p3701-0000-as-p3767-0000 nvidia,tegra234", 15.3, "jetson-agx-orin-devkit-32gb*"),
        ("nvidia,p3737-0000+p3701-0000-as-p3767-0004 nvidia,p3767-0004 nvidia,tegra234", 3.4, "jetson-agx-orin-devkit-32gb*"),
        ("nvidia,p3737-0000+p3701-0000-as-p3701-0004 nvidia,tegra234", 29.9, "jetson-agx-orin-devkit-32gb*"),
        ("nvidia,p3737-0000+p3701-0005-as-p3767-0003-super nvidia,tegra234", 7.4, "jetson-agx-orin-64gb*"),
        ("nvidia,p3737-0000+p3701-0004-as-p3767-0003-super nvidia,tegra234", 7.4, "jetson-agx-orin-32gb*"),
        ("nvidia,p3737-0000+p3701-0004-super-as-p3767-0003 nvidia,tegra234", 7.4, "jetson-agx-orin-32gb-super*"),
        ("nvidia,p3768-0000+p3767-0000-as-p3767-0004 nvidia,tegra234", 3.4, "jetson-orin-nx-16gb*"),
        ("nvidia,p3668-emul nvidia,p2972-0000 nvidia,tegra194", 7.4, "jetson-agx-xavier*"),
        // Numbers and boards that nobody has listed.
        ("nvidia,p3737-0000+p3701-0013 nvidia,tegra234", 61.0, "jetson-agx-orin-unlisted*"),
        ("nvidia,p3768-0000+p3767-0007-super nvidia,tegra234", 7.4, "jetson-orin-nx-unlisted*"),
        ("nvidia,p2822-0000+p2888-0060 nvidia,tegra194", 31.0, "jetson-agx-xavier-unlisted*"),
        ("nvidia,p3509-0000+p3668-0009 nvidia,tegra194", 7.0, "jetson-xavier-nx-unlisted*"),
        ("nvidia,p4071-0000+p3834-0011 nvidia,tegra264", 61.0, "jetson-agx-thor-unlisted*"),
        ("nvidia,e2421-1099-as-pxxxx nvidia,tegra234", 61.0, "jetson-agx-orin-unlisted*"),
        ("vendor,own-board nvidia,tegra234", 7.4, "jetson-orin-nx-unlisted*"),
    ];

    #[test]
    fn a_module_is_known_by_its_part_number_not_by_its_carrier() {
        for (compatible, memory, expected) in BOARDS {
            let found = found(compatible, memory, None).unwrap();
            let marked = format!("{}{}", found.key, if found.notes.is_empty() { "" } else { "*" });
            assert_eq!(marked, expected, "{compatible}: {:?}", found.notes);
            assert_eq!(found.unlisted, expected.ends_with("-unlisted*"), "{compatible}");
            assert!(crate::hardware::registry().get(found.key).is_some_and(|entry| entry.key == found.key));
        }
    }

    #[test]
    fn what_is_assumed_is_said() {
        let note = |compatible: &str, memory| found(compatible, memory, None).unwrap().notes.join("; ");
        let host = note("nvidia,p3737-0000+p3701-0000-as-p3767-0004 nvidia,tegra234", 3.4);
        assert!(host.contains("makes module p3701-0000-as-p3767-0004 play p3767-0004"), "{host}");
        let kit = note("nvidia,p3737-0000+p3701-0000 nvidia,tegra234", 29.9);
        assert!(kit.contains("MemTotal is 29.9 GiB") && kit.contains("two sizes"), "{kit}");
        let new = note("nvidia,p3768-0000+p3767-0007 nvidia,tegra234", 7.4);
        assert!(new.contains("module p3767-0007 is not in the hardware registry"), "{new}");
        let none = note("nvidia,tegra234", 61.0);
        assert!(none.contains("no module's part number") && none.contains("more than 16 GB"), "{none}");
    }

    #[test]
    fn modes_of_another_module_are_named() {
        let notes = |compatible: &str, file| {
            let compatible: Vec<String> = compatible.split(' ').map(str::to_owned).collect();
            let evidence =
                Evidence { compatible: &compatible, modes: Some(file), has_gpu: true, ..Evidence::default() };
            jetson(evidence).unwrap().notes.join("; ")
        };
        let nano = "nvidia,p3768-0000+p3767-0005-super nvidia,tegra234";
        for file in
            ["nvpmodel_p3767_0003_super.conf", "nvpmodel_p3767_0003.conf", "nvpmodel.conf", "nvpmodel_pé", ""]
        {
            assert_eq!(notes(nano, file), "", "{file}");
        }
        let note = notes(nano, "/etc/nvpmodel/nvpmodel_p3767_0000_super.conf");
        assert!(note.contains("that of p3767-0000 and not of p3767-0003"), "{note}");
        let playing = "nvidia,p3737-0000+p3701-0005-as-p3767-0004-super nvidia,tegra234";
        assert!(!notes(playing, "/etc/nvpmodel/nvpmodel_p3767_0004_super.conf").contains("by its name"));
        assert!(notes(playing, "/etc/nvpmodel/nvpmodel_p3701_0000.conf").contains("not of p3767-0004"));
        assert_eq!(
            notes("nvidia,p3740-0002+p3701-0008 nvidia,tegra234", "/etc/nvpmodel/nvpmodel_igx_orin.conf"),
            ""
        );
    }

    #[test]
    fn what_was_flashed_tells_the_thor_modules_apart() {
        let tree = "nvidia,p3971-0089+p3834-0008 nvidia,tegra264";
        let key = |boot| found(tree, 122.0, Some(boot)).unwrap().key;
        let t4000 = "TNSPEC 3834-300-0000-A.0-1-0-jetson-agx-thor-devkit-\n";
        let t5000 = "COMPATIBLE_SPEC x\nTNSPEC 3834-300-0008-A.0-1-0-jetson-agx-thor-devkit-\n";
        assert_eq!(key(t4000), "jetson-agx-thor-t4000");
        assert_eq!(key(t5000), "jetson-agx-thor-t5000");
        assert_eq!(key("TNSPEC 3834-300-0042-A"), "jetson-agx-thor-unlisted", "not the tree's default");
        assert_eq!(key("TNSPEC 3701-300-0005-A"), "jetson-agx-thor-t5000", "of another chip");
        for garbage in ["", "TNSPEC", "TNSPEC 3834", "TNSPEC 3834--x", "TNSPEC a-b-c-d"] {
            assert_eq!(boot_module(garbage), None, "{garbage:?}");
        }
    }

    #[test]
    fn nothing_is_claimed_without_a_number_and_a_gpu_or_of_another_chip() {
        let tree = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let claimed = |text: &str, has_gpu| {
            let memory = Some(Bytes(8.0 * GIB));
            jetson(Evidence { compatible: &tree(text), memory, has_gpu, ..Evidence::default() })
        };
        assert_eq!(claimed("nvidia,p0000-0000 nvidia,tegra234", false), None);
        assert_eq!(claimed("nvidia,p3310-1000 nvidia,tegra186", true), None);
        assert_eq!(claimed("nvidia,p3448-0000 nvidia,tegra210", true), None);
        assert_eq!(claimed("nvidia,p3767-0005", true), None, "no chip");
        // A number of another chip's family tells nothing.
        let mixed = claimed("nvidia,p3834-0008 nvidia,tegra234", true).unwrap();
        assert_eq!((mixed.key, mixed.unlisted), ("jetson-orin-nx-unlisted", true));
        assert_eq!(claimed("nvidia,p3834-0008 nvidia,tegra234", false), None);
        for odd in
            ["", "p", "pé67-0005", "p3767", "p3767-", "p3767-00050", "p37670005", "nvidia,", "p3701-0000-as-"]
        {
            let _ = claimed(&format!("{odd} nvidia,tegra234"), true);
            assert_eq!(
                claimed(&format!("{odd} nvidia,tegra234"), false).is_some(),
                odd == "p3701-0000-as-",
                "{odd}"
            );
        }
        assert_eq!(module(&tree("nvidia,p3740-0002+p3701-0008 nvidia,tegra234")), Some("p3701-0008".into()));
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
            ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", Some("a100-80gb")),
            ("NVIDIA A800-SXM4-80GB", Some("a100-80gb")),
            ("NVIDIA H800", Some("h100-sxm")),
            ("NVIDIA H20", Some("h20")),
            ("NVIDIA H200", Some("h200")),
            ("NVIDIA GeForce RTX 4090", Some("rtx-4090")),
            ("NVIDIA GeForce RTX 3080 Ti", Some("rtx-3080ti")),
            ("NVIDIA RTX 5000 Ada Generation", Some("rtx-5000-ada")),
            ("NVIDIA GeForce RTX 4060 Ti", Some("rtx-4060ti")),
            ("NVIDIA GeForce RTX 4070 SUPER", Some("rtx-4070-super")),
            ("NVIDIA GeForce RTX 4070 Ti SUPER", Some("rtx-4070ti-super")),
            ("NVIDIA GeForce RTX 4090 Laptop GPU", Some("rtx-4090-laptop")),
            ("NVIDIA GeForce RTX 5070 Ti Laptop GPU", Some("rtx-5070ti-laptop")),
            ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", Some("rtx-pro-6000-maxq")),
            ("NVIDIA B300 SXM6 AC", Some("b300")),
            ("NVIDIA GH200 480GB", Some("gh200")),
            ("NVIDIA GH200 144G HBM3e", None),
            ("Tesla P40", Some("p40")),
            ("NVIDIA A10G", Some("a10g")),
            ("NVIDIA H100 NVL", Some("h100-nvl")),
            ("NVIDIA GeForce RTX 4090 D", None),
            ("NVIDIA GeForce RTX 4070 SUPER Laptop GPU", None),
            ("GRID T4-8Q", None),
            ("Orin (nvgpu)", None),
            ("NVIDIA Thor", None),
            ("", None),
        ];
        for (name, expected) in cases {
            assert_eq!(gpu_key(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn a_virtual_gpu_is_known_by_the_card_that_it_is_of() {
        let cases = [
            ("GRID T4-8Q", Some("t4"), None, 8),
            ("NVIDIA L40S-48C", Some("l40s"), None, 48),
            ("NVIDIA RTX6000-Ada-24Q", Some("rtx-6000-ada"), None, 24),
            ("NVIDIA RTXA6000-48Q", Some("rtx-a6000"), None, 48),
            ("GRID A100D-3-40C", Some("a100-80gb"), Some(3), 40),
            ("NVIDIA H100XM-80C", Some("h100-sxm"), None, 80),
            ("GRID M60-8Q", None, None, 8),
        ];
        for (name, card, slices, gibibytes) in cases {
            let found = virtual_gpu(name).unwrap();
            assert_eq!(
                (found.card.as_deref(), found.slices, found.gibibytes),
                (card, slices, gibibytes),
                "{name}"
            );
        }
        for name in [
            "NVIDIA A100-SXM4-40GB",
            "Tesla P100-PCIE-16GB",
            "NVIDIA H20-3e",
            "Quadro T2000 with Max-Q",
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "NVIDIA A30 MIG 1g.6gb",
            "GRID -Q",
            "",
        ] {
            assert_eq!(virtual_gpu(name), None, "{name}");
        }
    }

    #[test]
    fn the_gpu_of_a_tegra_is_known_from_a_card_beside_it() {
        for name in ["Orin (nvgpu)", "NVIDIA Thor", "Thor", "NVIDIA Jetson Orin", "Xavier (nvgpu)"] {
            assert!(is_integrated(name), "{name}");
        }
        for name in ["NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation", "NVIDIA GeForce RTX 4090", ""] {
            assert!(!is_integrated(name), "{name}");
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
