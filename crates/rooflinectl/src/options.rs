//! The options of the command line by the field of a request that they fill.

/// Options that are called as the field that they fill, or as that without its unit.
const OPTIONS: &str = "--acceptance --accepted-per-step --batch --batches --cached-tokens --chunk-tokens --context-tokens --contexts \
    --draft-format --draft-model --draft-tokens --engine --engine-version --engines --format --formats --gpu-layers --hardware \
    --hypothetical --image-tokens --kv-format --kv-formats --max-memory-bytes --max-power --max-quality-loss --max-time \
    --max-time-per-token --max-time-to-first-token --min-free-memory-bytes --min-tokens-per-s --objective --optimism \
    --output-tokens --phase --power --power-limit --precision --scope --speculative --streams --task --threads --time --tokens-per-s";
/// Fields whose option is called otherwise.
const OTHERS: [(&str, &str); 10] = [
    ("cpu_moe_layers", "--n-cpu-moe"),
    ("energy_basis", "--energy"),
    ("max_latency_s", "--max-time"),
    ("min_pictures_per_s", "--min-fps"),
    ("operating_point", "--mode"),
    ("power_mode", "--mode"),
    ("power_modes", "--modes"),
    ("prompt_tokens", "--prompt"),
    ("run_s", "--run-time"),
    ("window_tokens", "--context-tokens"),
];
/// A limit without an option of its own: it is what the machine has.
const FREE: (&str, &str) = ("memory_available", "free memory");
/// The sizes of an operation, which are given in order.
const SIZES: [(&str, &str); 3] = [("m", "M"), ("n", "N"), ("k", "K")];

/// Routes that the daemon's hints name, and the command that asks each; a longer one before its beginning.
const ROUTES: [(&str, &str); 17] = [
    ("GET /v1/calibration", "rooflinectl doctor"),
    ("GET /v1/events", "rooflinectl watch --events"),
    ("GET /v1/roofline", "rooflinectl roofline"),
    ("POST /v1/holds/attached", "rooflinectl hold"),
    ("POST /v1/holds", "rooflinectl hold"),
    ("POST /v1/models/inspect", "rooflinectl models inspect"),
    ("POST /v1/recommend/watch", "rooflinectl recommend --watch"),
    ("GET /v1/models", "rooflinectl models list"),
    ("GET /v1/formats", "rooflinectl formats"),
    ("GET /v1/hardware", "rooflinectl hardware list"),
    ("GET /v1/observations", "rooflinectl observations list"),
    ("POST /v1/observations", "rooflinectl observe"),
    ("GET /v1/servers", "rooflinectl servers"),
    ("GET /v1/state", "rooflinectl status --all"),
    ("POST /v1/predict", "rooflinectl predict"),
    ("POST /v1/recommend", "rooflinectl recommend"),
    ("POST /v1/calibrate", "rooflinectl calibrate"),
];

/// The option that fills a field, which may be a path such as `freedom.power_modes[0]`.
#[must_use]
pub fn option_for(field: &str) -> Option<&'static str> {
    if let Some((_, size)) = field.rsplit_once("op.").filter(|(_, size)| size.len() == 1) {
        return SIZES.iter().find(|(name, _)| *name == size).map(|(_, size)| *size);
    }
    let key = field.rsplit('.').next().unwrap_or(field);
    let key = key.split('[').next().unwrap_or(key);
    let other = OTHERS.iter().find(|(name, _)| *name == key).map(|(_, option)| *option);
    other.or_else(|| named(key)).or_else(|| {
        let without_unit = ["_s", "_w", "_ratio"].iter().find_map(|unit| key.strip_suffix(unit));
        named(without_unit?)
    })
}

/// The option that is called as a field.
fn named(key: &str) -> Option<&'static str> {
    OPTIONS.split_whitespace().find(|option| option.trim_start_matches('-').replace('-', "_") == key)
}

/// Whether an option that fills a field is called so, here without its hyphens.
#[must_use]
pub fn is_option(name: &str) -> bool {
    let others = OTHERS.iter().map(|(_, option)| *option);
    OPTIONS.split_whitespace().chain(others).any(|option| option.strip_prefix("--") == Some(name))
}

