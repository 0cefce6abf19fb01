//! Gauges of what people watch beside what answers rest on.

use super::{Family, Page, gauge, truth};
use roofline::board::Reading;
use roofline::board::details::{Core, Details, Engine, GpuControl, RailMeter};

/// All of it, family by family: a family's samples stand together.
pub(super) fn details(page: &mut Page, details: &Details) {
    cores(page, list(&details.cores));
    engines(page, list(&details.engines));
    let ratio = details.emc_utilisation.known().copied();
    let family = gauge("rooflined_emc_utilisation_ratio", "Cycles of the memory clock that move data.");
    page.maybe(family, &[], ratio);
    fans(page, details);
    if let Some(control) = details.gpu_control.known() {
        gpu_control(page, control);
    }
    memory(page, details);
    rail_meters(page, list(&details.rail_meters));
    for device in list(&details.device_temperatures) {
        let family =
            gauge("rooflined_device_temperature_celsius", "Temperature of each drive, card and the like.");
        page.maybe(family, &[("device", &device.name)], device.temperature.known().map(|t| t.get()));
    }
    let family = gauge("rooflined_jetson_clocks", "1 where clocks are locked as jetson_clocks does it.");
    page.maybe(family, &[], details.jetson_clocks.known().copied().map(truth));
    let known = |reading: &Reading<String>| reading.known().cloned().unwrap_or_default();
    let versions = [known(&details.jetpack), known(&details.cuda), known(&details.tensorrt)];
    if versions.iter().any(|version| !version.is_empty()) {
        let [jetpack, cuda, tensorrt] = &versions;
        let family = gauge("rooflined_software_info", "Versions of NVIDIA's software; always 1.");
        page.sample(family, &[("jetpack", jetpack), ("cuda", cuda), ("tensorrt", tensorrt)], 1.0);
    }
}

fn list<T>(reading: &Reading<Vec<T>>) -> &[T] {
    reading.known().map_or(&[], Vec::as_slice)
}

fn cores(page: &mut Page, cores: &[Core]) {
    type Value = fn(&Core) -> Option<f64>;
    let families: [(Family, Value); 3] = [
        (gauge("rooflined_cpu_core_busy_ratio", "Busy part of each online CPU."), |core| {
            core.busy_ratio.known().copied()
        }),
        (gauge("rooflined_cpu_clock_min_hertz", "Lowest clock allowed of each online CPU."), |core| {
            core.min_clock.known().map(|clock| clock.get())
        }),
        (gauge("rooflined_cpu_clock_max_hertz", "Highest clock allowed of each online CPU."), |core| {
            core.clock_cap.known().map(|clock| clock.get())
        }),
    ];
    for (family, value) in families {
        for core in cores {
            page.maybe(family, &[("cpu", &core.cpu.to_string())], value(core));
        }
    }
    for core in cores {
        let Some(governor) = core.governor.known() else { continue };
        let family = gauge("rooflined_cpu_governor_info", "Governor of each online CPU; always 1.");
        page.sample(family, &[("cpu", &core.cpu.to_string()), ("governor", governor)], 1.0);
    }
}

fn engines(page: &mut Page, engines: &[Engine]) {
    type Value = fn(&Engine) -> Option<f64>;
    let families: [(Family, Value); 3] = [
        (gauge("rooflined_engine_clock_hertz", "Clock of each engine beside CPU and GPU."), |engine| {
            engine.clock.known().map(|clock| clock.get())
        }),
        (gauge("rooflined_engine_clock_max_hertz", "Highest clock allowed of each engine."), |engine| {
            engine.clock_cap.known().map(|clock| clock.get())
        }),
        (gauge("rooflined_engine_on", "1 while the engine is on."), |engine| {
            engine.on.known().copied().map(truth)
        }),
    ];
    for (family, value) in families {
        for engine in engines {
            page.maybe(family, &[("engine", &engine.name)], value(engine));
        }
    }
}

fn fans(page: &mut Page, details: &Details) {
    let fans = list(&details.fans);
    for fan in fans {
        let family = gauge("rooflined_fan_duty_ratio", "Part of the time that each fan is driven.");
        page.maybe(family, &[("fan", &fan.name)], fan.duty_ratio.known().copied());
    }
    for fan in fans {
        let family = gauge("rooflined_fan_speed_rpm", "Turns of each fan per minute.");
        page.maybe(family, &[("fan", &fan.name)], fan.speed_rpm.known().copied());
    }
    if let Some(profile) = details.fan_profile.known() {
        let family = gauge("rooflined_fan_profile_info", "Profile of the fan control; always 1.");
        page.sample(family, &[("profile", profile)], 1.0);
    }
}

