//! Builds for development check themselves, those for users do not: `cfg(self_check)`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(self_check)");
    // Cargo's word for profiles that are `dev` or descend from it, such as `test`.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-cfg=self_check");
    }
}
