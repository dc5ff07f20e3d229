//! Directives: comments of the form `; word: ...` that say how a fusion is run
//! and what must hold. `;;` starts a comment that is never a directive.
//!
//! | directive | form |
//! |---|---|
//! | `inputs:` | `x = normal[$m, $n] seed 1, a = $m - 2`; may be repeated |
//! | `check:`  | `rel 1e-5`, `abs 1e-6`, `exact` |
//! | `about:`  | why this fusion is a case, instead of the file's reason |
//! | `expect:` | `scheduler in (pointwise, reduction), host = 0` |
//! | `outputs:` `values:` `same-as:` | what it computes, see `results` |
//! | `error:`  | `E0203 "part of the message"`; behind a line of the fusion it must point at that line |
//! | `text:`   | `cuda has "..."`, `kernel lacks "..."`, `schedule has "..."` |
//! | `schedule {` | the schedule of its kernel in the lines that follow, see `schedule` |
//! | `schedule:` `kernel:` | the whole text of that stage in the lines that follow, see `golden` |
//! | `sim:`    | `schedules (lockstep, random), seeds 4` |
//! | `perf:`   | `bytes x + y + 2, goal dram 0.9` |
//! | `xfail(`  | `reason = "...", issue = "...", until = "2030-01-31")` |

use super::cursor::Cursor;
use super::model::{Case, CaseEnd, ErrorSpec, Expect, PerfSpec, Real, Relation, SCHEDULES, SimSpec, TextSpec, Xfail};
use super::source::{ExpandedText, Fault, Source, suggest};
use super::{golden, inputs, results};
use std::ops::Range;

/// The facts that `expect:` can ask for, with their meaning.
pub const FACTS: &[(&str, &str)] = &[
    ("segments", "parts that run one after the other"),
    ("kernels", "kernels that are launched"),
    ("views", "parts that lie in memory of what they read"),
    ("joined", "tensors of which kernels write the parts where they lie"),
    ("copies", "tensors that are copied between kernels, or into results"),
    ("aliases", "results that lie in memory of an argument, or of another result"),
    ("library", "operations that a library of the device computes, since no kernel does"),
    ("host", "operations that the host computes, since no kernel does"),
    ("scheduler", "name of the heuristic that took the fusion, if that is one kernel"),
    ("index", "bits of that kernel's index type"),
    ("vector", "its widest vector access in elements"),
    ("shared", "its shared memory of a block in bytes"),
    ("barriers", "block barriers in its text"),
    ("threads", "threads of a block at launch"),
    ("blocks", "blocks of the grid at launch"),
];

const KEYWORDS: &[&str] = &[
    "inputs", "check", "outputs", "values", "same-as", "expect", "error", "text", "schedule", "kernel", "sim", "perf",
    "about", "xfail",
];

/// A directive that was found but not read.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) keyword: &'static str,
    /// Byte range of what follows the colon.
    pub(crate) body: Range<usize>,
    /// Whether the line holds nothing else.
    pub(crate) alone: bool,
}

/// Finds the directive of a line, if it has one.
pub(crate) fn find(offset: usize, line: &str) -> Option<Result<Raw, Fault>> {
    let at = line.find(';')?;
    let comment = &line[at + 1..];
    let lead = comment.len() - comment.trim_start().len();
    let text = &comment[lead..];
    let len = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')).count();
    let word = &text[..len];
    let form = text[len..].chars().next();
    let is_xfail = word == "xfail" && form == Some('(');
    if len == 0 || comment.starts_with(';') || !(is_xfail || form == Some(':')) {
        return None;
    }
    let start = offset + at + 1 + lead;
    let Some(keyword) = KEYWORDS.iter().copied().find(|k| *k == word) else {
        let fault = Fault::directive(start, format!("unknown directive `{word}:`"));
        let hint = suggest(word, KEYWORDS.iter().copied());
        return Some(Err(fault.note(format!("{hint} (begin a plain comment that has a colon with `;;`)"))));
    };
    let body = start + len + 1..offset + line.len();
    Some(Ok(Raw { keyword, body, alone: line[..at].trim().is_empty() }))
}

