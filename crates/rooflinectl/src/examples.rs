//! Examples in the help and the manual page of each command. A test parses every one.

/// Command lines without the program's name, the most useful of each command first.
const EXAMPLES: &str = "\
status
status --all
status --ssh nano.local
board
board -o json
roofline
roofline --hardware orin-nano --mode 15W
roofline --precision int8 --svg roofline.svg
predict qwen3-4b --format q4_k_m --hardware orin-nano
predict ./model.gguf --engine llama.cpp --context 8k
predict gemv 4096 14336 --format int8
predict ./detector.onnx --size 640x640 --hardware orin-nano
sweep llama-3.1-8b --formats q4_k_m,q8_0 --contexts 4k,32k --hardware gb10
sweep qwen3-4b --formats all --hardware orin-nano
sweep gemv --sizes 4096,8192 --formats int8,int4 -o csv
compare
compare gemv --sizes 4096x14336 --formats q8_0
compare ./model.gguf --engine llama.cpp
compare ./detector.onnx --threads 2
measure gemv 4096 14336 --formats int8,int4
measure gemm 64 4096 4096 --formats fp16 --power
analyze gemv 4096 14336 --format int8 --time 1.4ms
analyze qwen3-4b --format q4_k_m --tokens-per-s 12 --hardware orin-nano
explain --port 8080
explain qwen3-4b --format q4_k_m --engine llama.cpp --tokens-per-s 12
explain qwen3-0.6b --format bf16 --engine torch --tokens-per-s 12 --pid 4711
calibrate
calibrate --quick
calibrate --wait
recommend Qwen/Qwen3-4B --hardware orin-nano --modes all
recommend llama-3.1-8b --engine llama.cpp --max-power 15W --modes all
recommend ./model.gguf --min-tokens-per-s 10 --objective energy
recommend ./detector.onnx --min-fps 30 --streams 4 --max-power 15W --hardware orin-nano --modes all
observe --from 8080
observe detector.onnx --log trtexec.log
observe qwen3-4b --format q4_k_m --engine llama.cpp --tokens-per-s 16.5
observations list
observations forget --own
observations list --model qwen3-4b
observations export
observations export --engine llama.cpp
observations forget 12
servers
servers -o json
run -- llama-server -m model.gguf --port 8080
run --max-power 15W --modes all -- llama-server -m model.gguf
mode list
mode set 15W
mode list --conf /etc/nvpmodel.conf
mode get
mode get -o env
mode set MAXN --confirm 2min
mode set 15W --dry-run
mode confirm 3
mode revert 3
hold --max-power 15W -- ./benchmark.sh
hold --min-mode 25W --reason nightly -- python3 run.py
holds
holds -o json
quant-error model.safetensors
quant-error model.gguf --formats q4_0,int4_g128
tiling 64 4096 4096 --hardware rtx-4090
tiling 512 4096 4096 --format fp8_e4m3 --hardware gb10
watch
watch --events -o jsonl
watch --ssh nano.local
dashboard
dashboard --listen 127.0.0.1:9000
mcp
mcp --socket /run/rooflined
metrics
metrics --textfile /var/lib/prometheus/node-exporter/rooflined.prom
features
features --file /etc/kubernetes/node-feature-discovery/features.d/rooflined
doctor
doctor --report report.txt
bundle
bundle --file board.txt
config check
config show
config check ./rooflined.toml
config show -o json
hardware list
hardware show orin-nano
hardware list -o csv
hardware show gb10 -o json
hardware check ./my-board.toml
models show qwen3-4b
models inspect model.gguf
models list
models list -o csv
models show Qwen/Qwen3-4B --format q4_k_m
models inspect ./Qwen3-4B --kv-format q8_0
models inspect config.json -o json
models inspect yolov8n.onnx --dim batch=1 --size 640x640
formats
formats -o csv
demo
demo --simulate jetson-orin-nano-8gb-super
completions bash
completions zsh
man
man mode set
man --dir ./pages";
/// Most examples that one command shows; those of `mode` are of the commands below it.
const MOST: usize = 4;

/// The examples of a command, for the end of its help.
pub fn of(command: &str) -> String {
    let is_of =
        |line: &&str| line.strip_prefix(command).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    let lines = EXAMPLES.lines().filter(is_of).take(MOST);
    lines.fold("Examples:".to_owned(), |text, line| text + "\n  rooflinectl " + line)
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory, Parser};

    use super::*;
    use crate::args::Cli;

    /// Names of the commands below `command`, with those above them.
    fn names(command: &Command, above: &str) -> Vec<String> {
        let of = |below: &Command| {
            let name = format!("{above}{}", below.get_name());
            let mut found = names(below, &format!("{name} "));
            found.push(name);
            found
        };
        command.get_subcommands().filter(|below| !below.is_hide_set()).flat_map(of).collect()
    }

    fn find<'a>(command: &'a Command, name: &str) -> &'a Command {
        name.split(' ').fold(command, |command, word| command.find_subcommand(word).unwrap())
    }

    #[test]
    fn every_command_has_examples_in_its_help_which_it_understands() {
        let root = Cli::command();
        let mut shown = std::collections::BTreeSet::new();
        for name in names(&root, "") {
            let help = find(&root, &name).clone().render_long_help().to_string();
            let lines: Vec<&str> =
                help.lines().filter_map(|line| line.strip_prefix("  rooflinectl ")).collect();
            assert!(!lines.is_empty() && help.contains("Examples:"), "{name}: {help}");
            for line in lines {
                let starts = line == name || line.starts_with(&format!("{name} "));
                assert!(starts, "{name} shows {line}");
                let words = ["rooflinectl"].into_iter().chain(line.split(' '));
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                shown.insert(line.to_owned());
            }
        }
        let hidden: Vec<_> = EXAMPLES.lines().filter(|line| !shown.contains(*line)).collect();
        assert!(hidden.is_empty(), "no help shows {hidden:?}");
    }
}
