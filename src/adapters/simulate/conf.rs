//! nvpmodel.conf: written for a simulated board in the grammar of the real files, and read back by the fake
//! nvpmodel. What the daemon makes of such a file is another module's work; sharing it would test nothing.

use std::fmt::Write as _;

use super::spec::{Family, Mode, Spec};

/// One parameter: its name and the paths of its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Param {
    pub name: String,
    /// Clocks are integers, of which -1 means none; the rest is written as it stands.
    pub clock: bool,
    pub args: Vec<(String, String)>,
}

/// One mode: parameter, argument and value in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    pub id: u32,
    pub name: String,
    pub settings: Vec<[String; 3]>,
}

/// A file, as far as the fake nvpmodel needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conf {
    pub params: Vec<Param>,
    pub models: Vec<Model>,
    pub default: Option<u32>,
}

impl Conf {
    /// Reads the text of a file; what is not understood is left out.
    pub fn parse(text: &str) -> Self {
        enum Section {
            None,
            Param,
            Model,
        }
        let mut conf = Self::default();
        let mut section = Section::None;
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            if let Some(head) = line.strip_prefix('<').and_then(|head| head.strip_suffix('>')) {
                let field = |key: &str| head.split_whitespace().find_map(|word| word.strip_prefix(key));
                let text = |key: &str| field(key).unwrap_or_default().to_owned();
                section = match head.split_whitespace().next() {
                    Some("PARAM") => {
                        let clock = field("TYPE=") == Some("CLOCK");
                        conf.params.push(Param { name: text("NAME="), clock, args: Vec::new() });
                        Section::Param
                    }
                    Some("POWER_MODEL") => {
                        let Some(id) = field("ID=").and_then(|id| id.parse().ok()) else { continue };
                        conf.models.push(Model { id, name: text("NAME="), settings: Vec::new() });
                        Section::Model
                    }
                    Some("PM_CONFIG") => {
                        conf.default = field("DEFAULT=").and_then(|id| id.parse().ok());
                        Section::None
                    }
                    _ => Section::None,
                };
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            match (&section, words.as_slice()) {
                (Section::Param, [arg, path]) => {
                    if let Some(param) = conf.params.last_mut() {
                        param.args.push(((*arg).to_owned(), (*path).to_owned()));
                    }
                }
                (Section::Model, [param, arg, value]) => {
                    if let Some(model) = conf.models.last_mut() {
                        model.settings.push([param, arg, value].map(|word| (*word).to_owned()));
                    }
                }
                _ => {}
            }
        }
        conf
    }

    pub fn model(&self, id: u32) -> Option<&Model> {
        self.models.iter().find(|model| model.id == id)
    }

    /// The paths of an argument, that for newer kernels first.
    pub fn paths(&self, param: &str, arg: &str) -> Vec<&str> {
        let newer = format!("{arg}_KNEXT");
        let of = |wanted: &str| {
            let param = self.params.iter().find(|known| known.name == param)?;
            param.args.iter().find(|(name, _)| name == wanted).map(|(_, path)| path.as_str())
        };
        [of(&newer), of(arg)].into_iter().flatten().collect()
    }

    pub fn is_clock(&self, param: &str) -> bool {
        self.params.iter().any(|known| known.name == param && known.clock)
    }
}

/// The paths and names that differ between generations.
pub(super) struct Names {
    pub gpu: &'static str,
    pub gpu_dir: &'static str,
    pub emc: &'static str,
    pub emc_knext: Option<&'static str>,
}

impl Names {
    pub fn of(family: Family) -> Self {
        match family {
            Family::Orin5 => Self {
                gpu: "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b",
                gpu_dir: "/sys/devices/gpu.0",
                emc: "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
                emc_knext: None,
            },
            Family::Orin6 => Self {
                gpu: "/sys/devices/platform/17000000.gpu/devfreq_dev",
                gpu_dir: "/sys/devices/platform/gpu.0",
                emc: "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
                emc_knext: Some("/sys/kernel/nvpmodel_clk_cap/emc"),
            },
            Family::Thor | Family::Gb10 => Self {
                gpu: "/sys/class/devfreq/gpu-gpc-0",
                gpu_dir: "",
                emc: "/sys/class/devfreq/bwmgr/max_freq",
                emc_knext: None,
            },
        }
    }
}

/// Thor's mask lies in a file of the boot scripts.
pub(super) const THOR_MASK: &str = "/opt/nvidia/l4t-gpusetup/gpu_pg_mask";

pub(super) fn render(spec: &Spec) -> String {
    let names = Names::of(spec.family);
    let mut text = String::from(
        "#\n# Synthetic: written for a simulated board in the grammar of nvpmodel.conf, not NVIDIA's file.\n#\n",
    );
    params(spec, &names, &mut text);
    for mode in spec.modes {
        model(spec, mode, &mut text);
    }
    let _ = write!(
        text,
        "\n# mandatory section to configure the default power mode\n< PM_CONFIG DEFAULT={} >\n",
        spec.default_mode
    );
    text
}

fn cpu_param(spec: &Spec, index: usize) -> String {
    match spec.family {
        Family::Thor | Family::Gb10 => format!("CPU_{index}"),
        Family::Orin5 | Family::Orin6 => format!("CPU_A78_{index}"),
    }
}

