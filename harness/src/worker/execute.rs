//! One case from text to outcome.

use super::args::Draws;
use super::device::Device;
use super::jitter::Jitter;
use super::results::Results;
use super::spans::Spans;
use super::watch::{SeenMemory, Watch};
use super::{args, bench, compare, facts, fault, golden, pipeline, refusal, segment_graph, variation};
use crate::case::{Case, SimSpec};
use crate::crumb::{CrumbWriter, Own};
use crate::outcome::{Digest, HeldTo, Numerics, Outcome, PassedBy, Variation, Verdict};
use crate::proto::Mode;
use engine::diag::{Diagnostic, Result, code};
use engine::fusion::{Bindings, Fusion};
use engine::options::{DeviceDesc, NoTrace, Phase, SimOptions, SimSchedule};
use engine::program::Program;
use engine::refeval::Evaluation;
use engine::runtime::{BenchOptions, Hints, Ran, RunOutcome, Session};
use engine::tensor::{Arg, HostTensor};
use engine::util::Hash128;
use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

/// What a case runs with.
pub(crate) struct Cx<'a> {
    pub(crate) device: &'a Device,
    pub(crate) crumbs: &'a CrumbWriter,
    /// Retries and repetitions of the case before this one.
    pub(crate) attempt: u32,
    pub(crate) repeat: u32,
    pub(crate) seed: u64,
    pub(crate) mode: Mode,
    pub(crate) bless: bool,
    /// Of outputs that passed before.
    pub(crate) known: Option<Digest>,
    /// What earlier cases drew.
    pub(crate) draws: &'a Draws,
    /// Whether the case is run twice and its results are compared.
    pub(crate) twice: bool,
    /// Whether what the host would compute is refused.
    pub(crate) kernels_only: bool,
    pub(crate) socket: &'a UnixStream,
    pub(crate) past: &'a fault::FaultPast,
    /// Seed of disturbed timing.
    pub(crate) jitter: Option<u64>,
    /// When the worker had the case.
    pub(crate) began: Instant,
    /// The device's memory when the case before was over.
    pub(crate) memory: &'a Cell<Option<SeenMemory>>,
}

impl<'a> Cx<'a> {
    fn scene(&self, case: &Case) -> fault::Scene<'a> {
        let facts = fault::FaultFacts {
            seed: self.seed,
            case_id: case.id.clone(),
            attempt: self.attempt,
            repeat: self.repeat,
            position: self.past.cases_run,
            ran: self.past.faults.clone(),
            sharers: self.past.sharers,
        };
        fault::Scene { crumbs: self.crumbs, socket: self.socket, device: self.device, facts, tainted: Cell::new(false) }
    }
}

/// Runs a case. Never fails itself: whatever goes wrong is the outcome. Also
/// says whether the device may be broken, so that no later case may use it.
pub(crate) fn run(case: &Case, cx: &Cx<'_>) -> (Outcome, bool) {
    let watch = Watch::start(cx.device, cx.past.sharers, cx.memory.take());
    let (mut outcome, tainted) = run_watched(case, cx);
    let launched = case.fault.is_some() || outcome.phases.contains_key(Phase::Launch.name());
    let left_behind = watch.end(&mut outcome, launched);
    cx.memory.set(left_behind.memory);
    (outcome, tainted || left_behind.tainted)
}

