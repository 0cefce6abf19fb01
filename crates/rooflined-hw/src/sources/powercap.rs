//! Energy counters behind powercap: RAPL of processors.

use super::rails;
use crate::SysRoot;
use crate::ask::ask;
use crate::rail::{Counter, Meter};
use crate::source::{DiscoveryContext, Plan, Reader};

const POWERCAP: &str = "/sys/class/powercap";
/// Running average power limit counters are renewed about every millisecond (Intel SDM volume 3, 16.10.1).
const RAPL_UPDATE_MS: u64 = 1;

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    rails::discovered(meters(context.root), &[POWERCAP], plan)
}

fn meters(root: &SysRoot) -> Vec<Meter> {
    let file = |zone: &str, file: &str| format!("{POWERCAP}/{zone}/{file}");
    // The class directory is flat: `intel-rapl:0` is a package and `intel-rapl:0:1` a part of it.
    let zones: Vec<String> = root
        .names(POWERCAP)
        .into_iter()
        .filter(|zone| zone.contains(':') && root.path(&file(zone, "energy_uj")).exists())
        .collect();
    let texts =
        ask(root, zones.iter().flat_map(|zone| ["name", "max_energy_range_uj"].map(|name| file(zone, name))));
    let name_of = |zone: &str| texts.label(&file(zone, "name"));
    let meters = zones.iter().map(|zone| {
        let own = name_of(zone).unwrap_or_else(|| zone.clone());
        let parent = zone.rsplit_once(':').and_then(|(parent, _)| name_of(parent));
        let range = texts.unsigned(&file(zone, "max_energy_range_uj")).filter(|range| *range > 0);
        Meter {
            name: parent.map_or_else(|| own.clone(), |parent| format!("{parent}/{own}")),
            device: zone.split(':').next().unwrap_or_default().to_owned(),
            // Of a package that is told of twice, `intel-rapl:0` and `intel-rapl-mmio:0`, the former keeps the name.
            place: zone.clone(),
            path: file(zone, "energy_uj"),
            current: None,
            check: None,
            counter: Counter::Energy { wraps_after: range },
            update_ms: Some(RAPL_UPDATE_MS),
            last: None,
        }
    });
    meters.collect()
}
