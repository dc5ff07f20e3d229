//! Printed kernels to machine code, each compiled once by all processes that
//! share a [`CodeStore`], and in other processes where there are [`CompilerProcesses`].
//!
//! Invariant: with a store and without one, here and there, the same bytes and the same log. The
//! key is made of everything that decides them: the build of NVRTC, its options
//! in their order (the architecture is among them), the program's name, the text.

use super::code_store::{CodeCounts, CodeStore, Look};
use super::nvrtc::{CompileText, Cubin, Nvrtc, NvrtcOptions};
use super::print::{CudaSource, emit};
use super::processes::{Beside, CompilerProcesses};
use crate::compile::Plan;
use crate::diag::Result;
use crate::options::{CompileCx, DeviceDesc, NoTrace, Options, Phase};
use crate::program::Program;
use crate::util::{Hash128, StableHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The name of the spans of phase `Codegen` in which the store is used, and
/// perhaps another process waited for.
const CODE_STORE: &str = "code store";

/// Counts with the format of entries and with whatever else changes their meaning.
const FORMAT: &str = "fusewright code 2";

/// A compiled kernel, and how it was had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledCubin {
    /// The machine code.
    pub cubin: Cubin,
    /// Whether it was found in the store, so that no time went into it here.
    pub found: bool,
}

/// NVRTC, with a store or without, here or in other processes.
#[derive(Debug)]
pub struct Compiler {
    nvrtc: Nvrtc,
    beside: Option<Beside>,
    shared: Option<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: CodeStore,
    /// The build of the library; or why it is not known, so that nothing is shared.
    build: std::result::Result<Hash128, String>,
    /// Whether what is stored is not taken.
    anew: AtomicBool,
}

impl Compiler {
    /// Compiles everything itself.
    pub fn new(nvrtc: Nvrtc) -> Self {
        Self { nvrtc, beside: None, shared: None }
    }

    /// From now on, leaves the compiling to processes that have the same build of NVRTC.
    pub fn leave_to(&mut self, processes: Arc<CompilerProcesses>) {
        self.beside = Some(Beside::new(processes, &self.nvrtc));
    }

    /// From now on, looks into a store first, and adds to it.
    pub fn share(&mut self, store: CodeStore) {
        let build = self.nvrtc.fingerprint();
        let build = build.map_err(|error| format!("the build of {} is unknown: {error}", self.nvrtc));
        self.shared = Some(Shared { store, build, anew: AtomicBool::new(false) });
    }

    /// Whether kernels are compiled although their code is stored, until further
    /// notice. A second opinion on a failure must not rest on the code of the first;
    /// where it differs, it takes its place.
    pub fn anew(&self, anew: bool) {
        if let Some(shared) = &self.shared {
            shared.anew.store(anew, Ordering::Relaxed);
        }
    }

    /// The library itself, for texts that are no printed kernels.
    pub fn nvrtc(&self) -> &Nvrtc {
        &self.nvrtc
    }

    /// What was shared so far; none without a store.
    pub fn counts(&self) -> Option<CodeCounts> {
        self.shared.as_ref().map(|shared| shared.store.counts())
    }

    /// Why the first of the kernels that were not shared was not.
    pub fn store_error(&self) -> Option<String> {
        self.shared.as_ref()?.store.error()
    }

    /// The text of a plan's kernel and its machine code, as a device loads it; what is not found is
    /// compiled by `other`, where one is given.
    pub fn compile_plan(
        &self,
        cx: &CompileCx<'_>,
        other: Option<&dyn CompileText>,
        plan: &Plan,
    ) -> Result<(CudaSource, CompiledCubin)> {
        let id = plan.trace_id();
        let source = cx.span(Phase::Codegen, "cuda", id, || emit(plan.kernel()));
        let compiled = self.compile_with(cx, other, &source, &NvrtcOptions::of(cx), id)?;
        Ok((source, compiled))
    }

    /// Machine code of a program's kernels, in the order of their first launches: what loading the
    /// program compiles, on as many threads, without a device.
    pub fn compile_program(&self, cx: &CompileCx<'_>, program: &Program) -> Result<Vec<CompiledCubin>> {
        let compile = |plan: &Plan| self.compile_plan(cx, None, plan).map(|(_, compiled)| compiled);
        program.for_kernels(|| cx.options.threads(), &|_| true, &compile)
    }

    /// Compiles a kernel, or finds it compiled. Fails as [`Nvrtc::compile`] does;
    /// failures are not stored. `id` is that of the spans.
    pub fn compile(
        &self,
        cx: &CompileCx<'_>,
        source: &CudaSource,
        options: &NvrtcOptions,
        id: u64,
    ) -> Result<CompiledCubin> {
        self.compile_with(cx, None, source, options, id)
    }