fn run_watched(case: &Case, cx: &Cx<'_>) -> (Outcome, bool) {
    if let Some(fault) = &case.fault {
        return fault::commit(fault, &cx.scene(case));
    }
    let spans = Spans::new(cx.crumbs, Jitter::new(cx.jitter, &case.id), cx.began);
    let result = evaluate(case, cx, &spans);
    spans.report();
    let tainted = result.as_ref().is_err_and(|diagnostics| refusal::taints(diagnostics));
    let mut outcome = match (result, case.refusals().is_empty()) {
        (Ok(outcome), true) => outcome,
        (Ok(_), false) => {
            let wanted: Vec<&str> = case.refusals().iter().map(|spec| spec.code.as_str()).collect();
            let compiled = matches!(cx.device, Device::Session { .. });
            let early = |code: &&str| code.starts_with('E') && !refusal::is_of_schedules(code);
            match compiled || wanted.iter().any(early) {
                true => Outcome::fail("fail.refusal", format!("expected {}, but the case ran", wanted.join(", "))),
                false => Outcome::of(Verdict::Skip, "skip.requires.device", "is refused only when it is compiled"),
            }
        }
        (Err(diagnostics), true) => refusal::unexpected(case, &diagnostics),
        (Err(diagnostics), false) => refusal::expected(case, &diagnostics, cx.bless),
    };
    outcome.phases = spans.phases();
    outcome.code = spans.code(cx.device);
    (outcome, tainted)
}

#[expect(clippy::boxed_local, reason = "errors of the engine come boxed")]
fn one(error: Box<Diagnostic>) -> Vec<Diagnostic> {
    vec![*error]
}

fn evaluate(case: &Case, cx: &Cx<'_>, spans: &Spans<'_>) -> Result<Outcome, Vec<Diagnostic>> {
    let fusion = spans.engine(Phase::Parse, &case.name, || pipeline::parse(case))?;
    let inputs = || {
        let mut args = args::build(&fusion, case, cx.draws)?;
        if cx.attempt > 0 {
            args::make_all(&mut args);
        }
        Ok(args)
    };
    let args = spans.own(Own::Inputs, "inputs", inputs).map_err(one)?;
    // Where nothing runs beside the reference, it is what is asked.
    let known = cx.known.filter(|_| matches!(cx.device, Device::Session { .. }));
    let mut judge = Judge { case, fusion: &fusion, args: &args, draws: cx.draws, known, wanted: None, spans };
    // Before anything is compiled: what the reference refuses needs no kernel.
    if known.is_none()
        && !trusts()
        && let Some(failed) = judge.evaluate()?
    {
        return Ok(failed);
    }
    let Device::Session { session, .. } = cx.device else {
        // Nothing ran beside the reference, so there are no figures.
        return Ok(Outcome::pass_by(PassedBy::Reference));
    };
    let own = pipeline::scheduled(case, session);
    let session = own.as_ref().unwrap_or(session);
    if cx.kernels_only {
        let (metas, alignments) = args::metas(&fusion, case).map_err(one)?;
        let program = session.program(&fusion, &metas, &alignments, spans).map_err(one)?;
        program.check_kernels_only().map_err(one)?;
    }
    let runs = runs(&judge, cx, session)?;
    let mut outcome = judge.outcome(&runs)?;
    if cx.twice {
        outcome.variation = Some(spans.own(Own::Compare, "runs", || judge.variation(&runs)));
    }
    // The program that ran: it also depends on how the arguments are aligned.
    if let Some((_, run)) = runs.first() {
        outcome.rests_on = Some(ran_as(run.program()));
        spans.own(Own::Report, "expectations", || {
            judge.expectations(run.program(), session.device(), cx.bless, &mut outcome)
        });
    }
    if cx.mode == Mode::Bench && outcome.verdict == Verdict::Pass {
        let runs: Vec<&Ran> = runs.iter().map(|(_, run)| run).collect();
        spans
            .own(Own::Bench, "bench", || bench::measure(case, &fusion, &args, session, &runs, &mut outcome))
            .map_err(one)?;
    }
    cx.draws.give_back(&fusion, case, args);
    Ok(outcome)
}

/// Whether outputs pass as they are, to try what judges times: never but in builds for that.
fn trusts() -> bool {
    #[cfg(not(feature = "planted"))]
    return false;
    #[cfg(feature = "planted")]
    super::planted_times::trusts()
}

/// A run with the words that tell it from others of its case.
type NamedRun = (String, Ran);

