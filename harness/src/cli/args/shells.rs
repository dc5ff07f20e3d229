//! Completions for shells, from the tables of commands and options.
//!
//! Input: the shell. Output: a script for it. What an option or a command takes is read off the tables: words between
//! bars, paths, ids of cases, names of runs; ids and names are asked for when they are needed.

use super::command::{COMMANDS, CommandRow};
use super::table::{OptionRow, Value, rows};
use std::fmt::Write;

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// Words as the command line has them.
    pub(crate) const ALL: [(&'static str, Self); 3] = [("bash", Self::Bash), ("zsh", Self::Zsh), ("fish", Self::Fish)];

    /// The script that completes the harness in this shell.
    pub(crate) fn script(self) -> String {
        match self {
            Self::Bash => bash(),
            Self::Zsh => zsh(),
            Self::Fish => fish(),
        }
    }
}

/// What can stand behind an option, or behind a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Words(Vec<&'static str>),
    Path,
    Case,
    Run,
    Text,
}

/// Words between bars that are meant literally.
fn literal(shape: &'static str) -> Vec<&'static str> {
    let first = |part: &'static str| part.split_whitespace().next().unwrap_or_default();
    let is_word = |word: &&str| {
        !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if shape.contains('|') { shape.split('|').map(first).filter(is_word).collect() } else { Vec::new() }
}

fn of_option(row: &OptionRow) -> Takes {
    let shape = match row.value {
        Value::Flag => return Takes::Nothing,
        Value::Needs(shape) | Value::May(shape) => shape,
    };
    let words = literal(shape);
    match shape {
        _ if row.path || matches!(shape, "FILE" | "DIR" | "LIST") => Takes::Path,
        _ if row.name == "--exact" => Takes::Case,
        _ if !words.is_empty() => Takes::Words(words),
        _ => Takes::Text,
    }
}

fn of_command(row: &CommandRow) -> Takes {
    let shape = row.operands.0;
    let words = literal(shape);
    match shape {
        "" => Takes::Nothing,
        _ if !words.is_empty() => Takes::Words(words),
        "CASE" => Takes::Case,
        _ if shape.contains("RUN") => Takes::Run,
        _ if shape.contains("FILE") => Takes::Path,
        _ => Takes::Text,
    }
}

/// Options that help shows, of one command.
fn options(command: &CommandRow) -> impl Iterator<Item = &'static OptionRow> {
    let command = command.command;
    rows().filter(move |row| !row.help.is_empty() && row.commands.has(command))
}

fn names(row: &OptionRow) -> impl Iterator<Item = &'static str> {
    std::iter::once(row.name).chain(row.also.iter().copied())
}

fn command_words() -> Vec<&'static str> {
    COMMANDS.iter().map(|row| row.word).collect()
}