    /// The same. What is not found is compiled by `other`, where one is given: the
    /// same build of the library, in another process.
    pub fn compile_with(
        &self,
        cx: &CompileCx<'_>,
        other: Option<&dyn CompileText>,
        source: &CudaSource,
        options: &NvrtcOptions,
        id: u64,
    ) -> Result<CompiledCubin> {
        self.compile_named(cx, other, (&source.entry, &source.text()), options, id)
    }

    /// Compiles a text, for which its name stands, or finds it compiled.
    fn compile_named(
        &self,
        cx: &CompileCx<'_>,
        other: Option<&dyn CompileText>,
        (name, text): (&str, &str),
        options: &NvrtcOptions,
        id: u64,
    ) -> Result<CompiledCubin> {
        let own = || {
            let compile = || self.compile_anywhere(other, text, name, options);
            Ok(CompiledCubin { cubin: cx.span(Phase::Codegen, name, id, compile)?, found: false })
        };
        let Some(Shared { store, build, anew }) = &self.shared else { return own() };
        let build = match build {
            Ok(build) => *build,
            Err(why) => {
                store.not_stored(why);
                return own();
            }
        };
        let key = key(build, &options.flags(self.nvrtc.version()), name, text);
        if anew.load(Ordering::Relaxed) {
            let compiled = own()?;
            cx.span(Phase::Codegen, CODE_STORE, id, || store.renew(key, &compiled.cubin));
            return Ok(compiled);
        }
        match cx.span(Phase::Codegen, CODE_STORE, id, || store.look(key)) {
            Look::Found(cubin) => Ok(CompiledCubin { cubin, found: true }),
            Look::Absent(claim) => {
                let compiled = own()?;
                cx.span(Phase::Codegen, CODE_STORE, id, || claim.store(&compiled.cubin));
                Ok(compiled)
            }
        }
    }

    /// Compiles a text by `other`, where one is given, in another process, where there are some,
    /// or here.
    pub(super) fn compile_anywhere(
        &self,
        other: Option<&dyn CompileText>,
        text: &str,
        name: &str,
        options: &NvrtcOptions,
    ) -> Result<Cubin> {
        match (other, &self.beside) {
            (Some(other), _) => other.compile_text(text, name, options),
            (None, Some(beside)) => beside.compile(&self.nvrtc, text, name, options),
            (None, None) => self.nvrtc.compile_text(text, name, options),
        }
    }
}

/// Texts that are no printed kernels are stored as those are.
pub struct OtherTexts<'a> {
    /// Who compiles them.
    pub compiler: &'a Compiler,
    /// For which device.
    pub device: &'a DeviceDesc,
}

impl CompileText for OtherTexts<'_> {
    fn compile_text(&self, text: &str, name: &str, options: &NvrtcOptions) -> Result<Cubin> {
        let cx = CompileCx { options: &Options::default(), device: self.device, trace: &NoTrace };
        self.compiler.compile_named(&cx, None, (name, text), options, 0).map(|compiled| compiled.cubin)
    }
}

/// What a kernel's code is stored under.
fn key(build: Hash128, flags: &[String], name: &str, text: &str) -> Hash128 {
    let mut hasher = StableHasher::new();
    hasher.write_bytes(FORMAT.as_bytes());
    hasher.write_bytes(&build.0.to_le_bytes());
    hasher.write_bytes(&(flags.len() as u64).to_le_bytes());
    flags.iter().for_each(|flag| hasher.write_bytes(flag.as_bytes()));
    hasher.write_bytes(name.as_bytes());
    hasher.write_bytes(text.as_bytes());
    hasher.finish128()
}

#[cfg(test)]
mod tests {
    use super::super::code_store::tests::folder::Folder;
    use super::super::tests::nvrtc;
    use super::super::{emit, samples};
    use super::*;
    use crate::options::{DeviceDesc, NoTrace, Options, Trace};
    use std::sync::Mutex;

    fn key_of(build: u128, flags: &[&str], name: &str, text: &str) -> Hash128 {
        let flags: Vec<String> = flags.iter().map(|flag| flag.to_string()).collect();
        key(Hash128(build), &flags, name, text)
    }