/// Runs a case under each schedule of the simulator, or on the GPU; with `twice` once more. Large results that passed before
/// stay on a GPU, unless a run of the case gave others: then there are all, to be compared with each other.
fn runs(judge: &Judge<'_>, cx: &Cx<'_>, session: &Session) -> Result<Vec<NamedRun>, Vec<Diagnostic>> {
    let Judge { case, fusion, args, spans, .. } = *judge;
    let mut runs = Vec::new();
    let mut add = |what: String, result: Result<Ran>| -> Result<(), Vec<Diagnostic>> {
        #[cfg_attr(not(feature = "planted"), expect(unused_mut, reason = "planted faults spoil results"))]
        let mut run = result.map_err(|error| one(error.note(format!("this happened {what}"))))?;
        #[cfg(feature = "planted")]
        if let Ran::Brought(run) = &mut run {
            super::planted::results(case, &mut run.outputs);
        }
        runs.push((what, run));
        Ok(())
    };
    if session.is_simulator() {
        let threads = cx.device.threads();
        let schedules = schedules(&case.sim, case, cx.seed, threads).map_err(one)?;
        let options: Vec<SimOptions> = schedules.iter().map(|(_, options)| *options).collect();
        for ((name, _), result) in schedules.iter().zip(session.run_many(fusion, args, &options, spans)) {
            add(format!("under schedule {name}"), result.map(Ran::Brought))?;
        }
        // The same schedule must give the same bits; the others show what depends on the order of threads.
        let again =
            if cx.twice { session.run_many(fusion, args, &options[..options.len().min(1)], spans) } else { Vec::new() };
        for result in again {
            add("under the first schedule again".into(), result.map(Ran::Brought))?;
        }
    } else {
        // Who blesses sees what is there.
        let results = judge.known.filter(|_| !cx.bless).map(|known| Hash128(known.0));
        let hints = Hints { results };
        for what in ["on the GPU", "on the GPU a second time"].into_iter().take(1 + usize::from(cx.twice)) {
            add(what.into(), session.run_knowing(fusion, args, &hints, spans))?;
        }
    }
    all_or_none(runs, args, spans)
}

/// The same runs, of which either all are known or all have results on the host.
fn all_or_none(runs: Vec<NamedRun>, args: &[Arg], spans: &Spans<'_>) -> Result<Vec<NamedRun>, Vec<Diagnostic>> {
    let brought = runs.iter().filter(|(_, run)| run.brought().is_some()).count();
    if brought == 0 || brought == runs.len() {
        return Ok(runs);
    }
    let bring = |(what, run): NamedRun| Ok((what, Ran::Brought(run.bring(args).map_err(one)?)));
    spans.engine(Phase::Download, "results", || runs.into_iter().map(bring).collect())
}

/// Who computed what a case returns.
fn ran_as(program: &Program) -> PassedBy {
    let (host, kernels) = (program.on_host().count(), program.launches().count());
    let launched = program.launches().any(|launch| !launch.launch.is_empty());
    let library = program.library_calls().next().is_some();
    match (kernels, host) {
        (_, 0) if launched && library => PassedBy::KernelsAndLibrary,
        (_, 0) if library => PassedBy::Library,
        (_, 0) if launched => PassedBy::Kernel,
        (0, 0) => PassedBy::Copies,
        (_, 0) => PassedBy::LaunchedNothing,
        (0, _) if library => PassedBy::LibraryAndHost,
        (0, _) => PassedBy::Host,
        _ => PassedBy::KernelsAndHost,
    }
}

/// The schedules of a case with their options.
fn schedules(spec: &SimSpec, case: &Case, seed: u64, threads: u32) -> Result<Vec<(String, SimOptions)>> {
    let mut list = Vec::new();
    for name in &spec.schedules {
        let schedule = match name.as_str() {
            "random" => SimSchedule::Random,
            "pct" => SimSchedule::Pct(3),
            "adversary" => SimSchedule::Adversary,
            "lockstep" => SimSchedule::Lockstep,
            other => return Err(Diagnostic::bug(format!("a case asks for the schedule `{other}`, which none is"))),
        };
        for k in 0..u64::from(spec.seeds_of(name)) {
            let key = u64::from(crc32fast::hash(format!("{}/{name}/{k}", case.id).as_bytes()));
            let options = SimOptions {
                schedule,
                seed: args::mix(seed ^ args::mix(key)),
                detect: true,
                threads,
                ..SimOptions::default()
            };
            list.push((format!("{name}, seed {:#x}", options.seed), options));
        }
    }
    Ok(list)
}

