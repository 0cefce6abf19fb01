//! `fit-power`: coefficients of power from tables of published measurements.

use std::fmt::Write as _;
use std::path::Path;

use super::args::FitPowerArgs;
use super::power::power_files;
use super::power_rows::{self, Tables};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_core::hardware::registry;
use rooflined_predict::power::{FILES, PowerFile};

pub fn run(printer: &Printer, args: &FitPowerArgs) -> Result<(), Failure> {
    let rows = power_rows::read(&Tables {
        data: &args.data,
        power: args.power.as_deref(),
        micro: args.micro.as_deref(),
        caps: args.caps.as_deref(),
    })?;
    let failed = |error: &dyn std::fmt::Display| {
        Failure::failed(
            format!("these rows give no coefficients: {error}"),
            "leave the rows of that machine out",
        )
    };
    let files = power_files(&rows.points, registry()).map_err(|error| failed(&error))?;
    if files.is_empty() {
        return Err(Failure::failed(
            format!("{} has no row whose power can be fitted", args.data.display()),
            "its devices and models must be known, and a source must name the meter: vdd_cpu_gpu_cv, module, gpu",
        ));
    }
    let mut report = String::new();
    for why in &rows.unusable {
        let _ = writeln!(report, "      left out: {why}");
    }
    let mut changed: Vec<&str> = Vec::new();
    for file in &files {
        let text = text(file)?;
        let shipped = FILES.iter().find(|(key, _)| *key == file.hardware).map(|(_, text)| *text);
        let same = shipped == Some(text.as_str());
        let _ = writeln!(
            report,
            "{:28} {:4} rows, {} points, {}: {}",
            file.hardware,
            file.rows,
            file.points.len(),
            file.rails.key(),
            if same { "as built in" } else { "differs from what is built in" }
        );
        if !same {
            changed.push(&file.hardware);
        }
        if let Some(dir) = &args.out {
            write(&dir.join(format!("{}.toml", file.hardware)), &text)?;
        }
    }
    printer.text(&report)?;
    if args.check && !changed.is_empty() {
        return Err(Failure::failed(
            format!("these rows give other coefficients than those built in: {}", changed.join(", ")),
            "write them with --out config/power and build again",
        ));
    }
    Ok(())
}

fn text(file: &PowerFile) -> Result<String, Failure> {
    let body = toml::to_string(file).map_err(|error| {
        Failure::failed(
            format!("the coefficients of {} cannot be written: {error}", file.hardware),
            "report this",
        )
    })?;
    Ok(format!(
        "# Power of {}, fitted by `rooflined-lab fit-power`: do not edit. Meaning and units: docs/internals/prediction.md.\n\n{body}",
        file.hardware
    ))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        Failure::failed(format!("{}: {error}", path.display()), "name a directory that can be written")
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn the_public_rows_give_the_files_that_are_built_in() {
        let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
        let [runs, power, micro, caps] =
            ["llm", "power", "micro", "caps"].map(|name| data.join(format!("published_{name}.csv")));
        let tables = Tables { data: &runs, power: Some(&power), micro: Some(&micro), caps: Some(&caps) };
        let rows = power_rows::read(&tables).unwrap();
        let files = power_files(&rows.points, registry()).unwrap();
        assert_eq!(files.len(), FILES.len());
        for file in &files {
            let shipped = FILES.iter().find(|(key, _)| *key == file.hardware);
            assert_eq!(
                shipped.map(|(_, shipped)| *shipped),
                Some(text(file).unwrap().as_str()),
                "{}",
                file.hardware
            );
        }
    }
}
