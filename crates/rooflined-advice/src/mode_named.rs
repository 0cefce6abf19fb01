//! Power modes, and caps of `nvidia-smi`, by the names that requests give them.

use super::words::{shorten, subject};
use rooflined_core::hardware::Kind;
use rooflined_core::near::Near;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_core::units::Watts;
use rooflined_predict::snapshot::{Cap, ModeView, Snapshot};

/// A power mode by name or number.
///
/// # Errors
/// `unknown_mode`, naming those that there are.
pub fn mode_named<'a>(snapshot: &'a Snapshot, field: &str, name: &str) -> Result<&'a ModeView, Refusal> {
    if let Some(view) = snapshot.mode(name) {
        return Ok(view);
    }
    let names: Vec<&str> = snapshot.modes.iter().map(|view| view.mode.name.as_str()).collect();
    if let Some(hardware) = snapshot.capped_hardware().filter(|_| names.is_empty()) {
        let kinds = match hardware.kind {
            Kind::Discrete if snapshot.power_costs(&snapshot.roofline).is_some() => {
                "lgc-MHZ caps its clock and pl-WATTS its power"
            }
            _ => "lgc-MHZ caps its clock",
        };
        return Err(Code::UnknownMode.at(
            field,
            format!("{} has no power mode {:?}", subject(snapshot), shorten(name)),
            format!("{kinds}: {}", example(snapshot)),
        ));
    }
    if names.is_empty() {
        let why = snapshot.board.modes.reason().unwrap_or("it has none");
        return Err(Code::UnknownMode.at(
            field,
            format!("{} has no power mode {:?}, nor any other: {why}", subject(snapshot), shorten(name)),
            format!("leave {field} out"),
        ));
    }
    let numbered = |view: &&ModeView| name.trim().parse() == Ok(view.mode.id);
    let of_number: Vec<&str> =
        snapshot.modes.iter().filter(numbered).map(|view| view.mode.name.as_str()).collect();
    if of_number.len() > 1 {
        return Err(Code::UnknownMode.at(
            field,
            format!("{} has {} power modes of number {}", subject(snapshot), of_number.len(), shorten(name)),
            format!("ask by name: {}", of_number.join(" or ")),
        ));
    }
    Err(Code::UnknownMode.at(
        field,
        format!("{} has no power mode {:?}", subject(snapshot), shorten(name)),
        Near::of(name, names.iter().copied()).hint(&format!("its modes are {}", names.join(", "))),
    ))
}

/// Names of caps that would be proposed.
fn example(snapshot: &Snapshot) -> String {
    let names: Vec<String> = snapshot.proposed_caps().into_iter().map(|cap| cap.mode().name).collect();
    names.join(", ")
}

/// No driver runs a GPU slower: idle clocks of cards are 135 to 300 MHz, as recalled.
const LEAST_CLOCK_MHZ: u32 = 100;

/// The cap of that name, `lgc-2000` or `pl-290`; `None` for a name of another form, and where a mode has it.
///
/// # Errors
/// A cap that this machine does not take.
pub fn cap_named(snapshot: &Snapshot, field: &str, name: &str) -> Result<Option<Cap>, Refusal> {
    let Some(cap) = Cap::named(name).filter(|_| snapshot.mode(name).is_none()) else { return Ok(None) };
    let Some(hardware) = snapshot.capped_hardware() else { return Ok(None) };
    match cap {
        Cap::Clock(mhz) if f64::from(mhz) * 1e6 > 2.0 * hardware.gpu_clock.get() => Err(Code::UnknownMode
            .at(
                field,
                format!("{mhz} MHz is above the clocks of {}", subject(snapshot)),
                format!("its highest is {}", hardware.gpu_clock),
            )),
        Cap::Clock(mhz) if mhz < LEAST_CLOCK_MHZ => Err(Code::UnknownMode.at(
            field,
            format!("{mhz} MHz is below the clocks of {}", subject(snapshot)),
            format!("cap its clock: {}", example(snapshot)),
        )),
        Cap::Power(_) if hardware.kind != Kind::Discrete => Err(Code::UnknownMode.at(
            field,
            format!(
                "the driver of {} sets no power limit, so there is no {:?}",
                subject(snapshot),
                shorten(name)
            ),
            format!("cap its clock: {}", example(snapshot)),
        )),
        Cap::Power(_) if snapshot.power_costs(&snapshot.roofline).is_none() => {
            Err(unknown_power(snapshot, field))
        }
        Cap::Power(watts) => {
            refuse_beyond_driver(snapshot, Watts(f64::from(watts)), field)?;
            Ok(Some(cap))
        }
        Cap::Clock(_) => Ok(Some(cap)),
    }
}

/// Refuses a limit that no driver of this card takes.
///
/// # Errors
/// The limit, at `field`.
pub fn refuse_beyond_driver(snapshot: &Snapshot, limit: Watts, field: &str) -> Result<(), Refusal> {
    let stated = snapshot.capped_hardware().and_then(|hardware| hardware.tdp);
    let Some(((least, most), stated)) = snapshot.settable_limits().zip(stated) else { return Ok(()) };
    if (least..=most).contains(&limit) {
        return Ok(());
    }
    // As it was given: as watts, or as the name of a cap.
    let range = match field.ends_with("power_limit_w") {
        true => format!("{least} to {stated}"),
        false => format!("pl-{} to pl-{}", least.get(), stated.get()),
    };
    Err(Code::UnsupportedOperatingPoint.at(
        field,
        format!("no driver sets a limit of {limit} on {}, whose own is {stated}", subject(snapshot)),
        format!("give {range}"),
    ))
}

/// A limit on power where nothing tells what it does to the clock.
pub fn unknown_power(snapshot: &Snapshot, field: &str) -> Refusal {
    Code::UnsupportedOperatingPoint.at(
        field,
        format!("the power of {} is not known, so the effect of a limit is not either", subject(snapshot)),
        "cap the clock instead, power_mode lgc-2000, or ask the daemon of that machine after rooflinectl calibrate",
    )
}