/// What outputs and plans are held to.
struct Judge<'a> {
    case: &'a Case,
    fusion: &'a Fusion,
    args: &'a [Arg],
    draws: &'a Draws,
    /// Of outputs that passed before.
    known: Option<Digest>,
    /// What the reference says, once it was asked.
    wanted: Option<Evaluation>,
    spans: &'a Spans<'a>,
}

impl Judge<'_> {
    /// Evaluates the reference, and holds it to what the case says of it; the failure if it is not that.
    fn evaluate(&mut self) -> Result<Option<Outcome>, Vec<Diagnostic>> {
        let Self { case, fusion, args, draws, spans, .. } = *self;
        let wanted = spans.own(Own::Reference, "reference", || pipeline::reference(fusion, args)).map_err(one)?;
        let results = Results { case, fusion, args, draws, outputs: &wanted.outputs };
        let wrong = spans.own(Own::Compare, "reference", || results.check())?;
        self.wanted = Some(wanted);
        Ok((!wrong.is_empty()).then(|| Outcome::fail("fail.reference", wrong.join("\n"))))
    }

    /// Holds the outputs of each run to the digest of those that passed before, and where they are others to the
    /// reference. The first failure is the outcome's reason.
    fn outcome(&mut self, runs: &[NamedRun]) -> Result<Outcome, Vec<Diagnostic>> {
        let digest = |(_, run): &NamedRun| Digest(run.digest().0);
        let trusts = trusts();
        let of_runs = || if trusts { Vec::new() } else { runs.iter().map(digest).collect() };
        let digests: Vec<Digest> = self.spans.own(Own::Compare, "digests", of_runs);
        let known = self.known;
        let is_known = |digest: &Digest| known == Some(*digest);
        if self.wanted.is_none()
            && !trusts
            && !digests.iter().all(is_known)
            && let Some(failed) = self.evaluate()?
        {
            return Ok(failed);
        }
        let bindings = engine::fusion::bind_args(self.fusion, self.args).map_err(one)?;
        let mut outcome = Outcome {
            out_digest: digests.first().copied(),
            held_to: (!trusts).then(|| if self.wanted.is_some() { HeldTo::Reference } else { HeldTo::Digest }),
            numerics: self.wanted.as_ref().map(|_| Numerics::default()),
            ..Outcome::pass_by(PassedBy::Kernel)
        };
        for ((what, run), digest) in runs.iter().zip(&digests) {
            // What was not brought has the known digest.
            let wanted = self.wanted.as_ref().filter(|_| !is_known(digest)).zip(run.brought());
            let complaints = self.spans.own(Own::Compare, what, || {
                let numbers = wanted.zip(outcome.numerics.as_mut());
                let mut complaints = numbers
                    .map_or_else(Vec::new, |((wanted, run), numerics)| self.values(&bindings, run, wanted, numerics));
                complaints.extend(compare::layouts(self.fusion, &bindings, self.args, run));
                complaints
            });
            if !complaints.is_empty() && outcome.verdict == Verdict::Pass {
                let failed = Outcome::fail("fail.numerics", format!("{what}: {}", complaints.join("\n")));
                (outcome.verdict, outcome.outcome, outcome.detail) = (failed.verdict, failed.outcome, failed.detail);
            }
        }
        Ok(outcome)
    }

    /// What is wrong with the elements of one run's outputs and updates.
    fn values(
        &self,
        bindings: &Bindings,
        run: &RunOutcome,
        wanted: &Evaluation,
        numerics: &mut Numerics,
    ) -> Vec<String> {
        let mut complaints = Vec::new();
        let (got, count) = (&run.outputs, wanted.outputs.len());
        if got.len() != count {
            complaints.push(format!("{count} outputs expected, {} given", got.len()));
        }
        for ((output, wanted), got) in self.fusion.outputs.iter().zip(&wanted.outputs).zip(got) {
            let pair = (wanted, got);
            complaints.extend(compare::compare(self.fusion, bindings, *output, pair, &self.case.check, numerics));
        }
        complaints.extend(self.updates(bindings, run, wanted, numerics));
        complaints
    }

    /// What is wrong with the inputs that the fusion updates, as they are after a run.
    fn updates(
        &self,
        bindings: &Bindings,
        run: &RunOutcome,
        wanted: &Evaluation,
        numerics: &mut Numerics,
    ) -> Vec<String> {
        let (wanted, got) = (&wanted.updates, &run.updates);
        if wanted.len() != got.len() {
            return vec![format!("{} updated inputs expected, {} given", wanted.len(), got.len())];
        }
        let mut complaints = Vec::new();
        for ((position, wanted), (at, got)) in wanted.iter().zip(got) {
            let update = self.fusion.updates.iter().find(|update| update.input as usize == *position);
            let (Some(update), true) = (update, position == at) else {
                complaints.push(format!("input {at} is updated, not input {position}"));
                continue;
            };
            let pair = (wanted, got);
            complaints.extend(compare::compare(self.fusion, bindings, update.tensor, pair, &self.case.check, numerics));
            complaints.extend(compare::storage(*position, self.args, got));
        }
        complaints
    }

    /// How alike the runs are: those that are known, all in the same way, are equal.
    fn variation(&self, runs: &[NamedRun]) -> Variation {
        let names: Vec<&str> = self.fusion.outputs.iter().map(|id| self.fusion.tensors[*id].name.as_str()).collect();
        let what: Vec<String> = (0..runs.len()).map(|number| format!("run {} of {}", number + 1, runs.len())).collect();
        let brought = what.iter().zip(runs).filter_map(|(what, (_, run))| Some((what.as_str(), run.brought()?)));
        variation::of_runs(&names, brought.map(|(what, run)| (what, run.outputs.as_slice())))
    }

    fn expectations(&self, program: &Program, device: &DeviceDesc, bless: bool, outcome: &mut Outcome) {
        outcome.facts = facts::gather(program);
        outcome.kernel_crc = facts::kernel_crc(program);
        let (mut broken, rewritten) = facts::check(self.case, &outcome.facts);
        broken.extend(facts::check_texts(self.case, |stage| stage_text(program, stage)));
        let (other, texts) = golden::check(self.case, program, device);
        broken.extend(other);
        if bless {
            outcome.bless = rewritten;
            outcome.bless.extend(texts);
        }
        if !broken.is_empty() && outcome.verdict == Verdict::Pass {
            let failed = Outcome::fail("fail.golden", broken.join("\n"));
            (outcome.verdict, outcome.outcome, outcome.detail) = (failed.verdict, failed.outcome, failed.detail);
        }
    }
}

