//! The `harness` binary; everything is in the library.

fn main() -> std::process::ExitCode {
    harness::cli::main(std::env::args().skip(1)).into()
}
