//! Completions in the shells that they are for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::live::Screen;
use super::{run, stdout};
use crate::daemon::harness::{eventually, missing};

/// What some shell would run, if it took the name of a file for more than a name.
const ODD: [&str; 7] = [
    "a b.json",
    "c;touch${IFS}RAN",
    "d$(touch${IFS}RAN)",
    "e`touch${IFS}RAN`",
    "f'g\"h",
    "i&touch RAN",
    "j\\k*[l]~!m#",
];

/// What is typed before TAB, and the arguments that a program of the name then gets.
const TYPED: [(&str, &[&str]); 24] = [
    ("rec", &["recommend"]),
    ("quant-", &["quant-error"]),
    ("models insp", &["models", "inspect"]),
    ("mode conf", &["mode", "confirm"]),
    ("recommend --obj", &["recommend", "--objective"]),
    ("recommend --objective thr", &["recommend", "--objective", "throughput"]),
    ("predict --phase pre", &["predict", "--phase", "prefill"]),
    ("status -o hu", &["status", "-o", "human"]),
    ("status -o jsonl", &["status", "-o", "jsonl"]),
    ("status --output c", &["status", "--output", "csv"]),
    ("status --output p", &["status", "--output", "prom"]),
    ("-o e", &["-o", "env"]),
    ("models list --output=p", &["models", "list", "--output=prom"]),
    ("predict --engine llama", &["predict", "--engine", "llama.cpp"]),
    ("recommend --formats q3_k_l", &["recommend", "--formats", "q3_k_l"]),
    ("quant-error x --formats iq4_x", &["quant-error", "x", "--formats", "iq4_xs"]),
    ("roofline --precision bf", &["roofline", "--precision", "bf16"]),
    ("predict --hardware jetson-agx-thor-t5", &["predict", "--hardware", "jetson-agx-thor-t5000"]),
    ("hardware show jetson-agx-thor-t5", &["hardware", "show", "jetson-agx-thor-t5000"]),
    ("predict tinyll", &["predict", "tinyllama-1.1b"]),
    ("sweep tinyll", &["sweep", "tinyllama-1.1b"]),
    ("mode set MAXN_S", &["mode", "set", "MAXN_SUPER"]),
    ("hold --min-mode MAXN_S", &["hold", "--min-mode", "MAXN_SUPER"]),
    ("completions pow", &["completions", "powershell"]),
];

/// A shell, if it is installed.
fn is_installed(shell: &str) -> bool {
    let is_there = Command::new(shell).args(["-c", "exit"]).status().is_ok_and(|status| status.success());
    if !is_there {
        missing(shell, "run the completions in");
    }
    is_there
}

/// A directory with the script of a shell, and a program of the same name that writes down its arguments.
struct Desk {
    directory: tempfile::TempDir,
    script: PathBuf,
}

impl Desk {
    fn new(shell: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("bin/rooflinectl");
        // Where zsh looks for the function of this name.
        let script = directory.path().join("script/_rooflinectl");
        for file in [&program, &script] {
            fs::create_dir(file.parent().unwrap()).unwrap();
        }
        fs::write(&script, run(Path::new("/nowhere"), &["completions", shell]).stdout).unwrap();
        // Asked for the modes of this board, it has those of a file in its directory, or no daemon.
        let noting = "#!/bin/sh\ncase \"$*\" in 'mode list -o jsonl'*) exec cat \"${0%/*}/modes\" ;; esac\n\
                      printf '%s\\0' \"$@\" >\"$ASKED.new\" && mv \"$ASKED.new\" \"$ASKED\"\n";
        fs::write(&program, noting).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(directory.path().join("work")).unwrap();
        Self { directory, script }
    }

    fn work(&self) -> PathBuf {
        self.directory.path().join("work")
    }