fn stage_text(program: &Program, stage: &str) -> Option<String> {
    match stage {
        "segments" => Some(program.segments.to_string()),
        "graph" => Some(segment_graph::svg(program)),
        "program" => Some(program.to_string()),
        "kernel" => Some(golden::of_kernels(program, |plan| plan.kernel_text().into())),
        "schedule" => Some(golden::of_kernels(program, golden::schedule_text)),
        "cuda" => Some(golden::of_kernels(program, pipeline::cuda_text)),
        _ => None,
    }
}

/// What `harness show` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Fusion,
    Python,
    Preseg,
    Segments,
    Graph,
    Program,
    Schedule,
    Kernel,
    Cuda,
    Sim,
    Profile,
    Ref,
}

impl Stage {
    pub(crate) const ALL: [(&'static str, Stage); 12] = [
        ("fusion", Stage::Fusion),
        ("python", Stage::Python),
        ("preseg", Stage::Preseg),
        ("segments", Stage::Segments),
        ("graph", Stage::Graph),
        ("program", Stage::Program),
        ("schedule", Stage::Schedule),
        ("kernel", Stage::Kernel),
        ("cuda", Stage::Cuda),
        ("sim", Stage::Sim),
        ("profile", Stage::Profile),
        ("ref", Stage::Ref),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, stage)| *stage == self).map_or("", |(name, _)| name)
    }
}