/// A sentence of the API with the options of the command line where it has fields: `max_power_w` is `--max-power`. A field that is
/// also a word, such as `batch`, is replaced where its path is given.
#[must_use]
pub fn name_options(sentence: &str) -> String {
    let is_part = |of: char| of.is_ascii_alphanumeric() || "_.[]".contains(of);
    let sentence = ROUTES
        .iter()
        .fold(sentence.to_owned(), |sentence, (route, command)| sentence.replace(route, command));
    let mut said = String::with_capacity(sentence.len());
    let mut rest = sentence.as_str();
    while let Some(start) = rest.find(is_part) {
        let (before, word) = rest.split_at(start);
        let (word, after) = word.split_at(word.find(|of| !is_part(of)).unwrap_or(word.len()));
        let field = word.trim_end_matches('.');
        // `"prompt_tokens":512` is `--prompt 512`; other quotes are around what somebody typed.
        let member = before.strip_suffix('"').zip(after.strip_prefix("\":"));
        if let Some(((before, value), option)) = member.zip(option_for(field)) {
            said += &format!("{before}{option} ");
            // A value of one word needs no quotes on a command line, and an option that is given is true.
            let quoted = value.strip_prefix('"').and_then(|value| value.split_once('"'));
            let word = quoted.filter(|(word, _)| !word.is_empty() && !word.contains(char::is_whitespace));
            rest = word.map_or(value.strip_prefix("true ").unwrap_or(value), |(word, after)| {
                said += word;
                after
            });
            continue;
        }
        let is_of_a_name = before.ends_with(['/', '-', '"']) || after.starts_with(['/', '"']);
        let option = Some(field)
            .filter(|field| !is_of_a_name && field.contains(['_', '.', '[']))
            .and_then(|field| option_for(field).or((field == FREE.0).then_some(FREE.1)));
        said += before;
        said += option.unwrap_or(field);
        said += word.strip_prefix(field).unwrap_or_default();
        rest = after;
    }
    said + rest
}

/// The options that fill these fields, with commas; a field without one by its name.
#[must_use]
pub fn options_for<'a>(fields: impl IntoIterator<Item = &'a String>) -> String {
    let name = |field: &String| match field.as_str() {
        field if field == FREE.0 => FREE.1.to_owned(),
        field => option_for(field).unwrap_or(field).to_owned(),
    };
    fields.into_iter().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn fields_in_a_sentence_become_options_and_nothing_else_changes() {
        for (sentence, expected) in [
            ("nothing meets max_power_w; the closest", "nothing meets --max-power; the closest"),
            ("operating_point and freedom.power_modes are both given", "--mode and --modes are both given"),
            ("GET /v1/formats lists all", "rooflinectl formats lists all"),
            ("GET /v1/calibration shows it", "rooflinectl doctor shows it"),
            ("read POST /v1/recommend/watch", "read rooflinectl recommend --watch"),
            ("leave freedom.threads[0] out", "leave --threads out"),
            ("it is time_s.", "it is --time."),
            ("add \"prompt_tokens\":512", "add --prompt 512"),
            ("with \"optimism\":\"expected\" it", "with --optimism expected it"),
            ("add \"draft_model\":\"llama-3.2-1b\", small", "add --draft-model llama-3.2-1b, small"),
            ("add \"hypothetical\":true to predict", "add --hypothetical to predict"),
            ("leave threads[0] out, or change workload.op.m", "leave --threads out, or change M"),
            ("{\"disk\":1}", "{\"disk\":1}"),
            ("batch 1, format q4_k_m, 3.5 GB", "batch 1, format q4_k_m, 3.5 GB"),
            ("/tmp/max_power_w is \"max_power_w\"", "/tmp/max_power_w is \"max_power_w\""),
            ("", ""),
        ] {
            assert_eq!(name_options(sentence), expected);
        }
    }

    #[test]
    fn every_option_exists_and_is_found_by_its_path() {
        let options: Vec<String> = Cli::command()
            .get_subcommands()
            .flat_map(|command| command.get_arguments().filter_map(|argument| argument.get_long()))
            .map(|long| format!("--{long}"))
            .collect();
        for option in OPTIONS.split_whitespace().chain(OTHERS.iter().map(|(_, option)| *option)) {
            assert!(options.iter().any(|known| known == option), "{option}");
        }
        for (field, option) in [
            ("max_power_w", "--max-power"),
            ("tokens_per_s", "--tokens-per-s"),
            ("acceptance_ratio", "--acceptance"),
            ("max_time_s", "--max-time"),
            ("run_s", "--run-time"),
        ] {
            assert_eq!(option_for(&format!("constraints.{field}")), Some(option));
        }
        assert_eq!(option_for("serial"), None);
        assert_eq!(option_for("freedom.power_modes[0]"), Some("--modes"));
        assert_eq!(options_for(&["max_power_w".to_owned(), "disk".to_owned()]), "--max-power, disk");
    }
}
