//! The `harness` binary; everything is in the library.

fn main() -> std::process::ExitCode {
    harness::cli::main(std::env::args_os().skip(1)).into()
}