/// The program of a case.
pub(crate) fn program(case: &Case, session: &Session) -> Result<Arc<Program>, Vec<Diagnostic>> {
    let fusion = pipeline::parse(case)?;
    let (metas, alignments) = args::metas(&fusion, case).map_err(one)?;
    let own = pipeline::scheduled(case, session);
    own.as_ref().unwrap_or(session).program(&fusion, &metas, &alignments, &NoTrace).map_err(one)
}

/// The CRC of the kernels that a case runs, as records have it; nothing where it
/// does not compile, or has none.
pub(crate) fn kernel_crc(case: &Case, session: &Session) -> Option<u32> {
    facts::kernel_crc(&*program(case, session).ok()?)
}

/// The fusion that was read last: cases that differ in their arguments only
/// stand one after the other.
#[derive(Default)]
pub(crate) struct LastRead(Option<(String, Fusion)>);

/// What is refused about a case when it is read and its sizes are known; nothing
/// is evaluated, and no data is made.
pub(crate) fn read(case: &Case, last: &mut LastRead) -> Vec<Diagnostic> {
    let code = code_part(&case.text);
    if last.0.as_ref().is_none_or(|(other, _)| other != code) {
        last.0 = match pipeline::parse(case) {
            Ok(fusion) => Some((code.to_string(), fusion)),
            Err(errors) => return errors,
        };
    }
    let Some((_, fusion)) = &last.0 else { return Vec::new() };
    let bound = args::metas(fusion, case).and_then(|(metas, _)| engine::fusion::bind(fusion, &metas));
    bound.err().map(one).unwrap_or_default()
}

/// A case's text without the comments behind its fusion.
fn code_part(text: &str) -> &str {
    let is_code = |line: &&str| !matches!(line.trim_start().chars().next(), None | Some(';'));
    let behind: usize = text.split_inclusive('\n').rev().take_while(|line| !is_code(line)).map(str::len).sum();
    &text[..text.len() - behind]
}

/// Whether the refusals of [`read`] are those that a case asks for. Codes of
/// what only evaluation, scheduling or launching can tell are left to a run.
pub(crate) fn reads_as_it_says(case: &Case, refused: &[Diagnostic]) -> bool {
    // An index that is out of range is one of the data.
    let of_data = [code::TENSOR_TOO_LARGE.0, code::INDEX.0];
    let later = |code: &str| code.starts_with(['U', 'B']) || of_data.contains(&code) || refusal::is_of_schedules(code);
    if refused.is_empty() {
        return case.refusals().iter().all(|spec| later(&spec.code));
    }
    refusal::are_expected(case, refused)
}

/// What is refused about a case, from its text to its kernels, operations without one
/// included; nothing is launched.
pub(crate) fn examine(case: &Case, session: &Session) -> Vec<Diagnostic> {
    let evaluated = pipeline::parse(case).and_then(|fusion| {
        let args = args::build(&fusion, case, &Draws::default()).map_err(one)?;
        pipeline::reference(&fusion, &args).map_err(one)
    });
    let compiled = evaluated.and_then(|_| program(case, session));
    compiled.and_then(|program| program.check_kernels_only().map_err(one)).err().unwrap_or_default()
}

