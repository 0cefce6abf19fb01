//! The options of the command line by the field of a request that they fill.

/// Without the name of the part of the request that holds the field.
const OPTIONS: [(&str, &str); 48] = [
    ("acceptance_ratio", "--acceptance"),
    ("accepted_per_step", "--accepted-per-step"),
    ("batch", "--batch"),
    ("cached_tokens", "--cached-tokens"),
    ("chunk_tokens", "--chunk-tokens"),
    ("context_tokens", "--context-tokens"),
    ("cpu_moe_layers", "--n-cpu-moe"),
    ("draft_format", "--draft-format"),
    ("draft_model", "--draft-model"),
    ("draft_tokens", "--draft-tokens"),
    ("energy_basis", "--energy"),
    ("engine", "--engine"),
    ("engines", "--engines"),
    ("format", "--format"),
    ("formats", "--formats"),
    ("gpu_layers", "--gpu-layers"),
    ("hardware", "--hardware"),
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

/// The option that fills a field, which may be a path such as `constraints.max_power_w`.
#[must_use]
pub fn option_for(field: &str) -> Option<&'static str> {
    let key = field.rsplit('.').next().unwrap_or(field);
    OPTIONS.iter().find(|(name, _)| *name == key).map(|(_, option)| *option)
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
        assert_eq!(options_for(&["max_power_w".to_owned(), "disk".to_owned()]), "--max-power, disk");
    }
}