    /// The shell as somebody has it in a terminal, with the script loaded.
    fn open(&self, shell: &str) -> Screen {
        let inputs = self.directory.path().join("inputrc");
        fs::write(&inputs, "set bell-style none\nset enable-bracketed-paste off\n").unwrap();
        let (line, load) = match shell {
            "bash" => ("bash --norc --noprofile -i", "source $SCRIPT/_rooflinectl"),
            "zsh" => ("zsh -f -i", "fpath=($SCRIPT $fpath); autoload -Uz compinit; compinit -u -D"),
            _ => ("fish --no-config -i", "source $SCRIPT/_rooflinectl"),
        };
        let mut screen = Screen::running(line, 24, 200, |command| {
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", self.directory.path().join("bin").display()));
            command.env("SCRIPT", self.script.parent().unwrap()).env("ASKED", self.asked());
            command.env("HOME", self.directory.path()).env("INPUTRC", inputs).current_dir(self.work());
        });
        assert_eq!(self.after(&mut screen, &format!("{load}\rrooflinectl ready")), ["ready"], "{shell}");
        screen
    }

    fn asked(&self) -> PathBuf {
        self.directory.path().join("asked")
    }

    /// The arguments of the program once these keys and Enter were pressed.
    fn after(&self, screen: &mut Screen, keys: &str) -> Vec<String> {
        screen.press(keys);
        screen.press("\r");
        let asked = eventually(&format!("{keys:?} on {}", screen.contents()), || fs::read(self.asked()).ok());
        fs::remove_file(self.asked()).unwrap();
        let text = String::from_utf8(asked).unwrap();
        text.split_terminator('\0').map(str::to_owned).collect()
    }
}