/// The text of a stage of a case, computed in this process.
pub(crate) fn show(case: &Case, stage: Stage, session: &Session, seed: u64) -> Result<String, Vec<Diagnostic>> {
    let fusion = pipeline::parse(case)?;
    if stage == Stage::Fusion {
        return Ok(pipeline::print(&fusion));
    }
    if stage == Stage::Python {
        return Ok(pydef::print(&fusion));
    }
    if stage == Stage::Preseg {
        let (metas, _) = args::metas(&fusion, case).map_err(one)?;
        let steps = session.presegment(&fusion, &metas, &NoTrace).map_err(one)?;
        let made = steps.iter().map(|(pass, made)| format!("; after {pass}\n{}", pipeline::print(made)));
        return Ok(format!("{}{}", pipeline::print(&fusion), made.collect::<String>()));
    }
    if stage == Stage::Schedule {
        return Ok(golden::of_kernels(&*program(case, session)?, golden::schedule_in_full));
    }
    if !matches!(stage, Stage::Sim | Stage::Profile | Stage::Ref) {
        return Ok(stage_text(&*program(case, session)?, stage.name()).unwrap_or_default());
    }
    let args = args::build(&fusion, case, &Draws::default()).map_err(one)?;
    if stage == Stage::Ref {
        let evaluation = pipeline::reference(&fusion, &args).map_err(one)?;
        return Ok(outputs_text(&fusion, &evaluation.outputs));
    }
    let own = pipeline::scheduled(case, session);
    let session = own.as_ref().unwrap_or(session);
    if stage == Stage::Profile {
        let start = Instant::now();
        let profile = session.profile(&fusion, &args, &BenchOptions::default(), &move || start.elapsed());
        return profile.map(|profile| profile.to_string()).map_err(one);
    }
    let mut text = String::new();
    let list = schedules(&case.sim, case, seed, 0).map_err(one)?;
    let options: Vec<SimOptions> = list.iter().map(|(_, options)| *options).collect();
    for ((name, _), result) in list.iter().zip(session.run_many(&fusion, &args, &options, &NoTrace)) {
        let run = result.map_err(one)?;
        text.push_str(&format!(
            "schedule {name}\n{}{}",
            bench::counters_text(&run),
            outputs_text(&fusion, &run.outputs)
        ));
    }
    Ok(text)
}

