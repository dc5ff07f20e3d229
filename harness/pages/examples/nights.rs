//! Writes a history of nights that is made up, with changes at known places, to try pages on:
//! `cargo run -p pages --example nights -- DIR [NIGHTS] [CASES]`, then `harness report --results DIR --html PAGES`.

#[path = "../tests/site/nights.rs"]
mod nights;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: usize| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(usual);
    let Some(folder) = words.first() else { return Err(std::io::Error::other("nights DIR [NIGHTS] [CASES]")) };
    let planted = nights::write(Path::new(folder), number(1, 400).max(70), number(2, 2000))?;
    let lines: Vec<String> = planted
        .iter()
        .enumerate()
        .flat_map(|(case, plants)| {
            plants.iter().map(move |plant| {
                format!("\"{}\",{},{:.2}", nights::case_id(case), nights::run_id(plant.night), plant.sigmas)
            })
        })
        .collect();
    std::fs::write(Path::new(folder).join("planted.csv"), format!("case_id,run_id,sigmas\n{}\n", lines.join("\n")))
}