/// Text within single quotes of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn bash() -> String {
    let commands = command_words();
    let mut text = String::from(
        "# Completions of the harness for bash: source <(harness completions bash)\n\
         _harness() {\n    \
         local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\" command= words= word\n    \
         COMPREPLY=()\n    \
         for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n        case \"$word\" in\n",
    );
    let _ = writeln!(text, "            {}) command=\"$word\"; break ;;", commands.join("|"));
    text.push_str("        esac\n    done\n    case \"${command:-run} $prev\" in\n");
    for row in rows().filter(|row| !row.help.is_empty()) {
        let reply = match of_option(row) {
            Takes::Nothing => continue,
            // What may be left out is given behind `=`.
            _ if matches!(row.value, Value::May(_)) => continue,
            Takes::Path => "compgen -f -- \"$cur\"".to_string(),
            Takes::Case => "compgen -W \"$(\"${COMP_WORDS[0]}\" list 2> /dev/null)\" -- \"$cur\"".into(),
            Takes::Words(words) => format!("compgen -W {} -- \"$cur\"", quoted(&words.join(" "))),
            Takes::Run | Takes::Text => "true".into(),
        };
        let of = COMMANDS.iter().filter(|command| row.commands.has(command.command));
        let at: Vec<String> =
            of.flat_map(|command| names(row).map(|name| format!("\"{} {name}\"", command.word))).collect();
        let _ = writeln!(text, "        {})\n            COMPREPLY=($({reply})); return ;;", at.join("|"));
    }
    text.push_str("    esac\n    case \"${command:-run}\" in\n");
    for command in COMMANDS {
        let all: Vec<&str> = options(command).flat_map(names).collect();
        let operands = match of_command(command) {
            Takes::Nothing | Takes::Text => "''".to_string(),
            Takes::Words(words) => quoted(&words.join(" ")),
            Takes::Path => "\"$(compgen -f -- \"$cur\")\"".into(),
            Takes::Case => "\"$(\"${COMP_WORDS[0]}\" list 2> /dev/null)\"".into(),
            Takes::Run => "\"latest latest~1 $(ls results/runs 2> /dev/null)\"".into(),
        };
        let _ = writeln!(
            text,
            "        {})\n            if [[ $cur == -* ]]; then words={}; else words={operands}; fi ;;",
            command.word,
            quoted(&all.join(" "))
        );
    }
    let _ = writeln!(text, "    esac\n    [[ -z $command && $cur != -* ]] && words=\"{}\"", commands.join(" "));
    text.push_str("    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o filenames -o bashdefault -F _harness harness\n");
    text
}

fn zsh() -> String {
    let mut text = String::from(
        "#compdef harness\n# Completions of the harness for zsh: harness completions zsh > \"${fpath[1]}/_harness\"\n",
    );
    text.push_str("_harness_cases() { local -a ids; ids=(${(f)\"$(harness list 2> /dev/null)\"}); compadd -a ids }\n");
    text.push_str("_harness_runs() { local -a ids; ids=(latest latest~1 results/runs/*(N:t)); compadd -a ids }\n");
    text.push_str("_harness() {\n    local command= word\n    local -a commands\n    commands=(\n");
    for row in COMMANDS {
        let _ = writeln!(text, "        {}", quoted(&format!("{}:{}", row.word, row.help)));
    }
    text.push_str("    )\n    for word in \"${(@)words[2,CURRENT-1]}\"; do\n        case \"$word\" in\n");
    let _ = writeln!(text, "            {}) command=\"$word\"; break ;;", command_words().join("|"));
    text.push_str("        esac\n    done\n    case \"${command:-run}\" in\n");
    // Brackets and colons have a meaning in a specification.
    let plain = |text: &str| text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]").replace(':', "\\:");
    for command in COMMANDS {
        let _ = write!(text, "        {})\n            _arguments", command.word);
        for row in options(command) {
            let value = match (row.value, of_option(row)) {
                (Value::Flag, _) => String::new(),
                (_, Takes::Words(words)) => format!(":{}:({})", "value", words.join(" ")),
                (_, Takes::Path) => ":file:_files".into(),
                (_, Takes::Case) => ":case:_harness_cases".into(),
                (_, _) => ":value: ".into(),
            };
            for name in names(row) {
                let (name, value) = match row.value {
                    Value::May(_) => (format!("{name}=-"), format!(":{value}")),
                    _ => (name.to_string(), value.clone()),
                };
                let _ =
                    write!(text, " \\\n                {}", quoted(&format!("*{name}[{}]{value}", plain(row.help))));
            }
        }
        let operand = match of_command(command) {
            Takes::Nothing | Takes::Text => "*: : ".to_string(),
            Takes::Words(words) => format!("*:word:({})", words.join(" ")),
            Takes::Path => "*:file:_files".into(),
            Takes::Case => "*:case:_harness_cases".into(),
            Takes::Run => "*:run:_harness_runs".into(),
        };
        // The command itself is the first operand, where there is one.
        let first = "1:command:{ _describe command commands }";
        let _ = writeln!(text, " \\\n                {} \\\n                {} ;;", quoted(first), quoted(&operand));
    }
    text.push_str("    esac\n}\n_harness \"$@\"\n");
    text
}