/// Reads one substituted directive into the case.
pub(crate) fn read(case: &mut Case, raw: &Raw, text: &ExpandedText, source: &Source) -> Result<(), Fault> {
    let line = source.line(raw.body.start);
    let mut cursor = Cursor::new(text);
    let c = &mut cursor;
    match raw.keyword {
        "inputs" => inputs::read(c, &mut case.inputs)?,
        "check" => comma_separated(c, |c| read_check(case, c))?,
        "expect" => comma_separated(c, |c| read_expect(c, line).map(|expect| case.expects.push(expect)))?,
        "outputs" => results::read_outputs(c, line, &mut case.outputs)?,
        "values" => results::read_values(c, line, &mut case.values)?,
        "same-as" => case.same_as = Some(results::read_same_as(c, line)?),
        "about" => match c.line() {
            "" => return Err(c.fault("expected the reason of this case")),
            reason => case.about = reason.to_string(),
        },
        "error" => {
            let on = (!raw.alone).then_some(line);
            comma_separated(c, |c| read_error(c, on, line).map(|error| refuse(case, error)))?;
        }
        "text" => {
            let mut stage = "cuda".to_string();
            comma_separated(c, |c| read_text(c, &mut stage, line).map(|text| case.texts.push(text)))?;
        }
        "schedule" | "kernel" => golden::read(case, raw, c, source)?,
        "sim" => comma_separated(c, |c| read_sim(&mut case.sim, c))?,
        "perf" => {
            let perf = case.perf.get_or_insert_default();
            comma_separated(c, |c| read_perf(perf, c))?;
        }
        _ => case.xfail = Some(read_xfail(c)?),
    }
    if c.at_end() { Ok(()) } else { Err(c.fault("unexpected text after the directive")) }
}

pub(crate) fn comma_separated<'a>(
    c: &mut Cursor<'a>,
    mut item: impl FnMut(&mut Cursor<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    loop {
        item(c)?;
        if !c.take(",") {
            return Ok(());
        }
    }
}

/// Adds a refusal.
fn refuse(case: &mut Case, error: ErrorSpec) {
    match &mut case.ends {
        CaseEnd::Refused(all) => all.push(error),
        CaseEnd::Runs => case.ends = CaseEnd::Refused(vec![error]),
    }
}

fn read_check(case: &mut Case, c: &mut Cursor<'_>) -> Result<(), Fault> {
    let at = c.here();
    if c.take("exact") {
        case.check.exact = true;
        return Ok(());
    }
    let slot = if c.take("rel") {
        &mut case.check.rel
    } else if c.take("abs") {
        &mut case.check.abs
    } else {
        return Err(c.fault("expected `rel N`, `abs N` or `exact`"));
    };
    let value = c.real()?;
    if !(value.is_finite() && value >= 0.0) {
        return Err(Fault::directive(at, "a tolerance is a finite number that is not negative"));
    }
    *slot = Some(Real::new(value));
    Ok(())
}

fn read_expect(c: &mut Cursor<'_>, line: usize) -> Result<Expect, Fault> {
    let at = c.here();
    let fact = c.word("the name of a fact")?.to_string();
    if !FACTS.iter().any(|(name, _)| *name == fact) {
        let hint = match fact.as_str() {
            "unsupported" => "what no kernel computes runs on the host: `expect: host = 1`".into(),
            _ => suggest(&fact, FACTS.iter().map(|(name, _)| *name)),
        };
        return Err(Fault::directive(at, format!("unknown fact `{fact}`")).note(hint));
    }
    use Relation::{Eq, Ge, Gt, In, Le, Lt, Ne};
    let relations = [("==", Eq), ("!=", Ne), ("<=", Le), (">=", Ge), ("=", Eq), ("<", Lt), (">", Gt), ("in", In)];
    let Some((_, op)) = relations.into_iter().find(|(token, _)| c.take(token)) else {
        return Err(c.fault("expected a relation: = != < <= > >= or `in (...)`"));
    };
    let value = |c: &mut Cursor<'_>| c.bare("a value").map(String::from);
    let values = if op == In { c.list("(", ")", value)? } else { vec![value(c)?] };
    if matches!(op, Lt | Le | Gt | Ge) && values[0].parse::<i64>().is_err() {
        return Err(Fault::directive(at, format!("`{fact}` is compared with `{}`, which is no integer", values[0])));
    }
    Ok(Expect { line, fact, op, values })
}

fn read_error(c: &mut Cursor<'_>, line: Option<usize>, at_line: usize) -> Result<ErrorSpec, Fault> {
    let code = read_code(c)?;
    let contains = if c.peek() == Some('"') { c.string()? } else { String::new() };
    Ok(ErrorSpec { code, contains, line, at: at_line })
}