    #[test]
    fn every_part_of_a_key_counts() {
        let options = NvrtcOptions::new((9, 0), true);
        let with = |change: &dyn Fn(&mut NvrtcOptions)| {
            let mut other = options.clone();
            change(&mut other);
            key(Hash128(1), &other.flags((13, 0)), "k", "text")
        };
        let keys = [
            key(Hash128(1), &options.flags((13, 0)), "k", "text"),
            key(Hash128(2), &options.flags((13, 0)), "k", "text"),
            key(Hash128(1), &options.flags((12, 0)), "k", "text"),
            key(Hash128(1), &options.flags((13, 0)), "l", "text"),
            key(Hash128(1), &options.flags((13, 0)), "k", "texu"),
            key(Hash128(1), &options.flags((13, 0)), "kt", "ext"),
            with(&|other| other.arch = "sm_90".into()),
            with(&|other| other.fmad = false),
            with(&|other| other.line_info = true),
            key_of(1, &["-a", "-b"], "k", "text"),
            key_of(1, &["-b", "-a"], "k", "text"),
            key_of(1, &["-a-b"], "k", "text"),
            key_of(1, &["-a"], "-b", "text"),
            key_of(1, &[], "-a", "text"),
        ];
        let distinct: std::collections::BTreeSet<Hash128> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], with(&|_| {}));
    }

    /// Names of spans.
    #[derive(Default)]
    struct Names(Mutex<Vec<String>>);

    impl Trace for Names {
        fn enter(&self, _phase: Phase, name: &str, _id: u64) {
            self.0.lock().unwrap().push(name.into());
        }
        fn exit(&self, _phase: Phase) {}
    }

    /// A compiler with a store in that folder.
    fn compiler(folder: &Folder) -> Compiler {
        let mut compiler = Compiler::new(nvrtc());
        compiler.share(folder.store());
        compiler
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_a_hit_is_the_same_as_a_miss_and_as_no_store() {
        let folder = Folder::new("compiler");
        let (first, second) = (compiler(&folder), compiler(&folder));
        let (options, device, names) = (Options::default(), DeviceDesc::h200(), Names::default());
        let cx = CompileCx { options: &options, device: &device, trace: &names };
        let source = emit(&samples::vector_add());
        let flags = NvrtcOptions::new((9, 0), true);
        let plain = first.nvrtc().compile(&source, &flags).unwrap();
        // Not printed where they differ: the code is long.
        let check = |compiler: &Compiler, found: bool, spans: &[&str]| {
            let compiled = compiler.compile(&cx, &source, &flags, 1).unwrap();
            assert_eq!((compiled.found, &compiled.cubin.log), (found, &plain.log));
            assert!(compiled.cubin == plain);
            assert_eq!(std::mem::take(&mut *names.0.lock().unwrap()), spans);
        };
        check(&first, false, &[CODE_STORE, &source.entry, CODE_STORE]);
        check(&second, true, &[CODE_STORE]);
        let lines = NvrtcOptions { line_info: true, ..flags.clone() };
        assert!(second.compile(&cx, &source, &lines, 1).unwrap().cubin.bytes != plain.bytes);
        names.0.lock().unwrap().clear();
        second.anew(true);
        check(&second, false, &[&source.entry, CODE_STORE]);
        second.anew(false);
        check(&second, true, &[CODE_STORE]);
        let counts = second.counts().unwrap();
        assert_eq!((counts.hits, counts.misses, counts.changed, second.store_error()), (2, 2, 0, None));
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_failures_are_not_stored() {
        let folder = Folder::new("compiler-fails");
        let compiler = compiler(&folder);
        let (options, device) = (Options::default(), DeviceDesc::h200());
        let cx = CompileCx { options: &options, device: &device, trace: &NoTrace };
        let mut source = emit(&samples::vector_add());
        source.kernel.push_str("this is no C++");
        let flags = NvrtcOptions::new((9, 0), true);
        let errors: Vec<String> =
            (0..2).map(|_| compiler.compile(&cx, &source, &flags, 1).unwrap_err().to_string()).collect();
        assert_eq!(errors[0], errors[1]);
        let counts = compiler.counts().unwrap();
        assert_eq!((counts.hits, counts.misses), (0, 2));
        assert!(folder.files().is_empty(), "{:?}", folder.files());
    }

    #[test]
    #[ignore = "needs NVRTC"]
    fn needs_nvrtc_builds_of_the_library_are_told_apart_wherever_the_loader_found_them() {
        let nvrtc = nvrtc();
        let build = nvrtc.fingerprint().unwrap();
        assert_eq!(nvrtc.fingerprint().unwrap(), build);
        assert_eq!(nvrtc.loaded_file().unwrap().canonicalize().unwrap(), nvrtc.path().canonicalize().unwrap());
    }
}
