//! Builds for development check themselves, those for users do not: `cfg(self_check)`.

fn main() {
    // Not at each change of a file: this is for `unit` too, so it names none.
    println!("cargo::rerun-if-env-changed=PROFILE");
    println!("cargo::rustc-check-cfg=cfg(self_check)");
    // Cargo's word for profiles that are `dev` or descend from it, such as `test`.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-cfg=self_check");
    }
}
