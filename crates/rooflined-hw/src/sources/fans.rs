//! Fans, and the profile that NVIDIA's fan control follows.
//!
//! ```text
//! /sys/class/hwmon/hwmonN/       name=pwmfan    pwm1 (0 to 255)         what the fan is given
//! /sys/class/hwmon/hwmonN/       name=pwm_tach  fan1_input or rpm       how fast it turns
//! /sys/devices/pwm-fan/          cur_pwm        rpm_measured            JetPack 4
//! /var/lib/nvfancontrol/status   FAN1:FAN_PROFILE:cool, where it may be read
//! /etc/nvfancontrol.conf         FAN_DEFAULT_PROFILE quiet
//! ```

use super::{HWMON, hwmon};
use crate::SysRoot;
use crate::answers::{Answers, EACH_SECOND, File, SOMETIMES};
use crate::names::distinguish;
use crate::source::{DiscoveryContext, Source};
use crate::state::{StateBuilder, detail};
use rooflined_core::board::details::Fan;
use rooflined_core::board::{Reading, parse::details as text};

const STATUS: &str = "/var/lib/nvfancontrol/status";
const CONF: &str = "/etc/nvfancontrol.conf";
const OLD: &str = "/sys/devices/pwm-fan";
/// More than any board has.
const MOST: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fans {
    fans: Vec<Files>,
}

/// Where one fan is told of.
#[derive(Debug, Clone, PartialEq)]
struct Files {
    name: String,
    /// What tells it from others of its name.
    place: String,
    dir: String,
    duty: Option<String>,
    speed: Option<String>,
}

impl Source for Fans {
    fn discover(context: &DiscoveryContext<'_>) -> Option<Self> {
        let mut fans: Vec<Files> = Vec::new();
        for device in context.hwmon.iter().filter(|device| hwmon::is_awake(context.root, device)) {
            let of = hwmon::device_of(context.root, &device.dir);
            let files = context.root.names(&device.dir);
            let at = |file: String| files.contains(&file).then(|| format!("{}/{file}", device.dir));
            for number in 1..=8 {
                let speed = at(format!("fan{number}_input"));
                let speed = speed.or_else(|| at("rpm".to_owned()).filter(|_| number == 1));
                let duty = at(format!("pwm{number}"));
                if duty.is_none() && speed.is_none() {
                    continue;
                }
                let place = format!("{of}.{number}");
                fans.push(Files { name: device.name.clone(), place, dir: device.dir.clone(), duty, speed });
            }
        }
        // Driver and tachometer of a Jetson's fan are two devices, and either may be the first; of others nothing tells
        // that two devices are of one fan.
        let is_driver = |fan: &Files| ["pwmfan", "pwm-fan", "pwm_fan"].contains(&fan.name.as_str());
        while let Some(tach) = fans.iter().position(|fan| fan.duty.is_none() && fan.name.contains("tach")) {
            let driven =
                fans.iter().position(|fan| is_driver(fan) && fan.duty.is_some() && fan.speed.is_none());
            let Some(driven) = driven else { break };
            fans[driven].speed = fans[tach].speed.take();
            fans.remove(tach);
        }
        let old = |file: &str| Some(format!("{OLD}/{file}")).filter(|path| context.has(path));
        if let (duty @ Some(_), speed) = (old("cur_pwm"), old("rpm_measured")) {
            let (name, place) = ("pwm-fan".to_owned(), OLD.to_owned());
            fans.push(Files { name, place, dir: OLD.into(), duty, speed });
        }
        fans.truncate(MOST);
        distinguish(&mut fans, |fan| (&mut fan.name, &fan.place));
        Some(Self { fans })
    }

    fn origins(&self, root: &SysRoot) -> Vec<(&'static str, String)> {
        let fans = self.fans.iter().flat_map(|fan| [&fan.duty, &fan.speed]).flatten();
        let fans = fans.map(|path| ("fans", path.clone()));
        let profile = [STATUS, CONF].into_iter().filter(|path| root.path(path).is_file());
        fans.chain(profile.map(|path| ("fan_profile", path.to_owned()))).collect()
    }

    fn files(&self) -> Vec<File> {
        let fans = self.fans.iter().flat_map(|fan| [&fan.duty, &fan.speed]).flatten();
        let fans = fans.map(|path| File::of_driver(path).every(EACH_SECOND));
        let profile = [STATUS, CONF].map(|path| File::of_driver(path).limited(64 << 10).every(SOMETIMES));
        fans.chain(profile).collect()
    }

    fn read(&mut self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let fans: Vec<Fan> = self.fans.iter().map(|fan| fan.read(answers)).collect();
        let reading = if fans.is_empty() {
            Reading::absent(format!("no pwm* and no fan*_input in {HWMON}/hwmon*"))
        } else {
            Reading::Known(fans)
        };
        let path = self.fans.iter().find_map(|fan| fan.duty.as_ref().or(fan.speed.as_ref()));
        detail!(state.fans = reading, path.map(|path| answers.read_at(path)));
        detail!(state.fan_profile = profile(answers), Some(answers.read_at(CONF)));
    }
}

impl Files {
    fn read(&self, answers: &Answers<'_>) -> Fan {
        let absent = |what: &str| Reading::absent(format!("{} has no file of {what}", self.dir));
        Fan {
            name: self.name.clone(),
            duty_ratio: self.duty.as_ref().map_or_else(
                || absent("what the fan is given"),
                |path| answers.value(path, "a number from 0 to 255", text::pwm),
            ),
            speed_rpm: self.speed.as_ref().map_or_else(
                || absent("the fan's speed"),
                |path| answers.value(path, "turns in a minute", text::rpm),
            ),
            source: self.dir.clone(),
        }
    }
}

/// The status is what holds now; the configuration is what holds where nobody chose.
fn profile(answers: &Answers<'_>) -> Reading<String> {
    let status = answers.text(STATUS).ok().and_then(|status| text::fan_profile(status, "FAN_PROFILE"));
    match status {
        Some(profile) => Reading::Known(profile),
        None => {
            answers.value(CONF, "FAN_DEFAULT_PROFILE", |conf| text::fan_profile(conf, "FAN_DEFAULT_PROFILE"))
        }
    }
}