#[test]
fn each_shell_loads_its_completions_without_a_word() {
    for (shell, options, before) in [
        ("bash", &["--norc"][..], "set -eu; "),
        ("zsh", &["-f"], "autoload -Uz compinit; compinit -u -D; "),
        ("fish", &["--no-config"], ""),
    ] {
        if !is_installed(shell) {
            continue;
        }
        let desk = Desk::new(shell);
        let load = format!("{before}source '{}'", desk.script.display());
        let output = Command::new(shell).args(options).args(["-c", &load]).output().unwrap();
        assert!(output.status.success(), "{shell}: {output:?}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

#[test]
fn a_tab_completes_commands_options_and_values_in_each_shell() {
    for shell in ["bash", "zsh", "fish"].into_iter().filter(|shell| is_installed(shell)) {
        let desk = Desk::new(shell);
        let mut screen = desk.open(shell);
        for (typed, expected) in TYPED {
            let got = desk.after(&mut screen, &format!("rooflinectl {typed}\t"));
            assert_eq!(got, expected, "{shell}: {typed}\n{}", screen.contents());
        }
        // A model may be a file as well, and what is run is a program.
        fs::write(desk.work().join("my-model.gguf"), "").unwrap();
        let got = desk.after(&mut screen, "rooflinectl predict my-mo\t");
        assert_eq!(got, ["predict", "my-model.gguf"], "{shell}");
        if shell == "bash" {
            let got = desk.after(&mut screen, "rooflinectl run -- rooflinec\t");
            assert_eq!(got, ["run", "--", "rooflinectl"], "{shell}");
        }
    }
}

#[test]
fn the_modes_of_this_board_are_offered_and_all_for_another() {
    for shell in ["bash", "zsh", "fish"].into_iter().filter(|shell| is_installed(shell)) {
        let desk = Desk::new(shell);
        let row = |name: &str| format!("{{\"active\":false,\"id\":1,\"name\":\"{name}\",\"sm_online\":8}}\n");
        let modes = row("17W") + &row("$(touch${IFS}RAN)") + &row("x`touch RAN`");
        fs::write(desk.directory.path().join("bin/modes"), modes).unwrap();
        let mut screen = desk.open(shell);
        for (typed, expected) in [
            ("mode set 17", &["mode", "set", "17W"][..]),
            ("hold --min-mode 17", &["hold", "--min-mode", "17W"]),
            ("mode set MAXN_S", &["mode", "set", "MAXN_S"]),
            ("recommend --modes al", &["recommend", "--modes", "all"]),
            (
                "predict --hardware gb10 --mode MAXN_S",
                &["predict", "--hardware", "gb10", "--mode", "MAXN_SUPER"],
            ),
        ] {
            let got = desk.after(&mut screen, &format!("rooflinectl {typed}\t"));
            assert_eq!(got, expected, "{shell}: {typed}\n{}", screen.contents());
        }
        assert!(!desk.work().join("RAN").exists(), "{shell} ran the name of a mode");
    }
}

#[test]
fn the_name_of_a_file_is_completed_as_a_name_whatever_is_in_it() {
    for shell in ["bash", "zsh", "fish"].into_iter().filter(|shell| is_installed(shell)) {
        let desk = Desk::new(shell);
        for name in ODD {
            fs::write(desk.work().join(name), "").unwrap();
        }
        let mut screen = desk.open(shell);
        for name in ODD {
            let first = &name[..1];
            for before in ["bundle --file", "predict --requests", "config check", "models inspect"] {
                let got = desk.after(&mut screen, &format!("rooflinectl {before} {first}\t"));
                let mut expected: Vec<&str> = before.split(' ').collect();
                expected.push(name);
                assert_eq!(got, expected, "{shell}\n{}", screen.contents());
            }
        }
        // What is on the line already is not run by a TAB behind it.
        for odd in ["'$(touch RAN)'", "'`touch RAN`'", "';touch RAN'"] {
            let got = desk.after(&mut screen, &format!("rooflinectl predict --engine {odd} --obj\t"));
            assert_eq!(got.len(), 4, "{shell}: {got:?}");
            let got = desk.after(&mut screen, &format!("rooflinectl predict --engine {odd}\t"));
            assert_eq!(got[2], odd.trim_matches('\''), "{shell}");
        }
        assert!(!desk.work().join("RAN").exists(), "{shell} ran what it completed");
    }
}

#[test]
fn bash_completion_finds_the_script_where_packages_put_it() {
    if !is_installed("bash") {
        return;
    }
    let library = Path::new("/usr/share/bash-completion/bash_completion");
    if !library.exists() {
        missing("bash-completion", "load the completions");
        return;
    }
    let desk = Desk::new("bash");
    let place = desk.directory.path().join("bash-completion/completions");
    fs::create_dir_all(&place).unwrap();
    fs::copy(&desk.script, place.join("rooflinectl")).unwrap();
    let load =
        format!("source {}; _completion_loader rooflinectl; complete -p rooflinectl", library.display());
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", &load]).env("XDG_DATA_HOME", desk.directory.path());
    let output = command.output().unwrap();
    assert!(stdout(&output).contains("-F _rooflinectl rooflinectl"), "{output:?}");
}

#[test]
fn every_value_of_an_option_is_described_in_fish() {
    if !is_installed("fish") {
        return;
    }
    let desk = Desk::new("fish");
    let offered = |line: &str| {
        let load = format!("source '{}'; complete -C '{line}'", desk.script.display());
        let mut command = Command::new("fish");
        command.args(["--no-config", "-c", &load]).current_dir(desk.work());
        stdout(&command.output().unwrap())
    };
    let kinds = offered("rooflinectl status -o ");
    let names: Vec<_> = kinds.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(names, ["csv", "env", "human", "json", "jsonl", "prom"]);
    assert!(
        kinds.lines().all(|line| line.split('\t').nth(1).is_some_and(|help| !help.is_empty())),
        "{kinds}"
    );
    assert!(offered("rooflinectl rec").starts_with("recommend\tFormat, batch size"));
    assert_eq!(offered("rooflinectl predict --batch "), "", "nobody knows which number it is");
}
