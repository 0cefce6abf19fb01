//! The options of the command line by the field of a request that they fill.

/// Without the name of the part of the request that holds the field.
const OPTIONS: [(&str, &str); 53] = [
    ("acceptance_ratio", "--acceptance"),
    ("accepted_per_step", "--accepted-per-step"),
    ("batch", "--batch"),
    ("batches", "--batches"),
    ("cached_tokens", "--cached-tokens"),
    ("chunk_tokens", "--chunk-tokens"),
    ("context_tokens", "--context-tokens"),
    ("contexts", "--contexts"),
    ("cpu_moe_layers", "--n-cpu-moe"),
    ("draft_format", "--draft-format"),
    ("draft_model", "--draft-model"),
    ("draft_tokens", "--draft-tokens"),
    ("energy_basis", "--energy"),
    ("engine", "--engine"),
    ("engine_version", "--engine-version"),
    ("engines", "--engines"),
    ("format", "--format"),
    ("formats", "--formats"),
    ("gpu_layers", "--gpu-layers"),
    ("hardware", "--hardware"),
    ("hypothetical", "--hypothetical"),
    ("image_tokens", "--image-tokens"),
    ("kv_format", "--kv-format"),
    ("kv_formats", "--kv-formats"),
    ("max_latency_s", "--max-time"),
    ("max_memory_bytes", "--max-memory-bytes"),
    ("max_power_w", "--max-power"),
    ("max_quality_loss_ratio", "--max-quality-loss"),
    ("max_time_per_token_s", "--max-time-per-token"),
    ("max_time_s", "--max-time"),
    ("max_time_to_first_token_s", "--max-time-to-first-token"),
    ("min_free_memory_bytes", "--min-free-memory-bytes"),
    ("min_pictures_per_s", "--min-fps"),
    ("min_tokens_per_s", "--min-tokens-per-s"),
    ("objective", "--objective"),
    ("operating_point", "--mode"),
    ("optimism", "--optimism"),
    ("output_tokens", "--output-tokens"),
    ("phase", "--phase"),
    ("power_limit_w", "--power-limit"),
    ("power_mode", "--mode"),
    ("power_modes", "--modes"),
    ("power_w", "--power"),
    ("precision", "--precision"),
    ("prompt_tokens", "--prompt"),
    ("run_s", "--run-time"),
    ("scope", "--scope"),
    ("speculative", "--speculative"),
    ("streams", "--streams"),
    ("task", "--task"),
    ("threads", "--threads"),
    ("time_s", "--time"),
    ("tokens_per_s", "--tokens-per-s"),
];
/// The sizes of an operation, which are given in order.
const SIZES: [(&str, &str); 3] = [("m", "M"), ("n", "N"), ("k", "K")];

/// Routes that the daemon's hints name, and the command that asks each.
const ROUTES: [(&str, &str); 9] = [
    ("GET /v1/models", "rooflinectl models list"),
    ("GET /v1/formats", "rooflinectl formats"),
    ("GET /v1/hardware", "rooflinectl hardware list"),
    ("GET /v1/observations", "rooflinectl observations list"),
    ("POST /v1/observations", "rooflinectl observe"),
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
    OPTIONS.iter().find(|(name, _)| *name == key).map(|(_, option)| *option)
}

/// Whether an option that fills a field is called so, here without its hyphens.
#[must_use]
pub fn is_option(name: &str) -> bool {
    OPTIONS.iter().any(|(_, option)| option.strip_prefix("--") == Some(name))
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
        let option =
            Some(field).filter(|field| !is_of_a_name && field.contains(['_', '.', '['])).and_then(option_for);
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
    let names: Vec<&str> = fields.into_iter().map(|field| option_for(field).unwrap_or(field)).collect();
    names.join(", ")
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
        for (field, option) in OPTIONS {
            assert!(options.iter().any(|known| known == option), "{option}");
            assert_eq!(option_for(&format!("constraints.{field}")), Some(option));
        }
        assert_eq!(option_for("serial"), None);
        assert_eq!(option_for("freedom.power_modes[0]"), Some("--modes"));
        assert_eq!(options_for(&["max_power_w".to_owned(), "disk".to_owned()]), "--max-power, disk");
    }
}
