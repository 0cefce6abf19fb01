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
use crate::answers::{Answers, EACH_SECOND, File, SOMETIMES};
use crate::names::distinguish;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use rooflined_core::board::details::Fan;
use rooflined_core::board::{Reading, parse::details as text};

const STATUS: &str = "/var/lib/nvfancontrol/status";
const CONF: &str = "/etc/nvfancontrol.conf";
const OLD: &str = "/sys/devices/pwm-fan";
/// More than any board has.
const MOST: usize = 16;

/// Where one fan is told of.
struct Files {
    name: String,
    /// What tells it from others of its name.
    place: String,
    dir: String,
    duty: Option<String>,
    speed: Option<String>,
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let fans = fans(context);
    for path in fans.iter().flat_map(Files::paths) {
        plan.add_origin("fans", path);
        plan.read([File::of_driver(path).every(EACH_SECOND)]);
    }
    for path in [STATUS, CONF] {
        if context.root.path(path).is_file() {
            plan.add_origin("fan_profile", path);
        }
        plan.read([File::of_driver(path).limited(64 << 10).every(SOMETIMES)]);
    }
    found(move |answers, state| {
        let reading = if fans.is_empty() {
            Reading::absent(format!("no pwm* and no fan*_input in {HWMON}/hwmon*"))
        } else {
            Reading::Known(fans.iter().map(|fan| fan.read(answers)).collect())
        };
        let path = fans.iter().flat_map(Files::paths).next();
        detail!(state.fans = reading, path.map(|path| answers.read_at(path)));
        detail!(state.fan_profile = profile(answers), Some(answers.read_at(CONF)));
    })
}

fn fans(context: &DiscoveryContext<'_>) -> Vec<Files> {
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
        let driven = fans.iter().position(|fan| is_driver(fan) && fan.duty.is_some() && fan.speed.is_none());
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
    distinguish(&mut fans, |fan| &mut fan.name, |_, fan| fan.place.clone());
    fans
}

impl Files {
    fn paths(&self) -> impl Iterator<Item = &String> {
        self.duty.iter().chain(&self.speed)
    }

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