fn gpu_control(page: &mut Page, control: &GpuControl) {
    let clock = control.min_clock.known().map(|clock| clock.get());
    page.maybe(gauge("rooflined_gpu_clock_min_hertz", "Lowest GPU clock allowed."), &[], clock);
    if let Some(governor) = control.governor.known() {
        let family = gauge("rooflined_gpu_governor_info", "Governor of the GPU clock; always 1.");
        page.sample(family, &[("governor", governor)], 1.0);
    }
    let enabled = control.railgate_enabled.known().copied().map(truth);
    page.maybe(gauge("rooflined_gpu_railgate_enabled", "1 where an idle GPU is switched off."), &[], enabled);
    let gated = control.railgated.known().copied().map(truth);
    page.maybe(gauge("rooflined_gpu_railgated", "1 while the GPU is switched off."), &[], gated);
    let scaling = control.scaling_3d.known().copied().map(truth);
    page.maybe(gauge("rooflined_gpu_scaling_3d", "1 where the GPU clock follows the load."), &[], scaling);
}

fn memory(page: &mut Page, details: &Details) {
    let shared = details.gpu_shared_memory.known().map(|bytes| bytes.get());
    let family = gauge("rooflined_gpu_shared_memory_bytes", "Memory taken for the GPU of what it shares.");
    page.maybe(family, &[], shared);
    for process in list(&details.gpu_processes) {
        let family =
            gauge("rooflined_gpu_process_memory_bytes", "Memory of the GPU that each process holds.");
        let name = process.name.known().map_or("", String::as_str);
        let labels = [("pid", process.pid.to_string()), ("name", name.to_owned())];
        let labels = [(labels[0].0, labels[0].1.as_str()), (labels[1].0, labels[1].1.as_str())];
        page.maybe(family, &labels, process.memory.known().map(|bytes| bytes.get()));
    }
    if let Some(blocks) = details.free_blocks.known() {
        let family = gauge("rooflined_free_blocks", "Free blocks of the largest size.");
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        page.sample(family, &[], blocks.count as f64);
        page.sample(
            gauge("rooflined_free_block_bytes", "Largest size of a free block."),
            &[],
            blocks.size.get(),
        );
    }
    let areas = list(&details.swap);
    for area in areas {
        let family = gauge("rooflined_swap_area_size_bytes", "Size of each swap device or file.");
        page.sample(family, &[("area", &area.name), ("kind", &area.kind)], area.size.get());
    }
    for area in areas {
        let family = gauge("rooflined_swap_area_used_bytes", "Used part of each swap device or file.");
        page.sample(family, &[("area", &area.name), ("kind", &area.kind)], area.used.get());
    }
    let devices = list(&details.zram);
    for device in devices {
        let family = gauge("rooflined_zram_stored_bytes", "What each compressed device holds, uncompressed.");
        page.sample(family, &[("device", &device.name)], device.stored.get());
    }
    for device in devices {
        let family = gauge("rooflined_zram_memory_bytes", "Memory that each compressed device takes.");
        page.sample(family, &[("device", &device.name)], device.memory.get());
    }
}

fn rail_meters(page: &mut Page, meters: &[RailMeter]) {
    type Value = fn(&RailMeter) -> Option<f64>;
    let families: [(Family, Value); 5] = [
        (gauge("rooflined_rail_voltage_volts", "Voltage of each rail."), |meter| {
            meter.volts.known().copied()
        }),
        (gauge("rooflined_rail_current_amperes", "Current of each rail."), |meter| {
            meter.amperes.known().copied()
        }),
        (
            gauge("rooflined_rail_current_warning_amperes", "Mean current above which a rail's meter warns."),
            |meter| meter.warning_amperes.known().copied(),
        ),
        (
            gauge("rooflined_rail_current_critical_amperes", "Current above which a rail's meter alarms."),
            |meter| meter.critical_amperes.known().copied(),
        ),
        (gauge("rooflined_rail_alarm", "1 while a rail's meter warns or alarms."), |meter| {
            meter.alarm.known().copied().map(truth)
        }),
    ];
    for (family, value) in families {
        for meter in meters {
            page.maybe(family, &[("rail", &meter.name)], value(meter));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofline::units::Hertz;

    #[test]
    fn what_is_unknown_has_no_series_and_no_series_stands_twice() {
        let engine = |name: &str, clock| Engine {
            name: name.into(),
            clock,
            clock_cap: Reading::absent("only root may read it"),
            on: Reading::Known(true),
            source: String::new(),
        };
        let mut known = Details::unknown("nothing was read");
        known.engines = Reading::Known(vec![
            engine("VIC", Reading::Known(Hertz(1e8))),
            engine("SE", Reading::absent("off")),
        ]);
        let mut page = Page { text: String::new(), family: "" };
        details(&mut page, &known);
        let samples: Vec<&str> = page.text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "rooflined_engine_clock_hertz{engine=\"VIC\"} 100000000",
            "rooflined_engine_on{engine=\"VIC\"} 1",
            "rooflined_engine_on{engine=\"SE\"} 1",
        ];
        assert_eq!(samples, expected);
    }
}
