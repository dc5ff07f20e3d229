//! `fmt`: case files in their canonical form, or which ones are not.

use super::Failure;
use super::args::Args;
use super::session::Folders;
use crate::case::{self, CaseError};
use crate::console::print;
use crate::exit;
use crate::record::replace;
use crate::units::counted;
use std::path::PathBuf;

pub(super) fn fmt(args: &Args) -> Result<u8, Failure> {
    let given: Vec<PathBuf> = match args.operands.is_empty() {
        true => vec![Folders::of(args).cases],
        false => args.operands.iter().map(PathBuf::from).collect(),
    };
    let mut errors: Vec<CaseError> = Vec::new();
    let mut paths: Vec<PathBuf> = given.iter().flat_map(|path| case::files(path, &mut errors)).collect();
    // Definitions in nvFuser's form have no canonical form of ours.
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "fuse"));
    paths.sort();
    paths.dedup();
    let mut changed = Vec::new();
    for path in &paths {
        let Some(source) = case::read(path, &mut errors) else { continue };
        match case::format(&source) {
            Err(wrong) => errors.extend(wrong),
            Ok(formatted) if formatted != source.text => {
                if !args.files.check {
                    replace(path, formatted.as_bytes()).map_err(|error| {
                        Failure::new(exit::BAD_CASES, format!("cannot write {}: {error}", path.display()))
                    })?;
                }
                changed.push(format!("{}\n", path.display()));
            }
            Ok(_) => {}
        }
    }
    print(&changed.concat());
    if !errors.is_empty() {
        let lines: Vec<String> = errors.iter().map(|error| format!("{error}\n")).collect();
        let text =
            format!("{}{}; files with errors are left as they are", lines.concat(), counted(lines.len(), "error"));
        return Err(Failure::new(exit::BAD_CASES, text));
    }
    Ok(if args.files.check && !changed.is_empty() { exit::UNFORMATTED } else { exit::OK })
}
