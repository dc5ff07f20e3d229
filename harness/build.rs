//! Records which compiler and profile built the harness, for provenance.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string()).unwrap_or_default();
    let profile = std::env::var("PROFILE").unwrap_or_default();
    write_line(&format!("cargo::rustc-env=HARNESS_RUSTC={version}"));
    write_line(&format!("cargo::rustc-env=HARNESS_PROFILE_NAME={profile}"));
    write_line("cargo::rerun-if-changed=build.rs");
}

fn write_line(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}
