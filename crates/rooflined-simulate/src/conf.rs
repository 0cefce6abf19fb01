//! nvpmodel.conf of a simulated board, as the fake nvpmodel reads it. What the daemon makes of such a file is another module's work; sharing it would test nothing.

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

#[cfg(test)]
impl Model {
    /// The cap that the first parameter whose name begins so has; `None` where the mode sets none.
    pub fn cap(&self, param: &str, arg: &str) -> Option<u64> {
        let mut settings = self.settings.iter();
        let [_, _, value] = settings.find(|[name, known, _]| name.starts_with(param) && known == arg)?;
        value.parse().ok().filter(|cap| *cap > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::BOARDS;
    use super::*;

    #[test]
    fn every_setting_of_a_board_has_a_path() {
        for spec in BOARDS.iter().filter(|spec| !spec.lasting.is_empty()) {
            let conf = spec.conf();
            assert!(conf.default.is_some_and(|id| conf.model(id).is_some()), "{}", spec.key);
            assert_eq!(conf.models.len(), 4, "{}", spec.key);
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
