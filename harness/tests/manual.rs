//! What shells and readers get from the tables of the command line: completions as bash makes them, and the manual page.

use crate::place::{Place, check, ended};

/// What bash offers behind these words, the last of which is begun.
#[track_caller]
fn check_offered(place: &Place, words: &[&str], wanted: &[&str]) {
    let script = "source <(harness completions bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(( $# - 1 )); _harness; \
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_harness")).parent().expect("a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = place.program_here("bash");
    bash.env("PATH", path).args(["-c", script, "_", "harness"]).args(words);
    let (code, text) = ended(bash.output().expect("bash runs"));
    assert_eq!((code, text.split_whitespace().collect::<Vec<_>>()), (0, wanted.to_vec()), "{words:?}");
}

#[test]
fn bash_completes_commands_options_values_and_names() {
    let place = Place::good("completions", &[1, 5]);
    check(&place, &["--ref", "-q", "--run-id", "first"], 0, &["2 passed"]);
    check_offered(&place, &["comp"], &["compile", "compare", "completions"]);
    check_offered(&place, &["--color", "a"], &["auto", "always"]);
    check_offered(&place, &["list", "--format", ""], &["table", "json", "names"]);
    check_offered(&place, &["compare", "latest", ""], &["latest", "latest~1", "first"]);
    check_offered(&place, &["show", "Place"], &["PlaceTest.good/m=1", "PlaceTest.good/m=5"]);
    check_offered(&place, &["quarantine", "r"], &["rm"]);
    check_offered(&place, &["--cases", "cas"], &["cases"]);
    // An option of another command is not offered.
    check_offered(&place, &["run", "--baseline"], &[]);
    check_offered(&place, &["bench", "--baseline"], &["--baseline"]);
}

#[test]
fn there_are_completions_for_three_shells_and_a_page() {
    let place = Place::empty("pages");
    for (shell, part) in [("bash", "complete "), ("zsh", "#compdef harness"), ("fish", "complete -c harness")] {
        check(&place, &["completions", shell], 0, &[part, "baseline"]);
    }
    check(&place, &["completions", "tcsh"], 2, &["no completions for the shell `tcsh`"]);
    check(&place, &["completions"], 2, &["needs bash|zsh|fish"]);
    let page = check(&place, &["man"], 0, &[".TH HARNESS 1", ".SH EXIT STATUS", "\\fB\\-\\-baseline\\fR"]);
    assert!(!page.contains('\t'), "{page}");
}
