//! `report`: recorded runs in forms for other tools, and for a job's summary.

use super::args::{Args, Form};
use super::session::Folders;
use super::{Failure, report_html, runs};
use crate::exit;
use crate::record::{Recorded, RunInfo, RunState, export};
use crate::report::{junit, markdown, repro, trace};
use engine::diag::{Diagnostic, code};
use std::io;
use std::path::Path;

pub(super) fn report(args: &Args) -> Result<u8, Failure> {
    if let Some(dir) = &args.records.html {
        return report_html::html(args, dir);
    }
    let form = args.records.form.unwrap_or(Form::Md);
    let words = if args.operands.is_empty() { vec!["latest".to_string()] } else { args.operands.clone() };
    let results = Folders::of(args).results;
    let infos = words.iter().map(|word| runs::find(&results, word)).collect::<Result<Vec<RunInfo>, _>>()?;
    let mut text = Vec::new();
    if form == Form::Jsonl {
        for info in &infos {
            let told = export::jsonl(&info.id, &info.dir.join("events.jsonl"), &mut text);
            told.map_err(|error| runs::not_written(&info.dir, &error))?;
        }
    } else {
        let mut loaded = infos.iter().map(runs::load).collect::<Result<Vec<Recorded>, _>>()?;
        for (run, info) in loaded.iter_mut().zip(&infos).filter(|(_, info)| info.state == RunState::Killed) {
            run.header.status = Some(info.state.name().into());
        }
        if let (Form::Junit, Some(run)) = (form, loaded.iter().find(|run| run.explores())) {
            return Err(no_verdicts(run));
        }
        text = render(form, &infos, &loaded).map_err(|error| runs::not_written(Path::new("report"), &error))?;
    }
    let text = String::from_utf8_lossy(&text);
    if args.records.github {
        summarise(&text).map_err(|(path, error)| runs::not_written(path.as_ref(), &error))?;
    }
    runs::deliver(args.output.file.as_deref(), &text)?;
    Ok(exit::OK)
}

/// JUnit has verdicts only, and what tries cases out comes to none.
fn no_verdicts(run: &Recorded) -> Failure {
    let mode = run.header.mode();
    let message = format!("{} is a {}, which comes to no verdicts", run.id(), crate::escape::short(mode));
    let note = "--format md shows what it found; csv, jsonl and trace are written too";
    Failure::diagnostic(exit::BAD_RUN, &Diagnostic::user(code::BAD_RUN, message).note(note))
}

/// Several runs are one report where the form has room for them: shards of one job.
fn render(form: Form, infos: &[RunInfo], loaded: &[Recorded]) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    match form {
        Form::Csv => export::csv(infos.iter().map(|info| info.id.as_str()).zip(loaded), &mut out)?,
        Form::Md => loaded.iter().for_each(|run| out.extend(markdown(run, |id| again(run, id)).into_bytes())),
        Form::Trace => out = trace(loaded).into_bytes(),
        _ => match loaded {
            [one] => out = junit(one).into_bytes(),
            many => out = junit(&Recorded::join(many)).into_bytes(),
        },
    }
    Ok(out)
}

/// The command that repeats a case, as far as the header tells.
pub(super) fn again(run: &Recorded, id: &str) -> String {
    let tail = run.header.again.as_deref().unwrap_or_default();
    // The options have it where it was given.
    let seed = run.header.seed.filter(|seed| *seed != 0 && !tail.contains(" --seed "));
    let mode = run.header.mode.as_deref().unwrap_or("run");
    repro(mode, id, &format!("{tail}{}", seed.map_or(String::new(), |seed| format!(" --seed {seed}"))))
}

/// Appends to the file that a job on GitHub shows on its page.
pub(super) fn summarise(text: &str) -> Result<(), (String, io::Error)> {
    let path = std::env::var("GITHUB_STEP_SUMMARY").unwrap_or_default();
    if path.is_empty() {
        let error = io::Error::other("--github needs GITHUB_STEP_SUMMARY to name a file");
        return Err(("the summary".into(), error));
    }
    let file = std::fs::File::options().create(true).append(true).open(&path);
    file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes())).map_err(|error| (path, error))
}