/// Each output with its first elements.
fn outputs_text(fusion: &Fusion, outputs: &[HostTensor]) -> String {
    const SHOWN: usize = 16;
    let mut text = String::new();
    for (id, tensor) in fusion.outputs.iter().zip(outputs) {
        let values: Vec<String> = tensor.values().take(SHOWN).map(|value| value.shown(tensor.dtype())).collect();
        let more = if tensor.numel() > SHOWN { format!(", ... {} in all", tensor.numel()) } else { String::new() };
        text.push_str(&format!(
            "%{} {}{:?} = {}{more}\n",
            fusion.tensors[*id].name,
            tensor.dtype(),
            tensor.sizes(),
            values.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Target, read_text};
    use crate::crumb::Page;

    const TEXT: &str = "---\nversion = 1\nsuite = \"JudgeTest\"\nabout = \"why\"\n---\nfusion @twice(%x: f32[?]) {\n  \
                        %0 = add %x, %x\n  return %0\n}\n; inputs: x = normal[50]\n";

    /// What becomes of a case whose outputs are spoilt by `spoil`, where those of this digest passed before.
    fn judged(known: Option<Digest>, spoil: impl Fn(&mut [u8])) -> Outcome {
        let (cases, _) = read_text("judge.fuse", TEXT, Target::Sim);
        let case = cases.first().expect("a case");
        let page = Page::create().expect("a page");
        let crumbs = CrumbWriter::open(page.share().expect("shares")).expect("maps");
        let spans = Spans::new(&crumbs, None, Instant::now());
        let fusion = pipeline::parse(case).expect("parses");
        let draws = Draws::default();
        let args = args::build(&fusion, case, &draws).expect("inputs");
        let session = Session::simulator(DeviceDesc::h200(), SimOptions::default(), Default::default());
        let mut run = session.run(&fusion, &args, &spans).expect("runs");
        spoil(&mut run.outputs[0].data);
        let mut judge = Judge { case, fusion: &fusion, args: &args, draws: &draws, known, wanted: None, spans: &spans };
        if known.is_none() {
            assert_eq!(judge.evaluate().expect("evaluates"), None);
        }
        let outcome = judge.outcome(&[("here".into(), Ran::Brought(run))]).expect("judges");
        let asked = spans.phases().contains_key(Own::Reference.name());
        assert_eq!(asked, outcome.held_to == Some(HeldTo::Reference), "{outcome:?}");
        outcome
    }

    /// A large result that is known is neither brought nor compared; what a second run gave is as much a result as the
    /// first, and who has one that is not known has all.
    #[test]
    #[ignore = "needs a GPU"]
    fn needs_gpu_results_that_passed_are_not_brought() {
        let (cases, _) = read_text("judge.fuse", &TEXT.replace("[50]", "[500000]"), Target::Cuda);
        let case = cases.first().expect("a case");
        let page = Page::create().expect("a page");
        let crumbs = CrumbWriter::open(page.share().expect("shares")).expect("maps");
        let spans = Spans::new(&crumbs, None, Instant::now());
        let fusion = pipeline::parse(case).expect("parses");
        let draws = Draws::default();
        let args = args::build(&fusion, case, &draws).expect("inputs");
        let session = Session::cuda(0, Default::default()).expect("a GPU");
        let run = |results: Option<Digest>| {
            let hints = Hints { results: results.map(|digest| Hash128(digest.0)) };
            ("here".to_string(), session.run_knowing(&fusion, &args, &hints, &spans).expect("runs"))
        };
        let judged = |known: Option<Digest>, runs: &[NamedRun]| {
            let mut judge =
                Judge { case, fusion: &fusion, args: &args, draws: &draws, known, wanted: None, spans: &spans };
            let outcome = judge.outcome(runs).expect("judges");
            (outcome, judge.variation(runs))
        };
        let (first, _) = judged(None, &[run(None)]);
        assert_eq!((first.outcome.as_str(), first.held_to), ("pass", Some(HeldTo::Reference)));
        let known = [run(first.out_digest), run(first.out_digest)];
        assert!(known.iter().all(|(_, run)| run.brought().is_none()));
        let (again, variation) = judged(first.out_digest, &known);
        assert_eq!((again.outcome.as_str(), again.held_to), ("pass", Some(HeldTo::Digest)));
        assert_eq!((again.out_digest, variation.detail.as_str()), (first.out_digest, ""));
        let other = first.out_digest.map(|digest| Digest(!digest.0));
        let unknown = [run(other)];
        assert!(unknown[0].1.brought().is_some());
        assert_eq!(judged(other, &unknown).0.held_to, Some(HeldTo::Reference));
        let mixed = all_or_none(vec![run(first.out_digest), run(other)], &args, &spans).expect("brings");
        assert!(mixed.iter().all(|(_, run)| run.brought().is_some()));
        assert_eq!(judged(first.out_digest, &mixed).0.held_to, Some(HeldTo::Digest));
    }

    #[test]
    fn only_the_bytes_that_passed_need_no_reference() {
        let first = judged(None, |_| ());
        assert_eq!((first.outcome.as_str(), first.held_to), ("pass", Some(HeldTo::Reference)));
        let again = judged(first.out_digest, |_| ());
        assert_eq!((again.outcome.as_str(), again.held_to), ("pass", Some(HeldTo::Digest)));
        assert_eq!((again.out_digest, again.numerics), (first.out_digest, None));
        // Another bit within tolerance passes, and is known from then on; one beyond is found.
        let near = judged(first.out_digest, |bytes| bytes[8] ^= 1);
        assert_eq!((near.outcome.as_str(), near.held_to), ("pass", Some(HeldTo::Reference)));
        assert!(near.out_digest != first.out_digest && near.numerics.is_some());
        for known in [None, first.out_digest, near.out_digest] {
            let wrong = judged(known, |bytes| bytes[11] ^= 0x40);
            assert_eq!((wrong.outcome.as_str(), wrong.held_to), ("fail.numerics", Some(HeldTo::Reference)));
        }
    }
}