fn read_code(c: &mut Cursor<'_>) -> Result<String, Fault> {
    let at = c.here();
    let code = c.word("a diagnostic code such as E0203")?.to_string();
    match engine::diag::CODES.iter().any(|info| info.code.0 == code) {
        true => Ok(code),
        false => Err(Fault::directive(at, format!("`{code}` is not a diagnostic code"))
            .note("codes are listed by `harness explain`")),
    }
}

fn read_text(c: &mut Cursor<'_>, stage: &mut String, line: usize) -> Result<TextSpec, Fault> {
    for name in ["cuda", "kernel", "schedule"] {
        if c.take(name) {
            *stage = name.to_string();
        }
    }
    let present = if c.take("has") {
        true
    } else if c.take("lacks") {
        false
    } else {
        return Err(
            c.fault("expected `has \"...\"` or `lacks \"...\"`, after `cuda`, `kernel` or `schedule` if wanted")
        );
    };
    Ok(TextSpec { line, stage: stage.clone(), present, text: c.string()? })
}

fn read_sim(sim: &mut SimSpec, c: &mut Cursor<'_>) -> Result<(), Fault> {
    if c.take("schedules") {
        sim.schedules = c.list("(", ")", |c| {
            let at = c.here();
            let name = c.word("the name of a schedule")?;
            match SCHEDULES.contains(&name) {
                true => Ok(name.to_string()),
                false => Err(Fault::directive(at, format!("unknown schedule `{name}`"))
                    .note(suggest(name, SCHEDULES.into_iter()))),
            }
        })?;
        return if sim.schedules.is_empty() { Err(c.fault("at least one schedule is needed")) } else { Ok(()) };
    }
    if c.take("seeds") {
        let at = c.here();
        sim.seeds = match c.int()? {
            n @ 1..=1000 => n as u32,
            n => return Err(Fault::directive(at, format!("seeds must be 1 to 1000, not {n}"))),
        };
        return Ok(());
    }
    Err(c.fault("expected `schedules (...)` or `seeds N`"))
}

fn read_perf(perf: &mut PerfSpec, c: &mut Cursor<'_>) -> Result<(), Fault> {
    if c.take("bytes") {
        loop {
            c.take("%");
            perf.bytes.push(c.word("the name of a tensor")?.to_string());
            if !c.take("+") {
                return Ok(());
            }
        }
    }
    if c.take("goal") {
        c.expect("dram")?;
        let at = c.here();
        let share = c.real()?;
        if !(0.0..=2.0).contains(&share) {
            return Err(Fault::directive(at, "a goal is a share of the copy bandwidth, 0 to 2"));
        }
        perf.dram = Some(Real::new(share));
        return Ok(());
    }
    Err(c.fault("expected `bytes a + b` or `goal dram 0.9`"))
}

fn read_xfail(c: &mut Cursor<'_>) -> Result<Xfail, Fault> {
    let at = c.here();
    let mut xfail = Xfail::default();
    loop {
        let key_at = c.here();
        let slot = match c.word("`reason`, `issue` or `until`")? {
            "reason" => &mut xfail.reason,
            "issue" => &mut xfail.issue,
            "until" => &mut xfail.until,
            other => return Err(Fault::directive(key_at, format!("unknown field `{other}`: reason, issue, until"))),
        };
        c.expect("=")?;
        *slot = c.string()?;
        if c.take(")") {
            break;
        }
        c.expect(",")?;
    }
    if xfail.reason.is_empty() {
        return Err(Fault::directive(at, "an expected failure needs its reason: xfail(reason = \"...\")"));
    }
    if !xfail.until.is_empty() && !is_date(&xfail.until) {
        return Err(Fault::directive(at, format!("`{}` is not a date of the form 2030-01-31", xfail.until)));
    }
    Ok(xfail)
}

fn is_date(text: &str) -> bool {
    let fields: Vec<&str> = text.split('-').collect();
    let [year, month, day] = fields[..] else { return false };
    let in_range = |text: &str, len, max| text.len() == len && text.parse().is_ok_and(|v: u32| (1..=max).contains(&v));
    in_range(year, 4, 9999) && in_range(month, 2, 12) && in_range(day, 2, 31)
}