fn fish() -> String {
    let commands = command_words().join(" ");
    let mut text = format!(
        "# Completions of the harness for fish: harness completions fish > ~/.config/fish/completions/harness.fish\n\
         function __harness_command\n    for word in (commandline -opc)[2..-1]\n        \
         contains -- $word {commands}; and echo $word; and return\n    end\n    echo $argv[1]\nend\n\
         function __harness_of\n    contains -- (__harness_command run) $argv\nend\n\
         complete -c harness -f\n"
    );
    for row in COMMANDS {
        let none = quoted("test -z (__harness_command '' | string collect)");
        let _ = writeln!(text, "complete -c harness -n {none} -a {} -d {}", row.word, quoted(row.help));
        let at = quoted(&format!("__harness_of {}", row.word));
        match of_command(row) {
            Takes::Nothing | Takes::Text => {}
            Takes::Words(words) => {
                let _ = writeln!(text, "complete -c harness -n {at} -a {}", quoted(&words.join(" ")));
            }
            Takes::Path => {
                let _ = writeln!(text, "complete -c harness -n {at} -F");
            }
            Takes::Case => {
                let _ = writeln!(text, "complete -c harness -n {at} -a '(harness list 2> /dev/null)'");
            }
            Takes::Run => {
                let runs = "latest latest~1 (path basename results/runs/* 2> /dev/null)";
                let _ = writeln!(text, "complete -c harness -n {at} -a {}", quoted(runs));
            }
        }
    }
    for row in rows().filter(|row| !row.help.is_empty()) {
        let of: Vec<&str> =
            COMMANDS.iter().filter(|command| row.commands.has(command.command)).map(|command| command.word).collect();
        let at = quoted(&format!("__harness_of {}", of.join(" ")));
        let value = match (row.value, of_option(row)) {
            (Value::Flag | Value::May(_), _) => String::new(),
            (_, Takes::Words(words)) => format!(" -x -a {}", quoted(&words.join(" "))),
            (_, Takes::Path) => " -r -F".into(),
            (_, Takes::Case) => " -x -a '(harness list 2> /dev/null)'".into(),
            (_, _) => " -x".into(),
        };
        for name in names(row) {
            let flag = match name.strip_prefix("--") {
                Some(long) => format!("-l {long}"),
                None => format!("-s {}", name.trim_start_matches('-')),
            };
            let _ = writeln!(text, "complete -c harness -n {at} {flag}{value} -d {}", quoted(row.help));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_option_takes_is_read_off_its_shape() {
        let of = |name: &str| of_option(rows().find(|row| row.name == name).expect("an option"));
        assert_eq!(of("--color"), Takes::Words(vec!["auto", "always", "never"]));
        assert_eq!((of("--quiet"), of("--cases"), of("--exact")), (Takes::Nothing, Takes::Path, Takes::Case));
        assert_eq!((of("--filter"), of("--until")), (Takes::Text, Takes::Text));
        let command = |word: &str| of_command(COMMANDS.iter().find(|row| row.word == word).expect("a command"));
        assert_eq!(command("quarantine"), Takes::Words(vec!["list", "add", "rm"]));
        assert_eq!((command("run"), command("show"), command("compare")), (Takes::Nothing, Takes::Case, Takes::Run));
        assert_eq!(command("import"), Takes::Path);
        assert!(
            matches!(command("store"), Takes::Words(words) if words.starts_with(&["list", "info"]) && words.len() >= 7)
        );
    }

    #[test]
    fn every_command_and_option_is_in_every_script() {
        for (name, shell) in Shell::ALL {
            let script = shell.script();
            for row in COMMANDS {
                assert!(script.contains(row.word), "{name} lacks {}", row.word);
            }
            for row in rows().filter(|row| !row.help.is_empty()) {
                let word = row.name.trim_start_matches('-');
                assert!(script.contains(word), "{name} lacks {}", row.name);
            }
        }
    }
}