fn params(spec: &Spec, names: &Names, text: &mut String) {
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    add("###########################\n# PARAM DEFINITION        #\n###########################\n");
    add("< PARAM TYPE=FILE NAME=CPU_ONLINE >");
    for cpu in 0..spec.cpus() {
        add(&format!("CORE_{cpu} /sys/devices/system/cpu/cpu{cpu}/online"));
    }
    let orin = matches!(spec.family, Family::Orin5 | Family::Orin6);
    if orin {
        if spec.family == Family::Orin6 {
            add("\n< PARAM TYPE=FILE NAME=FBP_POWER_GATING >");
            add(&format!("FBP_PG_MASK {}/fbp_pg_mask", names.gpu_dir));
        }
        add("\n< PARAM TYPE=FILE NAME=TPC_POWER_GATING >");
        add(&format!("TPC_PG_MASK {}/tpc_pg_mask", names.gpu_dir));
        add("\n< PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_ENABLE >");
        add(&format!("GPU_PWR_CNTL_EN {}/power/control", names.gpu_dir));
    } else {
        add("\n< PARAM TYPE=FILE NAME=GPU_POWER_GATING >");
        add(&format!("GPU_PG_MASK {THOR_MASK}"));
    }
    for (index, cluster) in spec.clusters.iter().enumerate() {
        let first = cluster.cpus.first().copied().unwrap_or_default();
        let dir = format!("/sys/devices/system/cpu/cpu{first}/cpufreq");
        add(&format!("\n< PARAM TYPE=CLOCK NAME={} >", cpu_param(spec, index)));
        add(&format!("FREQ_TABLE {dir}/scaling_available_frequencies"));
        add(&format!("MAX_FREQ {dir}/scaling_max_freq\nMIN_FREQ {dir}/scaling_min_freq"));
    }
    add("\n< PARAM TYPE=CLOCK NAME=GPU >");
    if orin {
        add(&format!("FREQ_TABLE {}/available_frequencies", names.gpu));
    }
    add(&format!("MAX_FREQ {0}/max_freq\nMIN_FREQ {0}/min_freq", names.gpu));
    if orin {
        add("\n< PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_DISABLE >");
        add(&format!("GPU_PWR_CNTL_DIS {}/power/control", names.gpu_dir));
    }
    // Without a space, as in every real file.
    add("\n<PARAM TYPE=CLOCK NAME=EMC >");
    add(&format!("MAX_FREQ {}", names.emc));
    if let Some(path) = names.emc_knext {
        add(&format!("MAX_FREQ_KNEXT {path}"));
    }
}

fn model(spec: &Spec, mode: &Mode, text: &mut String) {
    let mut add = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    add(&format!("\n< POWER_MODEL ID={} NAME={} >", mode.id, mode.name));
    for cpu in 0..spec.cpus() {
        add(&format!("CPU_ONLINE CORE_{cpu} {}", u8::from(cpu < mode.cores)));
    }
    let orin = matches!(spec.family, Family::Orin5 | Family::Orin6);
    if orin {
        if spec.family == Family::Orin6 {
            add("FBP_POWER_GATING FBP_PG_MASK 2");
        }
        add(&format!("TPC_POWER_GATING TPC_PG_MASK {}", mode.mask));
        add("GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on");
    } else {
        add(&format!("GPU_POWER_GATING GPU_PG_MASK {}", mode.mask));
    }
    for (index, cluster) in spec.clusters.iter().enumerate() {
        if cluster.cpus.iter().all(|cpu| *cpu >= mode.cores) {
            continue;
        }
        let param = cpu_param(spec, index);
        if orin {
            add(&format!("{param} MIN_FREQ 729600"));
        }
        add(&format!("{param} MAX_FREQ {}", mode.cpu_khz));
    }
    add(&format!("GPU MIN_FREQ 0\nGPU MAX_FREQ {}", mode.gpu_hz));
    if orin {
        add("GPU_POWER_CONTROL_DISABLE GPU_PWR_CNTL_DIS auto");
    }
    add(&format!("EMC MAX_FREQ {}", mode.emc_hz));
}

#[cfg(test)]
mod tests {
    use super::super::spec::BOARDS;
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for spec in BOARDS.iter().filter(|spec| !spec.modes.is_empty()) {
            let conf = Conf::parse(&render(spec));
            assert_eq!(conf.default, Some(spec.default_mode));
            let ids: Vec<_> = conf.models.iter().map(|model| (model.id, model.name.as_str())).collect();
            assert_eq!(ids, spec.modes.iter().map(|mode| (mode.id, mode.name)).collect::<Vec<_>>());
            for model in &conf.models {
                for [param, arg, _] in &model.settings {
                    assert!(!conf.paths(param, arg).is_empty(), "{param} {arg} has no path");
                }
            }
        }
    }

    #[test]
    fn the_path_of_newer_kernels_comes_first_and_damage_is_left_out() {
        let text = "< PARAM TYPE=CLOCK NAME=EMC\n<PARAM TYPE=CLOCK NAME=EMC >\nMAX_FREQ /old # why\nMAX_FREQ_KNEXT /new\n\
                    < POWER_MODEL ID=x NAME=BAD >\n< POWER_MODEL ID=4 NAME=a.b-c >\nEMC MAX_FREQ 5\nEMC MAX_FREQ\n";
        let conf = Conf::parse(text);
        assert_eq!(conf.paths("EMC", "MAX_FREQ"), ["/new", "/old"]);
        assert_eq!(conf.models.len(), 1);
        assert_eq!(conf.models[0].settings.len(), 1);
        assert!(conf.is_clock("EMC") && conf.default.is_none());
    }
}
